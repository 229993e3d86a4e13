"""Check the arguments of joins, of streams and of frames alike, and say what they mean.

Nothing here knows the two sides, except whether they may never end.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from millstream.api.building import user_location
from millstream.errors import UnboundedStateWarning, UsageError
from millstream.plan.endless import endless_source
from millstream.plan.joins import (
    Direction,
    How,
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)
from millstream.plan.time import milliseconds
from millstream.plan.windows import TimeWindows

if TYPE_CHECKING:
    from millstream.api.graph import Graph
    from millstream.plan.time import Duration

__all__ = [
    "OF_TABLES",
    "asof_spec",
    "checked_how",
    "interval_spec",
    "regular_spec",
    "table_spec",
    "window_spec",
]

_ALL = tuple(How)
OF_TABLES = (How.INNER, How.LEFT, How.SEMI, How.ANTI)
"""What can be done with a table."""

_ADVICE = {
    How.RIGHT: "; for a right join, swap the two sides",
    How.FULL: "; for rows of both sides without a partner, use interval_join or join",
    How.SEMI: "; for left rows that have a partner, use interval_join or join",
    How.ANTI: "; for left rows without a partner, take how='left' and filter",
}


def checked_how(how: object, allowed: tuple[How, ...] = _ALL) -> How:
    """Return what a word for `how` means, if the join can do it."""
    for each in allowed:
        if how == each.value:
            return each
    advice = next((text for each, text in _ADVICE.items() if how == each.value), "")
    names = ", ".join(each.value for each in allowed)
    msg = f"how can be {names}, got {how!r}{advice}"
    raise UsageError(msg)


def regular_spec(
    verb: str,
    graph: Graph,
    inputs: tuple[int, int],
    how: object,
    ttl: Duration | None,
) -> Join:
    """Return the join of all rows; warn if what it keeps only grows."""
    kind = checked_how(how)
    ttl_ms = None if ttl is None else milliseconds(ttl, least=1)
    endless = endless_source(graph.plan.nodes, inputs)
    if endless is not None and ttl_ms is None:
        here = user_location()
        msg = (
            f"`{verb}` at {here} keeps all rows of both sides, and `{endless.verb}` at "
            f"{endless.location} may never end, so that its state only grows; give it a "
            "ttl, or use window_join, interval_join or join_table"
        )
        warnings.warn_explicit(msg, UnboundedStateWarning, here.file, here.line)
    return Join(kind, ttl_ms, is_endless=endless is not None)


def table_spec(
    how: How, graph: Graph, inputs: tuple[int, int], *, is_broadcast: bool
) -> JoinAsof | JoinTable:
    """Return how a table is looked up: as of a time, or as it is."""
    if all(graph.plan.nodes[i].makes_times for i in inputs):
        return JoinAsof(how, is_broadcast=is_broadcast, is_table=True)
    waits = endless_source(graph.plan.nodes, inputs[1:]) is None
    return JoinTable(how, waits=waits, is_broadcast=is_broadcast)


def window_spec(how: object, window: object) -> JoinWindow:
    """Return the join of windows."""
    kind = checked_how(how)
    if not isinstance(window, TimeWindows):
        msg = f"it takes windows.tumbling(...) or windows.sliding(...), got {window!r}"
        raise UsageError(msg)
    bounds = window.size_ms, window.slide_ms, window.offset_ms
    return JoinWindow(kind, *bounds, is_event_time=window.time == "event")


def interval_spec(how: object, lower: Duration, upper: Duration) -> JoinInterval:
    """Return the join within bounds."""
    kind = checked_how(how)
    lower_ms, upper_ms = _signed(lower), _signed(upper)
    if lower_ms > upper_ms:
        msg = (
            f"lower={lower!r} is more than upper={upper!r}, so that no row has a "
            "partner; swap them"
        )
        raise UsageError(msg)
    return JoinInterval(kind, lower_ms, upper_ms)


def asof_spec(how: object, direction: object, tolerance: Duration | None) -> JoinAsof:
    """Return the join with the nearest row."""
    kind = checked_how(how, (How.INNER, How.LEFT))
    tolerance_ms = None if tolerance is None else milliseconds(tolerance)
    spec = JoinAsof(kind, _checked_direction(direction), tolerance_ms)
    is_waiting = spec.direction is not Direction.BACKWARD
    if kind is How.LEFT and is_waiting and spec.tolerance is None:
        msg = (
            f"with direction={direction!r} and how='left' a row without a "
            "partner would wait for one until the end; give a tolerance"
        )
        raise UsageError(msg)
    return spec


def _checked_direction(direction: object) -> Direction:
    for each in Direction:
        if direction == each.value:
            return each
    msg = f"direction can be {', '.join(Direction)}, got {direction!r}"
    raise UsageError(msg)


def _signed(duration: Duration) -> int:
    """Return a duration in milliseconds that may be negative, as text too."""
    if isinstance(duration, str) and duration.startswith("-"):
        return -milliseconds(duration.removeprefix("-"))
    return milliseconds(duration, least=-(2**63))
