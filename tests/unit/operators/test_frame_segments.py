"""Aggregates of frames survive: by base and deltas, by shard, and after merging.

Method: batches go through an operator that is captured after each of them; whatever is
restored from the segments, at any of the cuts and in any ranges of shards, must finish
as if nothing had happened.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.support.making import node

import millstream as ms
from millstream.columns.kernels import loading
from millstream.config import Config
from millstream.errors import SnapshotError
from millstream.operators.build import TaskContext, build_chain
from millstream.operators.frames.aggregation import FrameAggregateOperator
from millstream.plan.frames import AggregateFrame
from millstream.protocol.ids import Epoch
from millstream.state import frame_codec
from millstream.state.compaction import Merging, merged
from millstream.state.frame_codec import decode_frame, frame_shards
from millstream.state.settings import StateSettings
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.state.base import Segment, ShardRange

SHARDS = 1024
EVERYTHING = (0, SHARDS)
BATCHES = [
    pl.DataFrame({"key": [(i * step) % 97 for i in range(200)], "x": range(200)})
    for step in (1, 5, 7, 11)
]


SUM = pl.col("x").sum().alias("sum")
DISTINCT = pl.col("x").n_unique().alias("distinct")
needs_numba = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)


@pytest.fixture(
    autouse=True,
    params=["grouped", pytest.param("in slots", marks=needs_numba)],
)
def aggregates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test run with both tables behind an aggregate."""
    if request.param == "grouped":
        monkeypatch.setattr(sys.modules[__name__], "AGGREGATES", [SUM, DISTINCT])
    for family in ("index", "scatter"):
        loading.chosen(family, "native" if request.param == "in slots" else "auto")


AGGREGATES = [SUM]


def made(settings: StateSettings | None) -> Any:
    flow = ms.Flow("sums")
    flow.from_frame(BATCHES[0]).group_by("key").agg(*AGGREGATES)
    spec = flow.plan.nodes[-1].spec
    assert isinstance(spec, AggregateFrame)
    context = TaskContext(
        "job", 0, Config(), lambda _sink, _rows: None, settings, clock=ManualClock()
    )
    (operator,) = build_chain([node(spec)], context)
    return operator


def finished(operator: Any) -> pl.DataFrame:
    frames: list[Any] = list(operator.finish())
    return pl.concat(frames).sort("key") if frames else pl.DataFrame()


def captured(operator: Any, epoch: int, since: int) -> list[Segment]:
    assert operator.state is not None
    return list(operator.state.capture(Epoch(epoch), Epoch(since)).segments("sums", 0))


def restored(segments: Sequence[Segment], shards: ShardRange = EVERYTHING) -> Any:
    operator = made(StateSettings(SHARDS))
    assert operator.state is not None
    operator.state.restore(segments, shards)
    return operator


def expected(batches: Sequence[pl.DataFrame]) -> pl.DataFrame:
    operator = made(None)
    for batch in batches:
        operator.process(batch)
    return finished(operator)


def worked(operator: Any, batch: pl.DataFrame) -> Any:
    operator.process(batch)
    return operator


def stored() -> list[list[Segment]]:
    """Return a base and three deltas, one after each batch."""
    operator = made(StateSettings(SHARDS))
    return [
        captured(worked(operator, batch), epoch, epoch - 1)
        for epoch, batch in enumerate(BATCHES, 1)
    ]


@pytest.mark.parametrize("epoch", range(1, 5))
def test_operator_goes_on_from_every_cut(epoch: int) -> None:
    """A base and the deltas up to there are all that is needed."""
    segments = [segment for part in stored()[:epoch] for segment in part]

    assert_frame_equal(finished(restored(segments)), expected(BATCHES[:epoch]))


def test_delta_holds_only_the_keys_touched_since() -> None:
    """A delta costs what changed."""
    operator = worked(made(StateSettings(SHARDS)), BATCHES[0])
    captured(operator, 1, 0)
    worked(operator, BATCHES[1].filter(pl.col("key") < 3))

    (segment,) = captured(operator, 2, 1)

    assert sorted(decode_frame(segment.payload)[0]["key"]) == [0, 1, 2]


def test_delta_after_a_restore_builds_on_what_was_restored() -> None:
    """Epochs go on counting, also where one was abandoned in between."""
    segments = stored()[0]
    operator = restored(segments)
    worked(operator, BATCHES[1].filter(pl.col("key") < 2))
    captured(operator, 8, 7)
    worked(operator, BATCHES[1].filter(pl.col("key") == 50))

    (segment,) = captured(operator, 9, 7)

    assert sorted(decode_frame(segment.payload)[0]["key"]) == [0, 1, 50]


def test_complete_epoch_is_the_ground_of_the_next_delta() -> None:
    """What was stored with it does not come again."""
    operator = worked(made(StateSettings(SHARDS)), BATCHES[0])
    captured(operator, 1, 0)
    worked(operator, BATCHES[1])
    captured(operator, 2, 1)
    assert operator.state is not None
    operator.state.complete(Epoch(2))

    assert captured(operator, 3, 2) == []


def test_both_tables_are_tested() -> None:
    """Which one serves is decided by what is aggregated."""
    operator = worked(made(StateSettings(SHARDS)), BATCHES[0])

    assert isinstance(operator, FrameAggregateOperator)
    assert operator.table.has_slots == (len(AGGREGATES) == 1)


def test_tasks_that_share_the_shards_get_each_key_once() -> None:
    """At another number of tasks, only the ranges are others."""
    segments = [segment for part in stored() for segment in part]
    border = int(sorted(frame_shards(BATCHES[0], ["key"], SHARDS).tolist())[70])

    left = finished(restored(segments, (0, border)))
    right = finished(restored(segments, (border, SHARDS)))

    assert not left.is_empty()
    assert max(frame_shards(left, ["key"], SHARDS)) < border
    assert_frame_equal(pl.concat([left, right]).sort("key"), expected(BATCHES))


def test_merged_segments_say_the_same() -> None:
    """A base is made of a base and deltas in the background."""
    segments = [segment for part in stored() for segment in part]

    base = list(merged(segments, Merging(SHARDS, is_base=True)))

    assert len(base) < len(segments)
    assert_frame_equal(finished(restored(base)), expected(BATCHES))


def test_segments_hold_whole_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore leaves out segments that lie elsewhere without decoding them."""
    monkeypatch.setattr(frame_codec, "_SEGMENT_ROWS_MIN", 10)
    segments = stored()[0]

    assert len(segments) > 5
    ends = [0]
    for segment in segments:
        frame, keys = decode_frame(segment.payload)
        places = frame_shards(frame, keys, SHARDS)
        assert (places.min(), places.max() + 1) == segment.shards
        assert segment.shards[0] >= ends[-1]
        ends.append(segment.shards[1])


def test_state_of_a_polars_with_other_hashes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its shards would not be ours, and keys would be lost silently."""
    segments = stored()[0]
    monkeypatch.setattr(frame_codec, "hash_fingerprint", lambda: 7)

    with pytest.raises(SnapshotError, match="hashes keys in another way"):
        restored(segments)
