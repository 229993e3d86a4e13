"""One base out of many deltas says the same as they did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.snapshots import JOB, KEY, MemoryFiles

from millstream.errors import LocalProtocolError, SnapshotError
from millstream.protocol.ids import Epoch
from millstream.state import row_merging
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.compaction import Merging, compacted, merged, register_merger
from millstream.state.keyhash import shard_of
from millstream.state.layout import state_name
from millstream.state.manifest import FileRef
from millstream.state.row_codec import DELETED, decode_rows
from millstream.state.store import SnapshotStore
from millstream.state.table import MemoryTable

SHARDS = 64
CHANGES = st.lists(
    st.dictionaries(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 9))),
    min_size=1,
    max_size=6,
)
"""By epoch: keys with their new value, or None if they are deleted."""


class History:
    """A table that is captured after every batch of changes, into files."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.store = SnapshotStore(self.files, KEY, job=JOB, run="run")
        self.table = MemoryTable(SHARDS)
        self.refs: list[FileRef] = []

    def change(self, changes: dict[int, int | None]) -> None:
        entries = self.table.touch(changes)
        for key, value in changes.items():
            entries.pop(key, None)
            if value is not None:
                entries[key] = value
        epoch, since = len(self.refs) + 1, len(self.refs)
        capture = self.table.capture(Epoch(epoch), Epoch(since))
        self.add(list(capture.segments("sum", 0)), epoch, since)

    def add(self, segments: list[Segment], epoch: int, since: int) -> None:
        name = state_name(epoch, "run", worker=1, stage=0, task=0, generation=1)
        length, digest = self.store.write_state(name, segments)
        self.refs.append(
            FileRef(name, length, digest, ("sum",), since == 0, epoch, since, 0, 0)
        )

    def compacted(self, refs: list[FileRef]) -> list[Segment]:
        return list(compacted(refs, self.store, (0, SHARDS), SHARDS))


def rows_of(segments: list[Segment]) -> list[tuple[Any, Any]]:
    return [row for segment in segments for row in decode_rows(segment.payload)]


@given(CHANGES, st.sampled_from([1, 40, 1 << 18]))
def test_base_is_the_table(
    batches: list[dict[int, int | None]], step_bytes: int
) -> None:
    """With nothing deleted left in it, and every key in the shard it belongs to."""
    history = History()
    for changes in batches:
        history.change(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.state.row_merging.STEP_BYTES", step_bytes)
        patch.setattr("millstream.state.row_codec.SEGMENT_ROWS_MIN", 4)
        segments = history.compacted(history.refs)

    assert dict(rows_of(segments)) == dict(history.table.items())
    assert len(rows_of(segments)) == len(history.table.items())
    for segment in segments:
        first, end = segment.shards
        for key, _ in decode_rows(segment.payload):
            assert first <= shard_of(key, SHARDS) < end


@given(CHANGES, st.integers(0, 5))
def test_deltas_merge_into_a_delta(
    batches: list[dict[int, int | None]], split: int
) -> None:
    """Without the base, deletions must stay: keys must not come back."""
    history = History()
    for changes in [{}, *batches]:
        history.change(changes)
    base, deltas = history.refs[: split + 1], history.refs[split + 1 :]

    later = history.compacted(deltas) if deltas else []

    restored = MemoryTable(SHARDS)
    restored.restore(history.compacted(base) + later, (0, SHARDS))
    assert dict(restored.items()) == dict(history.table.items())


def test_deleted_key_is_said_to_be_deleted_in_a_merged_delta() -> None:
    """It may be in a file before."""
    history = History()
    history.change({1: 1})
    history.change({1: None})
    assert rows_of(history.compacted(history.refs[1:])) == [(1, DELETED)]


def test_rows_of_a_few_shards_are_in_memory_at_a_time() -> None:
    """A worker must be able to merge more than it could hold twice."""
    history = History()
    history.change(dict.fromkeys(range(4000), 0))
    for epoch in range(1, 4):
        history.change(dict.fromkeys(range(0, 4000, 7), epoch))
    counts: list[int] = []
    joined = row_merging._joined

    def counted(*arguments: Any, **options: Any) -> dict[Any, Any]:
        rows = joined(*arguments, **options)
        counts.append(len(rows))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_merging, "STEP_BYTES", 1000)
        patch.setattr(row_merging, "_joined", counted)
        segments = history.compacted(history.refs)

    assert dict(rows_of(segments)) == dict(history.table.items())
    assert sum(counts) == 4000
    assert max(counts) < 400


def test_state_of_a_task_is_its_newest() -> None:
    """It is stored whole at every cut."""
    history = History()
    kept = [
        Segment("limit", 0, SegmentKind.TASK, ALL_SHARDS, bytes([epoch]))
        for epoch in (1, 2)
    ]
    history.add(kept[:1], 1, 0)
    history.add(kept[1:], 2, 1)
    assert history.compacted(history.refs) == kept[1:]


def test_segments_outside_are_left_out() -> None:
    """A task merges what is its own."""
    history = History()
    history.change(dict.fromkeys(range(2000), 1))
    half = list(compacted(history.refs, history.store, (0, SHARDS // 2), SHARDS))
    shards = {shard_of(key, SHARDS) for key, _ in rows_of(half)}
    assert set(range(SHARDS // 2)) <= shards
    assert len(rows_of(half)) < 2000


def test_damaged_file_is_not_merged() -> None:
    """A damaged delta must not become a sound base."""
    history = History()
    history.change({1: 1})
    history.files.content[history.refs[0].name] += b"x"
    with pytest.raises(SnapshotError):
        history.compacted(history.refs)


def test_kind_without_a_merger_is_a_bug_until_one_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever knows how frames are encoded says how they are merged."""
    monkeypatch.setattr("millstream.state.compaction._MERGERS", {})
    frames = [Segment("sum", 0, SegmentKind.FRAME, ALL_SHARDS, b"1")] * 2
    merging = Merging(SHARDS, is_base=True)
    with pytest.raises(LocalProtocolError, match="kind 'frame'"):
        merged(frames, merging)

    register_merger(SegmentKind.FRAME, lambda segments, _: segments[:1])

    assert merged(frames, merging) == frames[:1]
