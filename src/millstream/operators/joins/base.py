"""What joins have in common: times of rows, who is late, and what is due when.

A row may be *behind*: older than the watermark of its origin, or than the operator has
already reached.  That watermark stays with it in the state, so that whom it
meets depends on the timestamps alone and not on who was slow.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan.time import LateRow, LateTimestamp
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.table_and_value import TableAndValue
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.base import State
    from millstream.state.table import Table

__all__ = [
    "DueKeys",
    "TimedJoinOperator",
    "insert_in_order",
    "later",
    "origin_watermark",
    "time_of",
]

_SLICE_KEYS = 256
time_of = itemgetter(0)


def origin_watermark(time: int) -> int:
    """Return the watermark when a row was read; the beginning of time if it is on time."""
    return time.watermark if type(time) is LateTimestamp else BEGINNING


def later(left: int, right: int) -> int:
    """Return the time of a pair: the larger one, late if a watermark says so.

    Examples
    --------
    >>> later(3, 5), later(LateTimestamp(3, 9), 5).watermark
    (5, 9)
    """
    time = max(int(left), int(right))
    if type(left) is not LateTimestamp and type(right) is not LateTimestamp:
        return time
    watermark = max(origin_watermark(left), origin_watermark(right))
    return LateTimestamp(time, watermark) if time <= watermark else time


def insert_in_order(rows: list[Any], row: Any) -> None:
    """Insert a row that begins with its time into rows in the order of time."""
    if not rows or rows[-1][0] <= row[0]:
        rows.append(row)
    else:
        rows.insert(bisect_right(rows, row[0], key=time_of), row)


class DueKeys:
    """Which keys have something to do at which time.

    Examples
    --------
    >>> due = DueKeys()
    >>> due.add(5, "a"), due.add(3, "b"), due.add(9, "c")
    (None, None, None)
    >>> list(due.until(4)), list(due.keys_until(5)), due.next
    ([(3, ['b'])], [['a']], 9)
    """

    def __init__(self) -> None:
        self._keys: dict[int, set[Any]] = {}
        self._times: list[int] = []

    @property
    def next(self) -> int | None:
        """The earliest time at which something is due."""
        return self._times[0] if self._times else None

    def add(self, time: int, key: Any) -> None:
        """Let a key be due at a time."""
        keys = self._keys.get(time)
        if keys is None:
            self._keys[time] = {key}
            heapq.heappush(self._times, time)
        else:
            keys.add(key)

    def until(self, time: int) -> Iterator[tuple[int, list[Any]]]:
        """Take out and yield what is due until a time, in order and in slices."""
        while self._times and self._times[0] <= time:
            due = heapq.heappop(self._times)
            for keys in _sliced(self._keys.pop(due)):
                yield due, keys

    def keys_until(self, time: int) -> Iterator[list[Any]]:
        """Take out and yield the keys that are due until a time, each once."""
        found: set[Any] = set()
        while self._times and self._times[0] <= time:
            found |= self._keys.pop(heapq.heappop(self._times))
        return _sliced(found)

    def clear(self) -> None:
        """Forget everything."""
        self._keys.clear()
        self._times.clear()


def _sliced(keys: set[Any]) -> Iterator[list[Any]]:
    keys_iterator = iter(keys)
    while some := list(islice(keys_iterator, _SLICE_KEYS)):
        yield some


class TimedJoinOperator(KeyedOperator, ABC):
    """A join whose rows are timed; what it keeps is dropped by the watermark.

    When keys are due follows from their entries, and is found anew after a restore.

    Parameters
    ----------
    kept
        Where entries are, if that is not the table itself.
    """

    keeps_keys = False

    def __init__(
        self,
        nodes: tuple[Node, ...],
        table: Table | None = None,
        kept: State | None = None,
    ) -> None:
        super().__init__(nodes, table)
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        self.due = DueKeys()
        kept = table if kept is None else kept
        if kept is not None:
            value = TaskState(lambda: self.reached, self._put_reached, is_shared=True)
            self.state = TableAndValue(kept, value, self.index)

    @abstractmethod
    def index(self) -> None:
        """Find out when keys that were restored are due."""

    @abstractmethod
    def settle(self, keys: list[Any], time: int) -> Rows:
        """Return what follows for keys that are due, and drop what has to go.

        Event time has come to `time`.
        """

    def advance(self, time: int) -> Iterator[Rows]:
        """Yield what follows for keys that are due."""
        self.reached = max(self.reached, time)
        for keys in self.due.keys_until(time):
            rows = self.settle(keys, time)
            if rows:
                yield rows

    def finish(self) -> Iterable[Rows]:
        return self.advance(END_OF_TIME)

    def reset_after_flush(self) -> None:
        """Let time begin anew, as nothing is left."""
        self.reached = BEGINNING

    def restart(self, ended: frozenset[int]) -> None:
        """Forget all rows, and the time."""
        if ended:
            msg = (
                f"one side of {self.nodes[-1].user_name!r} comes from outside the loop, "
                "so that its rows are gone with the time of the first round; let both "
                "sides be made in the round, or use join without time"
            )
            raise RuntimeError(msg)
        super().restart(ended)
        self.due.clear()
        self.reached = BEGINNING

    def opened(self, keys: list[Any]) -> dict[Any, Any]:
        """Return the dict in which to read and change the entries of keys."""
        return self.entries if self.table is None else self.table.touch(keys)

    def placed(self, time: int) -> int:
        """Return the time of a row that has just come, behind if it is."""
        if time > self.reached:
            return time
        return LateTimestamp(int(time), max(self.reached, origin_watermark(time)))

    def _put_reached(self, values: list[int]) -> None:
        """Go on from the earliest of several, so that nothing is late that was not."""
        self.reached = min(values)

    def leave_out(self, key: Any, value: Any, time: int) -> None:
        """Put a row aside that came too late."""
        self.late.append(LateRow(key, value, int(time)))
        self.late_count += 1
