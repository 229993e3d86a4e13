"""What joins have in common: times of rows, who is late, and what is due when.

A row may be *behind*: older than the watermark of its origin, or than the operator has
already reached.  That watermark stays with it in the state, so that whom it
meets depends on the timestamps alone and not on who was slow.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from millstream.operators.base import TimedOperator, TwoInputOperator
from millstream.operators.due import DueKeys, chunks
from millstream.operators.rows.by_key import KeyedEntries
from millstream.plan.time import LateRow, LateTimestamp
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.table_and_time import TableAndTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.base import State
    from millstream.state.table import Table
    from millstream.values import Key, Row, Value

__all__ = [
    "CHUNK_KEYS",
    "KeyedJoinOperator",
    "TimedJoinOperator",
    "insert_in_order",
    "later",
    "origin_watermark",
    "time_of",
]

CHUNK_KEYS = 256
"""Keys that are settled at a time; each may have many rows to say."""

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


def insert_in_order(rows: Rows, row: Row) -> None:
    """Insert a row that begins with its time into rows in the order of time."""
    if not rows or rows[-1][0] <= row[0]:
        rows.append(row)
    else:
        rows.insert(bisect_right(rows, row[0], key=time_of), row)


class KeyedJoinOperator(KeyedEntries, TwoInputOperator):
    """A join with an entry for each key, of which none is there for good."""

    keeps_keys = False


class TimedJoinOperator(KeyedJoinOperator, TimedOperator):
    """A join whose rows are timed; what it keeps is dropped by the watermark.

    When keys are due follows from their entries, and is found anew after a restore.

    Parameters
    ----------
    kept
        What is stored, if that is not the table itself.
    has_own_input
        Whether left rows come as they are, and not by key.
    """

    late: list[LateRow]

    def __init__(
        self,
        nodes: tuple[Node, ...],
        table: Table,
        kept: State | None = None,
        *,
        has_own_input: bool = False,
    ) -> None:
        super().__init__(nodes, table)
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        self.due = DueKeys()
        self.state = TableAndTime(
            table if kept is None else kept,
            lambda: self.reached,
            self._put_reached,
            self.index,
            has_own_input=has_own_input,
        )

    @abstractmethod
    def index(self) -> None:
        """Find out when keys that were restored are due."""

    @abstractmethod
    def settle(self, keys: list[Key], time: int) -> Rows:
        """Return what follows for keys that are due, and drop what has to go.

        Event time has come to `time`.
        """

    def advance(self, time: int) -> Iterator[Rows]:
        """Yield what follows for keys that are due."""
        self.reached = max(self.reached, time)
        due = [key for _, keys in self.due.taken(self.reached) for key in keys]
        for some in chunks(due, CHUNK_KEYS):
            rows = self.settle(some, self.reached)
            if rows:
                yield rows

    def finish(self) -> Iterable[Rows]:
        return self.advance(END_OF_TIME)

    def reset(self, ended: frozenset[int]) -> None:
        """Forget all rows, and the time."""
        if ended:
            msg = (
                f"one side of {self.nodes[-1].user_name!r} comes from outside the loop, "
                "and its rows are dropped after the first round; compute both "
                "inputs inside the loop body, or use join without time"
            )
            raise RuntimeError(msg)
        self.forget_round()

    def begin_anew(self) -> None:
        """Let time begin anew, without any rows."""
        self.due.clear()
        self.reached = BEGINNING

    def placed(self, time: int) -> int:
        """Return the time of a row that has just come, behind if it is."""
        if time > self.reached:
            return time
        return LateTimestamp(int(time), max(self.reached, origin_watermark(time)))

    def _put_reached(self, time: int) -> None:
        self.reached = time

    def leave_out(self, key: Key, value: Value, time: int) -> None:
        """Put a row aside that came too late."""
        self.late.append(LateRow(key, value, int(time)))
        self.late_count += 1
