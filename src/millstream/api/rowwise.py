"""Find out whether a query looks at one row at a time.

A stream comes in batches, cut anywhere.  A query whose answer depends on the cut -
`cum_sum`, `rank`, `sum`, `over` - would silently give another answer each time.  What an
expression is decides (`millstream.columns.many_rows`); Polars' own
``meta.is_row_separable()`` does not, as it says yes to ``a.is_in(b)``.  As a second line
a sample is tried: at once, and cut into pieces.

Nothing here knows about plans or flows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import user_location
from millstream.columns.many_rows import (
    ANY_ADVICE,
    CODES,
    LENGTH_ADVICE,
    Finding,
    coded_inputs,
    finding,
)
from millstream.columns.partials import expression
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars.datatypes import DataType

    from millstream.columns.expressions import Tree

__all__ = [
    "checked_query",
    "checked_schema",
    "expression_tree",
    "expressions_in",
    "given",
    "sample_frame",
    "why_not_row_wise",
]

_SMALL = (3, 1, 4, None, 1, 5, 9, 2)
_WIDE = (0, -7, None, 70_001, 3, -7, 1, None)
_CUTS = ((1, 1, 6), (3, 5))
_TEXTS = ("b", "a", "c", "ab", "a", "e", "", "d")
_DIGITS = 12
_VALUES = (str, bytes, pl.Series, pl.DataFrame, pl.LazyFrame)
_LENGTH = f"more or fewer values than there are rows; {LENGTH_ADVICE}"
_UNWRITABLE = Finding(
    "a Python function",
    "cannot be pickled, so it cannot be sent to workers",
    "make what it needs inside it",
)
_CODED = Finding("the number of a category", "depends on other rows", CODES)
_START = datetime(2020, 1, 1, tzinfo=UTC)


def checked_query(
    verb: str,
    query: Callable[[pl.LazyFrame], pl.LazyFrame],
    schema: pl.Schema,
    exprs: Iterable[Any] = (),
) -> pl.Schema:
    """Return the schema of the query's answer; refuse what Polars or a stream cannot do.

    `exprs` are the arguments that the query is made of.
    """
    result = checked_schema(verb, query, schema)
    for expr in expressions_in(exprs):
        found = why_not_row_wise(expr, schema)
        if found is not None:
            msg = (
                f"`{verb}` at {user_location()} has {found.name}, which {found.words}; "
                f"{found.instead}"
            )
            raise UsageError(msg)
    _try(verb, query, schema)
    return result


def why_not_row_wise(
    expr: pl.Expr, schema: pl.Schema, *, in_groups: bool = False
) -> Finding | None:
    """Return what in an expression may look at more than one row."""
    tree = expression_tree(expr)
    if tree is None:
        return _UNWRITABLE
    found = finding(tree, in_groups=in_groups)
    return _CODED if found is None and _takes_codes(tree, schema) else found


def _takes_codes(tree: Tree, schema: pl.Schema) -> bool:
    """Whether it takes the physical numbers of categories."""
    rows = pl.LazyFrame(schema=schema)
    for coded in coded_inputs(tree):
        found = rows.select(expression(coded)).collect_schema()
        if any("Categorical" in str(dtype) for dtype in found.values()):
            return True
    return False


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
        elif isinstance(value, dict):
            yield from expressions_in(value.values())
        elif isinstance(value, Iterable) and not isinstance(value, _VALUES):
            yield from expressions_in(value)


def given(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return arguments that can be looked at more than once."""
    return tuple(
        list(value) if isinstance(value, Iterator) else value for value in values
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


def _try(
    verb: str, query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: pl.Schema
) -> None:
    """Compare the answers for samples with those for their pieces.

    A sample that the query cannot take, such as text that is no number, decides nothing.
    """
    for numbers in (_SMALL, _WIDE):
        try:
            is_same = _is_same(query, sample_frame(schema, numbers))
        except pl.exceptions.ShapeError:
            is_same, words = False, f"has an expression that makes {_LENGTH}"
        except Exception:  # noqa: BLE001 - a user's function inside may raise anything
            is_same, words = True, ""
        else:
            words = f"gives another answer for other batches; {ANY_ADVICE}"
        if not is_same:
            msg = f"`{verb}` at {user_location()} {words}"
            raise UsageError(msg)


def _is_same(
    query: Callable[[pl.LazyFrame], pl.LazyFrame], sample: pl.DataFrame
) -> bool:
    """Whether the answer does not depend on how rows are cut into batches."""
    at_once = _rounded(query(sample.lazy()).collect())
    for sizes in _CUTS:
        ends = list(accumulate(sizes))
        pieces = [sample[end - n : end] for end, n in zip(ends, sizes, strict=True)]
        answers = [query(piece.lazy()).collect() for piece in pieces]
        if not at_once.equals(_rounded(pl.concat(answers)), null_equal=True):
            return False
    return True


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame without last digits, which for one row may be others.

    Polars divides one value by a number, and multiplies many by its reciprocal.
    """
    return frame.with_columns(pl.selectors.float().round_sig_figs(_DIGITS))


def sample_frame(
    schema: pl.Schema, numbers: tuple[int | None, ...] = _SMALL
) -> pl.DataFrame:
    """Return a few rows of the schema: unsorted, with repetitions and nulls.

    Every column has other values, because some functions compare columns.
    """
    columns = {
        name: _sample(dtype, numbers[i % 8 :] + numbers[: i % 8], i)
        for i, (name, dtype) in enumerate(schema.items())
    }
    return pl.DataFrame(columns, schema=schema, strict=False)


def _sample(dtype: DataType, numbers: Iterable[int | None], offset: int) -> list[Any]:
    make = _maker(dtype)
    return [None if number is None else make(number + offset) for number in numbers]


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
    pl.String: lambda n: _TEXTS[n % len(_TEXTS)],
    pl.Categorical: lambda n: _TEXTS[n % len(_TEXTS)],
    pl.Binary: lambda n: bytes([n % 256]),
    pl.Decimal: Decimal,
    pl.Date: lambda n: date(2020, 1, 1) + timedelta(days=n),
    pl.Time: lambda n: time(n % 24),
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
