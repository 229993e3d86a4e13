"""Drive a join as a task would, and say in plain Python what it should have given.

The oracles compare every left row with every right row.  Rows come from *origins*, each of which promises by its own rows how late the next ones
may be.  A join hears the least of the promises, now and then.  What is late, and who
meets whom, must follow from the timestamps and promises alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.making import HERE

from millstream.config import Config
from millstream.operators.base import TickingOperator, TimedOperator
from millstream.operators.build import TaskContext, build_chain
from millstream.plan.joins import LEFT, RIGHT, Direction, How
from millstream.plan.logical import Node
from millstream.plan.time import LateTimestamp
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import BEGINNING
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.spec import Spec
    from millstream.state.base import Segment
    from millstream.state.settings import StateSettings

__all__ = [
    "Came",
    "Expected",
    "Origin",
    "TaskHarness",
    "asof_oracle",
    "interval_oracle",
    "made_of",
    "plain",
    "table_oracle",
    "window_oracle",
]

SHARDS = 16
FAR = 10**6


class Expected(NamedTuple):
    """Timed rows that a join gives, and the values that are too late for it."""

    rows: list[Any]
    late: list[Any]


class Came(NamedTuple):
    """A row as the oracle sees it."""

    key: Any
    time: int
    value: Any
    promise: int


@dataclass(slots=True)
class Origin:
    """Where rows of one side come from, and what it has promised so far."""

    side: int
    out_of_order: int
    promise: int = BEGINNING
    came: list[Came] = field(default_factory=list)

    def row(self, key: Any, time: int, value: Any) -> Any:
        """Return a row as an operator gets it."""
        promise = self.promise if time <= self.promise else BEGINNING
        self.came.append(Came(key, time, value, promise))
        given = time if promise == BEGINNING else LateTimestamp(time, promise)
        self.promise = max(self.promise, time - self.out_of_order - 1)
        return key, (given, value)


class TaskHarness:
    """A join that is cut, thrown away and restored whenever the test says so.

    Parameters
    ----------
    state
        How it keeps its state; None for a dict.
    """

    def __init__(
        self, spec: Spec, state: StateSettings | None = None, *, is_timed: bool = True
    ) -> None:
        self.clock = ManualClock()
        self.rows: list[Any] = []
        self.late: list[Any] = []
        #: The last watermark that was passed on; nothing older may follow it.
        self.heard = BEGINNING
        self._is_timed = is_timed
        self._state = state
        self._node = Node(
            0, "join", "join", spec, (), HERE, takes_pairs=True, takes_times=is_timed
        )
        self._segments: list[Segment] = []
        self._epoch = 0
        self.operator = self._made()

    def _made(self, task: int = 0, count: int = 1) -> Any:
        context = TaskContext(
            "job",
            task,
            Config(),
            lambda _sink, _rows: None,
            self._state,
            worker_count=count,
            clock=self.clock,
        )
        (operator,) = build_chain((self._node,), context)
        return operator

    def give(self, rows: list[Any], port: int) -> None:
        """Let a batch come."""
        before = list(rows)
        self._take([self.operator.process(rows, port)])
        assert rows == before, "a batch is never changed"

    def advance(self, time: int) -> None:
        """Let event time go on."""
        if isinstance(self.operator, TimedOperator):
            self._take(self.operator.advance(time))
        self.heard = time

    def tick(self) -> None:
        """Let the operator look at the clock if it wants to."""
        operator, now_ms = self.operator, self.clock.wall_ms()
        if not isinstance(operator, TickingOperator) or operator.tick_at_ms is None:
            return
        if operator.tick_at_ms <= now_ms:
            self._take(operator.tick(now_ms))

    def finish(self) -> None:
        """End the input."""
        self._take(self.operator.finish())
        self.operator.close()

    def cut(self) -> None:
        """Store what changed since the last cut."""
        assert self.operator.state is not None
        since, self._epoch = Epoch(self._epoch), self._epoch + 1
        capture = self.operator.state.capture(Epoch(self._epoch), since)
        self._segments += capture.segments("join", 0)
        self.operator.state.complete(Epoch(self._epoch))

    def crash(self) -> None:
        """Cut, and go on with another operator that knows only what was stored."""
        self.cut()
        self.operator.close()
        self.operator = self._made()
        assert self.operator.state is not None
        self.operator.state.restore(self._segments, (0, SHARDS))
        self._segments, self._epoch = [], 0

    def _take(self, batches: Iterable[list[Any]]) -> None:
        for batch in batches:
            self.rows += batch
            if self._is_timed:
                times = [
                    time for _, (time, _) in batch if type(time) is not LateTimestamp
                ]
                assert all(time > self.heard for time in times), "late further on"
        if isinstance(self.operator, TimedOperator):
            self.late += self.operator.late
            self.operator.late = []


def made_of(rows: list[Any]) -> Counter[Any]:
    """Return how often each row is there."""
    return Counter(rows)


def plain(rows: list[Any]) -> list[Any]:
    """Return timed rows with times that are plain numbers."""
    return [(key, (int(time), value)) for key, (time, value) in rows]


def interval_oracle(
    how: How, lower: int, upper: int, came: list[list[Came]]
) -> Expected:
    """Join by an interval; rows that are too late for each other do not meet."""
    reach = (upper, -lower)

    def is_late(row: Came, side: int) -> bool:
        return row.time + reach[side] <= row.promise

    def alone(row: Came, side: int) -> int:
        return row.time + max(0, reach[side])

    sides = [[r for r in came[side] if not is_late(r, side)] for side in (LEFT, RIGHT)]
    pairs = [
        (left, right)
        for left, right in product(*sides)
        if left.key == right.key
        and lower <= right.time - left.time <= upper
        and right.time - lower > left.promise
        and left.time + upper > right.promise
    ]
    rows = _unmatched(how, sides, pairs, alone)
    if how.makes_pairs:
        rows += [(a.key, (max(a.time, b.time), (a.value, b.value))) for a, b in pairs]
    elif how is How.SEMI:
        met = {left.value: left for left, _ in pairs}.values()
        rows += [(row.key, (alone(row, LEFT), row.value)) for row in met]
    late = [r.value for side in (LEFT, RIGHT) for r in came[side] if is_late(r, side)]
    return Expected(rows, late)


def window_oracle(
    how: How, windows: Iterable[tuple[int, int]], came: list[list[Came]]
) -> Expected:
    """Join window by window."""
    rows: list[Any] = []
    inside: dict[Any, bool] = {}
    for start, end in windows:
        found = [[r for r in side if start <= r.time < end] for side in came]
        sides = [[r for r in side if end - 1 > r.promise] for side in found]
        for row in (*found[LEFT], *found[RIGHT]):
            inside[row.value] = inside.get(row.value, False) or end - 1 > row.promise
        pairs = [(a, b) for a, b in product(*sides) if a.key == b.key]
        rows += _unmatched(how, sides, pairs, lambda _row, _side, last=end - 1: last)
        if how.makes_pairs:
            rows += [(a.key, (end - 1, (a.value, b.value))) for a, b in pairs]
        elif how is How.SEMI:
            met = {left.value: left for left, _ in pairs}.values()
            rows += [(row.key, (end - 1, row.value)) for row in met]
    return Expected(rows, [value for value, is_in in inside.items() if not is_in])


def asof_oracle(
    how: How, direction: Direction, tolerance: int | None, came: list[list[Came]]
) -> Expected:
    """Look for the nearest right row of every left row that is on time."""

    def is_late(row: Came) -> bool:
        if direction is Direction.FORWARD:
            return row.time <= row.promise
        return tolerance is not None and row.time + tolerance <= row.promise

    right = [row for row in came[RIGHT] if not is_late(row)]
    late = [row.value for row in came[LEFT] if row.time <= row.promise]
    late += [row.value for row in came[RIGHT] if is_late(row)]
    rows: list[Any] = []
    for row in came[LEFT]:
        if row.time <= row.promise:
            continue
        time, found = _nearest(row, right, direction, tolerance)
        if found is not None and how.makes_pairs:
            rows.append((row.key, (time, (row.value, found.value))))
        elif found is None and how is How.LEFT:
            rows.append((row.key, (time, (row.value, None))))
        elif not how.makes_pairs and (found is None) == (how is How.ANTI):
            rows.append((row.key, (time, row.value)))
    return Expected(rows, late)


def table_oracle(how: How, left: list[Any], right: list[Any]) -> list[Any]:
    """Look pairs of key and value up in what pairs of key and value say last."""
    table = {key: value for key, value in dict(right).items() if value is not None}
    if how is How.SEMI or how is How.ANTI:
        return [(k, v) for k, v in left if (k in table) == (how is How.SEMI)]
    return [(k, (v, table.get(k))) for k, v in left if k in table or how is How.LEFT]


def _unmatched(
    how: How, sides: list[list[Came]], pairs: list[tuple[Came, Came]], alone: Any
) -> list[Any]:
    """Return the rows without a partner that come out, at the times `alone` says."""
    rows: list[Any] = []
    for side in (LEFT, RIGHT):
        met = {pair[side].value for pair in pairs}
        for row in sides[side]:
            if how.pads(side) and row.value not in met:
                pair = (row.value, None) if side == LEFT else (None, row.value)
                value = pair if how.makes_pairs else row.value
                rows.append((row.key, (alone(row, side), value)))
    return rows


def _nearest(
    row: Came, right: list[Came], direction: Direction, tolerance: int | None
) -> tuple[int, Came | None]:
    """Return which right row is nearest, and when that is certain."""
    far = FAR if tolerance is None else tolerance
    own = [r for r in right if r.key == row.key and r.promise < row.time]
    before = [r for r in own if 0 <= row.time - r.time <= far]
    after = [r for r in own if 0 <= r.time - row.time <= far]
    if direction is Direction.BACKWARD:
        return row.time, max(before, key=lambda r: (r.time, r.value), default=None)
    if direction is Direction.FORWARD:
        best = max(after, key=lambda r: (-r.time, r.value), default=None)
        return (best.time if best else row.time + far), best
    # The earlier one of two that are as near, and of those the larger one.
    best = max(
        before + after,
        key=lambda r: (-abs(r.time - row.time), -r.time, r.value),
        default=None,
    )
    if best is None:
        return row.time + far, None
    if best.time > row.time:
        return best.time, best
    return row.time + max(0, min(row.time - best.time - 1, far)), best
