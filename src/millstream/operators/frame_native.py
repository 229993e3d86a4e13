"""Sums and counts by key at native speed: a slot per key, a NumPy column per part.

Where every part of an aggregation is a sum over rows of one number per row, state is a
`KeyIndex` and plain columns, and a batch is one look-up of its keys and one scatter-add
per column.  Until the compiled kernels are there, and for all other aggregations,
`PartialTable` does the same by grouping; what it has collected by then is taken over.

Nothing here knows about operators, tasks or the user's expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.operators.frame_table import PartialTable
from millstream.state.kernels import loading
from millstream.state.kernels.scatter import add_at
from millstream.state.keyindex import KeyIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.frame_table import FrameAggregation

__all__ = ["SlotTable", "StateTable"]

_CAPACITY = 1 << 16


class StateTable:
    """The parts of every key: grouped by Polars first, in slots once that is faster."""

    def __init__(
        self, aggregation: FrameAggregation, rows_max: int | None = None
    ) -> None:
        self._aggregation = aggregation
        self._table: PartialTable | SlotTable = PartialTable(aggregation, rows_max)
        self._may_change = aggregation.is_additive

    @property
    def merged_rows(self) -> int:
        """Rows of the table, without those put aside."""
        return self._table.merged_rows

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Aggregate a batch of rows."""
        self._change_over(frame)
        self._table.add_rows(frame)

    def add(self, frame: pl.DataFrame) -> None:
        """Take parts that other tables have merged."""
        self._change_over(frame)
        self._table.add(frame)

    def merged(self) -> pl.DataFrame | None:
        """Return a row of parts per key; None if there is none."""
        return self._table.merged()

    def finished(self) -> pl.DataFrame | None:
        """Return the result, a row per key; None if there is none."""
        return self._table.finished()

    def _change_over(self, frame: pl.DataFrame) -> None:
        if not self._may_change or loading.ready("index") is None:
            return
        if loading.ready("scatter") is None:
            return
        self._may_change = False
        before = self._table.merged()
        keys = {name: frame.schema[name] for name in self._aggregation.keys}
        self._table = SlotTable(self._aggregation, keys)
        if before is not None:
            self._table.add(before)


class SlotTable:
    """Additive parts in NumPy columns, one entry per slot of a key index."""

    def __init__(
        self, aggregation: FrameAggregation, keys: dict[str, pl.DataType]
    ) -> None:
        assert aggregation.is_additive
        self._aggregation = aggregation
        self._names = [name for part in aggregation.columns for name in part.names]
        self._terms = [term for part in aggregation.columns for term in part.terms]
        self._kinds = [kind for part in aggregation.columns for kind in part.kinds]
        self._index = KeyIndex(keys)
        self._columns: list[NDArray[Any]] = [
            np.zeros(_CAPACITY, dtype=np.float64 if kind.is_float() else np.int64)
            for kind in self._kinds
        ]

    @property
    def merged_rows(self) -> int:
        """Number of keys."""
        return len(self._index)

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Add what every row gives to the columns of its key."""
        if not frame.is_empty():
            self._scatter(frame, frame.select(self._terms))

    def add(self, frame: pl.DataFrame) -> None:
        """Add parts that other tables have merged."""
        if not frame.is_empty():
            self._scatter(frame, frame.select(self._names))

    def merged(self) -> pl.DataFrame | None:
        """Return a row of parts per key; None if there is none."""
        count = len(self._index)
        if count == 0:
            return None
        parts = [
            _series(name, column[:count], kind)
            for name, column, kind in zip(
                self._names, self._columns, self._kinds, strict=True
            )
        ]
        return self._index.keys().with_columns(parts)

    def finished(self) -> pl.DataFrame | None:
        """Return the result, a row per key; None if there is none."""
        table = self.merged()
        if table is None:
            return None
        keys = self._aggregation.keys
        table = table.select(*keys, *(p.finish for p in self._aggregation.columns))
        return table.select(*keys, *self._aggregation.results)

    def _scatter(self, keys: pl.DataFrame, terms: pl.DataFrame) -> None:
        slots = self._index.slots(keys)
        self._make_room(len(self._index))
        for target, series in zip(self._columns, terms.get_columns(), strict=True):
            add_at(target, slots, _values(series, target.dtype))

    def _make_room(self, count: int) -> None:
        capacity = len(self._columns[0])
        if count <= capacity:
            return
        while capacity < count:
            capacity *= 2
        self._columns = [
            np.concatenate([column, np.zeros(capacity - len(column), column.dtype)])
            for column in self._columns
        ]


def _values(series: pl.Series, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers of a column; those of UInt64 keep their bits."""
    if series.dtype == pl.UInt64:
        return series.to_numpy().view(np.int64)
    return np.ascontiguousarray(series.to_numpy(), dtype=dtype)


def _series(name: str, column: NDArray[Any], kind: pl.DataType) -> pl.Series:
    if kind == pl.UInt64:
        return pl.Series(name, column.view(np.uint64))
    return pl.Series(name, column).cast(kind)
