"""Notes for the planner: which verbs do nothing but cut text into pieces.

What such a note means is said in `millstream.plan.text_steps`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.plan.text_steps import Exploded, KnownOnly, known_only, text_lists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.plan.text_steps import TextLists

__all__ = ["exploded", "filtered", "selected", "without_nulls"]


def selected(
    exprs: Sequence[Any], named: Mapping[str, Any], schema: pl.Schema
) -> TextLists | None:
    """Note a `select` of one expression that cuts a column of `schema`."""
    if len(exprs) + len(named) != 1:
        return None
    ((name, expr),) = [(None, expr) for expr in exprs] + list(named.items())
    lists = text_lists(_tree(expr), name) if isinstance(expr, pl.Expr) else None
    is_text = lists is not None and schema.get(lists.column) == pl.String
    return lists if is_text else None


def exploded(columns: Sequence[Any]) -> Exploded | None:
    """Note an `explode` of one column."""
    if len(columns) != 1 or not isinstance(columns[0], str):
        return None
    return Exploded(columns[0], _has_empty())


def filtered(predicates: Sequence[Any]) -> KnownOnly | None:
    """Note a `filter` that only leaves nulls out."""
    if len(predicates) != 1 or not isinstance(predicates[0], pl.Expr):
        return None
    return known_only(_tree(predicates[0]))


def without_nulls(subset: Any, schema: pl.Schema) -> KnownOnly | None:
    """Note a `drop_nulls` of one column."""
    names = list(schema) if subset is None else subset
    name = names[0] if isinstance(names, list | tuple) and len(names) == 1 else names
    return KnownOnly(name) if isinstance(name, str) else None


def _tree(expr: pl.Expr) -> Any:
    try:
        return json.loads(expr.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):  # a Python function is inside
        return None


@cache
def _has_empty() -> bool:
    """Ask Polars whether an empty list becomes a row, which depends on its version."""
    lists = pl.LazyFrame({"x": [[], ["a"]]}, schema={"x": pl.List(pl.String)})
    return lists.explode("x").collect().height > 1
