"""Groups: values of keys that wait for an aggregation or a window.

What ends a group is a stream of ``(key, result)`` rows, without keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.building import user_location
from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.keyed_aggregates import KeyedAggregateVerbs
from millstream.api.window_verbs import KeyedWindowVerbs
from millstream.api.windows import pairs_of
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["GroupedStream"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
A = TypeVar("A")


class GroupedStream(
    KeyedAggregateVerbs[
        V_co,
        "Stream[tuple[K, Any]]",
        "Stream[tuple[K, V_co]]",
        "Stream[tuple[K, int]]",
        "Stream[tuple[K, set[V_co]]]",
    ],
    KeyedWindowVerbs[
        V_co,
        "Stream[tuple[K, Any]]",
        "Stream[tuple[K, V_co]]",
        "Stream[tuple[K, int]]",
        "Stream[tuple[K, set[V_co]]]",
        "Stream[tuple[K, list[V_co]]]",
    ],
    Generic[K, V_co],
):
    """Rows grouped by key; an aggregation or a window must follow.

    What that makes is a plain `Stream` of ``(key, result)`` pairs.
    """

    if TYPE_CHECKING:

        def fold(  # noqa: D102 - as it is, with the type of its result
            self,
            initial: A,
            function: Callable[[A, V_co], A],
            *,
            merge: Callable[[A, A], A] | None = None,
            name: str | None = None,
        ) -> Stream[tuple[K, A]]: ...

    def _of_aggregate(self, node: Node) -> Stream[tuple[K, Any]]:
        return self._graph.stream(node)

    def _of_window(self, node: Node) -> Stream[tuple[K, Any]]:
        return pairs_of(self._graph, node)

    def __repr__(self) -> str:
        return f"<GroupedStream from {self._node.verb!r} at {self._node.location}>"

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Any:
            """Explain why a verb of other streams is not here."""
            if verb.startswith("_") or not self._graph.has_verb("any", verb):
                refuse_foreign("GroupedStream", verb)
                msg = f"a GroupedStream has no verb {verb!r}"
                raise AttributeError(msg)
            msg = (
                f"`{verb}` at {user_location()} follows `{self._node.verb}` at "
                f"{self._node.location}, after which only aggregations such as count or "
                "reduce are possible; aggregate first, or use key_by instead"
            )
            raise UsageError(msg)
