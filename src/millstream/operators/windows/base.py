"""What all operators on windows have in common: state by key, time, rows that leave.

Rows are pairs of key and item; an item is a value, or a pair of timestamp and value where
the windows are in event time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.operators.base import TimedOperator
from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan.time import LateRow
from millstream.plan.windows import Windowed
from millstream.protocol.watermark import BEGINNING
from millstream.state.table_and_time import TableAndTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.plan.windows import Window
    from millstream.state.table import Table

__all__ = ["KeyedWindowOperator", "TimedWindowOperator"]


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

    late: list[LateRow]

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        self.state = TableAndTime(
            table, lambda: self.reached, self._put_reached, self.index
        )

    @abstractmethod
    def index(self) -> None:
        """Find out when the keys whose entries are there have something to do.

        What is known to be due before stays so.
        """

    @abstractmethod
    def fire(self, time: int) -> Iterator[Rows]:
        """Yield what follows from time having come to `time`."""

    def advance(self, time: int) -> Iterable[Rows]:
        self.reached = max(self.reached, time)
        return self.fire(self.reached)

    def be_late(self, key: Any, item: Any) -> None:
        """Put a row where late ones go."""
        self.late.append(LateRow(key, item[1], int(item[0])))
        self.late_count += 1

    def reset(self) -> None:
        """Forget all keys, and the time."""
        self.reached = BEGINNING
        super().reset()

    def _put_reached(self, time: int) -> None:
        self.reached = time
