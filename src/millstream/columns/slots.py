"""The kept columns of a part as columns of slots: Polars on one side, NumPy on the other.

A value is 64 bits: floats as they are; integers, booleans and times by their physical
integer; unsigned ones of 64 bits so that they keep their order.

Nothing here knows keys, batches of other parts, or where slots come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from millstream.columns.kernels.native import NO_NULLS
from millstream.columns.kernels.scatter import VALUE, Extreme, Held, Moments, SlotColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from numpy.typing import NDArray
    from polars.datatypes import DataType

    from millstream.columns.kernels.scatter import Numbers
    from millstream.columns.partials import Fold, ScalarPartial

    Slots = NDArray[np.int64]
    Pick = Callable[[SlotColumn], Numbers]

__all__ = ["SlotPartial", "bits", "slot_part", "values_of"]

_SIGN = np.int64(-(2**63))


class SlotPartial(Protocol):
    """The state of one part, for all slots."""

    @property
    def columns(self) -> Sequence[SlotColumn]:
        """Everything that is kept, to make room in it or to forget entries of it."""
        ...

    def fold(self, slots: Slots, terms: Sequence[pl.Series]) -> None:
        """Take what every row gives; the terms of a part merged elsewhere are it."""
        ...

    def kept(self, pick: Pick) -> Iterator[pl.Series]:
        """Return the kept columns, with the entries that `pick` takes of each."""
        ...


def slot_part(part: ScalarPartial, kernels: ModuleType) -> SlotPartial:
    """Return empty columns for a part that has a fold."""
    assert part.fold is not None
    if part.fold.how == "add":
        return _Sums(part.names, part.fold, kernels)
    if part.fold.how == "moments":
        return _Moments(part.names, kernels)
    return _Kept(part.names[0], part.fold, kernels)


class _Sums:
    """Sums and counts; a null adds nothing."""

    def __init__(self, names: list[str], fold: Fold, kernels: ModuleType) -> None:
        self._names = names
        self._kinds = fold.kinds
        self.columns = [SlotColumn(kernels, _number(kind)) for kind in fold.kinds]

    def fold(self, slots: Slots, terms: Sequence[pl.Series]) -> None:
        for column, term in zip(self.columns, terms, strict=True):
            column.add(slots, bits(term))

    def kept(self, pick: Pick) -> Iterator[pl.Series]:
        parts = zip(self._names, self.columns, self._kinds, strict=True)
        for name, column, kind in parts:
            yield values_of(name, pick(column), kind)


class _Kept:
    """The least, largest, first or last value."""

    def __init__(self, name: str, fold: Fold, kernels: ModuleType) -> None:
        self._name = name
        (self._kind,) = fold.kinds
        number = _number(self._kind)
        self._column: Held
        if fold.how in ("min", "max"):
            self._column = Extreme(kernels, number, is_least=fold.how == "min")
        else:
            skips_nulls = fold.skips_nulls
            self._column = Held(
                kernels, number, is_first=fold.how == "first", skips_nulls=skips_nulls
            )

    @property
    def columns(self) -> Sequence[SlotColumn]:
        return self._column.values, self._column.marks

    def fold(self, slots: Slots, terms: Sequence[pl.Series]) -> None:
        (term,) = terms
        nulls = term.is_null().to_numpy() if term.null_count() else NO_NULLS
        values = bits(term)
        if self._kind == pl.UInt64:
            values = values ^ _SIGN
        self._column.fold(slots, values, nulls)

    def kept(self, pick: Pick) -> Iterator[pl.Series]:
        values = pick(self._column.values)
        if self._kind == pl.UInt64:
            values = values ^ _SIGN
        series = values_of(self._name, values, self._kind)
        is_value = pick(self._column.marks) == VALUE
        if not is_value.all():
            nothing = pl.Series([None], dtype=series.dtype)
            series = series.zip_with(pl.Series(is_value), nothing)
        yield series


class _Moments:
    """Count, sum and squared distances from the mean."""

    def __init__(self, names: list[str], kernels: ModuleType) -> None:
        self._names = names
        self._moments = Moments(kernels)

    @property
    def columns(self) -> Sequence[SlotColumn]:
        return self._moments.counts, self._moments.totals, self._moments.squares

    def fold(self, slots: Slots, terms: Sequence[pl.Series]) -> None:
        counts, totals, squares = map(bits, terms)
        self._moments.fold(slots, counts, totals, squares)

    def kept(self, pick: Pick) -> Iterator[pl.Series]:
        for name, column in zip(self._names, self.columns, strict=True):
            yield pl.Series(name, pick(column))


def _number(kind: DataType) -> type[np.generic]:
    return np.float64 if kind.is_float() else np.int64


def bits(series: pl.Series) -> Numbers:
    """Return the values as `int64` or `float64`; in the place of a null is a zero."""
    series = series.to_physical()
    if series.dtype == pl.UInt64:
        series = series.reinterpret(signed=True)
    series = series.cast(pl.Float64() if series.dtype.is_float() else pl.Int64())
    if series.null_count():
        series = series.fill_null(0)
    return np.ascontiguousarray(series.to_numpy())


def values_of(name: str, values: Numbers, kind: DataType) -> pl.Series:
    """Return the values that `bits` made numbers of; sums wrap around as in Polars."""
    series = pl.Series(name, values)
    if kind == pl.UInt64:
        return series.reinterpret(signed=False)
    if kind.is_temporal():
        return series.cast(pl.Series(dtype=kind).to_physical().dtype).cast(kind)
    return series.cast(kind, wrap_numerical=kind.is_integer())
