"""Parts of aggregates that depend on the order of rows, in the order of timestamps.

In windows of event time the first value is the earliest one, wherever it came from; of
equal timestamps the one that came first.

Nothing here holds state or knows about operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from millstream.columns.partials import ScalarPartial, expression, keeps_length
from millstream.plan.frame_windows import TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.columns.expressions import Part

__all__ = ["part_in_time", "rows_part"]

_FIRST, _LAST = ("First", "FirstNonNull"), ("Last", "LastNonNull")


def part_in_time(part: Part, name: str) -> ScalarPartial | None:
    """Return how a part is kept whose values have an order; None for all others."""
    if part.kind not in (*_FIRST, *_LAST, "Implode"):
        return None
    values = expression(part.input)
    if not keeps_length(values):
        return None
    return _values(values, name) if part.kind == "Implode" else _end(part, values, name)


def rows_part(
    columns: Mapping[str, pl.Expr], name: str, *, in_time: bool
) -> ScalarPartial:
    """Return how whole rows are kept: as they come, and in order when they are wanted."""
    kept = pl.col(name)
    merge = kept.explode(empty_as_null=False).implode()
    fields = [column.alias(field) for field, column in columns.items()]
    if not in_time:
        return ScalarPartial((pl.struct(fields).implode().alias(name),), (merge,), kept)
    row = pl.element()
    ordered = _sorted(row, row.struct.field(TIME))
    shown = pl.struct([ordered.struct.field(field) for field in columns])
    return ScalarPartial(
        (pl.struct(*fields, TIME).implode().alias(name),),
        (merge,),
        kept.list.eval(shown),
    )


def _end(part: Part, values: pl.Expr, name: str) -> ScalarPartial:
    """Keep the earliest or latest value, and its timestamp."""
    time, times = f"{name}.time", pl.col(TIME)
    if part.kind.endswith("NonNull"):
        is_value = values.is_not_null()
        values, times = values.filter(is_value), times.filter(is_value)
    held = pl.col(time).is_not_null()
    kept, kept_times = pl.col(name).filter(held), pl.col(time).filter(held)
    if part.kind in _FIRST:
        return ScalarPartial(
            (_sorted(values, times).first().alias(name), times.min().alias(time)),
            (_sorted(kept, kept_times).first().alias(name), pl.col(time).min()),
            pl.col(name),
        )
    return ScalarPartial(
        (_sorted(values, times).last().alias(name), times.max().alias(time)),
        (_sorted(kept, kept_times).last().alias(name), pl.col(time).max()),
        pl.col(name),
    )


def _values(values: pl.Expr, name: str) -> ScalarPartial:
    """Keep all values, and their timestamps."""
    time, times = f"{name}.time", pl.col(TIME)
    kept = pl.col(name).explode(empty_as_null=False)
    kept_times = pl.col(time).explode(empty_as_null=False)
    return ScalarPartial(
        (
            _sorted(values, times).implode().alias(name),
            _sorted(times, times).implode().alias(time),
        ),
        (
            _sorted(kept, kept_times).implode().alias(name),
            _sorted(kept_times, kept_times).implode().alias(time),
        ),
        pl.col(name),
    )


def _sorted(values: pl.Expr, times: pl.Expr) -> pl.Expr:
    return values.sort_by(times, maintain_order=True)
