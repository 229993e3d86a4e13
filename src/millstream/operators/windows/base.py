"""What all operators on windows have in common: state by key, time, rows that leave.

Rows are pairs of key and item; an item is a value, or a pair of timestamp and value where
the windows are in event time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.operators.base import TickingOperator, TimedOperator
from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan.time import LateRow
from millstream.plan.windows import Windowed
from millstream.protocol.watermark import BEGINNING
from millstream.state.table_and_value import TableAndValue
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.plan.windows import Window
    from millstream.ports import Clock
    from millstream.state.table import Table

__all__ = ["ByTheClock", "KeyedWindowOperator", "TimedWindowOperator"]


class KeyedWindowOperator(KeyedOperator):
    """Windows of every key."""

    is_guarded = True
    keeps_keys = False

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        spec = nodes[-1].spec
        assert isinstance(spec, Windowed)
        self.spec = spec
        self._makes_times = nodes[-1].makes_times

    def row(self, key: Any, window: Window, result: Any) -> Any:
        """Return the row of a result."""
        if self.spec.shows_window:
            result = (window, result)
        return (key, (window.end - 1, result) if self._makes_times else result)


class TimedWindowOperator(KeyedWindowOperator, TimedOperator):
    """Windows that are over when time has come to their end, and keys in that order.

    Parameters
    ----------
    table
        Where entries are; beside them the time that was reached is stored.
    """

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        value = TaskState(lambda: self.reached, self._put_reached, is_shared=True)
        self.state = TableAndValue(table, value, self.index)

    @abstractmethod
    def find_due(self) -> None:
        """Find out when the keys whose entries are there have something to do."""

    @abstractmethod
    def fire(self, time: int) -> Iterator[Rows]:
        """Yield what follows from time having come to `time`."""

    def advance(self, time: int) -> Iterable[Rows]:
        self.reached = max(self.reached, time)
        return self.fire(time)

    def index(self) -> None:
        """Find out what follows from entries that were restored, or are gone."""
        self.find_due()
        self.set_tick()

    def set_tick(self) -> None:
        """Ask to be called by the clock, where that is what counts."""

    def be_late(self, key: Any, item: Any) -> None:
        """Put a row where late ones go."""
        self.late.append(LateRow(key, item[1], int(item[0])))
        self.late_count += 1

    def reset(self) -> None:
        """Forget all keys, and the time."""
        self.reached = BEGINNING
        super().reset()

    def begin_anew(self) -> None:
        self.index()

    def _put_reached(self, values: list[int]) -> None:
        """Go on from the earliest of several, so that nothing is late that was not."""
        self.reached = min(values)


class ByTheClock(TimedWindowOperator, TickingOperator):
    """Windows of processing time: a row has the time at which it comes."""

    def __init__(self, nodes: tuple[Node, ...], table: Table, clock: Clock) -> None:
        super().__init__(nodes, table)
        self.clock = clock

    def now(self) -> int:
        """Return the time of rows that come now; it never goes back."""
        return max(self.clock.wall_ms(), self.reached + 1)

    @abstractmethod
    def due_ms(self) -> int | None:
        """Return when the next window is over."""

    def set_tick(self) -> None:
        self.tick_at_ms = self.due_ms()

    def advance(self, time: int) -> Iterable[Rows]:  # noqa: ARG002 - not our time
        return ()

    def tick(self, now_ms: int) -> Iterator[Rows]:
        self.reached = max(self.reached, now_ms - 1)
        yield from self.fire(self.reached)
        self.set_tick()
