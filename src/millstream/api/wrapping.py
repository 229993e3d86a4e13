"""Make streams of operators, for verbs whose stream is of another class than their own.

`key_by` makes a `KeyedStream` of a `Stream` and `unkey` a `Stream` of a `KeyedStream`, so
that the modules of both would need each other to begin with.  They need this one, which
imports them when the first stream is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from millstream.api.flow import Flow
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["has_verb", "keyed_of", "stream_of"]


def stream_of(flow: Flow, node: Node) -> Stream[Any]:
    """Return the rows of an operator as a stream without keys."""
    from millstream.api.stream import Stream  # noqa: PLC0415 - see above

    return Stream(flow, node)


def keyed_of(flow: Flow, node: Node) -> KeyedStream[Any, Any]:
    """Return the pairs of an operator as a stream with keys."""
    from millstream.api.keyed import KeyedStream  # noqa: PLC0415 - see above

    return KeyedStream(flow, node)


def has_verb(kind: Literal["Stream", "KeyedStream"], verb: str) -> bool:
    """Whether streams without keys, or those with keys, have a verb."""
    from millstream.api.keyed import KeyedStream  # noqa: PLC0415 - see above
    from millstream.api.stream import Stream  # noqa: PLC0415 - see above

    of: type[Any] = Stream if kind == "Stream" else KeyedStream
    return not verb.startswith("_") and hasattr(of, verb)
