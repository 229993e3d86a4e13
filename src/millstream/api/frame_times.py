"""What is a timestamp, or a watermark, of the rows of a frame: a column or an expression.

Nothing here knows plans or flows.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from millstream.api.building import checked_callable
from millstream.api.rowwise import checked_query
from millstream.errors import UsageError

__all__ = ["time_of", "watermarks_of"]

_PER_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""How many units of time are a millisecond."""


def time_of(timestamp: Any, schema: pl.Schema) -> tuple[pl.Expr, Any]:
    """Return the milliseconds of a row, and what type of time they were."""
    if not isinstance(timestamp, str | pl.Expr):
        msg = f"it takes a column or an expression, got {timestamp!r}"
        raise UsageError(msg)
    expr = pl.col(timestamp) if isinstance(timestamp, str) else timestamp
    made = checked_query("event_time", lambda f: f.select(expr), schema, (expr,))
    if len(made) != 1:
        msg = f"it takes one column, got {list(made)}"
        raise UsageError(msg)
    (kind,) = made.values()
    if kind.is_integer():
        return expr.cast(pl.Int64), None
    if kind == pl.Date:
        return expr.cast(pl.Datetime("ms")).to_physical(), pl.Datetime("ms")
    if isinstance(kind, pl.Datetime):
        number = expr.to_physical() // _PER_MILLISECOND[kind.time_unit]
        return number, pl.Datetime("ms", kind.time_zone)
    msg = f"timestamps are Int64, in milliseconds since 1970, or Datetime; {expr} is {kind}"
    raise UsageError(msg)


def watermarks_of(watermark: Any, schema: pl.Schema) -> Any:
    """Return what makes a watermark of a row, or functions that do."""
    if watermark is None or isinstance(watermark, str | pl.Expr):
        return None if watermark is None else time_of(watermark, schema)[0]
    checked_callable("event_time", watermark)
    return watermark
