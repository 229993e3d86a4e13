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

from millstream.plan.frames import AggregateFrame, CombineFrame, SortFrame
from millstream.plan.grouping import Columns, Fields
from millstream.plan.letters import has_letters, letters_last
from millstream.plan.nodes import (
    LOCAL,
    AggregateAll,
    AggregateByKey,
    Combine,
    CombineAll,
    Limit,
    Node,
    SortBy,
)
from millstream.plan.projection import with_needed_columns

if TYPE_CHECKING:
    from millstream.plan.aggregate import Aggregate
    from millstream.plan.nodes import LogicalPlan, Spec

__all__ = ["rewrite"]


def rewrite(plan: LogicalPlan) -> list[Node]:
    """Return the nodes to run, in an order in which inputs come first."""
    rewriter = _Rewriter(plan, has_letters(plan.nodes))
    for node in plan.nodes:
        rewriter.visit(node)
    return letters_last(with_needed_columns(rewriter.nodes))


@dataclass(slots=True)
class _Rewriter:
    plan: LogicalPlan
    has_letters: bool
    nodes: list[Node] = field(default_factory=list)

    def visit(self, node: Node) -> None:
        match node.spec:
            case AggregateByKey(aggregate) if self._can_combine(aggregate):
                self._combine_by_key(node, Combine(aggregate))
            case AggregateFrame(aggregation) if aggregation.can_merge:
                self._combine_by_key(node, CombineFrame(aggregation))
            case AggregateAll(aggregate) if self._can_combine(aggregate):
                self._narrow(node, CombineAll(aggregate))
                self._mark_combined()
            case Limit():
                self._limit(node)
            case SortBy(limit=int()) | SortFrame(limit=int()):
                self._narrow(node, node.spec)
            case _:
                self.nodes.append(node)

    def _can_combine(self, aggregate: Aggregate) -> bool:
        is_safe = not self.has_letters or aggregate.name == "count"
        return is_safe and aggregate.merge is not None

    def _combine_by_key(self, node: Node, combine: Combine | CombineFrame) -> None:
        """Move the regrouping behind a combiner, if nobody else reads the keys."""
        keys = next(n for n in self.nodes if n.id == node.inputs[0])
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
        assert isinstance(spec, AggregateByKey | AggregateAll | AggregateFrame)
        self.nodes[-1] = replace(self.nodes[-1], spec=replace(spec, is_combined=True))
