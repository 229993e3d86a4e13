"""Names and types of columns that users give, and names that they cannot give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RESERVED", "check_names", "checked_columns"]

RESERVED = "__"
"""What the columns of event time, windows and joins of streams begin with."""


def check_names(columns: Iterable[str]) -> None:
    """Refuse columns of the user that might be taken for those of the engine."""
    for name in columns:
        if name.startswith(RESERVED):
            msg = (
                f"the column {name!r} begins with two underscores, as those of event "
                "time, windows and joins of streams do; rename it before"
            )
            raise UsageError(msg)


def checked_columns(schema: Any) -> pl.Schema:
    """Return the names and types of columns that a user has written down."""
    try:
        known = pl.Schema(schema)
    except (TypeError, ValueError) as error:
        raise UsageError(_no_schema(schema, f" ({error})")) from None
    if not known or not all(isinstance(name, str) for name in known):
        raise UsageError(_no_schema(schema))
    return known


def _no_schema(schema: Any, why: str = "") -> str:
    return (
        "schema= takes the names and types of the columns, such as {'x': pl.Int64}, "
        f"got {schema!r}{why}"
    )
