"""The state of an aggregation of frames: parts by key, grouped by Polars.

A batch is grouped and its parts are put aside; once there are as many of them as the
table has rows, all are grouped again.  So every row is grouped a few times only, however
many batches come.

Beside the parts of a key stands the epoch that last touched it.  What was touched since an
epoch is found by merging everything, which costs all keys; `SlotTable`, which serves
wherever it can, finds it for the price of the keys that were touched.

Nothing here knows about operators, tasks or the user's expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.columns.long_partials import MultiRowPartial
    from millstream.columns.partials import ScalarPartial

__all__ = ["FrameAggregation", "PartialTable", "latest"]

_PENDING_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class FrameAggregation:
    """What is kept per key, and what it becomes when the input ends.

    Attributes
    ----------
    results
        From the columns of the finished parts, row by row, the columns of the user.
    key_kinds, kept
        Keys and parts with their types, in words; a fingerprint is made of them.
    """

    keys: tuple[str, ...]
    columns: tuple[ScalarPartial, ...]
    longs: tuple[MultiRowPartial, ...]
    results: tuple[pl.Expr, ...]
    key_kinds: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Columns of the state of a key, behind the keys."""
        names = [name for part in self.columns for name in part.names]
        return [*names, *(part.name for part in self.longs)]

    @property
    def fits_slots(self) -> bool:
        """Whether every part can be made row by row in columns of slots."""
        has_fold = [part.fold is not None for part in self.columns]
        return bool(has_fold) and all(has_fold) and not self.longs

    @property
    def pickled(self) -> list[str]:
        """Columns of the state that hold pickled objects of the user."""
        return [n for part in self.columns if part.is_pickled for n in part.names]

    @property
    def can_merge(self) -> bool:
        """Whether rows may be combined before they move; here they always may."""
        return True


