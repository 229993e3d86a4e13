"""Parts of aggregates by key and pane, until their windows are over.

What comes is merged by key and pane in a table that is emptied whenever windows are over;
what it held becomes a *run*, sorted by pane, so that the panes of a window and those that
nobody needs any more are slices.  Rows never change once they are in a run: a snapshot
stores the runs that are new, and a pane is forgotten because of its number.

Nothing here knows operators, watermarks, or what the user computes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.columns.compiled_table import StateTable
from millstream.columns.table import PartialTable
from millstream.operators.windows.frame_dense import can_be_dense, dense_windows
from millstream.plan.frame_windows import FIRST, PANE, WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from millstream.columns.kernels import loading
    from millstream.columns.table import FrameAggregation
    from millstream.plan.windows import Panes

__all__ = ["PaneRuns", "is_ordered", "pane_of", "windows_of"]

RUNS_MAX = 64
"""Runs of the same age are merged when there are more."""

EXPLODED_ROWS = 1 << 20
"""Windows are made of about so many rows of panes at a time."""

_LEAST, _MOST = "__least", "__most"
_IS_BOUNDED, _IS_WANTED = "__is_bounded", "__is_wanted"
_WANTED = pl.lit(value=True).alias(_IS_WANTED)


def pane_of(panes: Panes, time: pl.Expr) -> pl.Expr:
    """Return the pane of every time."""
    since = time - panes.offset if panes.offset else time
    slides = since // panes.slide
    if panes.step == 1:
        return slides
    rest = since - slides * panes.slide
    return slides * 2 + (rest >= panes.size % panes.slide).cast(pl.Int64)


def windows_of(panes: Panes, pane: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return the first and the last window of every pane."""
    first = -((panes.count - 1 - pane) // panes.step)
    return first, pane // panes.step


def is_ordered(aggregation: FrameAggregation) -> bool:
    """Whether an aggregate depends on the order of rows."""
    folds = [part.fold for part in aggregation.columns]
    return any(fold is None or fold.how in ("first", "last") for fold in folds)


@dataclass(frozen=True, slots=True)
class _Run:
    """Parts in the order of panes, and when they came."""

    rows: pl.DataFrame
    stamp: int

    def between(self, begin: int, end: int) -> pl.DataFrame:
        """Return the rows of the panes from `begin` up to, not with, `end`."""
        panes = self.rows[PANE]
        first = int(panes.search_sorted(begin, side="left"))
        last = int(panes.search_sorted(end, side="left"))
        return self.rows.slice(first, max(last - first, 0))


class PaneRuns:
    """Parts by key and pane.

    Parameters
    ----------
    aggregation
        With the keys of the user alone.
    """

    def __init__(
        self,
        aggregation: FrameAggregation,
        panes: Panes,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        self._panes = panes
        self._engine = engine
        self._by_pane = replace(aggregation, keys=(*aggregation.keys, PANE))
        self._by_window = replace(aggregation, keys=(*aggregation.keys, WINDOW))
        self._plain = aggregation
        self._is_ordered = is_ordered(aggregation)
        self._is_dense = panes.count > panes.step and can_be_dense(aggregation)
        self._table = StateTable(self._by_pane, engine=engine)
        self._runs: list[_Run] = []
        #: Parts that do not count for all windows of their pane.
        self._bounded: list[_Run] = []
        #: Rows that come now will be told by captures of this and later stamps.
        self.stamp = 0
        #: Up to this stamp everything has been stored.
        self.stored = 0

    def add_rows(self, rows: pl.DataFrame) -> None:
        """Aggregate rows that have a pane and count for all of its windows."""
        self._table.add_rows(rows)

    def add(self, parts: pl.DataFrame) -> None:
        """Take parts that were aggregated elsewhere."""
        self._table.add(parts)

    def add_bounded_rows(self, rows: pl.DataFrame) -> None:
        """Aggregate rows that also say the first window that they count for."""
        table = PartialTable(replace(self._by_pane, keys=(*self._by_pane.keys, FIRST)))
        table.add_rows(rows)
        parts = table.merged()
        assert parts is not None, "somebody gave no rows"
        self.add_bounded(parts)

    def add_bounded(self, parts: pl.DataFrame) -> None:
        """Take parts that say the first window that they count for."""
        self._bounded.append(_Run(parts.sort(PANE, maintain_order=True), self.stamp))

    def settle(self) -> None:
        """Turn what came since the last time into a run."""
        parts = self._table.merged()
        if parts is None:
            return
        self._table = StateTable(self._by_pane, engine=self._engine)
        self._runs.append(_Run(parts.sort(PANE, maintain_order=True), self.stamp))
        if len(self._runs) > RUNS_MAX:
            self._merge_runs()

    def windows(self, after: int, last: int) -> Iterator[pl.DataFrame]:
        """Yield what the windows after `after`, up to `last`, have: keys and results."""
        for first, end in self._chunks(after + 1, last):
            rows = self._within(first, end - 1)
            if rows is not None:
                yield self._finished(rows, first, end)

    def windows_again(self, wanted: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield what some windows have, which are given by key and number."""
        numbers = wanted[WINDOW]
        first, last = numbers.min(), numbers.max()
        assert isinstance(first, int)
        assert isinstance(last, int)
        keys = list(self._by_window.keys)
        for begin, end in self._chunks(first, last):
            rows = self._within(begin, end - 1)
            if rows is None:
                continue
            exploded = self._exploded(rows)
            # Grouped like the state itself, so that the same values are the same key.
            both = pl.concat(
                [exploded, wanted.with_columns(_WANTED)], how="diagonal"
            ).with_columns(pl.col(_IS_WANTED).any().over(keys))
            chosen = both.slice(0, exploded.height).filter(_IS_WANTED).drop(_IS_WANTED)
            if chosen.height:
                yield self._made(chosen)

    def _finished(self, rows: pl.DataFrame, first: int, end: int) -> pl.DataFrame:
        """Return the results of the windows from `first` to before `end`."""
        is_whole = rows[_IS_BOUNDED].not_().all()
        if self._is_dense and is_whole:
            made = dense_windows(
                rows, self._plain, self._panes, (first, end), self._engine
            )
            if made is not None:
                keys, columns = self._by_window.keys, self._by_window.columns
                parts = made.select(*keys, *(part.finish for part in columns))
                return parts.select(*keys, *self._by_window.results)
        return self._made(self._exploded(rows))

    def _chunks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Cut windows so that not too many rows are made of them at once."""
        self.settle()
        panes = self._panes
        pane, cumulated = self._row_counts(first, last)
        rows_max = EXPLODED_ROWS
        if not self._is_dense:
            rows_max = max(rows_max * panes.step // panes.count, 1)
        if pane.size:
            last = min(last, panes.last_window(int(pane[-1])))
        while True:
            at = int(np.searchsorted(pane, panes.begin(first)))
            if at == pane.size:
                return
            first = max(first, panes.first_window(int(pane[at])))
            if first > last:
                return
            before = int(cumulated[at - 1]) if at else 0
            beyond = int(np.searchsorted(cumulated, before + rows_max, side="right"))
            end = last + 1
            if beyond < pane.size:
                end = (int(pane[beyond]) - panes.count) // panes.step + 1
                end = min(max(end, first + 1), last + 1)
            yield first, end
            first = end

    def _row_counts(
        self, first: int, last: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the panes of windows, and how many rows there are up to each."""
        begin, end = _clipped(self._panes.begin(first)), _clipped(self._panes.end(last))
        runs = [run.between(begin, end)[PANE] for run in (*self._runs, *self._bounded)]
        counts = pl.concat([run.rle() for run in runs]) if runs else pl.Series()
        if counts.is_empty():
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        table = counts.struct.unnest().group_by("value").agg(pl.col("len").sum())
        table = table.sort("value")
        return table["value"].to_numpy(), table["len"].cum_sum().to_numpy()

    def _made(self, parts: pl.DataFrame) -> pl.DataFrame:
        table = PartialTable(self._by_window)
        table.add(parts)
        made = table.finished()
        assert made is not None, "somebody gave no parts"
        return made

    def first_pane(self) -> int | None:
        """Return the earliest pane that has rows."""
        self.settle()
        runs = (*self._runs, *self._bounded)
        return min((int(run.rows[PANE][0]) for run in runs), default=None)

    def forget(self, before: int) -> None:
        """Drop the panes that are before this one."""
        before, end = _clipped(before), (1 << 63) - 1
        for runs in (self._runs, self._bounded):
            kept = [_Run(run.between(before, end), run.stamp) for run in runs]
            runs[:] = [run for run in kept if run.rows.height]

    def delta(self, since: int) -> list[pl.DataFrame]:
        """Return what came after the stamp `since`; columns of frames may differ."""
        self.settle()
        rows = [
            run.rows.with_columns(_no_bound())
            for run in self._runs
            if run.stamp > since
        ]
        return rows + [run.rows for run in self._bounded if run.stamp > since]

    def restore(self, parts: pl.DataFrame) -> None:
        """Take what a former table told."""
        is_bounded = pl.col(FIRST).is_not_null()
        whole, bounded = parts.filter(~is_bounded), parts.filter(is_bounded)
        if whole.height:
            rows = whole.drop(FIRST).sort(PANE, maintain_order=True)
            self._runs.append(_Run(rows, self.stored))
        if bounded.height:
            rows = bounded.sort(PANE, maintain_order=True)
            self._bounded.append(_Run(rows, self.stored))

    def _within(self, first: int, last: int) -> pl.DataFrame | None:
        """Return the parts of these windows, with those that each row counts for."""
        begin, end = _clipped(self._panes.begin(first)), _clipped(self._panes.end(last))
        found = [run.between(begin, end) for run in self._runs]
        found = [rows.with_columns(_no_bound()) for rows in found if rows.height]
        more = [run.between(begin, end) for run in self._bounded]
        found += [
            rows.select(found[0].columns) if found else rows
            for rows in more
            if rows.height
        ]
        if not found:
            return None
        rows = pl.concat(found)
        if self._is_ordered and len(found) > 1:
            rows = rows.sort(PANE, maintain_order=True)
        least, most = windows_of(self._panes, pl.col(PANE))
        rows = rows.with_columns(
            pl.max_horizontal(least, FIRST)
            .clip(lower_bound=_clipped(first))
            .alias(_LEAST),
            most.clip(upper_bound=_clipped(last)).alias(_MOST),
            pl.col(FIRST).is_not_null().alias(_IS_BOUNDED),
        ).drop(FIRST)
        rows = rows.filter(pl.col(_LEAST) <= pl.col(_MOST))
        return rows if rows.height else None

    def _exploded(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return a row of every part for every window."""
        if self._panes.count == 1:
            return rows.rename({_LEAST: WINDOW}).drop(_MOST, PANE, _IS_BOUNDED)
        ranges = pl.int_ranges(_LEAST, pl.col(_MOST) + 1)
        rows = rows.with_columns(ranges.alias(WINDOW))
        return rows.drop(_LEAST, _MOST, PANE, _IS_BOUNDED).explode(WINDOW)

    def _merge_runs(self) -> None:
        """Make one run of those that have been stored."""
        old = [run for run in self._runs if run.stamp <= self.stored]
        if len(old) < RUNS_MAX // 2:
            return
        table = PartialTable(self._by_pane)
        for run in old:
            table.add(run.rows)
        rows = table.merged()
        assert rows is not None
        merged = _Run(rows.sort(PANE, maintain_order=True), self.stored)
        self._runs = [merged, *(run for run in self._runs if run.stamp > self.stored)]


def _no_bound() -> pl.Expr:
    return pl.lit(None, pl.Int64).alias(FIRST)


def _clipped(number: int) -> int:
    """Return a number that fits into 64 bits."""
    return min(max(number, -(1 << 63)), (1 << 63) - 1)
