"""Parts of aggregates that are a few values per key: how they are made and merged.

They live in columns of the table of keys.  A part that is many items per key is a
`MultiRowPartial`, in `long_partials`.

Nothing here holds state or knows about operators.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Literal

import cloudpickle
import polars as pl

from millstream.columns.expressions import column
from millstream.state.plain import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars.datatypes import DataType

    from millstream.columns.expressions import Part, Tree
    from millstream.values import Value

__all__ = [
    "Fold",
    "How",
    "ScalarPartial",
    "UserFunctions",
    "expression",
    "keeps_length",
    "part_in_columns",
    "user_part",
]

How = Literal["add", "min", "max", "first", "last", "moments"]

_WIDE = (pl.Int128, pl.UInt128)
_HALF = 1 << 32
_BY_VALUE = b"v"
"""What a state begins with that only cloudpickle could store."""


def expression(tree: Tree) -> pl.Expr:
    """Return the expression that Polars wrote as this tree."""
    return pl.Expr.deserialize(json.dumps(tree).encode(), format="json")


def keeps_length(values: pl.Expr) -> bool:
    """Whether there surely is one value per row."""
    try:
        return values.meta.is_length_preserving()
    except pl.exceptions.PolarsError:  # of a Python function, Polars cannot say
        return False


@dataclass(frozen=True, slots=True)
class Fold:
    """How the columns of a part are made of rows one by one, by slots.

    Attributes
    ----------
    how
        What is done with the values of the rows of a key.
    terms
        What one row gives to each kept column.
    kinds
        The types of those columns.
    skips_nulls
        Whether a null is no value, for `first` and `last`.
    """

    how: How
    terms: tuple[pl.Expr, ...]
    kinds: tuple[DataType, ...]
    skips_nulls: bool = True


@dataclass(frozen=True, slots=True)
class ScalarPartial:
    """A part kept in columns of the table of keys.

    Attributes
    ----------
    partials
        Aggregates over rows; their names are the columns that are kept.
    merges
        Aggregates over those columns, under the same names.
    finish
        From those columns, row by row, the value of the part.
    refine
        What is done to the partials before they are kept, row by row.
    windows
        Aggregates over all rows of the key that `merges` want to see in every row.
    fold
        How the kept columns are made row by row, without grouping; None if they cannot.
    is_pickled
        Whether they hold pickled objects: bytes to be read only if nobody else wrote them.
    """

    partials: tuple[pl.Expr, ...]
    merges: tuple[pl.Expr, ...]
    finish: pl.Expr
    refine: tuple[pl.Expr, ...] = ()
    windows: tuple[pl.Expr, ...] = ()
    fold: Fold | None = None
    is_pickled: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the kept columns."""
        return [partial.meta.output_name() for partial in self.partials]


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """An aggregate in the user's own words; its state is any object."""

    init: Callable[[], Value]
    update: Callable[[Value, pl.Series], Value]
    merge: Callable[[Value, Value], Value]
    finish: Callable[[Value], Value]


def part_in_columns(  # noqa: PLR0911 - one per kind
    part: Part, name: str, source: DataType | None, result: DataType
) -> ScalarPartial:
    """Return how a part is kept that needs a few numbers, or a list, per key."""
    partial = expression(part.tree)
    match part.kind:
        case "Len" | "Count" | "NullCount":
            return _count(part, name, result)
        case "Sum" if _is_plain_number(result) or result == pl.Duration:
            summed = _simple(name, partial, pl.col(name).sum())
            values = expression(part.input)
            if not keeps_length(values):
                return summed
            term = values.cast(result).alias(name)
            return replace(summed, fold=Fold("add", (term,), (result,)))
        case "HasNulls":
            return _simple(name, partial, pl.col(name).any())
        case "Implode":
            return _simple(name, partial, _items(name).implode())
        case "TopK":
            values = expression(part.input)
            return _simple(name, _top(values, part), _top(_items(name), part))
        case "Mean":
            return _mean(expression(part.input), name, source, result)
        case "Var" | "Std":
            return _variance(expression(part.input), name, part)
        case "First" | "Last" if not keeps_length(expression(part.input)):
            return _end(part, name)
        case _:
            kept = _simple(name, partial, expression(part.over(column(name))))
            return replace(kept, fold=_keeping(part, name, source, result))


