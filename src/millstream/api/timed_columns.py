"""Queries of users on frames that have hidden columns: they see all others.

What is written for the columns that users see must not touch those of event time: wild
cards and selectors leave them out, and what picks columns picks them besides.

Nothing here knows plans or flows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.rowwise import expression_tree
from millstream.plan.frame_windows import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.columns.expressions import Tree

    Query = Callable[[pl.LazyFrame], pl.LazyFrame]

__all__ = ["beside_time", "filled_columns", "seen", "seen_all"]

_HIDDEN_SELECTOR = {"ByName": {"names": list(HIDDEN), "strict": False}}


def beside_time(query: Query, schema: pl.Schema) -> Query:
    """Return a query that gives these columns, and the hidden ones behind them."""
    columns = [*schema, *HIDDEN]
    return lambda frame: query(frame).select(columns)


def seen(value: Any) -> Any:
    """Return an argument of a verb such that it does not choose hidden columns.

    Examples
    --------
    >>> frame = pl.DataFrame({"x": [1], "__time": [2]})
    >>> frame.select(seen(pl.all() + 1)).columns
    ['x']
    """
    if isinstance(value, str):
        is_choice = value == "*" or value.startswith("^")
        return seen(pl.col(value)) if is_choice else value
    if isinstance(value, list | tuple | set):
        return [seen(item) for item in value]
    if not isinstance(value, pl.Expr):
        return value
    tree = expression_tree(value)
    replaced = _replaced(tree)
    if replaced == tree:
        return value
    return pl.Expr.deserialize(json.dumps(replaced).encode(), format="json")


def seen_all(values: Iterable[Any]) -> list[Any]:
    """Return several arguments of a verb; see `seen`."""
    return [seen(value) for value in values]


def filled_columns(value: Any, schema: pl.Schema) -> list[str]:
    """Return the columns in which `fill_null` puts this value."""
    if isinstance(value, pl.Expr):
        return list(schema)
    nulls = pl.DataFrame({name: [None] for name in schema}, schema=schema)
    filled = nulls.lazy().fill_null(value).collect()
    return [column.name for column in filled if not column.null_count()]


def _replaced(tree: Tree) -> Tree:
    """Take the hidden columns out of every choice of columns."""
    if isinstance(tree, list):
        return [_replaced(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: {"Difference": [child, _HIDDEN_SELECTOR]}
        if key == "Selector"
        else _replaced(child)
        for key, child in tree.items()
    }
