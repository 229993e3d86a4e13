"""Make the operators on data frames; the only door to them from `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.frames.aggregation import AggregatedFrame, CombinedFrame
from millstream.operators.frames.ordering import SortedFrame
from millstream.operators.frames.text import (
    CountedPieces,
    CutText,
    can_count_pieces,
)
from millstream.operators.frames.transform import (
    FrameEmitter,
    FramesFromRows,
    MappedFrames,
    RowsFromFrames,
    Transformed,
)
from millstream.operators.frames.unique import DistinctRows
from millstream.operators.joins.frame_asof import AsofJoinedFrames
from millstream.operators.joins.frame_interval import (
    IntervalJoinedFrames,
    KeyedJoinedFrames,
)
from millstream.operators.joins.frame_whole import JoinedFrames, JoinedStatic
from millstream.operators.joins.frame_window import (
    ClockWindowJoinedFrames,
    WindowJoinedFrames,
)
from millstream.operators.time.frame_assign import FrameTimeAssigned
from millstream.operators.time.frame_in_order import FrameInOrder
from millstream.operators.windows.frame_clock import (
    SessionsByClock,
    TimeWindowedByClock,
)
from millstream.operators.windows.frame_count import CountWindowed, RowsCounted
from millstream.operators.windows.frame_map_window import MappedWindows
from millstream.operators.windows.frame_session import SessionsOfFrame
from millstream.operators.windows.frame_time import CombinedPanes, TimeWindowed
from millstream.operators.windows.frame_triggered import TriggeredFrame
from millstream.plan import frames as specs
from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.frame_windows import (
    AssignFrameTime,
    CombinePanes,
    CountFrame,
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
    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec
    from millstream.state.settings import StateSettings

    Factory = Callable[[tuple[Node, ...], TaskContext], Operator]

__all__ = ["OPERATORS", "frame_operator", "joins"]


def frame_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that carries out a run of frame nodes."""
    if len(run) > 1 and isinstance(run[-1].spec, specs.CombineFrame):
        return CountedPieces(run, context.config, context.clock)
    if text_splits(run):
        return CutText(run)
    return OPERATORS[type(run[-1].spec)](run, context)


def joins(run: tuple[Node, ...], node: Node) -> bool:
    """Whether a frame node becomes one operator with the run of nodes before it."""
    spec = node.spec
    return isinstance(spec, specs.CombineFrame) and can_count_pieces(run, spec)


def _alone(kind: Callable[[tuple[Node, ...]], Operator]) -> Factory:
    """Return how to make an operator that needs nothing but its nodes."""
    return lambda run, _: kind(run)


def _stateful(
    kind: Callable[[tuple[Node, ...], StateSettings | None], Operator],
) -> Factory:
    """Return how to make an operator that keeps something."""
    return lambda run, context: kind(run, context.state)


def _joined_frames(run: tuple[Node, ...], context: TaskContext) -> Operator:
    return JoinedFrames(
        run,
        context.config.join_right_bytes_max,
        context.config.join_left_memory_bytes,
        (context.task_index, context.worker_count),
    )


def _emitted(run: tuple[Node, ...], context: TaskContext) -> Operator:
    sink = run[-1].id
    return FrameEmitter(run, lambda frames: context.emit(sink, frames))


def _counted(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, CountFrame)
    windowed = RowsCounted if spec.is_counted else CountWindowed
    return windowed(run, context.state)


def _time_windowed(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, TimeWindowFrame)
    if spec.is_by_clock:
        return TimeWindowedByClock(run, context.state, context.clock)
    return TimeWindowed(run, context.state)


def _sessions(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, SessionFrame)
    if spec.is_by_clock:
        every_ms = context.config.watermark_every_ms
        return SessionsByClock(run, context.state, context.clock, every_ms)
    return SessionsOfFrame(run, context.state)


def _joined_by_key(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that joins two frames of which both come by key."""
    spec = run[-1].spec
    assert isinstance(spec, JoinFrameStreams)
    if isinstance(spec.by, Join):
        return KeyedJoinedFrames(run, context.state, context.clock)
    if isinstance(spec.by, JoinInterval):
        return IntervalJoinedFrames(run, context.state)
    if isinstance(spec.by, JoinAsof):
        return AsofJoinedFrames(run, context.state)
    if not spec.by.is_event_time:
        return ClockWindowJoinedFrames(run, context.state, context.clock)
    return WindowJoinedFrames(run, context.state)


OPERATORS: dict[type[Spec], Factory] = {
    specs.Transform: _alone(Transformed),
    specs.MapFrames: _alone(MappedFrames),
    specs.ToRows: _alone(RowsFromFrames),
    specs.ToFrame: _alone(FramesFromRows),
    specs.Tokens: _alone(CutText),
    specs.CombineFrame: lambda run, context: CombinedFrame(
        run, context.config, context.clock
    ),
    specs.AggregateFrame: _stateful(AggregatedFrame),
    specs.UniqueFrame: _stateful(DistinctRows),
    specs.SortFrame: lambda run, context: SortedFrame(
        run, context.config.sort_memory_bytes
    ),
    specs.JoinStatic: _alone(JoinedStatic),
    specs.JoinFrames: _joined_frames,
    specs.CollectFrames: _emitted,
    JoinFrameStreams: _joined_by_key,
    AssignFrameTime: lambda run, context: FrameTimeAssigned(
        run, context.config.watermark_every_ms, context.clock
    ),
    OrderFrame: _stateful(FrameInOrder),
    CombinePanes: lambda run, context: CombinedPanes(
        run, context.config.combine_keys_max
    ),
    TimeWindowFrame: _time_windowed,
    SessionFrame: _sessions,
    CountFrame: _counted,
    TriggerFrame: lambda run, context: TriggeredFrame(
        run, context.state, context.clock
    ),
    MapWindow: _alone(MappedWindows),
}
"""How the operators on frames are made."""
