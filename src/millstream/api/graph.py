"""What a flow is built into: its plan, and what verbs do to it.

A verb adds operators to the graph and wraps what comes out: the classes that users hold,
`Flow`, `Stream`, `Frame` and their kin, have a graph, an operator of it, and signatures.
Nothing here imports one of them, nor do their verbs need each other: what makes them of an
operator is in `api.wrapping`, above all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from millstream.api.building import checked_flow, user_location
from millstream.errors import UsageError
from millstream.plan.logical import Node
from millstream.plan.nodes import Map
from millstream.plan.timed import dropping_time, makes_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from millstream.api.frame import Frame, WindowFrame
    from millstream.api.frame_joined import JoinedFrame
    from millstream.api.handles import ResultHandle
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.config import BufferPolicy
    from millstream.launch.job import Job
    from millstream.plan.logical import LogicalPlan
    from millstream.plan.spec import Spec

__all__ = ["Graph", "Wrapped", "WrappedFrame", "input_of"]


@dataclass(eq=False)
class Graph(ABC):
    """A flow as its streams know it.

    Attributes
    ----------
    handles
        The results that sinks will give back, in the order of their making.
    job
        The job of the last start, if there was one.
    """

    plan: LogicalPlan
    handles: list[ResultHandle[Any]] = field(default_factory=list)
    job: Job | None = None

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.plan.name

    @property
    def last_job(self) -> Job:
        """The job of the last start."""
        if self.job is None:
            msg = f"flow {self.name!r} was not started; call run() or start() first"
            raise UsageError(msg)
        return self.job

    def add(
        self,
        verb: str,
        spec: Spec,
        inputs: tuple[int, ...],
        *,
        name: str | None = None,
        **attributes: Any,
    ) -> Node:
        """Append an operator to the plan.

        Unless its attributes say what becomes of timestamps, they are kept if the
        operator can keep them and all inputs have them, and dropped before it if not.
        """
        if "takes_times" not in attributes:
            is_timed = all(self.plan.nodes[i].makes_times for i in inputs)
            if inputs and is_timed and spec.traits.keeps_time:
                attributes |= {"takes_times": True, "makes_times": True}
            else:
                inputs = tuple(self.untimed(i) for i in inputs)
        name = name or self.plan.free_name(verb)
        node = Node(
            id=len(self.plan.nodes),
            name=name,
            verb=verb,
            spec=spec,
            inputs=inputs,
            location=user_location(),
            has_default_name=self.plan.is_default(name),
            **attributes,
        )
        self.plan.add(node)
        return node

    def untimed(self, source: int, name: str | None = None) -> int:
        """Return an operator whose rows are those of `source`, without timestamps."""
        above = self.plan.nodes[source]
        if not above.makes_times:
            return source
        dropping = {
            "takes_pairs": makes_pairs(above),
            "takes_times": True,
            "makes_frames": above.makes_frames,
        }
        name = name or self.plan.free_name(f"{above.name}.untimed")
        spec = dropping_time(above)
        return self.add("drop_time", spec, (source,), name=name, **dropping).id

    def rebuffered(self, node: Node, policy: BufferPolicy) -> Node:
        """Let the output of an operator be sent by another policy."""
        self.plan.nodes[node.id] = replace(node, buffer=policy)
        return self.plan.nodes[node.id]

    def with_value(self, node: Node, function: Callable[[Any], Any]) -> Node:
        """Let what a regrouping operator moves be a function of the row."""
        self.plan.nodes[node.id] = replace(node, regroups=None)
        return self.add(
            node.verb,
            Map(function),
            (node.id,),
            name=f"{node.name}.value",
            takes_pairs=True,
            regroups=node.regroups,
        )

    @abstractmethod
    def stream(self, node: Node) -> Stream[Any]:
        """Return the rows of an operator as a stream without keys."""

    @abstractmethod
    def keyed(self, node: Node) -> KeyedStream[Any, Any]:
        """Return the pairs of an operator as a stream with keys."""

    @abstractmethod
    def frame(self, node: Node, schema: pl.Schema) -> Frame:
        """Return the data frames of an operator."""

    @abstractmethod
    def window_frame(
        self, node: Node, schema: pl.Schema, windowed: Node, given: pl.Schema
    ) -> WindowFrame:
        """Return what became of the windows of a frame with the schema `given`."""

    @abstractmethod
    def joined_frame(
        self, node: Node, schema: pl.Schema, given: tuple[pl.Schema, pl.Schema]
    ) -> JoinedFrame:
        """Return what became of two frames with the schemas `given`."""

    @abstractmethod
    def has_verb(self, kind: Literal["Stream", "any"], verb: str) -> bool:
        """Whether streams without keys, or also those with keys, have a verb."""

    def remember(self, handle: ResultHandle[Any]) -> None:
        """Keep the handle of a sink."""
        self.handles.append(handle)


class Wrapped:
    """An operator of a graph, as users hold it: a stream or a frame."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node


class WrappedFrame(Wrapped):
    """An operator of a graph that makes data frames."""

    def __init__(self, graph: Graph, node: Node, schema: pl.Schema) -> None:
        super().__init__(graph, node)
        self.schema = schema


def input_of(verb: str, graph: Graph, made: Wrapped) -> int:
    """Return the id of its operator, for a verb that joins streams of one flow."""
    checked_flow(verb, graph, made._graph)  # noqa: SLF001 - private to users alone
    return made._node.id  # noqa: SLF001 - likewise
