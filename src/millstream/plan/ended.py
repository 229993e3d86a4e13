"""What is left to do of a plan some of whose operators have ended in an earlier run.

An operator has *ended* when it has read all that it needs and flushed for the last time.  It gives
nothing more, whatever stands in front of it now and however many tasks it would have, and
what is behind it in its stage has nothing to do but to flush its own rest.  One that
was *left*, because nobody read what it made, has not ended: it goes on if it is read again,
and has nothing to do as long as it is not.  Sources are no operators here: one that is at
its end ends again.

This module knows operators by their names, and neither tasks nor snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.nodes import Read

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.plan.logical import Node
    from millstream.plan.stages import StagePlan

__all__ = ["Remains", "live_operators", "new_rows_lost", "remains_of"]


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of stages.

    Attributes
    ----------
    over
        Stages of which nothing is left, by id.
    unread
        Other stages from which nothing can come to a sink.
    spent
        By the id of a stage of which only the end is left: how many operators, from the
        first on, have nothing more to do.
    """

    over: frozenset[int]
    unread: frozenset[int]
    spent: dict[int, int]


def remains_of(stages: StagePlan, ended: Collection[str]) -> Remains:
    """Return what is left where operators of these names have ended."""
    live = live_operators(stages, ended)
    over, unread = set(), set()
    spent: dict[int, int] = {}
    for stage in stages.stages:
        places = [i for i, node in enumerate(stage.nodes, 1) if _has(ended, node)]
        if places and places[-1] == len(stage.nodes):
            over.add(stage.id)
        elif live.isdisjoint(node.name for node in stage.nodes):
            unread.add(stage.id)
        elif places:
            spent[stage.id] = places[-1]
    return Remains(frozenset(over), frozenset(unread), spent)


def live_operators(stages: StagePlan, ended: Collection[str]) -> set[str]:
    """Return the operators from which something can still come to a sink."""
    by_id = _nodes(stages)
    found: set[str] = set()
    coming = [node for node in by_id.values() if node.is_sink]
    while coming:
        node = coming.pop()
        if node.name not in found and not _has(ended, node):
            found.add(node.name)
            coming += [by_id[source] for source in (*node.inputs, *node.back)]
    return found


def new_rows_lost(
    stages: StagePlan, ended: Collection[str], known: Collection[str]
) -> tuple[str, str] | None:
    """Return a source that is not known and an operator that has ended and reads from it."""
    readers: dict[int, list[Node]] = {}
    for node in _nodes(stages).values():
        for source in (*node.inputs, *node.back):
            readers.setdefault(source, []).append(node)
    for node in _nodes(stages).values():
        if not isinstance(node.spec, Read) or node.name in known:
            continue
        coming, seen = [node.id], {node.id}
        while coming:
            for reader in readers.get(coming.pop(), ()):
                if _has(ended, reader):
                    return node.name, reader.name
                if reader.id not in seen:
                    seen.add(reader.id)
                    coming.append(reader.id)
    return None


def _has(ended: Collection[str], node: Node) -> bool:
    return node.name in ended and not isinstance(node.spec, Read)


def _nodes(stages: StagePlan) -> dict[int, Node]:
    return {node.id: node for stage in stages.stages for node in stage.nodes}
