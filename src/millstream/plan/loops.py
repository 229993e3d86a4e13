"""Loops in a plan: which operators are in whose body, and which edges close a loop.

The back-edges are found as abs-snapshots.md, section 4.3, says: by a depth-first search, as
the edges to a stage that the search is still in.  All of them must lead to the head of a
loop; any other cycle would wait for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import UsageError
from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.frames import JoinFrames
from millstream.plan.iteration import BodyInput, Decide, LoopHead
from millstream.plan.joins import (
    LEFT,
    RIGHT,
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.plan.iteration import Iteration
    from millstream.plan.logical import Node

__all__ = ["back_edges", "bodies", "check_bodies", "enclosing", "in_rounds"]


def back_edges(stage_count: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """Return the places in `edges` of those that close a cycle.

    Where a cycle is reached from several places, it depends on the first of them which
    edge is said to close it; whether there is a cycle does not.

    Examples
    --------
    >>> back_edges(3, [(0, 1), (1, 2), (2, 1)])
    {2}
    """
    outputs: dict[int, list[int]] = {stage: [] for stage in range(stage_count)}
    for place, (source, _) in enumerate(edges):
        outputs[source].append(place)
    found: set[int] = set()
    done: set[int] = set()
    for root in range(stage_count):
        if root in done:
            continue
        path = {root}
        stack = [(root, iter(outputs[root]))]
        while stack:
            stage, places = stack[-1]
            for place in places:
                target = edges[place][1]
                if target in path:
                    found.add(place)
                elif target not in done:
                    path.add(target)
                    stack.append((target, iter(outputs[target])))
                    break
            else:
                stack.pop()
                path.remove(stage)
                done.add(stage)
    return found


def bodies(nodes: Iterable[Node]) -> dict[int, frozenset[int]]:
    """Return the nodes in the body of every loop, by the id of its head.

    In the body is what can be reached from the head through its body input, and in a free
    loop also leads back to it; so are the loops inside, with all they consist of.
    """
    by_id = {node.id: node for node in nodes}
    found = {}
    for head in by_id.values():
        if isinstance(head.spec, LoopHead):
            first = [
                n.id
                for n in by_id.values()
                if isinstance(n.spec, BodyInput) and n.inputs == (head.id,)
            ]
            ends = {head.id, *_deciders(by_id, head)}
            below = _reached(first, _readers(by_id), stop=ends)
            if not head.spec.iteration.has_rounds:
                below &= _reached(head.back, _sources(by_id), stop=ends)
            found[head.id] = frozenset(below)
    return found


def enclosing(nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """Return the heads of the loops that every node is in, outermost first."""
    everything = list(nodes)
    found = bodies(everything)
    return {
        node.id: tuple(
            sorted(
                (head for head, body in found.items() if node.id in body),
                key=lambda head: -len(found[head]),
            )
        )
        for node in everything
    }


def in_rounds(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the nodes in the bodies of loops with rounds."""
    with_rounds = [
        body
        for head, body in bodies(nodes).items()
        if _iteration(nodes[head]).has_rounds
    ]
    return frozenset().union(*with_rounds)


def _iteration(head: Node) -> Iteration:
    assert isinstance(head.spec, LoopHead)
    return head.spec.iteration


def check_bodies(nodes: Sequence[Node]) -> None:
    """Refuse loops that could not end, or would lose what a round makes."""
    by_id = {node.id: node for node in nodes}
    found = bodies(nodes)
    for head_id, body in found.items():
        head = by_id[head_id]
        assert isinstance(head.spec, LoopHead)
        for node_id in sorted(body):
            _check_inner_loop(head, by_id[node_id])
            if not head.spec.iteration.has_rounds:
                _check_streaming(head, by_id[node_id], body)
        if head.spec.iteration.has_rounds:
            _check_rounds(by_id, head, body)
            _check_sides(nodes, head, found)


def _check_inner_loop(head: Node, node: Node) -> None:
    assert isinstance(head.spec, LoopHead)
    if not isinstance(node.spec, LoopHead):
        return
    where = f"{node.verb} at {node.location} is in the body of {head.verb} at {head.location}"
    if not head.spec.iteration.has_rounds:
        msg = (
            f"{where}, whose rows never come to an end; do it before or after the loop, or "
            "make the loop an iterate"
        )
        raise UsageError(msg)
    if not node.spec.iteration.has_rounds:
        msg = (
            f"{where}; a free loop does not know when a round is over, so use iterate "
            "inside"
        )
        raise UsageError(msg)


