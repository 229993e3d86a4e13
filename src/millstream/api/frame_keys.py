"""The keys of a grouped frame: columns, or what is computed of a row.

A computed key is a column of its own while rows are grouped, because aggregates may mean
the column that it was computed from, under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import located, user_location
from millstream.api.rowwise import checked_query
from millstream.columns.kernels.columns import KeyColumn
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polars.datatypes import DataType

__all__ = ["GroupKeys", "group_keys"]

_COMPUTED = "group_by."


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """What rows are grouped by.

    Attributes
    ----------
    names
        What the keys are called in the result.
    columns
        What they are called while rows are grouped.
    exprs
        The keys as the user wrote them.
    dtypes
        Their types.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    exprs: tuple[pl.Expr, ...]
    dtypes: tuple[DataType, ...]

    @property
    def computed(self) -> dict[str, pl.Expr]:
        """The columns that are made only for grouping."""
        by_column = zip(self.columns, self.exprs, strict=True)
        return {column: expr for column, expr in by_column if not _is_column(expr)}

    @property
    def described(self) -> tuple[str, ...]:
        """The keys with their types, as the plan shows them."""
        return tuple(
            f"{column}: {kind}" + ("" if _is_column(expr) else f" = {expr}")
            for column, expr, kind in zip(
                self.columns, self.exprs, self.dtypes, strict=True
            )
        )

    @property
    def renamed(self) -> dict[str, str]:
        """What the columns made for grouping are called in the result."""
        names = dict(zip(self.columns, self.names, strict=True))
        return {column: names[column] for column in self.computed}


def group_keys(
    schema: pl.Schema, keys: Iterable[Any], named: Mapping[str, Any]
) -> GroupKeys:
    """Return the keys that the arguments of `group_by` mean; refuse what are none."""
    exprs = [_expression(key) for key in _flat(keys)]
    exprs += [_expression(key).alias(name) for name, key in named.items()]
    _check_columns(exprs, schema)
    prefix = _COMPUTED
    while any(column.startswith(prefix) for column in schema):
        prefix += "."
    by_column = {f"{prefix}{number}": expr for number, expr in enumerate(exprs)}
    made = checked_query(
        "group_by",
        lambda frame: frame.with_columns(**by_column).select(*by_column),
        schema,
        exprs,
    )
    columns = tuple(
        expr.meta.output_name() if _is_column(expr) else column
        for column, expr in by_column.items()
    )
    names = tuple(expr.meta.output_name() for expr in exprs)
    with located("group_by"):
        for name, dtype in zip(names, made.values(), strict=True):
            KeyColumn.of(name, dtype)
    return GroupKeys(names, columns, tuple(exprs), tuple(made.values()))


def _flat(keys: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for key in keys:
        flat += key if isinstance(key, list | tuple) else [key]
    return flat


def _expression(key: Any) -> pl.Expr:
    if isinstance(key, pl.Expr):
        return key
    if isinstance(key, str):
        return pl.col(key)
    msg = (
        f"`group_by` at {user_location()} takes names of columns and Polars expressions, "
        f"got {type(key).__name__} {key!r}"
    )
    raise UsageError(msg)


def _is_column(expr: pl.Expr) -> bool:
    return expr.meta.is_column()


def _check_columns(exprs: list[pl.Expr], schema: pl.Schema) -> None:
    """Refuse keys that are no columns, or the same twice, or none at all."""
    for expr in exprs:
        if expr.meta.has_multiple_outputs():
            msg = (
                f"`group_by` at {user_location()} takes one column per key, got {expr}; "
                "name the columns one by one"
            )
            raise UsageError(msg)
    plain = [expr.meta.output_name() for expr in exprs if _is_column(expr)]
    is_wrong = any(name not in schema for name in plain)
    if is_wrong or not exprs or len(set(plain)) < len(plain):
        got = ", ".join(map(repr, plain)) or "none"
        msg = (
            f"`group_by` at {user_location()} takes one or more different columns, or "
            f"expressions of them, got {got}; the columns here are {dict(schema)}"
        )
        raise UsageError(msg)