def _count(part: Part, name: str, result: DataType) -> ScalarPartial:
    """Keep 64 bits, as a stream may have more rows than fit into what Polars returns."""
    counted = ScalarPartial(
        (expression(part.tree).cast(pl.Int64).alias(name),),
        (_added(name),),
        pl.col(name).cast(result),
    )
    if part.kind == "Len" or _counts_nulls(part):
        term = pl.repeat(1, pl.len(), dtype=pl.Int64)
    elif keeps_length(values := expression(part.input)):
        is_counted = (
            values.is_null() if part.kind == "NullCount" else values.is_not_null()
        )
        term = is_counted.cast(pl.Int64)
    else:
        return counted
    return replace(counted, fold=Fold("add", (term.alias(name),), (pl.Int64(),)))


def _counts_nulls(part: Part) -> bool:
    """Whether it counts all rows, whatever is in them."""
    body = (
        part.tree.get("Agg", {}).get("Count") if isinstance(part.tree, dict) else None
    )
    return bool(body and body["include_nulls"] and keeps_length(expression(part.input)))


def _is_plain_number(dtype: DataType) -> bool:
    return dtype.is_float() or (dtype.is_integer() and dtype not in _WIDE)


_KEEPING: dict[str, tuple[How, bool]] = {
    "Min": ("min", True),
    "Max": ("max", True),
    "First": ("first", False),
    "Last": ("last", False),
    "FirstNonNull": ("first", True),
    "LastNonNull": ("last", True),
}


def _keeping(
    part: Part, name: str, source: DataType | None, result: DataType
) -> Fold | None:
    """Return how to keep one of the values, where each is 64 bits at most."""
    if part.kind not in _KEEPING or source != result:
        return None
    is_flat = _is_plain_number(result) or result.is_temporal() or result == pl.Boolean
    if not is_flat or part.propagates_nans:
        return None
    values = expression(part.input)
    if not keeps_length(values):
        return None
    how, skips_nulls = _KEEPING[part.kind]
    return Fold(how, (values.alias(name),), (result,), skips_nulls)


def _items(name: str) -> pl.Expr:
    """Return all items of the lists of a key."""
    return pl.col(name).explode(empty_as_null=False)


def _simple(name: str, partial: pl.Expr, merge: pl.Expr) -> ScalarPartial:
    return ScalarPartial((partial.alias(name),), (merge.alias(name),), pl.col(name))


def _top(values: pl.Expr, part: Part) -> pl.Expr:
    """Return the top values in order; for many keys faster than Polars' own top_k."""
    ordered = values.sort(descending=not part.is_bottom, nulls_last=True)
    return ordered.head(expression(part.limit))


def _added(name: str) -> pl.Expr:
    return pl.col(name).sum().alias(name)


def _mean(
    values: pl.Expr, name: str, source: DataType | None, result: DataType
) -> ScalarPartial:
    if source is not None and source.is_temporal():
        return _mean_time(values.cast(result), name, result)
    numbers, total, count = values.cast(pl.Float64), f"{name}.sum", f"{name}.count"
    mean = pl.when(pl.col(count) > 0).then(pl.col(total) / pl.col(count))
    columns = {total: numbers, count: values.is_not_null().cast(pl.Int64)}
    return _sums(columns, (pl.Float64(), pl.Int64()), mean.alias(name), values)


def _mean_time(values: pl.Expr, name: str, result: DataType) -> ScalarPartial:
    """Sum the halves of ticks, as a sum of ticks has no room in 64 bits."""
    high, low, count = f"{name}.high", f"{name}.low", f"{name}.count"
    ticks = values.to_physical().cast(pl.Int64)
    total = pl.col(high).cast(pl.Int128) * _HALF + pl.col(low)
    mean = pl.when(pl.col(count) > 0).then(total / pl.col(count))
    columns = {
        high: ticks // _HALF,
        low: ticks & (_HALF - 1),
        count: values.is_not_null().cast(pl.Int64),
    }
    finish = mean.cast(pl.Int64).cast(result).alias(name)
    return _sums(columns, (pl.Int64(),) * 3, finish, values)


