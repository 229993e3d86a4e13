"""Put the planner's own operators into the logical plan.

Whatever can be made smaller before rows move is made smaller there: associative
aggregates are combined, a limit is also a limit of every task, and only the first
rows of a sort travel; columns of files that nobody needs are not read
(`millstream.plan.projection`).  Rewriting keeps the ids of the user's nodes.

Where dead letters are collected, only counts are combined: in any other aggregate it may
be the merging of two accumulators that raises, and those are no records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.plan.aggregate import Aggregate
from millstream.plan.frame_windows import (
    AssignFrameTime,
    CombinePanes,
    CountFrame,
    TimeWindowFrame,
)
from millstream.plan.frames import AggregateFrame, CombineFrame, SortFrame
from millstream.plan.grouping import Columns, Fields
from millstream.plan.joins import JoinTable
from millstream.plan.letters import has_letters, letters_last
from millstream.plan.logical import LOCAL, Node
from millstream.plan.loops import in_rounds
from millstream.plan.nodes import (
    AggregateAll,
    AggregateByKey,
    Combine,
    CombineAll,
    Limit,
    SortBy,
)
from millstream.plan.projection import with_needed_columns
from millstream.plan.time import AssignTime, LateRows
from millstream.plan.windows import (
    CombineWindows,
    CountWindows,
    TimeWindows,
    Windowed,
)

if TYPE_CHECKING:
    from millstream.plan.logical import LogicalPlan
    from millstream.plan.spec import Spec

__all__ = ["rewrite"]


def rewrite(plan: LogicalPlan) -> list[Node]:
    """Return the nodes to run, in an order in which inputs come first."""
    rewriter = _Rewriter(plan, has_letters(plan.nodes), in_rounds(plan.nodes))
    for node in plan.nodes:
        rewriter.visit(node)
    return letters_last(with_needed_columns(rewriter.nodes))


@dataclass(slots=True)
class _Rewriter:
    plan: LogicalPlan
    has_letters: bool
    in_rounds: frozenset[int]
    nodes: list[Node] = field(default_factory=list)

    def visit(self, node: Node) -> None:
        match node.spec:
            case AggregateByKey(aggregate) if self._can_combine(aggregate):
                self._combine_by_key(node, Combine(aggregate))
            case AggregateFrame(aggregation) if aggregation.can_merge:
                self._combine_by_key(node, CombineFrame(aggregation))
            case CountFrame(aggregation, is_counted=True):
                self._combine_by_key(
                    node, CombineFrame(aggregation, has_latency_bound=True)
                )
            case Windowed(CountWindows(), Aggregate(kind="count") as aggregate):
                self._combine_by_key(node, Combine(aggregate, has_latency_bound=True))
            case Windowed() if self._can_combine_windows(node, node.spec):
                self._narrow(node, CombineWindows(node.spec))
                self._mark_combined()
            case TimeWindowFrame() if self._can_combine_rows(node, node.spec):
                self._combine_by_key(node, CombinePanes(node.spec))
            case AggregateAll(aggregate) if self._can_combine(aggregate):
                self._narrow(node, CombineAll(aggregate))
                self._mark_combined()
            case Limit():
                self._limit(node)
            case SortBy(limit=int()) | SortFrame(limit=int()):
                self._narrow(node, node.spec)
            case _:
                self.nodes.append(self._waiting(node))

    def _waiting(self, node: Node) -> Node:
        """Let rows of a round wait for a table: it is over only when that is complete."""
        if isinstance(node.spec, JoinTable) and node.id in self.in_rounds:
            return replace(node, spec=replace(node.spec, waits=True))
        return node

    def _can_combine(self, aggregate: Aggregate) -> bool:
        is_safe = not self.has_letters or aggregate.kind == "count"
        return is_safe and aggregate.merge is not None

    def _can_combine_rows(self, node: Node, spec: TimeWindowFrame) -> bool:
        """Whether rows of a frame become fewer by aggregating them before they move."""
        is_smaller = not spec.is_by_clock and not spec.keeps_rows
        return is_smaller and self._can_combine_panes(node)

    def _can_combine_panes(self, node: Node) -> bool:
        """Whether no row can come too late for a window but by its own origin's word.

        Of such rows it is known where they are combined; others would have to be there
        one by one.
        """
        specs = [other.spec for other in self.plan.nodes]
        is_read = any(isinstance(s, LateRows) and s.of == node.id for s in specs)
        giving = [s for s in specs if isinstance(s, AssignTime | AssignFrameTime)]
        return not is_read and not any(
            spec.idle_after_ms is not None or spec.splits_in_order for spec in giving
        )

    def _can_combine_windows(self, node: Node, spec: Windowed) -> bool:
        """Whether windows that one task has all of can be aggregated before that."""
        window, aggregate = spec.window, spec.aggregate
        if aggregate is None or spec.is_ordered or spec.sees_times or node.width != 1:
            return False
        is_timed = isinstance(window, TimeWindows) and window.time == "event"
        is_mergeable = self._can_combine(aggregate) and self._can_combine_panes(node)
        return is_timed and is_mergeable

    def _combine_by_key(
        self, node: Node, combine: Combine | CombineFrame | CombinePanes
    ) -> None:
        """Move the regrouping behind a combiner, if nobody else reads the keys."""
        keys = next(n for n in self.nodes if n.id == node.inputs[0])
        if keys.takes_times and not keys.makes_times:
            keys = next(n for n in self.nodes if n.id == keys.inputs[0])
        is_regrouped = isinstance(keys.regroups, Fields | Columns)
        if not is_regrouped or len(self.plan.consumers(keys.id)) > 1:
            self.nodes.append(node)
            return
        self.nodes[self.nodes.index(keys)] = replace(keys, regroups=None)
        self._narrow(node, combine)
        combiner = replace(self.nodes[-2], regroups=keys.regroups)
        self.nodes[-2] = combiner
        self._mark_combined()

    def _limit(self, node: Node) -> None:
        """Turn sort-then-limit into a sort that keeps only the first rows."""
        assert isinstance(node.spec, Limit)
        below = next(n for n in self.nodes if n.id == node.inputs[0])
        is_sort = (
            isinstance(below.spec, SortBy | SortFrame) and below.spec.limit is None
        )
        if not is_sort or len(self.plan.consumers(below.id)) > 1:
            self._narrow(node, node.spec)
            return
        assert isinstance(below.spec, SortBy | SortFrame)
        self.nodes.remove(below)
        self._narrow(below, replace(below.spec, limit=node.spec.rows))
        self.nodes[-1] = replace(
            below, spec=self.nodes[-2].spec, inputs=self.nodes[-1].inputs
        )
        self.nodes.append(node)

    def _narrow(self, node: Node, spec: Spec) -> None:
        """Put an operator in front of `node` that makes its input smaller."""
        before = replace(
            node,
            id=len(self.plan.nodes) + len(self.nodes),
            name=f"{node.name}{LOCAL}",
            spec=spec,
            width=None,
            regroups=None,
            buffer=None,
        )
        self.nodes += [before, replace(node, inputs=(before.id,))]

    def _mark_combined(self) -> None:
        spec = self.nodes[-1].spec
        combined = AggregateByKey | AggregateAll | AggregateFrame
        assert isinstance(spec, combined | CountFrame | TimeWindowFrame | Windowed)
        changed = replace(spec, is_combined=True)
        self.nodes[-1] = replace(self.nodes[-1], spec=changed)
