"""Check the arguments of joins: keys, how, and what Polars makes of both schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.graph import WrappedFrame
from millstream.columns.kernels.columns import KeyColumn
from millstream.errors import UsageError
from millstream.plan.frames import JoinFrames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.api.frame import Frame
    from millstream.plan.joins import How

__all__ = ["join_spec", "stream_join_columns"]

_HOW = ("inner", "left", "semi", "anti")
_OTHER_HOW = {
    "right": "; for a right join, swap the two frames",
    "full": "; for a full join, use .keyed_join(..., how='full')",
    "cross": "; for a cross join, join on a column that is the same everywhere",
}


def join_spec(
    left: Frame,
    right: Any,
    keys: tuple[Any, Any, Any],
    *,
    how: str,
    suffix: str,
    nulls_equal: bool,
) -> tuple[JoinFrames, pl.Schema]:
    """Return what a join does and the schema it makes; `keys` are on, left_on, right_on."""
    if how not in _HOW:
        msg = f"it can be {', '.join(_HOW)}, got {how!r}{_OTHER_HOW.get(how, '')}"
        raise UsageError(msg)
    right_schema = _schema(right)
    left_on, right_on = _checked_keys(*keys)
    _check_columns("left", left_on, left.schema)
    _check_columns("right", right_on, right_schema)
    spec = JoinFrames(
        left_on, right_on, how, right_schema, suffix, nulls_equal, left.schema
    )
    return spec, _joined_schema(spec, left.schema)


def stream_join_columns(
    left: pl.Schema,
    right: Any,
    keys: tuple[Any, Any, Any],
    *,
    how: How,
    suffix: str,
    nulls_equal: bool,
) -> tuple[JoinFrames, pl.Schema]:
    """Return the columns of a join of which both sides come by key, and its schema."""
    if not isinstance(right, WrappedFrame):
        advice = "; use .join(...)" if isinstance(right, pl.DataFrame) else ""
        msg = f"it takes a frame of this flow, got {type(right).__name__}{advice}"
        raise UsageError(msg)
    left_on, right_on = _checked_keys(*keys)
    for side, names, schema in (
        ("left", left_on, left),
        ("right", right_on, right.schema),
    ):
        _check_columns(side, names, schema)
        if len(set(names)) < len(names):
            msg = f"it names a column of the {side} side twice, got {list(names)}"
            raise UsageError(msg)
    for one, other in zip(left_on, right_on, strict=True):
        kinds = left[one], right.schema[other]
        if kinds[0] != kinds[1]:
            msg = (
                f"column {one!r} of the left side is {kinds[0]} and column {other!r} of the "
                f"right side is {kinds[1]}; cast one of them"
            )
            raise UsageError(msg)
    # Pairs have the same columns however many rows come out alone.
    own = how.value if not how.makes_pairs else "inner"
    spec = JoinFrames(left_on, right_on, own, right.schema, suffix, nulls_equal)
    return spec, _joined_schema(spec, left)


def _joined_schema(spec: JoinFrames, left: pl.Schema) -> pl.Schema:
    right = spec.right_schema
    try:
        made = spec.query(pl.LazyFrame(schema=left), pl.LazyFrame(schema=right))
        return made.collect().schema
    except pl.exceptions.PolarsError as error:
        msg = (
            f"{str(error).splitlines()[0]}; the left columns are {dict(left)}, the "
            f"right ones {dict(right)}"
        )
        raise UsageError(msg) from None


def _schema(right: Any) -> pl.Schema:
    if isinstance(right, WrappedFrame | pl.DataFrame):
        return right.schema
    advice = "collect it first" if isinstance(right, pl.LazyFrame) else "convert it"
    library = type(right).__module__.partition(".")[0]
    msg = (
        "it takes a frame of this flow or a Polars DataFrame, got "
        f"{type(right).__name__} of {library}; {advice}"
    )
    raise UsageError(msg)


def _checked_keys(on: Any, left_on: Any, right_on: Any) -> tuple[Any, Any]:
    if on is not None and left_on is None and right_on is None:
        left_on = right_on = on
    elif on is not None or left_on is None or right_on is None:
        msg = "it takes either on, or left_on and right_on"
        raise UsageError(msg)
    left, right = _names(left_on), _names(right_on)
    if len(left) != len(right) or not left:
        msg = (
            "it takes as many columns on the left as on the right, got "
            f"{len(left)} and {len(right)}"
        )
        raise UsageError(msg)
    return left, right


def _names(columns: Any) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str | pl.Expr) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            msg = (
                f"it takes names of columns, got {name}; compute what to join on with "
                ".with_columns(...) first"
            )
            raise UsageError(msg)
    return names


def _check_columns(side: str, names: Sequence[str], schema: pl.Schema) -> None:
    """Refuse columns that are not there, or whose type cannot be a key."""
    for name in names:
        if name not in schema:
            msg = (
                f"it names the column {name!r} of the {side} side; the columns there are "
                f"{list(schema)}"
            )
            raise UsageError(msg)
        KeyColumn.of(name, schema[name])
