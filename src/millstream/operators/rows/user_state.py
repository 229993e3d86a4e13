"""Functions of the user that remember something: a copy for each task, and its state.

Such a function is an operator of its own, so that its state is found by its name.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.state.operator_state import OperatorState
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from millstream.plan.logical import Node
    from millstream.values import Value

__all__ = ["has_user_state", "own_function"]


def has_user_state(node: Node) -> bool:
    """Whether the function of a node remembers something from row to row."""
    spec: Any = node.spec
    return spec.traits.calls_function and isinstance(spec.function, OperatorState)


def own_function(node: Node) -> tuple[Node, TaskState]:
    """Return the node with a copy of its function for one task, and the copy's state."""
    spec: Any = node.spec
    assert spec.traits.calls_function, "see `has_user_state`"
    function: Any = copy.deepcopy(spec.function)

    def put(values: list[Value]) -> None:
        function.restore(values[0] if len(values) == 1 else function.merge(values))

    own = replace(node, spec=replace(spec, function=function))
    return own, TaskState(function.capture, put)
