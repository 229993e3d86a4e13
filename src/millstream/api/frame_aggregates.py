"""Aggregates of frames by key: sketches, aggregates of one's own, and how they are built.

Polars expressions say what to compute.  They are taken apart into parts that can be merged
from the results for some of the rows (`millstream.columns.expressions`); what has no such
parts is refused here, while the flow is being built, with what to use instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import checked_function, located, user_location
from millstream.api.rowwise import checked_query, why_not_row_wise
from millstream.columns import expressions
from millstream.columns.expressions import Refused
from millstream.columns.long_partials import (
    BinsPartial,
    DistinctPartial,
    MultiRowPartial,
    RegistersPartial,
)
from millstream.columns.many_rows import group_advice
from millstream.columns.partials import (
    ScalarPartial,
    UserFunctions,
    expression,
    part_in_columns,
    user_part,
)
from millstream.columns.table import FrameAggregation
from millstream.errors import UsageError
from millstream.operators.windows.frame_time_partials import part_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polars.datatypes import DataType

    from millstream.api.frame_keys import GroupKeys
    from millstream.columns.expressions import Part, Tree

__all__ = [
    "FrameAggregate",
    "approx_n_unique",
    "approx_quantile",
    "built",
    "frame_aggregate",
]

_ELSEWHERE = {"avg": "mean", "nunique": "n_unique", "size": "len", "stddev": "std"}
"""Aggregates by the names that pandas and PySpark have for them."""

_LONG = {"NUnique": DistinctPartial, "ApproxNUnique": RegistersPartial}


@dataclass(frozen=True, slots=True)
class FrameAggregate:
    """An aggregate that Polars has no expression for; an argument of `agg`."""

    values: pl.Expr
    name: str
    dtype: DataType
    how: float | UserFunctions

    def alias(self, name: str) -> FrameAggregate:
        """Return the same under another name."""
        return replace(self, name=name)


def built(
    schema: pl.Schema,
    keys: GroupKeys,
    exprs: Iterable[Any],
    named: Mapping[str, Any],
    *,
    in_time: bool = False,
) -> tuple[FrameAggregation, pl.Schema]:
    """Return how the arguments of `agg` are computed, and the columns of the result.

    `in_time` says that the order of rows is that of their timestamps.
    """
    with located("agg"):
        builder = _Builder(schema, keys, in_time=in_time)
        for expr in _arguments(exprs, named):
            builder.add(expr)
        return builder.aggregation(), builder.schema()


def approx_n_unique(column: str | pl.Expr) -> pl.Expr:
    """Count distinct values, within about 2 %, in at most 4096 small numbers per key.

    Examples
    --------
    >>> import millstream as ms
    >>> visitors = ms.approx_n_unique("visitor")
    """
    return _column(column).approx_n_unique()


def approx_quantile(column: str | pl.Expr, quantile: float) -> FrameAggregate:
    """Estimate a quantile, within 1 % of its value, in a few hundred counts per key.

    Nulls do not count; NaN is greater than all numbers.

    Examples
    --------
    >>> import millstream as ms
    >>> slow = ms.approx_quantile("seconds", 0.99)
    """
    if not 0 <= quantile <= 1:
        msg = (
            f"`approx_quantile` at {user_location()} takes a quantile from 0 to 1, "
            f"got {quantile!r}"
        )
        raise UsageError(msg)
    values = _column(column)
    return FrameAggregate(
        values, values.meta.output_name(), pl.Float64(), float(quantile)
    )


def frame_aggregate(
    column: str | pl.Expr,
    *,
    init: Callable[[], Any],
    update: Callable[[Any, pl.Series], Any],
    merge: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any],
    dtype: Any,
) -> FrameAggregate:
    """Aggregate in Python: any state per key that can be pickled and merged.

    `update` gets the state and the values of the key in a batch; which rows make a batch
    is up to the engine, so the result must not depend on it.  Nor must it depend on the
    order of values: they come as they arrive, in windows of event time too, and `merge`
    gets states in any order.  Where the order of timestamps counts, take `implode` or
    `WindowedFrame.map_window`.

    Examples
    --------
    >>> import millstream as ms, polars as pl
    >>> longest = ms.frame_aggregate(
    ...     "word",
    ...     init=str,
    ...     update=lambda best, words: max([best, *words], key=len),
    ...     merge=lambda one, other: max(one, other, key=len),
    ...     finish=lambda best: best,
    ...     dtype=pl.String,
    ... )
    """
    for function in (init, update, merge, finish):
        checked_function("frame_aggregate", function)
    values = _column(column)
    kind = dtype() if isinstance(dtype, type) else dtype
    functions = UserFunctions(init, update, merge, finish)
    return FrameAggregate(values, values.meta.output_name(), kind, functions)


def _column(column: str | pl.Expr) -> pl.Expr:
    return pl.col(column) if isinstance(column, str) else column


def _arguments(exprs: Iterable[Any], named: Mapping[str, Any]) -> list[Any]:
    """Return everything to compute, in order, under its name."""
    flat: list[Any] = []
    for expr in exprs:
        is_one = isinstance(expr, str | dict | pl.Expr | FrameAggregate)
        flat += [expr] if is_one or not hasattr(expr, "__iter__") else expr
    flat += [_expression(expr).alias(name) for name, expr in named.items()]
    return [_expression(expr) for expr in flat]


def _expression(value: Any) -> pl.Expr | FrameAggregate:
    if isinstance(value, pl.Expr | FrameAggregate):
        return value
    if isinstance(value, dict):
        raise UsageError(_spelled(value))
    return pl.col(value) if isinstance(value, str) else pl.lit(value)


def _spelled(asked: dict[Any, Any]) -> str:
    """Return how to write what pandas and PySpark take as a dict."""
    hows = [(name, how) for name, each in asked.items() for how in _flat(each)]
    exprs = ", ".join(
        f"pl.col({name!r}).{_ELSEWHERE.get(how, how)}()" for name, how in hows
    )
    return f"it takes expressions, got the dict {asked}; write .agg({exprs})"


def _flat(each: Any) -> list[Any]:
    return list(each) if isinstance(each, list | tuple) else [each]


class _Builder:
    """Takes expressions one by one and becomes a `FrameAggregation`."""

    def __init__(
        self, schema: pl.Schema, keys: GroupKeys, *, in_time: bool = False
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._in_time = in_time
        prefix = "__part."
        while any(name.startswith(prefix) for name in schema):
            prefix += "_"
        self._kept: list[str] = []
        self._split = expressions.Split(prefix)
        self._columns: dict[str, ScalarPartial] = {}
        self._longs: dict[str, MultiRowPartial] = {}
        self._parts = pl.Schema()
        self._results: list[pl.Expr] = []
        self._made = pl.Schema(dict(zip(keys.names, keys.dtypes, strict=True)))

    def add(self, expr: pl.Expr | FrameAggregate) -> None:
        """Take one argument of `agg`."""
        try:
            if isinstance(expr, FrameAggregate):
                self._add_own(expr)
            else:
                self._add_expression(expr)
        except Refused as error:
            what = expr.values if isinstance(expr, FrameAggregate) else expr
            msg = f"cannot aggregate {what}: {error}"
            raise UsageError(msg) from None

    def schema(self) -> pl.Schema:
        """Return the schema of the result."""
        return self._made

    def aggregation(self) -> FrameAggregation:
        """Return what the operators need; parts are in the same order in any version."""
        return FrameAggregation(
            self._keys.columns,
            tuple(part for _, part in sorted(self._columns.items())),
            tuple(part for _, part in sorted(self._longs.items())),
            tuple(self._results),
            self._keys.described,
            tuple(self._kept),
        )

    def _add_expression(self, expr: pl.Expr) -> None:
        made = self._schema_of(expr)
        trees = self._expanded(expr, len(made))
        for tree, (name, dtype) in zip(trees, made.items(), strict=True):
            finish = expression(expressions.split(tree, self._split))
            self._make_parts()
            self._check_finish(finish)
            self._result(finish, name, dtype)

    def _schema_of(self, expr: pl.Expr) -> pl.Schema:
        """Return the columns that Polars would make of it."""
        rows = pl.LazyFrame(schema=self._schema)
        try:
            made = rows.group_by(self._keys.exprs).agg(expr).collect_schema()
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            msg = (
                f"{_first_line(error)}; the columns here are {dict(self._schema)}, the "
                f"keys {', '.join(self._keys.names)}"
            )
            raise UsageError(msg) from None
        return pl.Schema(list(made.items())[len(self._keys.names) :])

    def _expanded(self, expr: pl.Expr, count: int) -> list[Any]:
        """Return an expression tree for every column the expression makes."""
        tree = _tree(expr)
        chosen = {}
        for number, selector in enumerate(expressions.selectors(tree)):
            rows = pl.LazyFrame(schema=self._schema).drop(
                self._keys.names, strict=False
            )
            found = rows.select(expression(selector)).collect_schema()
            chosen[number] = found.names()
        trees = expressions.expanded(tree, chosen) if chosen else [tree]
        if len(trees) != count:
            msg = "it chooses several columns in a way not known here; name them one by one"
            raise Refused(msg)
        return trees

    def _make_parts(self) -> None:
        """Find out how to keep the parts that are new."""
        for name, part in self._split.parts.items():
            if name not in self._parts:
                self._make_part(part, name)

    def _make_part(self, part: Part, name: str) -> None:
        made = self._schema_of(expression(part.tree).alias(name))
        result = next(iter(made.values()))
        source = None
        if part.input is not None:
            source = self._checked_input(expression(part.input))
        if part.kind in _LONG:
            self._longs[name] = _LONG[part.kind](name, expression(part.input))
        else:
            timed = part_in_time(part, name) if self._in_time else None
            known = timed or part_in_columns(part, name, source, result)
            self._columns[name] = known
        self._parts[name] = result
        in_time = " in time" if self._in_time else ""
        self._keep(f"{expression(part.tree)}{in_time}", name, source, result)

    def _keep(
        self, what: str, name: str, source: DataType | None, result: DataType
    ) -> None:
        """Describe a column of the state in words that a snapshot is compared with."""
        of = "" if source is None else f" of {source}"
        self._kept.append(f"{what}{of} as {result} #{name.rpartition('.')[2]}")

    def _checked_input(self, values: pl.Expr) -> DataType:
        """Return the type of what is aggregated; refuse what is not row-wise."""
        found = why_not_row_wise(values, self._schema, in_groups=True)
        if found is None:
            query = lambda f: f.select(values)  # noqa: E731 - a query
            return next(iter(checked_query("agg", query, self._schema).values()))
        instead = group_advice(_tree(values)) or (
            "aggregate columns or what is computed from them row by row, use "
            "ms.frame_aggregate(...) for functions of your own"
        )
        msg = (
            f"{found.name} looks at several rows of a key, which may come in many "
            f"batches; {instead}, or {expressions.COLLECT}"
        )
        raise Refused(msg)

    def _check_finish(self, finish: pl.Expr) -> None:
        """Refuse what would look at several keys, such as the rank of a sum."""
        found = why_not_row_wise(finish, self._parts)
        if found is not None:
            msg = (
                f"what is done with the aggregates has {found.name}, which {found.words}, "
                f"and there is one row per key; do it after the aggregation: "
                f"{found.instead}"
            )
            raise Refused(msg)
        if finish.meta.root_names():
            checked_query("agg", lambda f: f.select(finish), self._parts)

    def _add_own(self, own: FrameAggregate) -> None:
        is_quantile = not isinstance(own.how, UserFunctions)
        kind = "approx_quantile" if is_quantile else "frame_aggregate"
        name = self._split.named(kind, _tree(own.values))
        self._schema_of(own.values.alias(name))
        dtype = self._checked_input(own.values)
        self._keep(f"{kind}({own.values})", name, dtype, own.dtype)
        if isinstance(own.how, UserFunctions):
            made = user_part(name, own.values, own.how, own.dtype)
            self._columns[name] = made
        elif dtype.is_numeric() or dtype == pl.Boolean:
            self._longs[name] = BinsPartial(name, own.values, own.how)
        else:
            msg = f"approx_quantile takes numbers, got {dtype}"
            raise Refused(msg)
        self._result(pl.col(name), own.name, own.dtype)

    def _result(self, finish: pl.Expr, name: str, dtype: DataType) -> None:
        if name in self._made or name in self._keys.columns:
            msg = f"two columns of the result are named {name!r}; rename one by .alias(...)"
            raise UsageError(msg)
        self._made[name] = dtype
        self._results.append(finish.cast(dtype).alias(name))


def _tree(expr: pl.Expr) -> Tree:
    return json.loads(expr.meta.serialize(format="json"))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
