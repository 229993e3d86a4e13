"""Make the operators on data frames; the only door to them from `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.frames.aggregation import (
    FrameAggregateOperator,
    FrameCombineOperator,
)
from millstream.operators.frames.ordering import FrameSortOperator
from millstream.operators.frames.text import (
    CountTokensOperator,
    SplitTextOperator,
    can_count_pieces,
)
from millstream.operators.frames.transform import (
    FrameCollectOperator,
    FrameMapOperator,
    FrameToRowsOperator,
    FrameTransformOperator,
    RowsToFrameOperator,
)
from millstream.operators.frames.unique import FrameDistinctOperator
from millstream.operators.joins.frame_asof import FrameAsofJoinOperator
from millstream.operators.joins.frame_interval import (
    FrameIntervalJoinOperator,
    FrameKeyedJoinOperator,
)
from millstream.operators.joins.frame_whole import (
    FrameHashJoinOperator,
    FrameStaticJoinOperator,
)
from millstream.operators.joins.frame_window import FrameWindowJoinOperator
from millstream.operators.time.clock import ClockJoinOperator, ClockWindowOperator
from millstream.operators.time.frame_assign import FrameAssignTimestampsOperator
from millstream.operators.time.frame_in_order import FrameSortByTimeOperator
from millstream.operators.windows.frame_count import (
    FrameCountWindowOperator,
    FrameRowCountOperator,
)
from millstream.operators.windows.frame_map_window import FrameMapWindowOperator
from millstream.operators.windows.frame_session import FrameSessionOperator
from millstream.operators.windows.frame_time import (
    FrameCombinePanesOperator,
    FrameTimeWindowOperator,
)
from millstream.operators.windows.frame_triggered import FrameTriggeredOperator
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
        return CountTokensOperator(run, context.config, context.clock)
    if text_splits(run):
        return SplitTextOperator(run)
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
    return FrameHashJoinOperator(
        run,
        context.config.join_right_bytes_max,
        context.config.join_left_memory_bytes,
        (context.task_index, context.worker_count),
    )


def _emitted(run: tuple[Node, ...], context: TaskContext) -> Operator:
    sink = run[-1].id
    return FrameCollectOperator(run, lambda frames: context.emit(sink, frames))


def _counted(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, CountFrame)
    windowed = FrameRowCountOperator if spec.is_counted else FrameCountWindowOperator
    return windowed(run, context.state)


def _time_windowed(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, TimeWindowFrame)
    timed = FrameTimeWindowOperator(run, context.state)
    return ClockWindowOperator(timed, context.clock) if spec.is_by_clock else timed


def _sessions(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, SessionFrame)
    timed = FrameSessionOperator(run, context.state)
    if not spec.is_by_clock:
        return timed
    # All sessions are looked at together, so that is not done for each.
    every_ms = context.config.watermark_every_ms
    return ClockWindowOperator(timed, context.clock, every_ms)


def _joined_by_key(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that joins two frames of which both come by key."""
    spec = run[-1].spec
    assert isinstance(spec, JoinFrameStreams)
    if isinstance(spec.by, Join):
        return FrameKeyedJoinOperator(run, context.state, context.clock)
    if isinstance(spec.by, JoinInterval):
        return FrameIntervalJoinOperator(run, context.state)
    if isinstance(spec.by, JoinAsof):
        return FrameAsofJoinOperator(run, context.state)
    timed = FrameWindowJoinOperator(run, context.state)
    return timed if spec.by.is_event_time else ClockJoinOperator(timed, context.clock)


OPERATORS: dict[type[Spec], Factory] = {
    specs.Transform: _alone(FrameTransformOperator),
    specs.MapFrames: _alone(FrameMapOperator),
    specs.ToRows: _alone(FrameToRowsOperator),
    specs.ToFrame: _alone(RowsToFrameOperator),
    specs.Tokens: _alone(SplitTextOperator),
    specs.CombineFrame: lambda run, context: FrameCombineOperator(
        run, context.config, context.clock
    ),
    specs.AggregateFrame: _stateful(FrameAggregateOperator),
    specs.UniqueFrame: _stateful(FrameDistinctOperator),
    specs.SortFrame: lambda run, context: FrameSortOperator(
        run, context.config.sort_memory_bytes
    ),
    specs.JoinStatic: _alone(FrameStaticJoinOperator),
    specs.JoinFrames: _joined_frames,
    specs.CollectFrames: _emitted,
    JoinFrameStreams: _joined_by_key,
    AssignFrameTime: lambda run, context: FrameAssignTimestampsOperator(
        run, context.config.watermark_every_ms, context.clock
    ),
    OrderFrame: _stateful(FrameSortByTimeOperator),
    CombinePanes: lambda run, context: FrameCombinePanesOperator(
        run, context.config.combine_keys_max
    ),
    TimeWindowFrame: _time_windowed,
    SessionFrame: _sessions,
    CountFrame: _counted,
    TriggerFrame: lambda run, context: FrameTriggeredOperator(
        run, context.state, context.clock
    ),
    MapWindow: _alone(FrameMapWindowOperator),
}
"""How the operators on frames are made."""
