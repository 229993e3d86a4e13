"""Make the operator of a join, with the state that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.joins.asof import AsofJoined
from millstream.operators.joins.interval import IntervalJoined
from millstream.operators.joins.regular import Joined
from millstream.operators.joins.sides import KeyedSides, WholeSides
from millstream.operators.joins.table import TableJoined
from millstream.operators.joins.window import ClockWindowJoined, WindowJoined
from millstream.plan.joins import Join, JoinAsof, JoinInterval, JoinTable, JoinWindow

if TYPE_CHECKING:
    from millstream.operators.base import Operator
    from millstream.operators.build import TaskContext
    from millstream.operators.joins.sides import Sides
    from millstream.plan.logical import Node

__all__ = ["join_operator"]


def join_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator of a join."""
    spec, table = run[-1].spec, context.make_table()
    match spec:
        case Join():
            return Joined(run, table, context.clock)
        case JoinWindow(is_event_time=True):
            return WindowJoined(run, table)
        case JoinWindow():
            return ClockWindowJoined(run, table, context.clock)
        case JoinInterval():
            return IntervalJoined(run, table)
        case JoinAsof() | JoinTable():
            sides: Sides = (
                WholeSides(table, context.task_index, context.worker_count)
                if spec.is_whole
                else KeyedSides(table)
            )
            if isinstance(spec, JoinAsof):
                return AsofJoined(run, sides)
            return TableJoined(run, sides)
    msg = f"{spec!r} is no join"
    raise AssertionError(msg)
