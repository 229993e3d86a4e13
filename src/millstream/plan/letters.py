"""Where dead letters come from: every operator that may raise and is not fed by them.

The stage of the letters has an edge from each stage that may send some; so that inputs
come first, it and all that follows from it stand behind the rest of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan import frames, nodes
from millstream.plan.frame_windows import AssignFrameTime, MapWindow
from millstream.plan.grouping import ByFunction, Fields
from millstream.plan.time import AssignTime
from millstream.plan.windows import CombineWindows, Windowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.plan.nodes import Node

__all__ = ["has_letters", "letters_last", "may_send_letters"]

_SENDING = (
    nodes.Map,
    nodes.Filter,
    nodes.FlatMap,
    nodes.FilterMap,
    nodes.Flatten,
    nodes.Inspect,
    nodes.KeyBy,
    nodes.MapBatches,
    nodes.Combine,
    nodes.AggregateByKey,
    nodes.AggregateAll,
    nodes.Scan,
    nodes.Process,
    nodes.SortBy,
    nodes.ForEach,
    AssignTime,
    AssignFrameTime,
    Windowed,
    CombineWindows,
    frames.Transform,
    frames.MapFrames,
    frames.ToFrame,
    MapWindow,
)


def has_letters(plan: Iterable[Node]) -> bool:
    """Whether records that make a function raise are collected."""
    return any(isinstance(node.spec, nodes.DeadLetters) for node in plan)


def letters_last(plan: Sequence[Node]) -> list[Node]:
    """Return the nodes with the letters, and all that reads them, at the end."""
    after: set[int] = set()
    for node in plan:
        if isinstance(node.spec, nodes.DeadLetters) or not after.isdisjoint(
            node.inputs
        ):
            after.add(node.id)
    return sorted(plan, key=lambda node: node.id in after)


def may_send_letters(stage: Iterable[Node]) -> bool:
    """Whether a stage calls functions that may raise because of a record."""
    return any(
        isinstance(node.spec, _SENDING)
        or isinstance(node.regroups, Fields | ByFunction)
        for node in stage
    )
