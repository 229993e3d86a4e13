"""What becomes of the timestamps and keys of rows on their way through operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan import nodes as specs
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME
from millstream.plan.frames import Transform
from millstream.plan.time import DropTime

if TYPE_CHECKING:
    import polars as pl

    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec
    from millstream.values import Row

__all__ = ["dropping_time", "makes_pairs", "strip_timestamp"]


def dropping_time(above: Node) -> Spec:
    """Return what drops the timestamps of the rows of an operator."""
    return Transform(_without_columns) if above.makes_frames else DropTime()


def _without_columns(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.drop([TIME, ORIGIN_WATERMARK], strict=False)


def strip_timestamp(row: Row, *, is_timed: bool, has_key: bool) -> Row:
    """Return a row as users know it, without its timestamp."""
    if not is_timed:
        return row
    return (row[0], row[1][1]) if has_key else row[1]


def makes_pairs(node: Node) -> bool:
    """Whether rows leave an operator as pairs of key and value."""
    if isinstance(node.spec, specs.KeyBy):
        return True
    is_dropping = isinstance(node.spec, specs.DropKey | specs.Unkey)
    return node.takes_pairs and not is_dropping
