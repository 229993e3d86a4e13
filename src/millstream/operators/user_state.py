"""Functions of the user that remember something: a copy for each task, and its state.

Such a function is an operator of its own, so that its state is found by its name.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.plan.nodes import (
    Filter,
    FilterMap,
    FlatMap,
    ForEach,
    Inspect,
    KeyBy,
    Map,
    MapBatches,
)
from millstream.state.operator_state import OperatorState
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from millstream.plan.nodes import Node

__all__ = ["has_user_state", "own_function"]

_CALLING = (Filter, FilterMap, FlatMap, ForEach, Inspect, KeyBy, Map, MapBatches)


def has_user_state(node: Node) -> bool:
    """Whether the function of a node remembers something from row to row."""
    spec = node.spec
    return isinstance(spec, _CALLING) and isinstance(spec.function, OperatorState)


def own_function(node: Node) -> tuple[Node, TaskState]:
    """Return the node with a copy of its function for one task, and the copy's state."""
    spec = node.spec
    assert isinstance(spec, _CALLING)
    function: Any = copy.deepcopy(spec.function)

    def put(values: list[Any]) -> None:
        function.restore(values[0] if len(values) == 1 else function.merge(values))

    own = replace(node, spec=replace(spec, function=function))
    return own, TaskState(function.capture, put)
