"""The window join: rows of both sides that lie in the same window.

Rows are kept once, by *pane*: the longest pieces of time of which every window is made.
A window says its pairs when it ends; they have its last time, as all results of windows.
Of a pane nothing stays once its last window has ended.

A row that is behind its watermark lies only in windows that end after that watermark.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from millstream.operators.base import TickingOperator
from millstream.operators.due import chunks
from millstream.operators.joins.base import (
    CHUNK_KEYS,
    TimedJoinOperator,
    origin_watermark,
)
from millstream.plan.joins import LEFT, RIGHT, How, JoinWindow
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table

__all__ = ["ClockWindowJoinOperator", "WindowJoinOperator"]

_FIRED, _PANES = 0, 1


class WindowJoinOperator(TimedJoinOperator):
    """The end of a key's last window, and its rows by pane: times and values by side."""

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        spec = nodes[0].spec
        assert isinstance(spec, JoinWindow)
        self._how = spec.how
        self._size, self._slide, self._offset = spec.size, spec.slide, spec.offset
        self._pane = gcd(spec.size, spec.slide)

    def process(self, rows: Rows, port: int) -> Rows:
        entries = self.touched(rows)
        for key, (given, value) in rows:
            self._take(entries, key, self.placed(given), value, port)
        return []

    def _take(
        self, entries: dict[Any, Any], key: Any, time: int, value: Any, port: int
    ) -> None:
        """Put a row into its pane, unless it is in no window or too late for all."""
        pane = int(time) - (int(time) - self._offset) % self._pane
        last = self._last_end(pane)
        if last < self._first_end(pane):
            return
        if last - 1 <= origin_watermark(time):
            self.leave_out(key, value, time)
            return
        entry = entries.get(key)
        if entry is None:
            entry = entries[key] = [None, {}]
        sides = entry[_PANES].get(pane)
        if sides is None:
            sides = entry[_PANES][pane] = ([], [])
            self._note_pane(key, entry[_FIRED], pane)
        sides[port].append((time, value))

    def _first_end(self, pane: int) -> int:
        """Return the end of the first window that has the pane in it."""
        least = pane + self._pane - self._size - self._offset
        return -(-least // self._slide) * self._slide + self._offset + self._size

    def _last_end(self, pane: int) -> int:
        """Return the end of the last window that has the pane in it."""
        return pane - (pane - self._offset) % self._slide + self._size

    def _note_pane(self, key: Any, fired: int | None, pane: int) -> None:
        end = self._first_end(pane)
        if fired is not None:
            end = max(end, fired + self._slide)
        self.due.add(key, end - 1)

    def index(self) -> None:
        self.due.clear()
        for entries in self.batches():
            for key, (fired, panes) in entries:
                for pane in panes:
                    self._note_pane(key, fired, pane)

    def advance(self, time: int) -> Iterator[Rows]:
        """Yield what the windows hold that end until `time`, one after the other."""
        self.reached = max(self.reached, time)
        for due, keys in self.due.taken(time):
            for some in chunks(keys, CHUNK_KEYS):
                rows = self.settle(some, due)
                if rows:
                    yield rows

    def settle(self, keys: list[Any], time: int) -> Rows:
        entries = self.entries_of(keys)
        end = time + 1
        result: Rows = []
        for key in keys:
            entry = entries.get(key)
            if entry is None:
                continue
            panes = entry[_PANES]
            joined = self._joined(*self._rows_of(panes, end))
            result += [self.made(key, time, value) for value in joined]
            for pane in [pane for pane in panes if self._last_end(pane) <= end]:
                del panes[pane]
            entry[_FIRED] = end
            if panes:
                self._note_pane(key, end, min(panes))
            else:
                del entries[key]
        return result

    def made(self, key: Any, time: int, value: Any) -> Any:
        """Return a row of the result."""
        return key, (time, value)

    def _rows_of(self, panes: dict[int, Any], end: int) -> tuple[list[Any], list[Any]]:
        """Return the values of a window, by side."""
        starts = range(end - self._size, end, self._pane)
        if len(starts) > len(panes):
            found = [panes[pane] for pane in panes if pane in starts]
        else:
            found = [panes[pane] for pane in starts if pane in panes]
        left, right = (
            [
                value
                for sides in found
                for time, value in sides[side]
                if end - 1 > origin_watermark(time)
            ]
            for side in (LEFT, RIGHT)
        )
        return left, right

    def _joined(self, left: list[Any], right: list[Any]) -> Iterable[Any]:
        how = self._how
        if left and right:
            if how.makes_pairs:
                return [(one, other) for one in left for other in right]
            return left if how is How.SEMI else []
        if how is How.ANTI:
            return left
        if left and how.pads_left:
            return [(value, None) for value in left]
        return [(None, value) for value in right] if how.pads_right else []


class ClockWindowJoinOperator(WindowJoinOperator, TickingOperator):
    """Windows of the wall clock: rows lie where the clock stands when they come."""

    def __init__(self, nodes: tuple[Node, ...], table: Table, clock: Clock) -> None:
        super().__init__(nodes, table)
        self._clock = clock
        self._now_ms = BEGINNING

    @property
    def tick_at_ms(self) -> int | None:  # type: ignore[override]  # follows from the rows
        """The end of the next window."""
        first = self.due.first
        return None if first is None else first + 1

    def process(self, rows: Rows, port: int) -> Rows:
        # A clock that was set back must not open a window that is over.
        self._now_ms = max(self._now_ms, self._clock.wall_ms())
        entries = self.touched(rows)
        for key, value in rows:
            self._take(entries, key, self._now_ms, value, port)
        return []

    def advance(self, time: int) -> Iterator[Rows]:  # noqa: ARG002 - of the wall clock
        return iter(())

    def tick(self, now_ms: int) -> Iterator[Rows]:
        """Yield what the windows hold that are over."""
        self._now_ms = max(self._now_ms, now_ms)
        return super().advance(now_ms - 1)

    def finish(self) -> Iterable[Rows]:
        return super().advance(END_OF_TIME)

    def made(self, key: Any, time: int, value: Any) -> Any:  # noqa: ARG002 - without time
        return key, value