def _check_streaming(head: Node, node: Node, body: frozenset[int]) -> None:
    """Refuse what would say something only when nothing can go round any more."""
    where = f"{node.verb} at {node.location} is in the body of {head.verb} at {head.location}"
    is_join = isinstance(node.spec, JoinFrames) and node.inputs[1] in body
    if is_join or node.spec.traits.waits_for_end:
        msg = (
            f"{where} and waits for the end of an input, after which nothing goes round; "
            "use scan or process, or make the loop an iterate"
        )
        raise UsageError(msg)
    if node.spec.traits.may_end_early:
        msg = (
            f"{where} and may end before its input does, so that what is left could not "
            "go round; do it before or after the loop, or make the loop an iterate"
        )
        raise UsageError(msg)


def _check_rounds(by_id: Mapping[int, Node], head: Node, body: frozenset[int]) -> None:
    """Refuse what leaves a round, and what would be in the first round only."""
    ends = {head.id, *_deciders(by_id, head)}
    leading = _reached([*head.back, *ends], _sources(by_id), stop=set())
    for node in (by_id[node_id] for node_id in sorted(body)):
        where = (
            f"{node.verb} at {node.location} is in the body of {head.verb} at "
            f"{head.location}"
        )
        if node.id not in leading:
            what = "a sink" if node.is_sink else "no part of what the body returns"
            msg = (
                f"{where} and is {what}; what is made in a round stays in it, so return "
                "it, or do this with the result"
            )
            raise UsageError(msg)


def _check_sides(
    nodes: Sequence[Node], head: Node, found: Mapping[int, frozenset[int]]
) -> None:
    """Refuse what comes from outside and is not kept, or not complete in a round."""
    body = found[head.id]
    around = [other for other in found.values() if head.id in other]
    for node in (nodes[node_id] for node_id in sorted(body)):
        for port, number in enumerate(node.inputs):
            if number in body or number == head.id:
                continue
            source = nodes[number]
            where = (
                f"{node.verb} at {node.location} is in the body of {head.verb} at "
                f"{head.location} and reads {source.verb} at {source.location}, "
            )
            if not _is_kept(node, port):
                msg = f"{where}which is not; {_instead(node, port)}"
            elif any(number in other for other in around):
                msg = (
                    f"{where}which is in the body of the loop around it and begins anew "
                    "in each of its rounds; let this side come from outside both loops, "
                    "or join before the inner one"
                )
            else:
                continue
            raise UsageError(msg)


def _instead(node: Node, port: int) -> str:
    """Say why a side from outside cannot be in every round, and what to do."""
    spec = node.spec.by if isinstance(node.spec, JoinFrameStreams) else node.spec
    if isinstance(spec, JoinWindow | JoinInterval | JoinAsof):
        return (
            "time begins anew with every round, so that its rows would be gone after the "
            "first; compute both inputs inside the loop body, or join without time"
        )
    if isinstance(spec, Join | JoinTable | JoinFrames) and port == LEFT:
        return (
            f"how={str(spec.how)!r} is done with left rows in the first round; let the "
            "left side be made in the round"
        )
    return (
        "its rows would be in the first round only, so join it, which keeps the right "
        "side for all rounds"
    )


def _is_kept(node: Node, port: int) -> bool:
    """Whether an operator keeps what comes on a port for all rounds."""
    spec = node.spec.by if isinstance(node.spec, JoinFrameStreams) else node.spec
    if isinstance(spec, Join):
        return port == RIGHT or spec.how.makes_pairs
    return isinstance(spec, JoinTable | JoinFrames) and port == RIGHT


def _deciders(by_id: Mapping[int, Node], head: Node) -> list[int]:
    return [
        node.id
        for node in by_id.values()
        if isinstance(node.spec, Decide) and node.inputs[0] == head.id
    ]


def _readers(by_id: Mapping[int, Node]) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {node: [] for node in by_id}
    for node in by_id.values():
        for source in (*node.inputs, *node.back):
            readers[source].append(node.id)
    return readers


def _sources(by_id: Mapping[int, Node]) -> dict[int, list[int]]:
    return {node.id: [*node.inputs, *node.back] for node in by_id.values()}


def _reached(
    starts: Iterable[int], following: Mapping[int, list[int]], stop: set[int]
) -> set[int]:
    """Return what can be reached without going through `stop`, the starts included."""
    found: set[int] = set()
    left = list(starts)
    while left:
        node = left.pop()
        if node not in found and node not in stop:
            found.add(node)
            left += following[node]
    return found
