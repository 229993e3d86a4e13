"""Sources read by the seed, not by the machine; sinks that only remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sinking import sealed

import millstream as ms
from millstream.config import Config
from millstream.connectors.base import Split
from millstream.connectors.iterable import IterableSource
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.simulation.connectors import (
    RecordedOutput,
    RecordingSink,
    SteadySource,
    stand_in,
)
from millstream.simulation.options import SwarmOptions
from millstream.state.plain import encode
from millstream.testing import Pause, Raise, ScriptedSource

if TYPE_CHECKING:
    from millstream.connectors.base import SourceReader


def reader_of(source: Any, **options: float) -> SourceReader[Any]:
    swarm = SwarmOptions(1, Config(), **options)  # type: ignore[arg-type] # shares only
    (split,) = source.splits(1)
    return SteadySource(source, swarm, 3, tide).open(split, 0, Config())


def tide() -> int:
    """Return the epoch of a job that has not had any."""
    return 0


def chunks(reader: SourceReader[Any], rows: int = 8) -> list[list[Any]]:
    return list(iter(lambda: reader.read(rows), None))


def test_chunks_do_not_depend_on_the_speed_of_an_iterator() -> None:
    """An iterator's own reader gives as many rows as it gets in a millisecond."""
    reader = reader_of(IterableSource(lambda: iter(range(20))))

    assert [len(chunk) for chunk in chunks(reader)] == [8, 8, 4]


def test_short_and_idle_reads_are_drawn_and_lose_nothing() -> None:
    """A source may return less than asked for, or nothing now."""
    options = {"short_read_share": 0.9, "idle_share": 0.3}
    first = chunks(reader_of(IterableSource(range(50)), **options))

    assert [row for chunk in first for row in chunk] == list(range(50))
    assert [] in first
    assert len({len(chunk) for chunk in first}) > 2
    assert chunks(reader_of(IterableSource(range(50)), **options)) == first


def test_rows_may_come_with_the_epochs() -> None:
    """A source that waits for a snapshot has every cut somewhere in its middle."""
    epoch = [4]
    swarm = SwarmOptions(1, Config(), rows_per_epoch=3)
    source = SteadySource(IterableSource(range(8)), swarm, 3, lambda: epoch[0])
    reader = source.open(Split("iterable"), 0, Config())
    read = [reader.read(8), reader.read(8)]

    epoch[0] += 2

    assert read == [[0, 1, 2], []]
    assert reader.read(8) == [3, 4, 5, 6, 7]


def test_pause_of_the_source_is_kept() -> None:
    """Nothing now means nothing now, also in the simulator."""
    reader = reader_of(ScriptedSource([1, Pause(), Pause(), Pause(), 2]))

    assert chunks(reader) == [[1], [], [2]]


def test_error_comes_after_the_rows_before_it() -> None:
    """So the position names the record that failed."""
    reader = reader_of(ScriptedSource([1, 2, Raise(OSError("gone"))]))

    assert reader.read(8) == [1, 2]
    with pytest.raises(OSError, match="gone"):
        reader.read(8)


def test_sinks_and_functions_are_replaced() -> None:
    """A simulation writes nothing and calls nobody."""
    flow = ms.Flow("outside")
    flow.from_iterable([1]).for_each(print)
    deployment = deploy(flow.plan, Config(), 1, SnapshotContext("job", ""))
    replaced, sinks = stand_in(deployment, SwarmOptions(1, Config()), 1, tide)

    (sink,) = sinks.values()
    assert replaced.stages.stages[-1].nodes[-1].spec.sink is sink  # type: ignore[attr-defined] # a Write


def test_only_what_was_sealed_and_committed_is_visible() -> None:
    """Rows of a writer that has not sealed, or that nobody committed, do not count."""
    sink = RecordingSink()
    first, second = sink.open("job", 0), sink.open("job", 1)
    first.write([1])
    transaction = sealed(first, 1)
    first.write([2])
    second.write([3])
    sealed(second, 1)

    sink.commit("job", 1, [transaction])

    assert sink.rows == [1]
    assert (sink.commit_count, sink.problems) == (0, [])
    sink.complete("job")
    assert sink.commit_count == 1


def test_commit_may_be_repeated_with_the_same_epoch_only() -> None:
    """A transaction that turns up in a second epoch would double its rows."""
    sink = RecordingSink()
    writer = sink.open("job", 0)
    writer.write([1])
    transaction = sealed(writer, 1)
    sink.commit("job", 1, [transaction])
    sink.commit("job", 1, [transaction])
    assert (sink.rows, sink.problems) == ([1], [])

    sink.commit("job", 2, [transaction])

    assert "is in epochs 1 and 2" in sink.problems[0]


def test_new_rows_for_an_old_epoch_are_a_problem() -> None:
    """Readers have seen a later one."""
    sink = RecordingSink()
    writer = sink.open("job", 0)
    writer.write([1])
    early = sealed(writer, 1)
    writer.write([2])
    late = sealed(writer, 2)
    sink.commit("job", 2, [late])

    sink.commit("job", 1, [early])

    assert "of epoch 1 came after epoch 2" in sink.problems[0]


def test_output_reaches_every_sink_with_its_own_transactions() -> None:
    """And tells all of them when the last epoch is committed."""
    flow = ms.Flow("outside")
    rows = flow.from_iterable([1])
    rows.for_each(print, name="one")
    rows.for_each(print, name="two")
    deployment = deploy(flow.plan, Config(), 1, SnapshotContext("job", ""))
    replaced, sinks = stand_in(deployment, SwarmOptions(1, Config()), 1, tide)
    output = RecordedOutput(replaced, sinks)
    one, two = sinks.values()
    token = one.stage(0, 1, ["row"])

    output.commit(1, (("one", 0, encode(token)),), is_last=True)

    assert (one.rows, two.rows) == (["row"], [])
    assert (one.commit_count, two.commit_count) == (1, 1)


def test_splits_are_those_of_the_source() -> None:
    """The seed changes how a split is read, not which there are."""
    source = SteadySource(IterableSource([1]), SwarmOptions(1, Config()), 1, tide)

    assert source.splits(4) == [Split("iterable")]
    assert not source.is_parallel
