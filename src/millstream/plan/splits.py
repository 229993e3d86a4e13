"""Which edges carry the splits of a source along with its rows.

Who is late follows from the order of rows in their split.  Where `event_time` does not stand
in the stage of its source, because somebody else reads the source too, or what is made of
its rows one by one, it must be told which split rows come from; the edges between the two
carry that.  An edge can do so if every task before it sends all of its rows to one task:
what is dealt out has no order of its split any more.

Nothing here knows how that is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.plan import frames, nodes
from millstream.plan.frame_windows import AssignFrameTime
from millstream.plan.grouping import Gather, LocalOrShuffle
from millstream.plan.time import AssignTime, DropTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.plan.logical import Node
    from millstream.plan.stages import Edge, Stage

__all__ = ["with_splits"]

_GIVING = (AssignTime, AssignFrameTime)
_ROW_BY_ROW = (
    nodes.Read,
    nodes.Map,
    nodes.Filter,
    nodes.FlatMap,
    nodes.FilterMap,
    nodes.Flatten,
    nodes.Inspect,
    nodes.KeyBy,
    nodes.DropKey,
    nodes.Unkey,
    nodes.MapBatches,
    nodes.Regroup,
    frames.Transform,
    frames.MapFrames,
    frames.ToRows,
    frames.ToFrame,
    frames.JoinStatic,
    DropTime,
    *_GIVING,
)
"""What leaves these at once is of the split of what came."""


def with_splits(stages: Sequence[Stage], edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges, with a word on those that carry splits to where time is given."""
    able: dict[int, Edge] = {}
    for stage in stages:
        into = [edge for edge in edges if edge.target == stage.id]
        if len(into) == 1 and _can_carry(into[0], stages[into[0].source], able):
            able[stage.id] = into[0]
    needed: set[int] = set()
    for stage in reversed(stages):
        is_passing = any(e.source == stage.id and e.id in needed for e in able.values())
        if stage.id in able and (_gives_time(stage) or is_passing):
            needed.add(able[stage.id].id)
    return [replace(edge, carries_splits=edge.id in needed) for edge in edges]


def _can_carry(edge: Edge, above: Stage, able: Mapping[int, Edge]) -> bool:
    """Whether the rows of an edge can be told apart by split, and keep its order."""
    is_plain = not (edge.carries_letters or edge.is_back or edge.outlet)
    is_whole = isinstance(edge.grouping, LocalOrShuffle | Gather)
    knows = above.is_source or above.id in able
    return is_plain and is_whole and knows and _is_row_by_row(above.nodes)


def _gives_time(stage: Stage) -> bool:
    """Whether a stage gives time to rows that are still those of a split."""
    for number, node in enumerate(stage.nodes):
        if isinstance(node.spec, _GIVING):
            return _is_row_by_row(stage.nodes[:number])
    return False


def _is_row_by_row(chain: Sequence[Node]) -> bool:
    return all(isinstance(node.spec, _ROW_BY_ROW) for node in chain)
