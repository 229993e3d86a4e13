"""The graph of a flow that makes streams and frames of its operators.

`key_by` makes a `KeyedStream` of a `Stream`, `unkey` a `Stream` of a `KeyedStream`, and
`to_frame` a `Frame`.  Their modules need not know each other, since the graph that all of
them hold knows all classes; only `Flow` knows this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from millstream.api.graph import Graph
from millstream.api.keyed import KeyedStream
from millstream.api.stream import Stream

if TYPE_CHECKING:
    import polars as pl

    from millstream.api.frame import Frame, WindowFrame
    from millstream.api.frame_joined import JoinedFrame
    from millstream.plan.logical import Node

__all__ = ["WrappingGraph"]


class WrappingGraph(Graph):
    """A graph that knows the classes which users hold."""

    def stream(self, node: Node) -> Stream[Any]:
        """Return a stream without keys."""
        return Stream(self, node)

    def keyed(self, node: Node) -> KeyedStream[Any, Any]:
        """Return a stream with keys."""
        return KeyedStream(self, node)

    def frame(self, node: Node, schema: pl.Schema) -> Frame:
        """Return a frame."""
        from millstream.api.frame import Frame  # noqa: PLC0415 - loads Polars

        return Frame(self, node, schema)

    def window_frame(
        self, node: Node, schema: pl.Schema, windowed: Node, given: pl.Schema
    ) -> WindowFrame:
        """Return a frame that knows for which windows rows may have come too late."""
        from millstream.api.frame import WindowFrame  # noqa: PLC0415 - loads Polars

        return WindowFrame(self, node, schema, windowed, given)

    def joined_frame(
        self, node: Node, schema: pl.Schema, given: tuple[pl.Schema, pl.Schema]
    ) -> JoinedFrame:
        """Return a frame that knows for which side of a join rows may be too late."""
        from millstream.api.frame_joined import JoinedFrame  # noqa: PLC0415 - likewise

        return JoinedFrame(self, node, schema, given)

    def has_verb(self, kind: Literal["Stream", "any"], verb: str) -> bool:
        """Whether streams without keys, or also those with keys, have a verb."""
        return hasattr(Stream, verb) or (kind == "any" and hasattr(KeyedStream, verb))
