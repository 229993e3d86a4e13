"""Make the operator of a join, with the state that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.joins.asof import AsofJoinOperator
from millstream.operators.joins.interval import IntervalJoinOperator
from millstream.operators.joins.regular import HashJoinOperator
from millstream.operators.joins.sides import KeyedSides, WholeSides
from millstream.operators.joins.table import TableJoinOperator
from millstream.operators.joins.window import WindowJoinOperator
from millstream.operators.time.clock import ClockJoinOperator
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
            return HashJoinOperator(run, table, context.clock)
        case JoinWindow(is_event_time=True):
            return WindowJoinOperator(run, table)
        case JoinWindow():
            return ClockJoinOperator(WindowJoinOperator(run, table), context.clock)
        case JoinInterval():
            return IntervalJoinOperator(run, table)
        case JoinAsof() | JoinTable():
            sides: Sides = (
                WholeSides(table, context.task_index, context.worker_count)
                if spec.is_broadcast
                else KeyedSides(table)
            )
            if isinstance(spec, JoinAsof):
                return AsofJoinOperator(run, sides)
            return TableJoinOperator(run, sides)
    msg = f"{spec!r} is no join"
    raise AssertionError(msg)