def _sums(
    columns: dict[str, pl.Expr],
    kinds: tuple[DataType, ...],
    finish: pl.Expr,
    values: pl.Expr,
) -> ScalarPartial:
    """Return a part of sums over rows."""
    part = ScalarPartial(
        tuple(term.sum().alias(name) for name, term in columns.items()),
        tuple(_added(name) for name in columns),
        finish,
    )
    if not keeps_length(values):
        return part
    terms = tuple(term.alias(name) for name, term in columns.items())
    return replace(part, fold=Fold("add", terms, kinds))


def _variance(values: pl.Expr, name: str, part: Part) -> ScalarPartial:
    """Keep count, sum and the sum of squared distances from the mean.

    Merging adds the squared distances of the means from their common mean: unlike the
    sum of squares it loses no digits where the mean is much greater than the variance.
    """
    count, total, squares = f"{name}.count", f"{name}.sum", f"{name}.squares"
    all_count, all_total = f"{count}.all", f"{total}.all"
    numbers = values.cast(pl.Float64)
    n, kept = pl.col(count), pl.col(squares)
    mean = pl.col(total) / n.clip(1)
    common = pl.col(all_total) / pl.col(all_count).clip(1)
    variance = pl.when(n > part.ddof).then(kept / (n - part.ddof))
    made = ScalarPartial(
        (
            numbers.count().alias(count),
            numbers.sum().alias(total),
            numbers.var(ddof=0).alias(squares),
        ),
        (
            _added(count),
            _added(total),
            (kept + n * (mean - common).pow(2)).sum().alias(squares),
        ),
        (variance.sqrt() if part.kind == "Std" else variance).alias(name),
        refine=(n.cast(pl.Int64), kept.fill_null(0.0) * n),
        windows=(n.sum().alias(all_count), pl.col(total).sum().alias(all_total)),
    )
    if not keeps_length(values):
        return made
    terms = (
        values.is_not_null().cast(pl.Int64).alias(count),
        numbers.alias(total),
        (numbers - numbers).alias(squares),  # NaN where it is not finite, as in Polars
    )
    kinds = (pl.Int64(), pl.Float64(), pl.Float64())
    return replace(made, fold=Fold("moments", terms, kinds))


def _end(part: Part, name: str) -> ScalarPartial:
    """Keep the first or last value to arrive; some batches have none for a key."""
    values = expression(part.input)
    count = f"{name}.count"
    held = pl.col(name).filter(pl.col(count) > 0)
    return ScalarPartial(
        (expression(part.tree).alias(name), values.len().alias(count)),
        (
            (held.first() if part.kind == "First" else held.last()).alias(name),
            _added(count),
        ),
        pl.col(name),
    )


def user_part(
    name: str, values: pl.Expr, user: UserFunctions, result: DataType
) -> ScalarPartial:
    """Return how an aggregate of the user's own is kept: pickled, per key."""
    kept = f"{name}.pickled"

    def partial(groups: Sequence[pl.Series]) -> bytes:
        return _encoded(user.update(user.init(), groups[0]))

    def merge(groups: Sequence[pl.Series]) -> bytes:
        states: list[bytes] = groups[0].to_list()
        if len(states) == 1:
            return states[0]
        return _encoded(reduce(user.merge, map(_decoded, states)))

    def finish(state: bytes) -> Value:
        return user.finish(_decoded(state))

    held = pl.col(kept)
    finished = held.map_elements(finish, return_dtype=result, skip_nulls=False)
    return ScalarPartial(
        (_by_group(values, partial).alias(kept),),
        (_by_group(held, merge).alias(kept),),
        finished.alias(name),
        is_pickled=True,
    )


def _by_group(
    values: pl.Expr, function: Callable[[Sequence[pl.Series]], bytes]
) -> pl.Expr:
    return pl.map_groups([values], function, pl.Binary, returns_scalar=True)


def _encoded(state: Value) -> bytes:
    """Return the state of an aggregate; classes that no path leads to go with it."""
    try:
        return encode(state)
    except (AttributeError, TypeError, pickle.PicklingError):
        return _BY_VALUE + bytes(cloudpickle.dumps(state))


def _decoded(data: bytes) -> Value:
    if data[:1] == _BY_VALUE:
        return pickle.loads(data[1:])  # noqa: S301 - our own bytes
    return decode(data)
