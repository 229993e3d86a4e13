"""Find out whether a query looks at one row at a time.

A stream comes in batches, cut anywhere.  A query whose answer depends on the cut -
`cum_sum`, `rank`, `sum`, `over` - would silently give another answer each time.  Instead
of a list of all that Polars can do, ask Polars: a query is row-wise if it gives the same
for a sample at once and for its rows one by one.

Nothing here knows about plans or flows.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import user_location
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars.datatypes import DataType

__all__ = ["checked_query", "sample_frame"]

Query = "Callable[[pl.LazyFrame], pl.LazyFrame]"

_NUMBERS = (3, 1, 4, None, 1, 5, 9, 2)
_TEXTS = ("b", "a", "c", None, "a", "e", "", "d")
_START = datetime(2020, 1, 1, tzinfo=UTC)


def checked_query(
    verb: str, query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: pl.Schema
) -> pl.Schema:
    """Return the schema of the query's answer; refuse what Polars or a stream cannot do."""
    try:
        result = query(pl.LazyFrame(schema=schema)).collect_schema()
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        msg = (
            f"`{verb}` at {user_location()}: {_first_line(error)}; the columns here are "
            f"{dict(schema)}"
        )
        raise UsageError(msg) from None
    if not _is_row_wise(query, schema):
        msg = (
            f"`{verb}` at {user_location()} has an expression that looks at more than "
            "one row, and a stream comes in batches cut anywhere; aggregate with "
            ".group_by(...).agg(...), or use .map_batches(...) if each batch may stand "
            "for itself"
        )
        raise UsageError(msg)
    return result


def _is_row_wise(
    query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: pl.Schema
) -> bool:
    """Compare the answer for a sample with the answers for its rows.

    A sample that the query cannot take, such as text that is no number, decides nothing.
    """
    sample = sample_frame(schema)
    try:
        at_once = query(sample.lazy()).collect()
        one_by_one = pl.concat(
            [query(sample[i : i + 1].lazy()).collect() for i in range(sample.height)]
        )
    except Exception:  # noqa: BLE001 - a user's function inside may raise anything
        return True
    return at_once.equals(one_by_one, null_equal=True)


def sample_frame(schema: pl.Schema) -> pl.DataFrame:
    """Return a few rows of the schema: unsorted, with repetitions and nulls."""
    columns = {name: _sample(dtype) for name, dtype in schema.items()}
    return pl.DataFrame(columns, schema=schema)


def _sample(dtype: DataType) -> list[Any]:
    make = _maker(dtype)
    return [None if number is None else make(number) for number in _NUMBERS]


def _maker(dtype: DataType) -> Callable[[int], Any]:
    if isinstance(dtype, pl.Struct):
        fields = {field.name: _maker(_instance(field.dtype)) for field in dtype.fields}
        return lambda n: {name: make(n) for name, make in fields.items()}
    if isinstance(dtype, pl.List | pl.Array):
        inner = _maker(_instance(dtype.inner))
        count = dtype.size if isinstance(dtype, pl.Array) else 2
        return lambda n: [inner(n + i) for i in range(count)]
    if isinstance(dtype, pl.Enum):
        categories = dtype.categories.to_list()
        return lambda n: categories[n % len(categories)] if categories else None
    if isinstance(dtype, pl.Datetime):
        zone = UTC if dtype.time_zone else None
        return lambda n: (_START + timedelta(hours=n)).replace(tzinfo=zone)
    for kind, make in _MAKERS.items():
        if isinstance(dtype, kind):
            return make
    return lambda _n: None


_MAKERS: dict[type[Any], Callable[[int], Any]] = {
    pl.Boolean: lambda n: n % 2 == 0,
    pl.String: lambda n: _TEXTS[n % len(_TEXTS)] or "x",
    pl.Categorical: lambda n: _TEXTS[n % len(_TEXTS)] or "x",
    pl.Binary: lambda n: bytes([n]),
    pl.Decimal: Decimal,
    pl.Date: lambda n: date(2020, 1, 1 + n),
    pl.Time: time,
    pl.Duration: lambda n: timedelta(minutes=n),
    pl.datatypes.IntegerType: lambda n: n,
    pl.datatypes.FloatType: lambda n: n + 0.5,
}


def _instance(dtype: Any) -> DataType:
    made: DataType = dtype() if isinstance(dtype, type) else dtype
    return made


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
