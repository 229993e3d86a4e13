"""Batches that wait, in memory and on disk, and what snapshots store of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import Epoch
from millstream.state.base import ALL_SHARDS
from millstream.state.compaction import Merging, merged
from millstream.state.kept_batches import KeptBatches
from millstream.state.spill_buffer import SpillBuffer

if TYPE_CHECKING:
    from millstream.state.base import Segment

SMALL = 64
LARGE = 1 << 20


def restored(segments: list[Segment], memory_bytes: int = LARGE) -> list[Any]:
    kept = KeptBatches(memory_bytes)
    if segments:
        kept.restore(segments, ALL_SHARDS)
    return list(kept)


def segments_of(kept: KeptBatches, epoch: int, since: int) -> list[Segment]:
    return list(kept.capture(Epoch(epoch), Epoch(since)).segments("loop", 0))


@pytest.mark.parametrize("memory_bytes", [0, SMALL, LARGE])
def test_batches_come_back_as_often_as_they_are_asked_for(memory_bytes: int) -> None:
    """In order, rows and data frames, wherever they wait."""
    kept = KeptBatches(memory_bytes)
    batches: list[Any] = [[1, "a"], pl.DataFrame({"x": [1.5]}), [None] * 100]
    for batch in batches:
        kept.append(batch)

    for _ in range(2):
        found = list(kept)
        assert found[0] == batches[0]
        assert isinstance(found[1], pl.DataFrame)
        assert found[1].equals(batches[1])
        assert found[2] == batches[2]
    assert (kept.spilled_bytes > 0) == (memory_bytes < LARGE)


def test_memory_is_given_back_when_batches_are_freed() -> None:
    """What came to disk once does not stay there for ever."""
    shelf = SpillBuffer(SMALL)
    first = shelf.put([1] * 10)
    second = shelf.put([2] * 10)
    assert first.file is None
    assert second.file is not None

    shelf.free([first, second])

    assert shelf.nbytes == 0
    assert shelf.put([3] * 10).file is None


def test_batches_that_did_not_change_are_stored_once() -> None:
    """The input of a cycle, for as many epochs as there are."""
    kept = KeptBatches(LARGE)
    kept.append([1])
    first = segments_of(kept, 1, 0)
    kept.complete(Epoch(1))

    second = segments_of(kept, 2, 1)

    assert second == []
    assert restored(first + second) == [[1]]


def test_an_epoch_that_was_given_up_is_made_good_by_the_next() -> None:
    """Deltas build on the last complete one."""
    kept = KeptBatches(LARGE)
    kept.append([1])
    first = segments_of(kept, 1, 0)
    kept.append([2])
    segments_of(kept, 2, 1)
    kept.append([3])

    assert restored(first + segments_of(kept, 3, 1)) == [[1], [2], [3]]


def test_states_of_several_tasks_become_one() -> None:
    """When a job goes on with fewer workers."""
    kept = KeptBatches(LARGE)
    kept.append([1])
    other = KeptBatches(LARGE)
    other.append([2])
    segments = segments_of(kept, 1, 0)
    segments += other.capture(Epoch(1), Epoch(0)).segments("loop", 1)

    assert restored(segments) == [[1], [2]]


@given(
    steps=st.lists(st.sampled_from(["append", "clear", "cut", "give up"]), max_size=12),
    memory_bytes=st.sampled_from([0, SMALL, LARGE]),
    compacts=st.booleans(),
)
def test_what_is_restored_is_what_was_there_at_the_cut(
    *, steps: list[str], memory_bytes: int, compacts: bool
) -> None:
    """Whatever was added, begun anew, given up or compacted before."""
    kept = KeptBatches(memory_bytes)
    stored: list[Segment] = []
    epoch = complete = 0
    for number, step in enumerate(steps):
        if step == "append":
            kept.append([number])
        elif step == "clear":
            kept.clear()
        else:
            epoch += 1
            segments = segments_of(kept, epoch, complete)
            if step == "give up":
                continue
            complete = epoch
            kept.complete(Epoch(epoch))
            stored += segments
            if compacts and stored:
                stored = list(merged(stored, Merging(1024, is_base=True)))
            assert restored(stored, memory_bytes) == list(kept)
