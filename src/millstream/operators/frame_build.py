"""Make the operators on data frames; the only door to them from `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.frame_aggregation import AggregatedFrame, CombinedFrame
from millstream.operators.frame_asof_join import AsofJoinedFrames
from millstream.operators.frame_clock import SessionsByClock, TimeWindowedByClock
from millstream.operators.frame_counts import CountWindowed, RowsCounted
from millstream.operators.frame_in_order import FrameInOrder
from millstream.operators.frame_interval_join import (
    IntervalJoinedFrames,
    KeyedJoinedFrames,
)
from millstream.operators.frame_join import JoinedFrames, JoinedStatic
from millstream.operators.frame_map_window import MappedWindows
from millstream.operators.frame_ordering import SortedFrame
from millstream.operators.frame_sessions import SessionsOfFrame
from millstream.operators.frame_text import (
    CountedPieces,
    CutText,
    can_count_pieces,
)
from millstream.operators.frame_time import FrameTimeAssigned
from millstream.operators.frame_triggers import TriggeredFrame
from millstream.operators.frame_unique import DistinctRows
from millstream.operators.frame_window_join import (
    ClockWindowJoinedFrames,
    WindowJoinedFrames,
)
from millstream.operators.frame_windows import CombinedPanes, TimeWindowed
from millstream.operators.frames import (
    FrameEmitter,
    FramesFromRows,
    MappedFrames,
    RowsFromFrames,
    Transformed,
)
from millstream.plan import frames as specs
from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.frame_windows import (
    AssignFrameTime,
    CombinePanes,
    CountFrame,
    FrameWindowSpec,
    MapWindow,
    OrderFrame,
    SessionFrame,
    TimeWindowFrame,
    TriggerFrame,
)
from millstream.plan.joins import Join, JoinAsof, JoinInterval
from millstream.plan.text_steps import text_splits

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.base import Operator
    from millstream.operators.build import TaskContext
    from millstream.plan.nodes import Node

__all__ = ["frame_operator", "joins"]


def frame_operator(  # noqa: PLR0911 - one per kind
    run: tuple[Node, ...], context: TaskContext
) -> Operator:
    """Return the operator that carries out a run of frame nodes."""
    spec: Any = run[-1].spec
    if isinstance(spec, specs.CollectFrames):
        sink = run[-1].id
        return FrameEmitter(run, lambda frames: context.emit(sink, frames))
    if isinstance(spec, specs.CombineFrame):
        combiner = CountedPieces if len(run) > 1 else CombinedFrame
        return combiner(run, context.config, context.clock)
    if isinstance(spec, FrameWindowSpec):
        return _window_operator(run, context)
    if isinstance(spec, specs.AggregateFrame):
        return AggregatedFrame(run, context.state)
    if isinstance(spec, specs.SortFrame):
        return SortedFrame(run, context.config.sort_memory_bytes)
    if isinstance(spec, specs.JoinFrames):
        config = context.config
        return JoinedFrames(
            run,
            config.join_right_bytes_max,
            config.join_left_memory_bytes,
            (context.task_index, context.worker_count),
        )
    if isinstance(spec, JoinFrameStreams):
        return _join_operator(run, context)
    if isinstance(spec, specs.UniqueFrame):
        return DistinctRows(run, context.state)
    if text_splits(run):
        return CutText(run)
    return _PLAIN[type(spec)](run)


def _window_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that gives a frame time, or cuts it into windows."""
    spec: Any = run[-1].spec
    if isinstance(spec, AssignFrameTime):
        every_ms = context.config.watermark_every_ms
        return FrameTimeAssigned(run, every_ms, context.clock)
    if isinstance(spec, CombinePanes):
        return CombinedPanes(run, context.config.combine_keys_max)
    if isinstance(spec, CountFrame):
        windowed = RowsCounted if spec.is_counted else CountWindowed
        return windowed(run, context.state)
    if isinstance(spec, OrderFrame):
        return FrameInOrder(run, context.state)
    if isinstance(spec, TriggerFrame):
        return TriggeredFrame(run, context.state, context.clock)
    return _time_window_operator(run, context, spec)


def _time_window_operator(
    run: tuple[Node, ...], context: TaskContext, spec: TimeWindowFrame | SessionFrame
) -> Operator:
    if spec.is_by_clock and isinstance(spec, TimeWindowFrame):
        return TimeWindowedByClock(run, context.state, context.clock)
    if spec.is_by_clock:
        every_ms = context.config.watermark_every_ms
        return SessionsByClock(run, context.state, context.clock, every_ms)
    kind = TimeWindowed if isinstance(spec, TimeWindowFrame) else SessionsOfFrame
    return kind(run, context.state)


def _join_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that joins two frames of which both come by key."""
    spec: Any = run[-1].spec
    if isinstance(spec.by, Join):
        return KeyedJoinedFrames(run, context.state, context.clock)
    if isinstance(spec.by, JoinInterval):
        return IntervalJoinedFrames(run, context.state)
    if isinstance(spec.by, JoinAsof):
        return AsofJoinedFrames(run, context.state)
    if not spec.by.is_event_time:
        return ClockWindowJoinedFrames(run, context.state, context.clock)
    return WindowJoinedFrames(run, context.state)


def joins(run: tuple[Node, ...], node: Node) -> bool:
    """Whether a frame node becomes one operator with the run of nodes before it."""
    spec = node.spec
    return isinstance(spec, specs.CombineFrame) and can_count_pieces(run, spec)


_PLAIN: dict[type[Any], Callable[[tuple[Node, ...]], Operator]] = {
    specs.Transform: Transformed,
    specs.MapFrames: MappedFrames,
    MapWindow: MappedWindows,
    specs.ToRows: RowsFromFrames,
    specs.ToFrame: FramesFromRows,
    specs.JoinStatic: JoinedStatic,
    specs.Tokens: CutText,
}
"""Operators that need nothing but their nodes."""
