"""Make streams and frames of operators, for verbs of other classes.

`key_by` makes a `KeyedStream` of a `Stream` and `unkey` a `Stream` of a `KeyedStream`, so
that the modules of both would need each other to begin with.  They need this one, which
imports them when the first stream is made, and Polars with the first frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl

    from millstream.api.frame import Frame, WindowFrame
    from millstream.api.frame_joined import JoinedFrame
    from millstream.api.graph import Graph
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = [
    "frame_of",
    "has_verb",
    "joined_frame_of",
    "keyed_of",
    "stream_of",
    "window_frame_of",
]


def stream_of(graph: Graph, node: Node) -> Stream[Any]:
    """Return the rows of an operator as a stream without keys."""
    from millstream.api.stream import Stream  # noqa: PLC0415 - see above

    return Stream(graph, node)


def keyed_of(graph: Graph, node: Node) -> KeyedStream[Any, Any]:
    """Return the pairs of an operator as a stream with keys."""
    from millstream.api.keyed import KeyedStream  # noqa: PLC0415 - see above

    return KeyedStream(graph, node)


def frame_of(graph: Graph, node: Node, schema: pl.Schema) -> Frame:
    """Return the data frames of an operator."""
    from millstream.api.frame import Frame  # noqa: PLC0415 - loads Polars

    return Frame(graph, node, schema)


def window_frame_of(
    graph: Graph, node: Node, schema: pl.Schema, windowed: Node, given: pl.Schema
) -> WindowFrame:
    """Return what became of the windows of a frame with the schema `given`."""
    from millstream.api.frame import WindowFrame  # noqa: PLC0415 - see above

    return WindowFrame(graph, node, schema, windowed, given)


def joined_frame_of(
    graph: Graph, node: Node, schema: pl.Schema, given: tuple[pl.Schema, pl.Schema]
) -> JoinedFrame:
    """Return what became of two frames with the schemas `given`."""
    from millstream.api.frame_joined import JoinedFrame  # noqa: PLC0415 - see above

    return JoinedFrame(graph, node, schema, given)


def has_verb(kind: Literal["Stream", "KeyedStream"], verb: str) -> bool:
    """Whether streams without keys, or those with keys, have a verb."""
    from millstream.api.keyed import KeyedStream  # noqa: PLC0415 - see above
    from millstream.api.stream import Stream  # noqa: PLC0415 - see above

    of: type[Any] = Stream if kind == "Stream" else KeyedStream
    return not verb.startswith("_") and hasattr(of, verb)
