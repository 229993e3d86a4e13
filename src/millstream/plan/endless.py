"""Which inputs may never end: those with a source that may not, and no limit behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.nodes import Limit, Read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.plan.logical import Node

__all__ = ["endless_source"]


def endless_source(plan: Sequence[Node], nodes: Iterable[int]) -> Node | None:
    """Return a source that may never end and whose rows come to one of the nodes."""
    seen: set[int] = set()
    ahead = list(nodes)
    while ahead:
        number = ahead.pop()
        if number in seen or isinstance(plan[number].spec, Limit):
            continue
        seen.add(number)
        node = plan[number]
        if isinstance(node.spec, Read) and not node.spec.source.is_bounded:
            return node
        ahead += node.inputs
    return None
