"""Stateless operators on data frames, and the crossings between rows and frames.

A run of row-wise transforms is one lazy query per batch, so that Polars optimizes and
runs it as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import OneInputOperator, Rows
from millstream.operators.frames.from_rows import frame_of_rows
from millstream.operators.time.frame_assign import timed_frame, timed_rows
from millstream.plan.frame_windows import HIDDEN
from millstream.plan.frames import MapFrames, ToFrame, Transform
from millstream.state.batches import own_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.logical import Node

__all__ = [
    "FrameCollectOperator",
    "FrameMapOperator",
    "FrameToRowsOperator",
    "FrameTransformOperator",
    "RowsToFrameOperator",
]

_EMIT_ROWS = 16_384


class FrameTransformOperator(OneInputOperator):
    """A run of row-wise transforms, as one query."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        self._functions = [
            node.spec.function for node in nodes if isinstance(node.spec, Transform)
        ]

    def process(self, rows: Any) -> Any:
        query: pl.LazyFrame = rows.lazy()
        for function in self._functions:
            query = function(query)
        return query.collect()


class FrameMapOperator(OneInputOperator):
    """A user function over whole data frames."""

    is_guarded = True

    def process(self, rows: Any) -> Any:
        if not self.nodes[0].takes_times:
            return self._mapped(rows)
        result = self._mapped(rows.drop(HIDDEN))
        if result.height != rows.height:
            msg = (
                f"the function of map_batches returned {result.height} rows for "
                f"{rows.height}, but a frame with event time needs one output row for each input row; use "
                ".filter(...) or .explode(...), or call .event_time(...) behind it"
            )
            raise TypeError(msg)
        return result.hstack(rows.select(HIDDEN))

    def _mapped(self, rows: pl.DataFrame) -> pl.DataFrame:
        spec = self.nodes[0].spec
        assert isinstance(spec, MapFrames)
        result = spec.function(own_lock(rows))
        if not isinstance(result, pl.DataFrame):
            msg = (
                "the function of map_batches must return a Polars DataFrame, "
                f"got {type(result).__name__}"
            )
            raise TypeError(msg)
        if spec.schema is not None and result.schema != spec.schema:
            msg = (
                f"the function of map_batches returned columns {dict(result.schema)}, "
                f"but {dict(spec.schema)} were announced; name what it returns in schema="
            )
            raise TypeError(msg)
        return result


class FrameToRowsOperator(OneInputOperator):
    """Every row of a frame as a dict."""

    def process(self, rows: Any) -> Rows:
        if self.nodes[0].takes_times:
            return timed_rows(rows)
        dicts: Rows = rows.to_dicts()
        return dicts


class FrameCollectOperator(OneInputOperator):
    """Hands frames to the worker, in pieces that fit into a message."""

    def __init__(self, nodes: tuple[Node, ...], emit: Callable[[Rows], None]) -> None:
        super().__init__(nodes)
        self._emit = emit

    def process(self, rows: Any) -> Rows:
        for piece in rows.iter_slices(_EMIT_ROWS):
            self._emit([piece])
        return []


class RowsToFrameOperator(OneInputOperator):
    """Rows, which are dicts or tuples, as a frame of the schema."""

    is_guarded = True

    def process(self, rows: Rows) -> Any:
        if not self.nodes[0].takes_times:
            return self._frame(rows)
        return timed_frame(rows, self._frame([value for _, value in rows]))

    def _frame(self, rows: Rows) -> pl.DataFrame:
        spec = self.nodes[0].spec
        assert isinstance(spec, ToFrame)
        return frame_of_rows(rows, spec.schema)
