"""Random data frames for property tests: types, nulls, extremes, repetitions, cuts."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KEYS", "VALUES", "canonical", "cuts", "frames"]

NAN = float("nan")
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64(): st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    pl.UInt64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pl.Int8(): st.integers(-128, 127),
    pl.Float64(): st.sampled_from([0.0, -0.0, 1.5, 1e308, -1e308, 5e-324])
    | st.sampled_from([float("inf"), float("-inf"), NAN]),
    pl.Float32(): st.integers(-3, 3).map(float) | st.just(NAN),
    pl.String(): st.sampled_from(["", "a", "A", "ä", "a\u0308", "\U0001f980", "b" * 40])
    | st.text(max_size=3),
    pl.Binary(): st.binary(max_size=2),
    pl.Boolean(): st.booleans(),
    pl.Date(): st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    pl.Time(): st.sampled_from([time(0), time(23, 59, 59, 999_999)]),
    pl.Datetime("us", "Europe/Berlin"): st.datetimes(
        datetime(1950, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
        datetime(2100, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
        timezones=st.just(None),
    ),
    pl.Duration("ms"): st.integers(-5, 5).map(lambda n: timedelta(milliseconds=n)),
    pl.Decimal(20, 2): st.integers(-3, 3).map(lambda n: Decimal(n) / 100),
    pl.Enum(["low", "high"]): st.sampled_from(["low", "high"]),
    pl.Categorical(): st.sampled_from(["z", "y", "ü"]),
}
KEYS = {kind: values for kind, values in VALUES.items() if kind != pl.Time()}


@st.composite
def frames(
    draw: st.DrawFn,
    columns: Mapping[str, dict[Any, st.SearchStrategy[Any]]],
    rows_max: int = 25,
) -> pl.DataFrame:
    """Return rows of columns whose types are drawn from what each may have."""
    height = draw(st.integers(0, rows_max))
    made = []
    for name, kinds in columns.items():
        kind = draw(st.sampled_from(list(kinds)))
        items = st.none() | kinds[kind]
        values = draw(st.lists(items, min_size=height, max_size=height))
        made.append(_series(name, values, kind))
    return pl.DataFrame(made)


def _series(name: str, values: list[Any], kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.Datetime) and kind.time_zone:
        plain = pl.Series(name, values, pl.Datetime(kind.time_unit))
        return plain.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)
    return pl.Series(name, values, kind)


@st.composite
def cuts(draw: st.DrawFn, frame: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the frame in pieces of any lengths, some of them empty."""
    places = draw(st.lists(st.integers(0, frame.height), max_size=5).map(sorted))
    bounds = [0, *places, frame.height]
    return [
        frame.slice(bounds[i], bounds[i + 1] - bounds[i])
        for i in range(len(bounds) - 1)
    ]


def canonical(frame: pl.DataFrame) -> list[str]:
    """Return the rows as a sorted list of texts; NaN equals NaN."""
    return sorted(repr(row) for row in frame.rows())
