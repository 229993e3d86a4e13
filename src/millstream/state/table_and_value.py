"""The state of an operator that remembers something for every key, and one thing besides.

What that thing is, and what follows from the entries of the keys, is the operator's
business.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from millstream.state.base import SegmentKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Capture, Segment, ShardRange, State
    from millstream.state.task_state import TaskState

__all__ = ["TableAndValue"]

_VALUES = (SegmentKind.TASK, SegmentKind.SHARED)


class TableAndValue:
    """A table, and a value of the task.

    Parameters
    ----------
    on_restored
        Called after each time that something was restored.

    Examples
    --------
    >>> from millstream.protocol.ids import Epoch
    >>> from millstream.state.table import MemoryTable
    >>> from millstream.state.task_state import TaskState
    >>> table = MemoryTable(shard_count=16)
    >>> table.touch(["a"]).update(a=1)
    >>> state = TableAndValue(table, TaskState(lambda: 7, print), lambda: None)
    >>> kept = state.capture(Epoch(1), since=Epoch(0))
    >>> [str(segment.kind) for segment in kept.segments("window", 0)]
    ['task', 'rows']
    """

    def __init__(
        self, table: State, value: TaskState, on_restored: Callable[[], None]
    ) -> None:
        self._table = table
        self._value = value
        self._on_restored = on_restored

    def capture(self, epoch: Epoch, since: Epoch) -> TableAndValueCapture:
        """Capture both."""
        return TableAndValueCapture(
            self._value.capture(epoch, since), self._table.capture(epoch, since)
        )

    def complete(self, epoch: Epoch) -> None:
        """Tell both."""
        self._table.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Give each what is its own; a task may be given values and keys one by one."""
        segments = list(segments)
        values = [s for s in segments if s.kind in _VALUES]
        self._value.restore(values, shards)
        self._table.restore([s for s in segments if s not in values], shards)
        self._on_restored()

    def close(self) -> None:
        """Close both."""
        self._table.close()


@dataclass(frozen=True, slots=True)
class TableAndValueCapture:
    """The captures of both."""

    value: Capture
    table: Capture

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Return the segments of both."""
        return chain(
            self.value.segments(operator, task), self.table.segments(operator, task)
        )
