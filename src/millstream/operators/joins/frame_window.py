"""The window join of two frames: rows of the same keys that lie in the same window.

Rows are kept once.  When windows are over, their rows are repeated for each of them, so
many windows at a time that this does not become too much, and joined.  Results have the
last time of their window.

A row that is behind its watermark lies only in windows that end after that watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.frames.join_buffer import clipped
from millstream.operators.joins.frame_base import NO_WATERMARK, FrameStreamJoinOperator
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME, WINDOW
from millstream.plan.joins import LEFT, RIGHT, How, JoinWindow
from millstream.plan.windows import Panes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.logical import Node
    from millstream.state.settings import StateSettings

__all__ = ["FrameWindowJoinOperator"]

EXPLODED_ROWS = 1 << 20
"""About so many rows of windows are joined at once."""

_FIRST, _LAST = "__first_window", "__last_window"


class FrameWindowJoinOperator(FrameStreamJoinOperator):
    """Rows of both sides until their last window is over."""

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None = None
    ) -> None:
        super().__init__(nodes, settings)
        spec = self._spec.by
        assert isinstance(spec, JoinWindow)
        self._is_event_time = spec.is_event_time
        self._panes = Panes(spec.size, spec.slide, spec.offset)

    def process(self, rows: Any, port: int) -> Any:
        panes, time = self._panes, pl.col(TIME)
        if panes.has_gaps:
            rows = rows.filter((time - panes.offset) % panes.slide < panes.size)
        if rows.is_empty():
            return []
        is_late = self._end(_last_window(panes)) - 1 <= pl.col(ORIGIN_WATERMARK)
        rows = self.on_time(self.placed(rows), port, is_late)
        if not self._how.pads(port):
            rows = self.output.can_meet(rows, port)
        self.sides[port].add(rows)
        return []

    def process_at(self, rows: Any, port: int, time: int) -> Any:
        """Take rows that all come at a time after what was reached."""
        now = pl.lit(time, pl.Int64).alias(TIME)
        return self.process(rows.with_columns(now, NO_WATERMARK), port)

    def _end(self, window: pl.Expr) -> pl.Expr:
        """Return the end of a window."""
        panes = self._panes
        return window * panes.slide + (panes.offset + panes.size)

    def advance(self, time: int) -> Iterator[Any]:
        """Yield what the windows hold that are over by now."""
        yield from self.pending_output()
        before, self.reached = self.reached, max(self.reached, time)
        panes = self._panes
        after, last = panes.over(before), panes.over(self.reached)
        if last <= after:
            return
        bounds = panes.start(after + 1), panes.start(last) + panes.size - 1
        found = [side.between(*bounds) for side in self.sides]
        yield from self._joined(found, after, last)
        for side in self.sides:
            side.forget(panes.start(last + 1))

    def next_due(self) -> int | None:
        """Return when the first window is over that has rows."""
        if self.has_pending_output:
            return self.reached
        firsts = [first for side in self.sides if (first := side.first()) is not None]
        if not firsts:
            return None
        panes = self._panes
        window = panes.first_window(panes.of(min(firsts)))
        window = max(window, panes.over(self.reached) + 1)
        return panes.start(window) + panes.size - 1

    def _joined(
        self, found: list[pl.DataFrame | None], after: int, last: int
    ) -> Iterator[pl.DataFrame]:
        """Yield the windows after `after`, up to `last`, of the rows of both sides."""
        sides = [
            None if rows is None else self._with_windows(rows, after, last)
            for rows in found
        ]
        for begin, end in _pieces(sides):
            left, right = (
                None if rows is None else _exploded(rows, begin, end) for rows in sides
            )
            yield from self._met(left, right)

    def hidden(self) -> tuple[pl.Expr, ...]:
        """Return the columns that results have besides those that users see."""
        if not self._is_event_time:
            return ()
        return (self._end(pl.col(WINDOW)) - 1).alias(TIME), NO_WATERMARK

    def _with_windows(self, rows: pl.DataFrame, after: int, last: int) -> pl.DataFrame:
        """Say in which of the windows rows are; leave out those that are in none."""
        panes = self._panes
        own = (pl.col(TIME) - (panes.offset + panes.size)) // panes.slide + 1
        gone = (
            pl.col(ORIGIN_WATERMARK) + (1 - panes.offset - panes.size)
        ) // panes.slide
        least = pl.lit(clipped(after + 1), pl.Int64)
        most = _last_window(panes).clip(upper_bound=clipped(last))
        rows = rows.with_columns(
            pl.max_horizontal(own, gone + 1, least).alias(_FIRST), most.alias(_LAST)
        )
        return rows.filter(pl.col(_FIRST) <= pl.col(_LAST))

    def _met(
        self, left: pl.DataFrame | None, right: pl.DataFrame | None
    ) -> Iterator[pl.DataFrame]:
        """Yield what comes out of the rows of some windows."""
        how, output, hidden = self._how, self.output, self.hidden()
        made: list[pl.DataFrame] = []
        if left is not None and right is not None and how.makes_pairs:
            made.append(output.selected(output.pairs(left, right, WINDOW), *hidden))
        for side, rows, others in ((LEFT, left, right), (RIGHT, right, left)):
            is_semi = how is How.SEMI and side == LEFT
            if rows is None or not (is_semi or how.pads(side)):
                continue
            if others is not None:
                chosen = output.chosen(rows, others, side, WINDOW, is_met=is_semi)
                made.append(output.unmatched(chosen, side, *hidden))
            elif not is_semi:
                made.append(output.unmatched(rows, side, *hidden))
        yield from (rows for rows in made if rows.height)


def _last_window(panes: Panes) -> pl.Expr:
    """Return the last window of every time."""
    return (pl.col(TIME) - panes.offset) // panes.slide


def _exploded(rows: pl.DataFrame, begin: int, end: int) -> pl.DataFrame | None:
    """Return every row once for each window from `begin` to `end`."""
    first = pl.col(_FIRST).clip(lower_bound=begin)
    last = pl.col(_LAST).clip(upper_bound=end)
    rows = rows.with_columns(pl.int_ranges(first, last + 1).alias(WINDOW))
    rows = rows.drop(_FIRST, _LAST).filter(pl.col(WINDOW).list.len() > 0)
    return rows.explode(WINDOW) if rows.height else None


def _pieces(sides: list[pl.DataFrame | None]) -> Iterator[tuple[int, int]]:
    """Yield from which to which window to go, so that not too many rows are made."""
    found = [rows.select(_FIRST, _LAST) for rows in sides if rows is not None]
    ranges = pl.concat(found) if found else None
    if ranges is None or ranges.is_empty():
        return
    total = int((ranges[_LAST] - ranges[_FIRST] + 1).sum())
    count = -(-total // EXPLODED_ROWS)
    begins = ranges[_FIRST].sort()
    cuts = sorted({int(begins[ranges.height * n // count]) for n in range(count)})
    last = ranges[_LAST].max()
    assert isinstance(last, int)
    yield from zip(cuts, [*(cut - 1 for cut in cuts[1:]), last], strict=True)
