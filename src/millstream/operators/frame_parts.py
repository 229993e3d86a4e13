"""The parts of aggregates: how each is made of rows, merged, and finished.

A part that is a few numbers per key lives in columns of the table of keys
(`ColumnPart`).  A part that is many items per key - distinct values, registers or bins
of a sketch - lives in a long table of its own, one row per key and item (`LongPart`), so
that merging is the same vectorised grouping.

Nothing here holds state or knows about operators.
"""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import cloudpickle
import polars as pl

from millstream.plan.expressions import column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars.datatypes import DataType

    from millstream.plan.expressions import Part, Tree

__all__ = [
    "BinsPart",
    "ColumnPart",
    "DistinctPart",
    "LongPart",
    "RegistersPart",
    "UserFunctions",
    "expression",
    "part_in_columns",
    "user_part",
]

REGISTERS = 4096
_HASH_SEED = 0x6D74
_RANK_BITS = 52
_WIDE = (pl.Int128, pl.UInt128)
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
_SPARSE = 2.5

ACCURACY = 0.01
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
# Bins of positive numbers are numbered around this, those of negative ones around its
# opposite; no finite number is as far away from 1 as _INFINITE - _ONE bins.
_ONE = 40_000
_INFINITE = 80_000
_NAN = 80_001


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
class ColumnPart:
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
    terms
        Where each kept column is a sum over rows: what one row adds to it; else none.
    kinds
        The types of those columns.
    """

    partials: tuple[pl.Expr, ...]
    merges: tuple[pl.Expr, ...]
    finish: pl.Expr
    refine: tuple[pl.Expr, ...] = ()
    windows: tuple[pl.Expr, ...] = ()
    terms: tuple[pl.Expr, ...] = ()
    kinds: tuple[DataType, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the kept columns."""
        return [partial.meta.output_name() for partial in self.partials]


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """An aggregate in the user's own words; its state is any object."""

    init: Callable[[], Any]
    update: Callable[[Any, pl.Series], Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]


def part_in_columns(  # noqa: PLR0911 - one per kind
    part: Part, name: str, source: DataType | None, result: DataType
) -> ColumnPart:
    """Return how a part is kept that needs a few numbers, or a list, per key."""
    partial = expression(part.tree)
    match part.kind:
        case "Len" | "Count" | "NullCount":
            counted = _simple(name, partial, pl.col(name).sum())
            return replace(counted, **_counting(part, name, result))
        case "Sum" if _is_plain_number(result):
            summed = _simple(name, partial, pl.col(name).sum())
            values = expression(part.input)
            if not keeps_length(values):
                return summed
            term = values.cast(result).fill_null(0).alias(name)
            return replace(summed, terms=(term,), kinds=(result,))
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
        case "First" | "Last":
            return _end(part, name)
        case _:
            return _simple(name, partial, expression(part.over(column(name))))


def _counting(part: Part, name: str, result: DataType) -> dict[str, Any]:
    """Return what a row adds to a count, where that is the row's own business."""
    if part.kind == "Len" or _counts_nulls(part):
        one = pl.repeat(1, pl.len(), dtype=pl.Int64).alias(name)
        return {"terms": (one,), "kinds": (result,)}
    values = expression(part.input)
    if not keeps_length(values):
        return {}
    is_counted = values.is_null() if part.kind == "NullCount" else values.is_not_null()
    return {"terms": (is_counted.cast(pl.Int64).alias(name),), "kinds": (result,)}


def _counts_nulls(part: Part) -> bool:
    """Whether it counts all rows, whatever is in them."""
    body = (
        part.tree.get("Agg", {}).get("Count") if isinstance(part.tree, dict) else None
    )
    return bool(body and body["include_nulls"] and keeps_length(expression(part.input)))


def _is_plain_number(dtype: DataType) -> bool:
    return dtype.is_float() or (dtype.is_integer() and dtype not in _WIDE)


def _items(name: str) -> pl.Expr:
    """Return all items of the lists of a key."""
    return pl.col(name).explode(empty_as_null=False)


