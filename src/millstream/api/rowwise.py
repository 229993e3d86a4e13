"""Find out whether a query looks at one row at a time.

A stream comes in batches, cut anywhere.  A query whose answer depends on the cut -
`cum_sum`, `rank`, `sum`, `over` - would silently give another answer each time.  Instead
of a list of all that Polars can do, ask Polars: a query is row-wise if it gives the same
for a sample at once and for its rows one by one.

Nothing here knows about plans or flows.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import user_location
from millstream.errors import UsageError
from millstream.plan.many_rows import (
    ANY_ADVICE,
    FUNCTION_ADVICE,
    advice,
    has_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polars.datatypes import DataType

    from millstream.plan.expressions import Tree

__all__ = [
    "checked_query",
    "checked_schema",
    "expression_tree",
    "expressions_in",
    "sample_frame",
]

Query = "Callable[[pl.LazyFrame], pl.LazyFrame]"

_NUMBERS = (3, 1, 4, None, 1, 5, 9, 2)
_TEXTS = ("b", "a", "c", None, "a", "e", "", "d")
_DIGITS = 12
_START = datetime(2020, 1, 1, tzinfo=UTC)


def checked_query(
    verb: str,
    query: Callable[[pl.LazyFrame], pl.LazyFrame],
    schema: pl.Schema,
    exprs: Iterable[Any] = (),
) -> pl.Schema:
    """Return the schema of the query's answer; refuse what Polars or a stream cannot do.

    `exprs` are the arguments that the query is made of; those that are expressions give
    better advice.
    """
    result = checked_schema(verb, query, schema)
    parts = list(expressions_in(exprs))
    for expr in parts:
        found = advice(expression_tree(expr))
        if found is not None:
            raise UsageError(_many_rows(verb, f"has {found[0]}, which", found[1]))
    is_row_wise = _is_row_wise(verb, query, schema)
    has_functions = any(has_function(expression_tree(expr)) for expr in parts)
    if is_row_wise is None:
        is_row_wise = not has_functions and all(map(_may_be_separable, parts))
    if not is_row_wise:
        instead = FUNCTION_ADVICE if has_functions else ANY_ADVICE
        raise UsageError(_many_rows(verb, "has an expression that", instead))
    return result


def checked_schema(
    verb: str, query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: pl.Schema
) -> pl.Schema:
    """Return the schema of the query's answer; refuse what Polars cannot do."""
    try:
        return query(pl.LazyFrame(schema=schema)).collect_schema()
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise UsageError(_polars_words(verb, error, schema)) from None


def expressions_in(values: Iterable[Any]) -> Iterator[pl.Expr]:
    """Yield the expressions among arguments, also those in lists."""
    for value in values:
        if isinstance(value, pl.Expr):
            yield value
        elif isinstance(value, list | tuple | set | dict):
            yield from expressions_in(
                value.values() if isinstance(value, dict) else value
            )


def expression_tree(expr: pl.Expr) -> Tree:
    """Return an expression as Polars writes it; None for what it cannot write."""
    try:
        return json.loads(expr.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - pickling a user's function may raise anything
        return None


def _polars_words(verb: str, error: Exception, schema: pl.Schema) -> str:
    return (
        f"`{verb}` at {user_location()}: {_first_line(error)}; the columns here are "
        f"{dict(schema)}"
    )


def _many_rows(verb: str, what: str, instead: str) -> str:
    return (
        f"`{verb}` at {user_location()} {what} looks at more than one row, and a stream "
        f"comes in batches cut anywhere; {instead}"
    )


def _may_be_separable(expr: pl.Expr) -> bool:
    """Whether Polars itself says so, or cannot say.

    Reading times without a format is not: Polars guesses it from the first text.  Where
    all texts are of one format, as they mostly are, it guesses the same in every batch.
    """
    try:
        return expr.meta.is_row_separable() or "strptime" in str(expr)
    except pl.exceptions.PolarsError:
        return True


def _is_row_wise(
    verb: str, query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: pl.Schema
) -> bool | None:
    """Compare the answer for a sample with the answers for its rows.

    A sample that the query cannot take, such as text that is no number, decides nothing.
    """
    sample = sample_frame(schema)
    try:
        at_once = query(sample.lazy()).collect()
        one_by_one = pl.concat(
            [query(sample[i : i + 1].lazy()).collect() for i in range(sample.height)]
        )
    except pl.exceptions.ShapeError:
        msg = (
            f"`{verb}` at {user_location()} has an expression that makes more or fewer "
            "values than there are rows; use .filter(...), .drop_nulls(...) or "
            ".explode(...) of the frame"
        )
        raise UsageError(msg) from None
    except Exception:  # noqa: BLE001 - a user's function inside may raise anything
        return None
    return _rounded(at_once).equals(_rounded(one_by_one), null_equal=True)


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame without last digits, which for one row may be others.

    Polars divides one value by a number, and multiplies many by its reciprocal.
    """
    return frame.with_columns(pl.selectors.float().round_sig_figs(_DIGITS))


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
