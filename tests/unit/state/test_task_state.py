"""State without keys: the whole value, at the cut, of every former task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import SnapshotError
from millstream.protocol.ids import Epoch
from millstream.state.base import ALL_SHARDS, SegmentKind
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from millstream.state.base import Segment


def nothing(_values: list[Any]) -> None:
    """Take values and forget them."""


def captured(value: object, task: int = 0, epoch: int = 1) -> list[Segment]:
    capture = TaskState(lambda: value, nothing).capture(Epoch(epoch), since=Epoch(0))
    return list(capture.segments("limit", task))


def restored(segments: list[Segment]) -> list[list[Any]]:
    calls: list[list[Any]] = []
    TaskState(lambda: None, calls.append).restore(segments, (0, 1))
    return calls


def test_value_is_taken_as_it_is_at_the_cut() -> None:
    """What the operator does to it afterwards belongs to a later epoch."""
    rows = [1]
    capture = TaskState(lambda: rows, nothing).capture(Epoch(2), since=Epoch(1))
    rows.append(2)

    (segment,) = capture.segments("sort", 4)

    assert (segment.kind, segment.task, segment.shards) == (
        SegmentKind.TASK,
        4,
        ALL_SHARDS,
    )
    assert restored([segment]) == [[[1]]]


def test_newest_value_of_every_former_task_comes_back() -> None:
    """In the order of tasks; the operator knows whether and how they merge."""
    segments = captured("old", 1) + captured("b", 1, 2) + captured("a", 0, 2)

    assert restored(segments) == [["a", "b"]]


def test_nothing_stored_leaves_the_operator_as_it_is() -> None:
    """A new task has no former one."""
    assert restored([]) == []


def test_value_that_cannot_be_stored_is_refused() -> None:
    """The sentence names the reason."""
    with pytest.raises(SnapshotError, match=r"cannot be stored: .*lambda"):
        captured(lambda: 0)