def _simple(name: str, partial: pl.Expr, merge: pl.Expr) -> ColumnPart:
    return ColumnPart((partial.alias(name),), (merge.alias(name),), pl.col(name))


def _top(values: pl.Expr, part: Part) -> pl.Expr:
    """Return the top values in order; for many keys faster than Polars' own top_k."""
    ordered = values.sort(descending=not part.is_bottom, nulls_last=True)
    return ordered.head(expression(part.limit))


def _added(name: str) -> pl.Expr:
    return pl.col(name).sum().alias(name)


def _mean(
    values: pl.Expr, name: str, source: DataType | None, result: DataType
) -> ColumnPart:
    total, count = f"{name}.sum", f"{name}.count"
    is_time = source is not None and source.is_temporal()
    numbers = (
        values.cast(result).to_physical().cast(pl.Int128)
        if is_time
        else values.cast(pl.Float64)
    )
    mean = pl.when(pl.col(count) > 0).then(pl.col(total) / pl.col(count))
    part = ColumnPart(
        (numbers.sum().alias(total), values.count().alias(count)),
        (_added(total), _added(count)),
        (mean.cast(pl.Int64).cast(result) if is_time else mean).alias(name),
    )
    if is_time or not keeps_length(values):
        return part
    terms = (
        numbers.fill_null(0).alias(total),
        values.is_not_null().cast(pl.Int64).alias(count),
    )
    return replace(part, terms=terms, kinds=(pl.Float64(), pl.UInt32()))


