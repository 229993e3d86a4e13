"""Windows of event time on data frames: tumbling and sliding.

Rows become parts of panes, before they move if that makes them fewer; a window is put
together from its panes when it is over.  Which rows are late follows from what their own
watermark of its origin, as on rows.

Nothing here knows how panes are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.columns.compiled_table import StateTable
from millstream.columns.table import PartialTable
from millstream.operators.base import OneInputOperator, TimedOperator
from millstream.operators.time.late import with_late
from millstream.operators.windows.frame_base import LoggedWindowOperator
from millstream.operators.windows.frame_panes import PaneRuns, pane_of, windows_of
from millstream.plan.frame_windows import (
    END,
    FIRST,
    ORIGIN_WATERMARK,
    PANE,
    TIME,
    WINDOW,
    CombinePanes,
    TimeWindowFrame,
)
from millstream.protocol.former_times import take_over
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.frame_log import LogDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.columns.kernels import loading
    from millstream.columns.table import FrameAggregation
    from millstream.plan.frame_windows import SessionFrame
    from millstream.plan.logical import Node

__all__ = ["FrameCombinePanesOperator", "FrameTimeWindowOperator", "emitted_windows"]

_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class _Placed:
    """Rows by what becomes of them."""

    rows: pl.DataFrame
    bounded: pl.DataFrame | None = None
    late: pl.DataFrame | None = None


def _placed(rows: pl.DataFrame, spec: TimeWindowFrame, reached: int) -> _Placed:
    """Give rows their panes, and tell those that some or all windows are gone for."""
    panes = spec.panes
    placed = rows.with_columns(pane_of(panes, pl.col(TIME)).alias(PANE))
    if panes.has_gaps:
        placed = placed.filter(pl.col(PANE) % panes.step < panes.count)
    if placed.is_empty():
        return _Placed(placed)
    least = placed[PANE].min()
    assert isinstance(least, int)
    is_gone = panes.last_window(least) <= panes.over(reached - spec.lateness_ms)
    if not is_gone and placed[ORIGIN_WATERMARK].null_count() == placed.height:
        return _Placed(placed)
    told = pl.max_horizontal(ORIGIN_WATERMARK, pl.lit(max(reached, _FLOOR), pl.Int64))
    over = (told + (1 - spec.lateness_ms - panes.offset - panes.size)) // panes.slide
    first, last = windows_of(panes, pl.col(PANE))
    bound = pl.when(first <= over).then(over + 1)
    placed = placed.with_columns(bound.alias(FIRST))
    is_late, is_bounded = last < pl.col(FIRST), pl.col(FIRST).is_not_null()
    late, bounded = (
        placed.filter(is_late.fill_null(value=False)),
        placed.filter(is_bounded & ~is_late.fill_null(value=False)),
    )
    return _Placed(
        placed.filter(~is_bounded).drop(FIRST),
        bounded if bounded.height else None,
        late if late.height else None,
    )


_FLOOR = -(2**62)
"""As early as never, with room for arithmetic."""


class FrameCombinePanesOperator(OneInputOperator, TimedOperator):
    """Keeps parts by key and pane, and sends them on before a watermark or a cut."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        keys_max: int,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        super().__init__(nodes)
        spec = nodes[-1].spec
        assert isinstance(spec, CombinePanes)
        self._spec = spec.windows
        self._keys_max = keys_max
        self._engine = engine
        aggregation: FrameAggregation = spec.windows.aggregation
        self._by_pane = replace(aggregation, keys=(*aggregation.keys, PANE))
        self._begin()

    def _begin(self) -> None:
        self._table = StateTable(self._by_pane, self._keys_max, engine=self._engine)
        self._bounded: list[pl.DataFrame] = []

    def process(self, rows: Any) -> Any:
        placed = _placed(rows, self._spec, BEGINNING)
        self._table.add_rows(placed.rows)
        if placed.bounded is not None:
            self._bounded.append(self._parts(placed.bounded))
        if placed.late is not None:
            self.late_count += placed.late.height
        return self.flush() if self._table.merged_rows >= self._keys_max else []

    def flush(self) -> Any:
        merged, bounded = self._table.merged(), self._bounded
        self._begin()
        parts = [] if merged is None else [merged.with_columns(_NO_BOUND)]
        parts += [rows.select(parts[0].columns) if parts else rows for rows in bounded]
        return pl.concat(parts) if parts else []

    def finish(self) -> Iterator[Any]:
        parts = self.flush()
        if len(parts) > 0:
            yield from parts.iter_slices(_ROWS_MAX)

    def reset(self) -> None:
        """Forget all parts."""
        self._begin()

    def _parts(self, rows: pl.DataFrame) -> pl.DataFrame:
        table = PartialTable(replace(self._by_pane, keys=(*self._by_pane.keys, FIRST)))
        table.add_rows(rows)
        parts = table.merged()
        assert parts is not None
        return parts


_NO_BOUND = pl.lit(None, pl.Int64).alias(FIRST)


