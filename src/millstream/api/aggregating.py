"""Aggregates of every key, as verbs add them to the plan.

Nothing here knows whether what follows has keys: the operators make pairs of key and
result in either case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.api.building import checked_function
from millstream.plan import aggregate as aggregates
from millstream.plan.aggregate import Aggregate
from millstream.plan.nodes import AggregateByKey, Scan

if TYPE_CHECKING:
    from millstream.api.graph import Graph
    from millstream.plan.logical import Node

__all__ = ["aggregated", "checked_fold", "checked_reduce", "scanned"]


def checked_reduce(function: Any) -> Aggregate:
    """Return what `reduce` was asked for, if workers can get its function."""
    return aggregates.reduce(checked_function("reduce", function))


def checked_fold(initial: Any, function: Any, merge: Any) -> Aggregate:
    """Return what `fold` was asked for, if workers can get its functions."""
    checked_function("fold", function)
    if merge is not None:
        checked_function("fold", merge)
    return aggregates.fold(initial, function, merge)


def aggregated(
    graph: Graph, node: Node, aggregate: Aggregate, name: str | None
) -> Node:
    """Append the aggregate of every key, which comes at the end of the input."""
    spec = AggregateByKey(aggregate)
    return graph.add(aggregate.name, spec, (node.id,), name=name)


def scanned(
    graph: Graph, node: Node, function: Any, initial: Any, name: str | None
) -> Node:
    """Append the running aggregate of every key."""
    spec = Scan(_running(function, initial))
    return graph.add("scan", spec, (node.id,), name=name, takes_pairs=True)


def _running(function: Any, initial: Any) -> Aggregate:
    if isinstance(function, Aggregate):
        return function
    checked_function("scan", function)
    if initial is aggregates.MISSING:
        return aggregates.reduce(function)
    return aggregates.fold(initial, function)
