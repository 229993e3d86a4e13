"""The interval join: right rows that are between `lower` and `upper` later than the left.

A left row stays until the watermark has come to its time plus `upper`, a right row until
it has come to its time minus `lower`: then no partner can come that is on time.  A pair
is made when the second of the two comes.  A row that comes out alone has the time at
which that was certain; so its time is never behind a watermark that was sent on.

Of a row that is behind its watermark the partners may be gone that would be dropped at
that watermark.  It does not meet those even where they are still there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from millstream.operators.joins.base import (
    TimedJoinOperator,
    insert_in_order,
    later,
    origin_watermark,
    time_of,
)
from millstream.plan.joins import LEFT, RIGHT, How, JoinInterval
from millstream.plan.time import LateTimestamp

if TYPE_CHECKING:
    from typing import Any

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.table import Table
    from millstream.values import Key, Pair

    Kept = list[Any]
    """Timestamp, value, and whether it has met another."""

    Entry = tuple[list[Kept], list[Kept]]

__all__ = ["IntervalJoinOperator"]

_VALUE, _IS_MATCHED = 1, 2


class IntervalJoinOperator(TimedJoinOperator):
    """Rows of both sides in the order of time, each with whether it has met another."""

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, JoinInterval)
        self._is_semi = spec.how is How.SEMI
        self._makes_pairs = spec.how.makes_pairs
        self._pads = (spec.how.pads_left, spec.how.pads_right)
        #: For each side, from where to where the other side's rows may lie.
        self._reach = ((spec.lower, spec.upper), (-spec.upper, -spec.lower))

    def process(self, rows: Rows, port: int) -> Rows:
        lower, upper = self._reach[port]
        entries = self.touched(rows)
        result: Rows = []
        for key, (given, value) in rows:
            time = self.placed(given)
            if time + upper <= origin_watermark(time):
                self.leave_out(key, value, time)
                continue
            entry: Entry | None = entries.get(key)
            if entry is None:
                entry = entries[key] = ([], [])
            row: Kept = [time, value, False]
            partners = entry[1 - port]
            if partners:
                first = bisect_left(partners, time + lower, key=time_of)
                last = bisect_right(partners, time + upper, key=time_of)
                for partner in partners[first:last]:
                    pair = (row, partner) if port == LEFT else (partner, row)
                    self._meet(key, pair, result)
            insert_in_order(entry[port], row)
            if entry[port][0] is row:
                self.due.add(key, time + upper)
        return result

    def _meet(self, key: Key, pair: tuple[Kept, Kept], result: Rows) -> None:
        """Join two rows unless one of them was too late for the other."""
        left, right = pair
        (lower, upper) = self._reach[LEFT]
        if type(left[0]) is LateTimestamp and right[0] - lower <= origin_watermark(
            left[0]
        ):
            return
        if type(right[0]) is LateTimestamp and left[0] + upper <= origin_watermark(
            right[0]
        ):
            return
        if self._makes_pairs:
            time = later(left[0], right[0])
            result.append((key, (time, (left[_VALUE], right[_VALUE]))))
        elif self._is_semi and not left[_IS_MATCHED]:
            result.append(self._alone(key, left, LEFT))
        left[_IS_MATCHED] = right[_IS_MATCHED] = True

    def _alone(self, key: Key, row: Kept, side: int) -> Pair:
        """Return what comes out of one row, at the time at which its fate is certain."""
        time = int(row[0]) + max(0, self._reach[side][1])
        if not self._makes_pairs:
            return key, (time, row[_VALUE])
        pair = (row[_VALUE], None) if side == LEFT else (None, row[_VALUE])
        return key, (time, pair)

    def settle(self, keys: list[Key], time: int) -> Rows:
        entries = self.entries_of(keys)
        result: Rows = []
        for key in keys:
            entry = entries.get(key)
            if entry is None:
                continue
            for side in (LEFT, RIGHT):
                rows, upper = entry[side], self._reach[side][1]
                count = bisect_right(rows, time - upper, key=time_of)
                if self._pads[side]:
                    result += [
                        self._alone(key, row, side)
                        for row in rows[:count]
                        if not row[_IS_MATCHED]
                    ]
                del rows[:count]
            if entry[LEFT] or entry[RIGHT]:
                self._note_due(key, entry)
            else:
                del entries[key]
        return result

    def index(self) -> None:
        self.due.clear()
        for entries in self.batches():
            for key, entry in entries:
                self._note_due(key, entry)

    def _note_due(self, key: Key, entry: Entry) -> None:
        for side in (LEFT, RIGHT):
            if entry[side]:
                self.due.add(key, int(entry[side][0][0]) + self._reach[side][1])
