"""Sets of columns that somebody needs; None stands for all of them.

Polars is imported only when there is a frame to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.spec import ALL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from millstream.columns.table import FrameAggregation
    from millstream.plan.spec import Needed

__all__ = ["aggregation_columns", "no_rows", "united"]


def united(needs: Iterable[Needed]) -> Needed:
    """Return what any of several needs.

    Examples
    --------
    >>> sorted(united([frozenset("a"), frozenset("b")])), united([frozenset("a"), None])
    (['a', 'b'], None)
    """
    found: frozenset[str] = frozenset()
    for need in needs:
        if need is None:
            return ALL_COLUMNS
        found |= need
    return found


def aggregation_columns(aggregation: FrameAggregation) -> Needed:
    """Return the columns that an aggregation by key looks at."""
    parts = aggregation.columns
    exprs = [
        *(expr for part in parts for expr in part.partials),
        *(term for part in parts if part.fold is not None for term in part.fold.terms),
        *(part.values for part in aggregation.longs),
    ]
    if any(expr.meta.has_multiple_outputs() for expr in exprs):
        return ALL_COLUMNS
    roots = (name for expr in exprs for name in expr.meta.root_names())
    return frozenset([*aggregation.keys, *roots])


def no_rows(schema: pl.Schema) -> pl.LazyFrame:
    """Return a lazy frame of a schema without rows."""
    import polars as pl  # noqa: PLC0415 - see above

    return pl.LazyFrame(schema=schema)
