"""What a key column of each data type looks like to an index: integers or strings.

Two values are the same key exactly if they are encoded alike, and decoding gives back
the value with its type.  Nothing here knows slots or the engines that give them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from millstream.errors import UsageError

__all__ = ["KeyColumn"]

Coding = Callable[[pl.Series], pl.Series]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One key column: its name and type, and both ways between it and its code."""

    name: str
    dtype: pl.DataType
    #: `Int64`, `String` or `Binary`.
    physical: pl.DataType
    encode: Coding
    decode: Coding

    @classmethod
    def of(cls, name: str, dtype: pl.DataType | type[pl.DataType]) -> KeyColumn:
        """Return the column of this type, or refuse a type that cannot be a key."""
        kind = dtype() if isinstance(dtype, type) else dtype
        codings = _codings(kind)
        if codings is None:
            msg = (
                f"column `{name}` of type {kind} cannot be a key; select its fields or "
                "cast it to a string, number, boolean or time first"
            )
            raise UsageError(msg)
        return cls(name, kind, *codings)

    @property
    def is_string(self) -> bool:
        """Whether its code is `String` or `Binary`."""
        return self.physical != pl.Int64

    def encoded(self, frame: pl.DataFrame) -> pl.Series:
        """Return the code of this column in a frame."""
        series = frame.get_column(self.name, default=None)
        if series is None:
            msg = f"key column `{self.name}` is missing; the batch has {frame.columns}"
            raise TypeError(msg)
        if series.dtype != self.dtype:
            msg = (
                f"key column `{self.name}` is {series.dtype}, expected {self.dtype}; "
                "cast it before it is used as a key"
            )
            raise TypeError(msg)
        return self.encode(series)

    def decoded(self, code: pl.Series) -> pl.Series:
        """Return the values that a code stands for."""
        # The code of no key at all has no type yet.
        return self.decode(code.cast(self.physical)).alias(self.name)


def _codings(dtype: pl.DataType) -> tuple[pl.DataType, Coding, Coding] | None:
    if dtype in (pl.String, pl.Binary):
        return dtype, _unchanged, _unchanged
    # Wider than 64 bits, or named values whose numbers differ from batch to batch.
    if isinstance(dtype, _AS_TEXT):
        return pl.String(), _cast(pl.String()), _cast(dtype)
    integers = _integer_codings(dtype)
    return (pl.Int64(), *integers) if integers else None


_AS_TEXT = (pl.Int128, pl.UInt128, pl.Decimal, pl.Categorical, pl.Enum)


def _integer_codings(dtype: pl.DataType) -> tuple[Coding, Coding] | None:
    if dtype.is_float():
        return _bits_of_floats, _floats_of_bits(dtype)
    if dtype == pl.UInt64:
        return _signed, _unsigned
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Null):
        return _cast(pl.Int64()), _cast(dtype)
    if dtype.is_temporal():
        return _ticks, _cast_through(dtype)
    return None


def _unchanged(series: pl.Series) -> pl.Series:
    return series


def _cast(dtype: pl.DataType) -> Coding:
    return lambda series: series.cast(dtype)


def _signed(series: pl.Series) -> pl.Series:
    return series.reinterpret(signed=True)


def _unsigned(series: pl.Series) -> pl.Series:
    return series.reinterpret(signed=False)


def _ticks(series: pl.Series) -> pl.Series:
    return series.to_physical().cast(pl.Int64)


def _cast_through(dtype: pl.DataType) -> Coding:
    physical = pl.Series([], dtype=dtype).to_physical().dtype
    return lambda series: series.cast(physical).cast(dtype)


def _bits_of_floats(series: pl.Series) -> pl.Series:
    """Return the bits of floats as `Float64`, with one zero and one NaN."""
    values = series.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0
    values[np.isnan(values)] = np.nan
    return _with_nulls_of(series, pl.Series(values.view(np.int64)))


def _floats_of_bits(dtype: pl.DataType) -> Coding:
    def decode(series: pl.Series) -> pl.Series:
        bits = np.ascontiguousarray(series.fill_null(0).to_numpy())
        values = pl.Series(bits.view(np.float64), dtype=pl.Float64)
        return _with_nulls_of(series, values).cast(dtype)

    return decode


def _with_nulls_of(series: pl.Series, values: pl.Series) -> pl.Series:
    if not series.null_count():
        return values
    return values.zip_with(series.is_not_null(), pl.Series([None], dtype=values.dtype))
