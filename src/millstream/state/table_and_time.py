"""The state of an operator that remembers something for every key, and the time.

Which time counts where former tasks had come to different ones is decided in
`protocol.former_times`; what follows from the entries of the keys is the operator's
business.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from millstream.protocol.former_times import earliest_time, take_over
from millstream.protocol.watermark import BEGINNING
from millstream.state.base import SegmentKind
from millstream.state.plain import encode
from millstream.state.task_state import VALUES, TaskCapture, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Capture, Segment, ShardRange, State

__all__ = ["TableAndTime"]


class TableAndTime:
    """A table, and the time that its task has reached.

    Parameters
    ----------
    get, put
        Return the time, None before there is one, and set it.
    index
        Finds out what is due of the entries in the table, seen from the time that was put;
        called for entries of former tasks that had come to the same time, after those of
        tasks that were behind.
    has_own_input
        Whether rows come to the task in another way than by key.

    Examples
    --------
    >>> from millstream.protocol.ids import Epoch
    >>> from millstream.state.table import MemoryTable
    >>> table = MemoryTable(shard_count=16)
    >>> table.touch(["a"]).update(a=1)
    >>> state = TableAndTime(table, lambda: 7, print, lambda: None)
    >>> kept = state.capture(Epoch(1), since=Epoch(0))
    >>> [str(segment.kind) for segment in kept.segments("window", 0)]
    ['shared', 'rows']
    """

    def __init__(
        self,
        table: State,
        get: Callable[[], int | None],
        put: Callable[[int], None],
        index: Callable[[], None],
        *,
        has_own_input: bool = False,
    ) -> None:
        #: Where the entries are.
        self.table = table
        self._get = get
        self._put = put
        self._index = index
        self._has_own_input = has_own_input
        #: The times that former tasks had reached.
        self._former: dict[int, int] = {}

    def capture(self, epoch: Epoch, since: Epoch) -> TableAndTimeCapture:
        """Capture both."""
        time = TaskCapture(encode(self._get()), SegmentKind.SHARED)
        return TableAndTimeCapture(time, self.table.capture(epoch, since))

    def complete(self, epoch: Epoch) -> None:
        """Tell the table."""
        self.table.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Take over from former tasks; their times may come before their keys."""
        segments = list(segments)
        for task, time in values_of(s for s in segments if s.kind in VALUES).items():
            self._former[task] = BEGINNING if time is None else time
        keyed: dict[int, list[Segment]] = {task: [] for task in self._former}
        for segment in segments:
            if segment.kind not in VALUES:
                keyed.setdefault(segment.task, []).append(segment)

        def take(parts: list[list[Segment]]) -> None:
            self.table.restore(chain.from_iterable(parts), shards)
            self._index()

        if self._has_own_input:
            self._put(earliest_time(self._former.values()))
            take(list(keyed.values()))
        else:
            times = self._former
            former = [(times.get(task, BEGINNING), own) for task, own in keyed.items()]
            take_over(former, self._put, take)

    def close(self) -> None:
        """Close the table."""
        self.table.close()


@dataclass(frozen=True, slots=True)
class TableAndTimeCapture:
    """The captures of both."""

    time: Capture
    table: Capture

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Return the segments of both."""
        return chain(
            self.time.segments(operator, task), self.table.segments(operator, task)
        )
