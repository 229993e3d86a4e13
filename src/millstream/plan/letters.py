"""Where dead letters come from: every operator that may raise and is not fed by them.

The stage of the letters has an edge from each stage that may send some; so that inputs
come first, it and all that follows from it stand behind the rest of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.grouping import ByFunction, Fields
from millstream.plan.nodes import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.plan.logical import Node

__all__ = ["has_letters", "letters_last", "may_send_letters"]


def has_letters(plan: Iterable[Node]) -> bool:
    """Whether records that make a function raise are collected."""
    return any(isinstance(node.spec, DeadLetters) for node in plan)


def letters_last(plan: Sequence[Node]) -> list[Node]:
    """Return the nodes with the letters, and all that reads them, at the end."""
    after: set[int] = set()
    for node in plan:
        if isinstance(node.spec, DeadLetters) or not after.isdisjoint(node.inputs):
            after.add(node.id)
    return sorted(plan, key=lambda node: node.id in after)


def may_send_letters(stage: Iterable[Node]) -> bool:
    """Whether a stage calls functions that may raise because of a record."""
    return any(
        node.spec.traits.may_fail_on_record
        or isinstance(node.regroups, Fields | ByFunction)
        for node in stage
    )
