"""The as-of join: each left row with the right row of its key that is nearest in time.

A left row waits until the watermark says that no nearer right row can come; that moment
follows from the timestamps alone, and is the time of the result.

A left row that is behind its watermark is late, as right rows that it needs may be gone.  A
right row that is behind serves only left rows after that watermark: the others may be
decided already.  Of right rows of the same time the largest counts, so that it does not
matter which came last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from millstream.operators.joins.base import (
    TimedJoinOperator,
    insert_in_order,
    origin_watermark,
    time_of,
)
from millstream.operators.joins.table import with_table_row
from millstream.plan.joins import LEFT, RIGHT, Direction, JoinAsof
from millstream.plan.time import LateTimestamp
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.nan import rows_with_one_nan

if TYPE_CHECKING:
    from millstream.operators.base import Rows
    from millstream.operators.joins.sides import Sides
    from millstream.plan.logical import Node
    from millstream.values import Key, TimedRow

__all__ = ["AsofJoinOperator"]


class _Decision(NamedTuple):
    """Which right row a left row gets, if any, and at which time that is certain."""

    time: int
    right: TimedRow | None


class AsofJoinOperator(TimedJoinOperator):
    """Left rows that wait and right rows that may be needed, in the order of time."""

    def __init__(self, nodes: tuple[Node, ...], sides: Sides) -> None:
        spec = nodes[0].spec
        assert isinstance(spec, JoinAsof)
        super().__init__(
            nodes, sides.table, sides.state, has_own_input=spec.is_broadcast
        )
        self._how = spec.how
        self._direction = spec.direction
        self._tolerance = spec.tolerance
        self._is_table = spec.is_table
        #: Whether left rows come as they are, and not by key.
        self._is_broadcast = spec.is_broadcast
        self._sides = sides

    def process(self, rows: Rows, port: int) -> Rows:
        sides = self._sides
        if self._is_broadcast:
            rows = rows_with_one_nan(rows)
        sides.open([key for key, _ in rows])
        for key, (given, value) in rows:
            time = self.placed(given)
            if self._is_late(time, port):
                self.leave_out(key, value, time)
                continue
            entry = sides.get(key)
            insert_in_order(entry[port], (time, value))
            sides.put(key, *entry)
            if port == RIGHT:
                self.due.add(key, max(int(time), self.reached + 1))
            else:
                self.due.add(key, self._decision(time, entry[RIGHT]).time)
        return []

    def _is_late(self, time: int, port: int) -> bool:
        if type(time) is not LateTimestamp:
            return False
        if port == LEFT or self._direction is Direction.FORWARD:
            return True
        tolerance = self._tolerance
        return tolerance is not None and time + tolerance <= origin_watermark(time)

    def _decision(self, time: int, right: list[TimedRow]) -> _Decision:
        """Return what becomes of a left row if no other right rows come."""
        before = self._before(time, right)
        if self._direction is Direction.BACKWARD:
            return _Decision(time, before)
        tolerance = self._tolerance
        horizon = END_OF_TIME if tolerance is None else time + tolerance
        if before is not None:
            horizon = min(horizon, max(time, 2 * time - before[0] - 1))
            if before[0] == time:
                return _Decision(time, before)
        after = self._after(time, right)
        if after is not None and after[0] <= horizon:
            return _Decision(int(after[0]), after)
        return _Decision(horizon, before)

    def _before(self, time: int, right: list[TimedRow]) -> TimedRow | None:
        """Return the last right row until `time` that may be used; None if none may."""
        if self._direction is Direction.FORWARD:
            return None
        least = None if self._tolerance is None else time - self._tolerance
        place = bisect_right(right, time, key=time_of)
        found = None
        while place:
            place -= 1
            row = right[place]
            if least is not None and row[0] < least:
                break
            if found is not None and row[0] < found[0]:
                break
            if origin_watermark(row[0]) < time:
                found = row if found is None else _larger(found, row)
        return found

    def _after(self, time: int, right: list[TimedRow]) -> TimedRow | None:
        """Return the first right row from `time` on; None if there is none."""
        place = bisect_left(right, time, key=time_of)
        found = None
        for row in right[place:]:
            if type(row[0]) is LateTimestamp:
                continue
            if found is not None and row[0] > found[0]:
                break
            found = row if found is None else _larger(found, row)
        return found

    def settle(self, keys: list[Key], time: int) -> Rows:
        self._sides.open(keys)
        result: Rows = []
        for key in keys:
            left, right = self._sides.get(key)
            waiting = []
            for row in left:
                decision = self._decision(row[0], right)
                if decision.time > time:
                    waiting.append(row)
                    continue
                made = with_table_row(self._how, row[1], self._found(decision))
                result += [(key, (decision.time, each)) for each in made]
            self._drop(right, waiting, time)
            self._sides.put(key, waiting, right)
            self._note_next(key, waiting, right, time)
        return result

    def _found(self, decision: _Decision) -> Rows:
        """Return the value of the right row, if there is one and it is in the table."""
        if decision.right is None:
            return []
        value = decision.right[1]
        return [] if value is None and self._is_table else [value]

    def _drop(self, right: list[TimedRow], left: list[TimedRow], reached: int) -> None:
        """Drop the right rows that no left row can get any more."""
        if self._direction is Direction.FORWARD:
            del right[: bisect_right(right, reached, key=time_of)]
            return
        until = min(reached, left[0][0] - 1) if left else reached
        if self._tolerance is not None:
            del right[: bisect_right(right, until - self._tolerance, key=time_of)]
        place = bisect_right(right, until, key=time_of)
        while place:
            place -= 1
            if origin_watermark(right[place][0]) <= until:
                # Earlier ones of the same time may be the larger ones.
                del right[: bisect_left(right, right[place][0], key=time_of)]
                return

    def _note_next(
        self, key: Key, left: list[TimedRow], right: list[TimedRow], reached: int
    ) -> None:
        """Let the key be due when a left row is decided, or right rows can go."""
        times = [self._decision(row[0], right).time for row in left]
        if right and self._tolerance is not None:
            times.append(right[0][0] + self._tolerance)
        is_forward = self._direction is Direction.FORWARD
        for time, _ in right[:1] if is_forward else right[1:2]:
            times.append(max(int(time), origin_watermark(time)))
        if times and reached < END_OF_TIME:
            self.due.add(key, max(min(times), reached + 1))

    def index(self) -> None:
        """Look at all keys that were restored as soon as time goes on."""
        self.due.clear()
        for key, _, _ in self._sides.items():
            self.due.add(key, BEGINNING)


def _larger(one: TimedRow, other: TimedRow) -> TimedRow:
    """Return the row with the larger value, or with the larger text."""
    try:
        is_larger = bool(other[1] > one[1])
    except (TypeError, ValueError):
        is_larger = repr(other[1]) > repr(one[1])
    return other if is_larger else one
