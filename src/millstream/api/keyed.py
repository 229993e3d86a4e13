"""Keyed streams: values that belong to keys.

What follows `key_by` stays keyed until `unkey` or `drop_key`; aggregates are in
`api.keyed_aggregates`, and what `group_by` makes in `api.grouped`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.building import (
    checked_function,
    located,
    user_location,
)
from millstream.api.event_time import checked_timed
from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.functions import MapWithState, StatefulFunction
from millstream.api.grouped import GroupedStream
from millstream.api.iteration import KeyedRoundVerbs
from millstream.api.joins import JoinVerbs
from millstream.api.keyed_aggregates import KeyedAggregateVerbs
from millstream.api.sinks import SinkVerbs
from millstream.api.window_verbs import KeyedWindowVerbs, LateVerbs
from millstream.errors import UsageError
from millstream.plan import nodes
from millstream.plan.grouping import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.api.graph import Graph
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec

__all__ = ["KeyedStream"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
U = TypeVar("U")
A = TypeVar("A")
J = TypeVar("J")


class KeyedStream(
    KeyedAggregateVerbs[
        V_co,
        "KeyedStream[K, Any]",
        "KeyedStream[K, V_co]",
        "KeyedStream[K, int]",
        "KeyedStream[K, set[V_co]]",
    ],
    SinkVerbs[tuple[K, V_co]],
    KeyedRoundVerbs[K, V_co],
    KeyedWindowVerbs[
        V_co,
        "KeyedStream[K, Any]",
        "KeyedStream[K, V_co]",
        "KeyedStream[K, int]",
        "KeyedStream[K, set[V_co]]",
        "KeyedStream[K, list[V_co]]",
    ],
    JoinVerbs[K, V_co],
    LateVerbs,
    Generic[K, V_co],
):
    """Values that belong to keys; all values of a key are in one task.

    Functions get the value alone, sinks get ``(key, value)`` pairs, and so it stays until
    `unkey` makes rows of the pairs, or `drop_key` of the values.
    """

    def map(
        self, function: Callable[[V_co], U], *, name: str | None = None
    ) -> KeyedStream[K, U]:
        """Turn every value into one value of the same key; see `Stream.map`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("map")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.map(lambda i: i * 10).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 20), (1, 10), (1, 30)]
        """
        checked_function("map", function)
        return self._values("map", nodes.Map(function), name)

    def flat_map(
        self, function: Callable[[V_co], Iterable[U]], *, name: str | None = None
    ) -> KeyedStream[K, U]:
        """Turn every value into any number of values of the same key.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("flat_map")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.flat_map(lambda i: [i] * (i - 1)).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3), (1, 3)]
        """
        checked_function("flat_map", function)
        return self._values("flat_map", nodes.FlatMap(function), name)

    def filter(
        self, function: Callable[[V_co], object], *, name: str | None = None
    ) -> KeyedStream[K, V_co]:
        """Keep the values for which the function is true.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("filter")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.filter(lambda i: i > 1).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3)]
        """
        checked_function("filter", function)
        return self._values("filter", nodes.Filter(function), name)

    def filter_map(
        self, function: Callable[[V_co], U | None], *, name: str | None = None
    ) -> KeyedStream[K, U]:
        """Turn every value into one value, or into none.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("filter_map")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.filter_map({2: "two"}.get).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 'two')]
        """
        checked_function("filter_map", function)
        return self._values("filter_map", nodes.FilterMap(function), name)

    def flatten(
        self: KeyedStream[K, Iterable[U]], *, name: str | None = None
    ) -> KeyedStream[K, U]:
        """Turn every value, a collection, into its items.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("flatten")
        >>> keyed = flow.from_iterable(["ab", "c"]).key_by(len)
        >>> rows = keyed.flatten().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(1, 'c'), (2, 'a'), (2, 'b')]
        """
        return self._values("flatten", nodes.Flatten(), name)

    def inspect(
        self, function: Callable[[V_co], object], *, name: str | None = None
    ) -> KeyedStream[K, V_co]:
        """Call the function for every value and pass the value on unchanged.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("inspect")
        >>> keyed = flow.from_iterable([1, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.inspect(print).collect()
        >>> _ = flow.run(on="local")
        1
        3
        >>> rows.result()
        [(1, 1), (1, 3)]
        """
        checked_function("inspect", function)
        return self._values("inspect", nodes.Inspect(function), name)

    def key_by(
        self, function: Callable[[V_co], J], *, name: str | None = None
    ) -> KeyedStream[J, V_co]:
        """Give the values other keys; see `Stream.key_by`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("key_by")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.key_by(lambda i: i > 1).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(False, 1), (True, 2), (True, 3)]
        """
        spec = nodes.KeyBy(checked_function("key_by", function))
        added = _added(self._graph, self._node, "key_by", spec, name, Fields())
        return KeyedStream(self._graph, added)

    def group_by(
        self, function: Callable[[V_co], J], *, name: str | None = None
    ) -> GroupedStream[J, V_co]:
        """Group the values by other keys; see `Stream.group_by`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("group_by")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.group_by(lambda i: i > 1).sum().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(False, 1), (True, 5)]
        """
        spec = nodes.KeyBy(checked_function("group_by", function))
        added = _added(self._graph, self._node, "group_by", spec, name, Fields())
        return GroupedStream(self._graph, added)

    def process(
        self,
        function: StatefulFunction[K, V_co, U],
        *,
        in_time_order: bool = False,
        name: str | None = None,
    ) -> KeyedStream[K, U]:
        """Call a stateful function for every value; see `StatefulFunction`.

        moves data: no · state: what the function keeps per key · waits for the end: no

        Parameters
        ----------
        in_time_order
            Let values wait until no earlier one can come: the function gets the values
            and the timers of event time of a key in the order of time, so that it says
            the same in every run.  What is late is left out, and counted.

        Examples
        --------
        >>> import millstream as ms
        >>> class Number(ms.StatefulFunction):
        ...     seen = ms.ValueState(default=0)
        ...
        ...     def on_record(self, key, value):
        ...         self.seen.update(self.seen.get() + 1)
        ...         yield self.seen.get(), value
        >>> flow = ms.Flow("process")
        >>> numbered = flow.from_iterable("aba").key_by(str).process(Number()).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(numbered.result())
        [('a', (1, 'a')), ('a', (2, 'a')), ('b', (1, 'b'))]
        """
        given: object = function
        if not isinstance(given, StatefulFunction):
            advice = (
                f"write {given.__name__}(...)"
                if isinstance(given, type)
                else "for a plain function use map or map_with_state"
            )
            msg = (
                f"`process` at {user_location()} takes an instance of StatefulFunction, "
                f"got {function!r}; {advice}"
            )
            raise UsageError(msg)
        checked_function("process", function.on_record)
        if in_time_order:
            with located("process"):
                checked_timed(self._node)
        spec = nodes.Process(function, in_time_order)
        return self._values("process", spec, name)

    def map_with_state(
        self,
        initial: A,
        function: Callable[[A, V_co], tuple[A, U]],
        *,
        name: str | None = None,
    ) -> KeyedStream[K, U]:
        """Turn every value into one value with the help of a state of its key.

        The function gets state and value, and returns the next state and the output.

        moves data: no · state: one value per key · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("steps")
        >>> readings = flow.from_iterable([("a", 3), ("a", 5)]).key_by(lambda r: r[0])
        >>> steps = readings.map_with_state(0, lambda last, r: (r[1], r[1] - last))
        >>> rows = steps.collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [('a', 3), ('a', 2)]
        """
        checked_function("map_with_state", function)
        spec = nodes.Process(MapWithState(initial, function))
        return self._values("map_with_state", spec, name)

    def drop_key(self, *, name: str | None = None) -> Stream[V_co]:
        """Forget the keys and keep the values.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("drop_key")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.drop_key().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [1, 2, 3]
        """
        return self._plain("drop_key", nodes.DropKey(), name)

    def unkey(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Go on with plain ``(key, value)`` rows, so that functions get the pair.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("unkey")
        >>> keyed = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> rows = keyed.unkey().map(lambda pair: pair[0] + pair[1]).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [2, 2, 4]
        """
        return self._plain("unkey", nodes.Unkey(), name)

    def _values(self, verb: str, spec: Spec, name: str | None) -> KeyedStream[Any, Any]:
        added = _added(self._graph, self._node, verb, spec, name)
        return KeyedStream(self._graph, added)

    def _plain(self, verb: str, spec: Spec, name: str | None) -> Stream[Any]:
        return self._graph.stream(_added(self._graph, self._node, verb, spec, name))

    if TYPE_CHECKING:

        def fold(  # noqa: D102 - as it is, with the type of its result
            self,
            initial: A,
            function: Callable[[A, V_co], A],
            *,
            merge: Callable[[A, A], A] | None = None,
            name: str | None = None,
        ) -> KeyedStream[K, A]: ...

    def _of_aggregate(self, node: Node) -> KeyedStream[K, Any]:
        return KeyedStream(self._graph, node)

    def _of_window(self, node: Node) -> KeyedStream[K, Any]:
        return KeyedStream(self._graph, node)

    def __repr__(self) -> str:
        node = self._node
        return f"<KeyedStream from {node.verb!r} at {node.location}, until unkey()>"

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Any:
            """Explain why a verb of streams without keys is not here."""
            if verb.startswith("_") or not self._graph.has_verb("Stream", verb):
                refuse_foreign("KeyedStream", verb)
                msg = f"a KeyedStream has no verb {verb!r}"
                raise AttributeError(msg)
            msg = (
                f"`{verb}` at {user_location()} needs a stream without keys, got a "
                f"KeyedStream from `{self._node.verb}` at {self._node.location}; call "
                ".drop_key() or .unkey() first"
            )
            raise UsageError(msg)


def _added(  # noqa: PLR0917 - the verbs above are one line each
    graph: Graph,
    node: Node,
    verb: str,
    spec: Spec,
    name: str | None,
    regroups: Fields | None = None,
) -> Node:
    """Append an operator that takes the pairs of `node`."""
    inputs = (node.id,)
    return graph.add(verb, spec, inputs, name=name, takes_pairs=True, regroups=regroups)
