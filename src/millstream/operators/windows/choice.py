"""Choose the operator that carries out a window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from millstream.operators.time.clock import ClockWindowOperator
from millstream.operators.windows.count import (
    CountWindowOperator,
    PanedCountWindowOperator,
    WindowCountOperator,
    has_few_panes,
)
from millstream.operators.windows.session import SessionOperator
from millstream.operators.windows.time import TimeWindowOperator
from millstream.operators.windows.triggered import TriggeredWindowOperator
from millstream.plan.windows import (
    CountWindows,
    GlobalWindow,
    SessionWindows,
    TimeWindows,
    Windowed,
    of_parts,
)

if TYPE_CHECKING:
    from millstream.operators.base import Operator
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table

__all__ = ["window_operator"]


def window_operator(run: tuple[Node, ...], table: Table, clock: Clock) -> Operator:
    """Return the operator for a node whose spec is `Windowed`."""
    spec = run[-1].spec
    assert isinstance(spec, Windowed)
    if spec.is_combined and isinstance(spec.window, TimeWindows):
        assert spec.aggregate is not None
        spec = replace(spec, aggregate=of_parts(spec.aggregate))
        run = (*run[:-1], replace(run[-1], spec=spec))
    match spec.window:
        case CountWindows() as window:
            return _count_operator(run, spec, window, table)
        case TimeWindows() | SessionWindows() as window:
            is_session = isinstance(window, SessionWindows)
            timed = (SessionOperator if is_session else TimeWindowOperator)(run, table)
            return (
                timed if window.time == "event" else ClockWindowOperator(timed, clock)
            )
        case GlobalWindow():
            return TriggeredWindowOperator(run, table, clock)
        case _:
            assert_never(spec.window)


def _count_operator(
    run: tuple[Node, ...], spec: Windowed, window: CountWindows, table: Table
) -> Operator:
    if spec.aggregate is not None and spec.aggregate.kind == "count":
        return WindowCountOperator(run, table)
    kind = (
        PanedCountWindowOperator if has_few_panes(spec, window) else CountWindowOperator
    )
    return kind(run, table)
