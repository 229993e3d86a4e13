"""The logical plan: one node per verb that the user called.

A `Node` says what its operator does (`spec`), where the user wrote it, how its
output is regrouped, and how wide it may be.  Nodes are frozen and valid the moment
they exist; the graph is the list of them in the order in which they were made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.errors import UsageError
from millstream.plan.iteration import DECIDER
from millstream.plan.nodes import Write

if TYPE_CHECKING:
    from millstream.config import BufferPolicy
    from millstream.plan.grouping import Grouping
    from millstream.plan.spec import Spec

__all__ = ["LOCAL", "Location", "LogicalPlan", "Node"]

LOCAL = ".local"
"""Ends the name of an operator that the planner put in front of the user's."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's program an operator was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the user's program.

    Attributes
    ----------
    verb
        The method the user called.
    takes_pairs
        Whether rows arrive as ``(key, value)`` pairs whose key must be kept.
    regroups
        How its output is spread over the next stage; None leaves rows where they are.
    width
        Most tasks it may run in; None for as many as there are workers.
    makes_frames
        Whether its output comes in data frames, not in lists of rows.
    takes_times
        Whether every row arrives with a timestamp.
    makes_times
        Whether every row leaves with a timestamp.
    back
        Nodes whose output closes a loop here; they come later in the plan.
    has_default_name
        Whether the user gave it no name, so that it is named by its verb and a number.
    """

    id: int
    name: str
    verb: str
    spec: Spec
    inputs: tuple[int, ...]
    location: Location
    takes_pairs: bool = False
    regroups: Grouping | None = None
    width: int | None = None
    buffer: BufferPolicy | None = None
    makes_frames: bool = False
    takes_times: bool = False
    makes_times: bool = False
    back: tuple[int, ...] = ()
    has_default_name: bool = False

    @property
    def user_name(self) -> str:
        """The name the user knows it by, also for a part that they did not write."""
        return self.name.removesuffix(LOCAL).removesuffix(DECIDER)

    @property
    def is_sink(self) -> bool:
        """Whether nothing comes out of it."""
        return self.spec.traits.is_sink


def _is_same_destination(one: Node, other: Node) -> bool:
    """Whether two sinks write where only one of them may."""
    if not isinstance(one.spec, Write) or not isinstance(other.spec, Write):
        return False
    place = one.spec.sink.destination
    return place is not None and place == other.spec.sink.destination


@dataclass(slots=True)
class LogicalPlan:
    """The nodes of a flow, in the order in which the user made them."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    location: Location | None = None
    _default_names: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Append a node whose name nobody else has."""
        assert node.id == len(self.nodes), "nodes are numbered in order"
        for other in self.nodes:
            if other.name == node.name:
                msg = (
                    f"two operators are named {node.name!r}: {other.verb} at "
                    f"{other.location} and {node.verb} at {node.location}; "
                    "give one of them another name="
                )
                raise UsageError(msg)
            if _is_same_destination(other, node):
                msg = (
                    f"{other.verb} {other.name!r} at {other.location} and {node.verb} "
                    f"{node.name!r} at {node.location} write to the same directory, and "
                    "a directory belongs to one sink; name another for one of them, or "
                    "merge the streams before one sink"
                )
                raise UsageError(msg)
        self.nodes.append(node)

    def free_name(self, verb: str) -> str:
        """Return `verb`, or `verb-2` and so on where it is taken; note that it is used."""
        taken = {node.name for node in self.nodes}
        name, count = verb, 1
        while name in taken:
            count += 1
            name = f"{verb}-{count}"
        self._default_names.add(name)
        return name

    def is_default(self, name: str) -> bool:
        """Whether a name, or what it begins with before a dot, was not given by the user."""
        parts = name.split(".")
        names = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        return not names.isdisjoint(self._default_names)

    def consumers(self, node_id: int) -> list[Node]:
        """Return the nodes that read the output of a node, once per input."""
        return [n for n in self.nodes for i in (*n.inputs, *n.back) if i == node_id]

    def close_loop(self, head: Node, back: tuple[int, ...]) -> None:
        """Let the output of later nodes come back to the head of a loop."""
        self.nodes[head.id] = replace(self.nodes[head.id], back=back)

    def check(self) -> None:
        """Refuse a flow that would do nothing or lose rows."""
        if not self.nodes:
            where = f" at {self.location}" if self.location is not None else ""
            msg = (
                f"flow {self.name!r}{where} is empty; begin with a source such as "
                "read_text"
            )
            raise UsageError(msg)
        for node in self.nodes:
            if not node.is_sink and not self.consumers(node.id):
                what = (
                    f"{node.verb} {node.name!r}"
                    if node.name != node.verb
                    else node.verb
                )
                advice = (
                    "follow it with an aggregation such as count or reduce"
                    if node.verb == "group_by"
                    else "end it with a sink such as collect or write_text"
                )
                msg = f"nothing reads the output of {what} at {node.location}; {advice}"
                raise UsageError(msg)