class PartialTable:
    """The parts of every key seen so far.

    Parameters
    ----------
    rows_max
        Most rows put aside before they are merged, where the table grows beyond it.
    """

    def __init__(
        self, aggregation: FrameAggregation, rows_max: int | None = None
    ) -> None:
        keys = aggregation.keys
        self._aggregation = aggregation
        columns = aggregation.columns
        self._partials = [e for part in columns for e in part.partials]
        self._refine = [e for part in columns for e in part.refine]
        self._epoch = 0
        self._epoch_name = _another_name("epoch", keys)
        merges = [e for part in columns for e in part.merges]
        merges.append(pl.col(self._epoch_name).max())
        windows = [e.over(keys) for part in columns for e in part.windows]
        self._main = _Runs(keys, merges, rows_max, windows)
        self._longs = [
            _Runs((*keys, part.item), part.merges, rows_max)
            for part in aggregation.longs
        ]

    @property
    def merged_rows(self) -> int:
        """Rows of the largest table, without those put aside."""
        return max(runs.merged_rows for runs in (self._main, *self._longs))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all rows take, about."""
        return sum(runs.nbytes for runs in (self._main, *self._longs))

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Aggregate a batch of rows and take its parts."""
        if frame.is_empty():
            return
        keys = self._aggregation.keys
        parts = frame.group_by(keys).agg(self._partials)
        parts = parts.with_columns(*self._refine, self._now())
        self._main.add(parts, is_grouped=True)
        for part, runs in zip(self._aggregation.longs, self._longs, strict=True):
            runs.add(part.rows(frame, keys), is_grouped=True)

    def add(self, frame: pl.DataFrame) -> None:
        """Take parts that other tables have merged; a key may come several times."""
        if frame.is_empty():
            return
        self._take(frame.with_columns(self._now()))

    def merged(self) -> pl.DataFrame | None:
        """Return a row of parts per key; None if there is none.

        The items of a long part become a list in the row of their key.
        """
        table = self._packed()
        return None if table is None else table.drop(self._epoch_name)

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch."""
        self._epoch = epoch

    def delta(self, since: int) -> pl.DataFrame:
        """Return the parts of the keys touched after epoch `since`; of all after 0."""
        table = self._packed()
        if table is None:
            return pl.DataFrame()
        is_new = pl.col(self._epoch_name) > since
        table = table if since == 0 else table.filter(is_new)
        return table.drop(self._epoch_name)

    def apply(self, frame: pl.DataFrame) -> None:
        """Put the parts of a delta in the place of what these keys have."""
        before = self._packed()
        fresh = frame.with_columns(self._now())
        if before is None:
            self._take(fresh)
            return
        self._main.clear()
        for runs in self._longs:
            runs.clear()
        self._take(
            latest([before, fresh.select(before.columns)], self._aggregation.keys)
        )

    def dump(self) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
        """Return all parts and the epochs of these rows, in the order they came in.

        Nothing is merged for it, so a key may come several times.
        """
        assert not self._longs, "their items are not in the rows of their keys"
        for run in self._main.runs:
            yield run.drop(self._epoch_name), run[self._epoch_name]

    def finished(self) -> pl.DataFrame | None:
        """Return the result, a row per key; None if there is none."""
        table = self._main.merged()
        if table is None:
            return None
        keys, longs = self._aggregation.keys, self._aggregation.longs
        table = table.select(*keys, *(p.finish for p in self._aggregation.columns))
        finished = [part.finish(items, keys) for part, items in self._items()]
        table = self._side_by_side(table, finished).with_columns(
            pl.col(part.name).fill_null(pl.lit(part.default)) for part in longs
        )
        return table.select(*keys, *self._aggregation.results)

    def _now(self) -> pl.Expr:
        return pl.lit(self._epoch, pl.Int64).alias(self._epoch_name)

    def _take(self, frame: pl.DataFrame) -> None:
        """Take parts together with their epochs."""
        keys = self._aggregation.keys
        packed = [part.name for part in self._aggregation.longs]
        self._main.add(frame.drop(packed))
        for name, runs in zip(packed, self._longs, strict=True):
            lists = frame.select(*keys, name).filter(pl.col(name).is_not_null())
            runs.add(lists.explode(name).unnest(name))

    def _packed(self) -> pl.DataFrame | None:
        """Return a row per key: parts, lists of items, and the epoch."""
        table = self._main.merged()
        if table is None:
            return None
        keys = self._aggregation.keys
        packed = []
        for part, items in self._items():
            fields = pl.struct(pl.exclude(keys)).alias(part.name)
            packed.append(items.select(*keys, fields).group_by(keys).agg(part.name))
        return self._side_by_side(table, packed)

    def _items(self) -> Iterator[tuple[MultiRowPartial, pl.DataFrame]]:
        for part, runs in zip(self._aggregation.longs, self._longs, strict=True):
            items = runs.merged()
            assert items is not None, "every batch was also given to the long tables"
            yield part, items

    def _side_by_side(
        self, table: pl.DataFrame, others: list[pl.DataFrame]
    ) -> pl.DataFrame:
        """Put the columns of the same key into one row.

        Not by a join: NaN is one key, and Polars joins do not always see it so.
        """
        if not others:
            return table
        rows = pl.concat([table, *others], how="diagonal")
        first = pl.all().first(ignore_nulls=True)
        return rows.group_by(self._aggregation.keys).agg(first)


def latest(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Return the last row of every key.

    Grouped like the state itself, so that the same values are the same key.
    """
    rows = pl.concat(frames)
    return rows.group_by(keys).agg(pl.all().last())


def _another_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


class _Runs:
    """A table that is grouped again when enough rows have been put aside."""

    def __init__(
        self,
        keys: Sequence[str],
        merges: Sequence[pl.Expr],
        rows_max: int | None,
        windows: Sequence[pl.Expr] = (),
    ) -> None:
        self._keys = keys
        self._merges = merges
        self._windows = windows
        self._rows_max = rows_max
        self.clear()

    def clear(self) -> None:
        #: The table first, if there is one, then what was put aside.
        self.runs: list[pl.DataFrame] = []
        self._pending_rows = 0
        self._is_grouped = True
        self.merged_rows = 0

    @property
    def nbytes(self) -> int:
        return sum(int(run.estimated_size()) for run in self.runs)

    def add(self, frame: pl.DataFrame, *, is_grouped: bool = False) -> None:
        self._is_grouped = is_grouped and not self.runs
        self.runs.append(frame)
        self._pending_rows += frame.height
        limit = max(_PENDING_ROWS, self.merged_rows)
        if self._rows_max is not None:
            limit = min(limit, self._rows_max)
        if self._pending_rows >= limit:
            self.merged()

    def merged(self) -> pl.DataFrame | None:
        if not self.runs:
            return None
        if not self._is_grouped:
            rows = pl.concat(self.runs, rechunk=False)
            if self._windows:
                rows = rows.with_columns(self._windows)
            self.runs = [rows.group_by(self._keys).agg(self._merges)]
            self._is_grouped = True
        self._pending_rows = 0
        self.merged_rows = self.runs[0].height
        return self.runs[0]
