"""Make the operators on data frames; the only door to them from `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.frame_aggregation import AggregatedFrame, CombinedFrame
from millstream.operators.frame_ordering import SortedFrame
from millstream.operators.frame_text import Tokenized
from millstream.operators.frames import (
    FrameEmitter,
    FramesFromRows,
    MappedFrames,
    RowsFromFrames,
    Transformed,
)
from millstream.plan import frames as specs

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.base import Operator
    from millstream.operators.build import TaskContext
    from millstream.plan.nodes import Node

__all__ = ["frame_operator"]


def frame_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that carries out a run of frame nodes."""
    spec: Any = run[-1].spec
    if isinstance(spec, specs.CollectFrames):
        sink = run[-1].id
        return FrameEmitter(run, lambda frames: context.emit(sink, frames))
    if isinstance(spec, specs.CombineFrame):
        return CombinedFrame(run, context.config.combine_keys_max)
    return _PLAIN[type(spec)](run)


_PLAIN: dict[type[Any], Callable[[tuple[Node, ...]], Operator]] = {
    specs.Transform: Transformed,
    specs.MapFrames: MappedFrames,
    specs.ToRows: RowsFromFrames,
    specs.ToFrame: FramesFromRows,
    specs.AggregateFrame: AggregatedFrame,
    specs.SortFrame: SortedFrame,
    specs.Tokens: Tokenized,
}
"""Operators that need nothing but their nodes."""