class FrameTimeWindowOperator(LoggedWindowOperator[TimeWindowFrame], TimedOperator):
    """A row per key and window, when the window is over and whenever it changes then."""

    #: The stamp under which all was forgotten.
    _anew = 0

    def begin(self) -> None:
        spec = self.spec
        self.runs = PaneRuns(spec.aggregation, spec.panes, engine=self.engine)
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        #: The last window that was told.
        self.fired = self.spec.panes.over(BEGINNING)
        #: Windows that were told before they were complete, and results to be sent.
        self._changed: list[pl.DataFrame] = []
        self._pending_output: list[pl.DataFrame] = []

    def process(self, rows: Any) -> Any:
        if self.spec.is_combined:
            self._add_parts(rows)
            return self.flush()
        placed = _placed(rows, self.spec, self.reached)
        self.runs.add_rows(placed.rows)
        self._note_changed(placed.rows)
        if placed.bounded is not None:
            self.runs.add_bounded_rows(placed.bounded)
            self._note_changed(placed.bounded)
        if placed.late is not None:
            self._leave_out(placed.late)
        return self.flush()

    def process_at(self, rows: Any, time: int) -> Any:
        """Take rows that all come at a time after what was reached."""
        panes = self.spec.panes
        pane = panes.of(time)
        if panes.first_window(pane) <= panes.last_window(pane):
            self.runs.add_rows(rows.with_columns(pl.lit(pane, pl.Int64).alias(PANE)))
        return self.flush()

    def _add_parts(self, parts: pl.DataFrame) -> None:
        self._note_changed(parts)
        if parts[FIRST].null_count() == parts.height:
            self.runs.add(parts)
            return
        is_bounded = pl.col(FIRST).is_not_null()
        self.runs.add(parts.filter(~is_bounded))
        self.runs.add_bounded(parts.filter(is_bounded))

    def _leave_out(self, rows: pl.DataFrame) -> None:
        self.late_count += rows.height
        late = rows.select(self.spec.columns)
        self.late = with_late(self.late, late)

    def _note_changed(self, rows: pl.DataFrame) -> None:
        """Remember which windows that were told already these rows belong to."""
        panes, fired = self.spec.panes, self.fired
        if not self.spec.lateness_ms or rows.is_empty():
            return
        least = rows[PANE].min()
        assert isinstance(least, int)
        if panes.first_window(least) > fired:
            return
        first, last = windows_of(panes, pl.col(PANE))
        if FIRST in rows.columns:
            first = pl.max_horizontal(first, FIRST)
        first = first.clip(lower_bound=self._kept())
        numbers = pl.int_ranges(first, last.clip(upper_bound=fired) + 1)
        keys = self.spec.aggregation.keys
        changed = rows.select(*keys, numbers.alias(WINDOW))
        changed = changed.filter(pl.col(WINDOW).list.len() > 0)
        if changed.height:
            self._changed.append(changed.explode(WINDOW).unique())

    def flush(self) -> Any:
        """Return the windows that have changed since they were told."""
        told, self._pending_output = self._pending_output, []
        if self._changed:
            changed, self._changed = pl.concat(self._changed).unique(), []
            told += self._told(self.runs.windows_again(changed))
        return pl.concat(told) if told else []

    def advance(self, time: int) -> Iterator[Any]:
        """Yield the windows that are over by now."""
        again = self.flush()
        if len(again) > 0:
            yield again
        self.reached = max(self.reached, time)
        last = self.spec.panes.over(self.reached)
        if last <= self.fired:
            return
        after, self.fired = self.fired, last
        for made in self._told(self.runs.windows(after, last)):
            yield from made.iter_slices(_ROWS_MAX)
        self.runs.forget(self.spec.panes.begin(self._kept()))

    def next_due(self) -> int | None:
        """Return when the first window is over that was not told."""
        if self._pending_output:
            return self.reached
        pane, panes = self.runs.first_pane(), self.spec.panes
        if pane is None:
            return None
        window = max(panes.first_window(pane), self.fired + 1)
        return panes.start(window) + panes.size - 1

    def finish(self) -> Iterable[Any]:
        return self.advance(END_OF_TIME)

    def reset(self) -> None:
        stamp, stored = self.runs.stamp, self.runs.stored
        self.begin()
        self._anew = self.runs.stamp = stamp
        self.runs.stored = stored

    def _told(self, made: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Give results their bounds and times."""
        panes = self.spec.panes
        start = pl.col(WINDOW) * panes.slide + panes.offset
        for rows in made:
            yield emitted_windows(rows, start, start + panes.size, self.spec)

    def _kept(self) -> int:
        """Return the first window that still takes rows."""
        return self.spec.panes.over(self.reached - self.spec.lateness_ms) + 1

    # What snapshots know of it

    def delta(self, since: int) -> LogDelta:
        """Return the parts that came after a stamp, and how far time has come."""
        found = self.runs.delta(since)
        rows = pl.concat([f.select(found[0].columns) for f in found]) if found else None
        least = self.spec.panes.begin(self._kept())
        facts = {"reached": self.reached}
        is_all = since == 0 or self._anew > since
        return LogDelta(
            rows, is_all, facts, PANE, min(max(least, BEGINNING), END_OF_TIME)
        )

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Count what comes from now on under this stamp."""
        self.runs.settle()
        self.runs.stamp, self.runs.stored = stamp, stored

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Take the parts of former tasks."""

        def take(parts: list[LogDelta]) -> None:
            for log in parts:
                if log.rows is not None:
                    self.runs.restore(log.rows)

        take_over(((log.facts["reached"], log) for log in logs), self._catch_up, take)

    def _catch_up(self, time: int) -> None:
        """Bring what was restored so far to a time; what follows from it is pending."""
        self._pending_output = list(self.advance(time))


def emitted_windows(
    made: pl.DataFrame,
    start: pl.Expr,
    end: pl.Expr,
    spec: TimeWindowFrame | SessionFrame,
) -> pl.DataFrame:
    """Put bounds in the place of the number of a window, and give the rows their time."""
    kind = pl.Int64() if spec.kind is None else spec.kind
    first, beyond = spec.bounds
    place = made.columns.index(WINDOW)
    hidden = ((end - 1).alias(TIME), pl.lit(None, pl.Int64).alias(ORIGIN_WATERMARK))
    return made.select(
        *made.columns[:place],
        start.cast(kind).alias(first),
        end.cast(kind).alias(beyond),
        *(name for name in made.columns[place + 1 :] if name != END),
        *(() if spec.is_by_clock else hidden),
    )
