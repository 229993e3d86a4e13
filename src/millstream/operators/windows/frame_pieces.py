"""Parts of aggregates by key, for results that are asked for at any time.

The rows of a key that come between two results are a *piece*.  Pieces are numbered in the
order in which they come, and a result is made of those from one number to another.  A key
says from which number on its pieces count; what is before that goes when there is much
of it.

Keys are numbers here.  Nothing here knows who asks for results, or why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.columns.table import PartialTable
from millstream.plan.frame_windows import PANE, SLOT, WINDOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.columns.table import FrameAggregation

    Integers = NDArray[np.int64]

    ProbeKeys = tuple[int, int, int]
    """A slot, and the first and the last piece of a result."""

__all__ = ["NEVER", "Pieces"]

NEVER = (1 << 63) - 1
"""The number from which on pieces of a key count that has none."""

RUNS_MAX = 64
_ROWS_MIN = 65_536


class Pieces:
    """Parts by slot and piece."""

    def __init__(self, aggregation: FrameAggregation) -> None:
        self._by_piece = replace(aggregation, keys=(SLOT, PANE))
        self._by_slot = replace(aggregation, keys=(SLOT,))
        self._by_result = replace(aggregation, keys=(WINDOW,))
        self._runs: list[pl.DataFrame] = []
        self._rows = self._tidied_rows = 0

    @property
    def is_large(self) -> bool:
        """Whether it is time to leave out what does not count any more."""
        return self._rows > max(_ROWS_MIN, 2 * self._tidied_rows)

    def add_rows(self, rows: pl.DataFrame) -> None:
        """Aggregate rows that know their slots and pieces."""
        table = PartialTable(self._by_piece)
        table.add_rows(rows)
        parts = table.merged()
        if parts is not None:
            self.add(parts.sort(PANE))

    def add(self, parts: pl.DataFrame) -> None:
        """Take parts by slot and piece, all of them later than those that are here."""
        self._rows += parts.height
        self._runs.append(parts.select(self._runs[0].columns) if self._runs else parts)
        if len(self._runs) > RUNS_MAX:
            self._runs = [pl.concat(self._runs)]

    def results(self, wanted: Sequence[ProbeKeys], recent: int) -> pl.DataFrame:
        """Return a row for each of some results, under their numbers, in order.

        Of the pieces of a slot before `recent`, a result has all that count, or none.
        """
        slots, firsts, lasts = np.array(wanted, dtype=np.int64).T
        pieces = self._wanted(slots, firsts, recent)
        numbers = pieces[PANE].to_numpy()
        base = int(numbers.min())
        span = max(int(numbers.max()), int(lasts.max())) - base + 2
        places = pieces[SLOT].to_numpy() * span + (numbers - base)
        begins = np.searchsorted(places, slots * span + np.maximum(firsts - base, 0))
        ends = np.searchsorted(places, slots * span + (lasts - base), side="right")
        counts = ends - begins
        before = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(before, counts)
        chosen = pieces[np.repeat(begins, counts) + within].drop(SLOT, PANE)
        result = pl.Series(WINDOW, np.repeat(np.arange(slots.size), counts))
        table = PartialTable(self._by_result)
        table.add(chosen.insert_column(0, result))
        made = table.finished()
        assert made is not None, "somebody wanted a result of no rows"
        return made.sort(WINDOW)

    def _wanted(self, slots: Integers, firsts: Integers, recent: int) -> pl.DataFrame:
        """Return the pieces for some results; those before `recent` are one per slot."""
        begins = np.full(int(slots.max()) + 1, NEVER)
        np.minimum.at(begins, slots, firsts)
        pieces = self._counting(begins)
        is_recent = pl.col(PANE) >= recent
        old = self._merged(pieces.filter(~is_recent), begins)
        pieces = pl.concat([old, pieces.filter(is_recent).select(old.columns)])
        return pieces.sort(SLOT, PANE)

    def _counting(self, begins: Integers) -> pl.DataFrame:
        """Return the pieces that count; slots beyond `begins` have none."""
        found = []
        for run in self._runs:
            slots, numbers = run[SLOT].to_numpy(), run[PANE].to_numpy()
            known = slots < begins.size
            is_counting = numbers >= begins[np.where(known, slots, 0)]
            found.append(run.filter(pl.Series(is_counting & known)))
        return pl.concat(found)

    def _merged(self, pieces: pl.DataFrame, begins: Integers) -> pl.DataFrame:
        """Make one piece of those of every slot."""
        table = PartialTable(self._by_slot)
        table.add(pieces.drop(PANE))
        merged = table.merged()
        if merged is None:
            return pieces
        numbers = begins[merged[SLOT].to_numpy()]
        return merged.with_columns(pl.Series(PANE, numbers))

    def merged(self, begins: Integers) -> pl.DataFrame:
        """Return all parts that count, a row per slot that has any."""
        return self._merged(self._counting(begins), begins).drop(PANE)

    def tidy(self, begins: Integers, renumbered: Integers) -> None:
        """Leave out what does not count, and give slots other numbers."""
        if not self._runs:
            return
        rows = self._merged(self._counting(begins), begins)
        slots = pl.Series(SLOT, renumbered[rows[SLOT].to_numpy()])
        self._runs = [rows.with_columns(slots)]
        self._rows = self._tidied_rows = rows.height