def _variance(values: pl.Expr, name: str, part: Part) -> ColumnPart:
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
    return ColumnPart(
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


def _end(part: Part, name: str) -> ColumnPart:
    """Keep the first or last value to arrive; some batches may have none for a key."""
    values = expression(part.input)
    if keeps_length(values):
        again = expression(part.over(column(name)))
        return _simple(name, expression(part.tree), again)
    count = f"{name}.count"
    held = pl.col(name).filter(pl.col(count) > 0)
    return ColumnPart(
        (expression(part.tree).alias(name), values.len().alias(count)),
        (
            (held.first() if part.kind == "First" else held.last()).alias(name),
            _added(count),
        ),
        pl.col(name),
    )


def user_part(
    name: str, values: pl.Expr, user: UserFunctions, result: DataType
) -> ColumnPart:
    """Return how an aggregate of the user's own is kept: pickled, per key."""

    def partial(groups: Sequence[pl.Series]) -> bytes:
        return _pickled(user.update(user.init(), groups[0]))

    def merge(groups: Sequence[pl.Series]) -> bytes:
        states: list[bytes] = groups[0].to_list()
        if len(states) == 1:
            return states[0]
        return _pickled(reduce(user.merge, map(pickle.loads, states)))

    def finish(state: bytes) -> Any:
        return user.finish(pickle.loads(state))  # noqa: S301 - our own bytes

    held = pl.col(name)
    return ColumnPart(
        (_by_group(values, partial).alias(name),),
        (_by_group(held, merge).alias(name),),
        held.map_elements(finish, return_dtype=result, skip_nulls=False),
    )


def _by_group(
    values: pl.Expr, function: Callable[[Sequence[pl.Series]], bytes]
) -> pl.Expr:
    return pl.map_groups([values], function, pl.Binary, returns_scalar=True)


def _pickled(state: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(state)
    return pickled


@dataclass(frozen=True, slots=True)
class LongPart:
    """A part kept in a table with one row per key and item; the base of all such.

    The columns of that table are the keys, `item`, and those of `merges`.
    """

    name: str
    values: pl.Expr

    @property
    def item(self) -> str:
        """Name of the column that is a key beside the keys."""
        return f"{self.name}.item"

    @property
    def weight(self) -> str:
        """Name of the column that tells something about the item."""
        return f"{self.name}.weight"

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        """Aggregates over the rows of the same key and item."""
        raise NotImplementedError

    @property
    def default(self) -> int | None:
        """The value of the part for a key without items."""
        return 0

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return the table for a batch of rows."""
        raise NotImplementedError

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return the value of the part, under its name, for every key that has items."""
        raise NotImplementedError

    def _valued(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return keys and values, one row each; a filter may have left some out."""
        values = self.values.alias(self.item)
        if keeps_length(self.values):
            return frame.select(*keys, values)
        lists = frame.group_by(keys).agg(values.implode())
        return lists.explode(self.item, empty_as_null=False)


class DistinctPart(LongPart):
    """The different values, null among them."""

    __slots__ = ()

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return ()

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        return self._valued(frame, keys).group_by(*keys, self.item).agg()

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        return table.group_by(keys).agg(pl.len().alias(self.name))


class RegistersPart(LongPart):
    """HyperLogLog: how rare the rarest hash was, in each of 4096 registers."""

    __slots__ = ()

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return (pl.col(self.weight).max(),)

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        bits = pl.lit(2**_RANK_BITS, pl.UInt64)
        hashes = pl.col(self.item)
        zeros = (hashes % bits).bitwise_leading_zeros().cast(pl.Int16)
        return (
            self._valued(frame, keys)
            .with_columns(hashes.hash(_HASH_SEED))
            .select(
                *keys,
                (hashes // bits).cast(pl.UInt16),
                (zeros - (63 - _RANK_BITS)).cast(pl.UInt8).alias(self.weight),
            )
            .group_by(*keys, self.item)
            .agg(self.merges)
        )

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        ranks = pl.col(self.weight).cast(pl.Float64)
        used, powers = f"{self.name}.used", f"{self.name}.powers"
        unused = REGISTERS - pl.col(used).cast(pl.Int64)
        raw = _ALPHA * REGISTERS**2 / (pl.col(powers) + unused)
        linear = REGISTERS * (REGISTERS / unused).log()
        is_sparse = (raw <= _SPARSE * REGISTERS) & (unused > 0)
        estimate = pl.when(is_sparse).then(linear).otherwise(raw).round()
        return (
            table.group_by(keys)
            .agg(pl.len().alias(used), (-ranks * math.log(2)).exp().sum().alias(powers))
            .select(*keys, estimate.cast(pl.UInt32).alias(self.name))
        )


@dataclass(frozen=True, slots=True)
class BinsPart(LongPart):
    """Counts in bins whose bounds grow by 2 %: any quantile within 1 % of its value."""

    quantile: float

    @property
    def default(self) -> int | None:
        return None

    @property
    def merges(self) -> tuple[pl.Expr, ...]:
        return (pl.col(self.weight).sum(),)

    def rows(self, frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        values = pl.col(self.item)
        return (
            self._valued(frame, keys)
            .filter(values.is_not_null())
            .with_columns(_bin(values.cast(pl.Float64)).alias(self.item))
            .group_by(*keys, self.item)
            .agg(pl.len().cast(pl.UInt64).alias(self.weight))
        )

    def finish(self, table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
        counts = pl.col(self.weight)
        rank = self.quantile * (counts.sum() - 1)
        chosen = pl.col(self.item).filter(counts.cum_sum() > rank).first()
        return (
            table.sort(self.item)
            .group_by(keys)
            .agg(chosen)
            .select(*keys, _middle(pl.col(self.item)).alias(self.name))
        )


def _bin(values: pl.Expr) -> pl.Expr:
    """Return the number of the bin; the numbers are in the order of the values."""
    power = (values.abs().log() / math.log(_GAMMA)).ceil()
    number = power.clip(-_ONE + 1, _INFINITE - _ONE) + _ONE
    return (
        pl.when(values.is_nan())
        .then(_NAN)
        .when(values == 0)
        .then(0)
        .otherwise(number * values.sign())
        .cast(pl.Int32)
    )


def _middle(bins: pl.Expr) -> pl.Expr:
    """Return the value of a bin from which none of its values is farther than 1 %."""
    power = bins.abs() - _ONE
    size = (power.cast(pl.Float64) * math.log(_GAMMA)).exp() * (2 / (_GAMMA + 1))
    return (
        pl.when(bins == _NAN)
        .then(float("nan"))
        .when(bins == 0)
        .then(0.0)
        .when(bins.abs() == _INFINITE)
        .then(bins.sign() * float("inf"))
        .otherwise(size * bins.sign())
        .cast(pl.Float64)
    )
