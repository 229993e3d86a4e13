"""The logical plan: one node per verb that the user called.

A `Node` says what its operator does (`spec`), where the user wrote it, how its
output is regrouped, and how wide it may be.  Nodes are frozen and valid the moment
they exist; the graph is the list of them in the order in which they were made.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import UsageError
from millstream.plan.frames import CollectFrames, FrameSpec
from millstream.plan.iteration import (
    DECIDER,
    BodyInput,
    Decide,
    LoopHead,
    LoopResult,
)
from millstream.plan.joins import JoinSpec
from millstream.plan.time import AssignTime, DropTime, InTimeOrder, LateRows
from millstream.plan.windows import CombineWindows, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import BufferPolicy
    from millstream.connectors.base import Sink, Source
    from millstream.plan.aggregate import Aggregate
    from millstream.plan.grouping import Grouping

__all__ = [
    "AggregateAll",
    "AggregateByKey",
    "Collect",
    "Combine",
    "CombineAll",
    "DeadLetters",
    "DropKey",
    "Filter",
    "FilterMap",
    "FlatMap",
    "Flatten",
    "ForEach",
    "Inspect",
    "KeyBy",
    "LetterBudget",
    "Limit",
    "Location",
    "LogicalPlan",
    "Map",
    "MapBatches",
    "Merge",
    "Node",
    "Process",
    "Read",
    "Regroup",
    "Result",
    "RowSpec",
    "Scan",
    "SortBy",
    "Spec",
    "Unique",
    "Unkey",
    "Write",
    "Zip",
]


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's program an operator was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


# Sources.


@dataclass(frozen=True, slots=True)
class Read:
    """Read the splits of a source.

    Attributes
    ----------
    column_count
        How many columns there are, where the planner found that fewer are needed and
        made the source leave the others out.
    """

    source: Source[Any]
    column_count: int | None = None


# One row in, some rows out, nothing remembered; a run of these becomes one function.


@dataclass(frozen=True, slots=True)
class Map:
    """One row for one row."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the function is true."""

    function: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Any number of rows for one row."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FilterMap:
    """One row for one row, or none where the function returns None."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Flatten:
    """The items of every row."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Call the function for its side effect."""

    function: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class KeyBy:
    """Pair every row with its key."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class DropKey:
    """Forget the keys."""


@dataclass(frozen=True, slots=True)
class Unkey:
    """Treat keyed rows as plain ``(key, value)`` pairs."""


RowSpec = (
    Map
    | Filter
    | FlatMap
    | FilterMap
    | Flatten
    | Inspect
    | KeyBy
    | DropKey
    | Unkey
    | DropTime
)


# Whole batches, many inputs, or a change of partitioning.


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records that made a function of the flow raise; the planner finds the inputs."""


@dataclass(frozen=True, slots=True)
class MapBatches:
    """Any list of rows for a list of rows."""

    function: Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Regroup:
    """Nothing but a new partitioning; also the verb behind `max_parallelism`."""


@dataclass(frozen=True, slots=True)
class Merge:
    """All rows of several inputs."""


@dataclass(frozen=True, slots=True)
class Zip:
    """The i-th row of the one input with the i-th row of the other."""


# Operators that remember.


@dataclass(frozen=True, slots=True)
class Combine:
    """Aggregate by key inside the sending stage; put in by the planner.

    Attributes
    ----------
    is_prompt
        Whether somebody waits for what is held, so that it leaves before long.
    """

    aggregate: Aggregate
    is_prompt: bool = False


@dataclass(frozen=True, slots=True)
class AggregateByKey:
    """One result per key when the input ends."""

    aggregate: Aggregate
    is_combined: bool = False


@dataclass(frozen=True, slots=True)
class CombineAll:
    """Aggregate all rows of one task; put in by the planner."""

    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class AggregateAll:
    """One result over all rows when the input ends."""

    aggregate: Aggregate
    is_combined: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """The running aggregate of the key after every row."""

    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class Process:
    """A user's stateful function.

    Attributes
    ----------
    in_time_order
        Whether records wait until they can be worked on in the order of time.
    """

    function: Any
    in_time_order: bool = False


@dataclass(frozen=True, slots=True)
class Unique:
    """The first of equal keys; rows are ``(row, None)`` pairs on the way in."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The first `rows` rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class SortBy:
    """All rows in order when the input ends; only the first `limit` if given."""

    key: Callable[[Any], Any]
    is_descending: bool = False
    limit: int | None = None


# Sinks.


@dataclass(frozen=True, slots=True)
class Collect:
    """Send rows to the driver."""


@dataclass(frozen=True, slots=True)
class Result:
    """Send the one row there is to the driver; `empty` where there is none."""

    empty: Any


@dataclass(frozen=True, slots=True)
class ForEach:
    """Call a function for every row."""

    function: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class LetterBudget:
    """Count the dead letters of the whole job, and fail when there are more."""

    letters_max: int


@dataclass(frozen=True, slots=True)
class Write:
    """Give rows to a sink."""

    sink: Sink[Any]


Spec = (
    Read
    | RowSpec
    | MapBatches
    | DeadLetters
    | Regroup
    | Merge
    | Zip
    | Combine
    | AggregateByKey
    | CombineAll
    | AggregateAll
    | Scan
    | Process
    | Unique
    | Limit
    | SortBy
    | AssignTime
    | InTimeOrder
    | LateRows
    | JoinSpec
    | Windowed
    | CombineWindows
    | FrameSpec
    | LoopHead
    | BodyInput
    | Decide
    | LoopResult
    | Collect
    | Result
    | ForEach
    | LetterBudget
    | Write
)

LOCAL = ".local"
"""Ends the name of an operator that the planner put in front of the user's."""

SINKS = (Collect, CollectFrames, Result, ForEach, LetterBudget, Write)


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
        """The name the user knows it by, also for a part that he did not write."""
        return self.name.removesuffix(LOCAL).removesuffix(DECIDER)

    @property
    def is_sink(self) -> bool:
        """Whether nothing comes out of it."""
        return isinstance(self.spec, SINKS)


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
