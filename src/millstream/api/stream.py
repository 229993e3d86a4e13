"""Streams: a dataset of rows, bounded or not, and what can be done with it.

Three types, none of which inherits from another, so that a verb that makes no sense
does not exist: `Stream` has rows, `KeyedStream` (in `api.keyed`) has values that belong
to keys, `GroupedStream` (in `api.grouped`) can only be aggregated.

Every verb says its engine facts in one line: whether it moves data between workers,
what it remembers, and whether it waits for the end of a bounded input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.api.broadcast_joins import BroadcastJoinVerbs
from millstream.api.building import (
    checked_count,
    checked_function,
    located,
    user_location,
)
from millstream.api.event_time import TimeVerbs, by_value
from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.graph import input_of
from millstream.api.grouped import GroupedStream
from millstream.api.iteration import RoundVerbs
from millstream.api.keyed import KeyedStream
from millstream.api.sinks import SinkVerbs
from millstream.api.stream_aggregates import AggregateVerbs
from millstream.api.window_verbs import LateVerbs, WindowVerbs
from millstream.config import BufferPolicy
from millstream.errors import UsageError
from millstream.plan import nodes
from millstream.plan.frames import ToFrame
from millstream.plan.grouping import Broadcast, Fields, Shuffle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.api.frame import Frame
    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec

__all__ = ["Stream"]

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
K = TypeVar("K")


class Stream(
    AggregateVerbs[T_co],
    SinkVerbs[T_co],
    RoundVerbs[T_co],
    TimeVerbs[T_co],
    WindowVerbs[T_co],
    LateVerbs,
    BroadcastJoinVerbs[T_co],
    Generic[T_co],
):
    """A dataset of rows of any Python type."""

    # Row by row

    def map(
        self, function: Callable[[T_co], U], *, name: str | None = None
    ) -> Stream[U]:
        """Turn every row into one row.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("map")
        >>> doubled = flow.from_iterable([1, 2]).map(lambda i: i * 2).collect()
        >>> _ = flow.run(on="local")
        >>> doubled.result()
        [2, 4]
        """
        return self._add("map", nodes.Map(checked_function("map", function)), name)

    def flat_map(
        self, function: Callable[[T_co], Iterable[U]], *, name: str | None = None
    ) -> Stream[U]:
        """Turn every row into any number of rows.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("flat_map")
        >>> rows = (
        ...     flow.from_iterable([5]).flat_map(lambda i: [i, i * 2, i * 3]).collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [5, 10, 15]
        """
        checked_function("flat_map", function)
        return self._add("flat_map", nodes.FlatMap(function), name)

    def filter(
        self, function: Callable[[T_co], object], *, name: str | None = None
    ) -> Stream[T_co]:
        """Keep the rows for which the function is true.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("filter")
        >>> even = flow.from_iterable(range(5)).filter(lambda i: i % 2 == 0).collect()
        >>> _ = flow.run(on="local")
        >>> even.result()
        [0, 2, 4]
        """
        checked_function("filter", function)
        return self._add("filter", nodes.Filter(function), name)

    def filter_map(
        self, function: Callable[[T_co], U | None], *, name: str | None = None
    ) -> Stream[U]:
        """Turn every row into one row, or into none where the function returns None.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("filter_map")
        >>> known = flow.from_iterable(["a", "x"]).filter_map({"a": 1}.get).collect()
        >>> _ = flow.run(on="local")
        >>> known.result()
        [1]
        """
        checked_function("filter_map", function)
        return self._add("filter_map", nodes.FilterMap(function), name)

    def flatten(self: Stream[Iterable[U]], *, name: str | None = None) -> Stream[U]:
        """Turn every row, a collection, into its items.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("flatten")
        >>> items = flow.from_iterable([[1, 2], [], [3]]).flatten().collect()
        >>> _ = flow.run(on="local")
        >>> items.result()
        [1, 2, 3]
        """
        return self._add("flatten", nodes.Flatten(), name)

    def inspect(
        self, function: Callable[[T_co], object], *, name: str | None = None
    ) -> Stream[T_co]:
        """Call the function for every row and pass the row on unchanged.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("inspect")
        >>> rows = flow.from_iterable([1, 2]).inspect(print).collect()
        >>> _ = flow.run(on="local")
        1
        2
        >>> rows.result()
        [1, 2]
        """
        checked_function("inspect", function)
        return self._add("inspect", nodes.Inspect(function), name)

    def map_batches(
        self, function: Callable[[list[T_co]], list[U]], *, name: str | None = None
    ) -> Stream[U]:
        """Turn every batch, a list of rows, into a list of rows.

        How rows are cut into batches is up to the engine.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("batches")
        >>> ordered = flow.from_iterable([3, 1, 2]).map_batches(sorted).collect()
        >>> _ = flow.run(on="local")
        >>> ordered.result()
        [1, 2, 3]
        """
        checked_function("map_batches", function)
        return self._add("map_batches", nodes.MapBatches(function), name)

    def to_frame(self, schema: Any, *, name: str | None = None) -> Frame:
        """Go on with columns: rows are dicts, tuples or dataclasses that fit the schema.

        `schema` maps column names to Polars types.  A key that a dict has not is null; one
        that the schema has not, or a value of another type, such as "1" or 1.5 for an
        `Int64`, fails the job, or is a dead letter.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("to_frame")
        >>> pairs = flow.from_iterable([("a", 1), ("b", 2)])
        >>> frame = pairs.to_frame({"key": pl.String, "n": pl.Int64}).collect()
        >>> _ = flow.run(on="local")
        >>> frame.result().rows()
        [('a', 1), ('b', 2)]
        """
        from millstream.api.frame_names import (  # noqa: PLC0415 - loads Polars
            check_names,
            checked_columns,
        )

        is_timed = self._node.makes_times
        with located("to_frame"):
            known = checked_columns(schema)
            if is_timed:
                check_names(known)
        node = self._graph.add(
            "to_frame",
            ToFrame(known),
            (self._node.id,),
            name=name,
            makes_frames=True,
            takes_times=is_timed,
            makes_times=is_timed,
        )
        return self._graph.frame(node, known)

    # Keys

    def key_by(
        self, function: Callable[[T_co], K], *, name: str | None = None
    ) -> KeyedStream[K, T_co]:
        """Bring rows with equal keys together; any verb may follow.

        Keys are numbers, text, bytes, dates, UUIDs, enum members, None, tuples and
        frozensets of these, or frozen dataclasses.

        moves data: yes, by key · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("key_by")
        >>> by_parity = flow.from_iterable(range(3)).key_by(lambda i: i % 2)
        >>> pairs = by_parity.map(lambda i: i * 10).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(pairs.result())
        [(0, 0), (0, 20), (1, 10)]
        """
        return KeyedStream(self._graph, self._keyed("key_by", function, name))

    @overload
    def group_by(
        self, function: Callable[[T_co], K], *, name: str | None = None
    ) -> GroupedStream[K, T_co]: ...

    @overload
    def group_by(
        self,
        function: Callable[[T_co], K],
        *,
        value: Callable[[T_co], U],
        name: str | None = None,
    ) -> GroupedStream[K, U]: ...

    def group_by(
        self,
        function: Callable[[T_co], K],
        *,
        value: Callable[[T_co], Any] | None = None,
        name: str | None = None,
    ) -> GroupedStream[K, Any]:
        """Group rows by key for an aggregation, which must follow.

        The aggregation sees the rows, or what `value` makes of them.  Associative
        aggregations are combined before rows move.

        moves data: yes, by key · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("group_by")
        >>> groups = flow.from_iterable(range(10)).group_by(lambda i: i % 2)
        >>> sums = groups.reduce(lambda x, y: x + y).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(sums.result())
        [(0, 20), (1, 25)]
        >>> words = flow.from_iterable(["a", "bb", "cd"])
        >>> lengths = (
        ...     words.group_by(lambda word: word[0], value=len).mean().collect(dict)
        ... )
        >>> _ = flow.run(on="local")
        >>> lengths.result()
        {'a': 1.0, 'b': 2.0, 'c': 2.0}
        """
        node = self._keyed("group_by", function, name)
        if value is not None:
            checked_function("group_by", value)
            node = self._graph.with_value(node, value)
        return GroupedStream(self._graph, node)

    def unique(self, *, name: str | None = None) -> Stream[T_co]:
        """Keep the first of equal rows; rows must be able to be keys.

        moves data: yes, by row · state: every distinct row · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("unique")
        >>> letters = flow.from_iterable("mississippi").unique().collect()
        >>> _ = flow.run(on="local")
        >>> letters.result()
        ['m', 'i', 's', 'p']
        """
        keys = self._graph.add(
            "unique", nodes.KeyBy(_itself), (self._node.id,), regroups=Fields(),
            name=f"{name or self._graph.plan.free_name('unique')}.keys",
        )  # fmt: skip
        node = self._graph.add("unique", nodes.Unique(), (keys.id,), name=name)
        return Stream(self._graph, node)

    # Partitioning

    def shuffle(self, *, name: str | None = None) -> Stream[T_co]:
        """Deal rows out evenly to all workers.

        moves data: yes, in turn · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("shuffle")
        >>> rows = flow.from_iterable(range(4)).shuffle().collect()
        >>> _ = flow.run(on="local", workers=2)
        >>> sorted(rows.result())
        [0, 1, 2, 3]
        """
        return self._regrouped("shuffle", name, regroups=Shuffle())

    def broadcast(self, *, name: str | None = None) -> Stream[T_co]:
        """Send every row to every worker.

        moves data: yes, a copy to each · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("broadcast")
        >>> rows = flow.from_iterable(["all"]).broadcast().collect()
        >>> _ = flow.run(on="local", workers=2)
        >>> rows.result()
        ['all', 'all']
        """
        return self._regrouped("broadcast", name, regroups=Broadcast())

    def repartition_by(
        self, function: Callable[[T_co], int], *, name: str | None = None
    ) -> Stream[T_co]:
        """Send every row to the task whose number the function returns.

        The number is taken modulo the number of tasks.

        moves data: yes, by number · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("repartition_by")
        >>> rows = (
        ...     flow.from_iterable(range(4)).repartition_by(lambda i: i // 2).collect()
        ... )
        >>> _ = flow.run(on="local", workers=2)
        >>> rows.result()
        [0, 1, 2, 3]
        """
        checked_function("repartition_by", function)
        grouping = by_value(function, self._node)
        return self._regrouped("repartition_by", name, regroups=grouping)

    def max_parallelism(self, tasks: int, *, name: str | None = None) -> Stream[T_co]:
        """Run what follows in at most `tasks` tasks, up to the next regrouping.

        moves data: only where there were more tasks · state: none

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("max_parallelism")
        >>> ranks = flow.from_parallel(lambda rank, size: [rank, rank])
        >>> rows = (
        ...     ranks.max_parallelism(1).map_batches(lambda rows: [len(rows)]).collect()
        ... )
        >>> _ = flow.run(on="local", workers=2)
        >>> sum(rows.result())
        4
        """
        checked_count("max_parallelism", "tasks", tasks)
        return self._regrouped("max_parallelism", name, width=tasks)

    def buffered(self, policy: BufferPolicy) -> Stream[T_co]:
        """Send the output buffers of this stream by another policy than the flow's.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("quick")
        >>> rows = flow.from_iterable([1]).buffered(ms.adaptive(64, "1ms")).shuffle()
        >>> sink = rows.collect()
        """
        given: object = policy
        if not isinstance(given, BufferPolicy):
            msg = (
                f"`buffered` at {user_location()} takes fixed(...) or adaptive(...), got "
                f"{policy!r}"
            )
            raise UsageError(msg)
        return Stream(self._graph, self._graph.rebuffered(self._node, policy))

    def merge(self, *others: Stream[T_co], name: str | None = None) -> Stream[T_co]:
        """Put the rows of several streams into one, in no particular order.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("merge")
        >>> both = flow.from_iterable([1]).merge(flow.from_iterable([2])).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(both.result())
        [1, 2]
        """
        inputs = tuple(self._input("merge", stream) for stream in (self, *others))
        node = self._graph.add("merge", nodes.Merge(), inputs, name=name)
        return Stream(self._graph, node)

    def split(self, count: int) -> tuple[Stream[T_co], ...]:
        """Return `count` streams that all have every row of this one.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("split")
        >>> left, right = flow.from_iterable([1, 2]).split(2)
        >>> doubled, total = left.map(lambda i: 2 * i).collect(), right.sum()
        >>> _ = flow.run(on="local")
        >>> doubled.result(), total.result()
        ([2, 4], 3)
        """
        return (self,) * checked_count("split", "count", count)

    def zip(
        self, other: Stream[U], *, name: str | None = None
    ) -> Stream[tuple[T_co, U]]:
        """Pair the i-th row of this stream with the i-th of the other, in one task.

        Rows left over at the end are dropped.  The order of a stream that many tasks
        made is not defined; `sort_by` defines it.

        moves data: yes, to one task · state: rows without a partner · waits: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("zip")
        >>> pairs = flow.from_iterable([1, 2]).zip(flow.from_iterable("ab")).collect()
        >>> _ = flow.run(on="local")
        >>> pairs.result()
        [(1, 'a'), (2, 'b')]
        """
        inputs = tuple(self._input("zip", stream) for stream in (self, other))
        node = self._graph.add("zip", nodes.Zip(), inputs, name=name, width=1)
        return Stream(self._graph, node)

    # Order

    def limit(self, rows: int, *, name: str | None = None) -> Stream[T_co]:
        """Keep the first `rows` rows; the sources stop once they have passed.

        moves data: yes, to one task · state: a number · waits for the end: no

        Examples
        --------
        >>> import itertools
        >>> import millstream as ms
        >>> flow = ms.Flow("limit")
        >>> three = flow.from_iterable(itertools.count).limit(3).collect()
        >>> _ = flow.run(on="local")
        >>> three.result()
        [0, 1, 2]
        """
        checked_count("limit", "rows", rows, least=0)
        return self._add("limit", nodes.Limit(rows), name, width=1)

    def sort_by(
        self,
        key: Callable[[T_co], Any],
        *,
        descending: bool = False,
        name: str | None = None,
    ) -> Stream[T_co]:
        """Put all rows of a bounded stream in order, in one task.

        Followed by `limit`, only the first rows of every task travel.  Runs that do not
        fit into memory wait on disk.

        moves data: yes, to one task · state: all rows · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sort_by")
        >>> longest = flow.from_iterable(["a", "ccc", "bb"]).sort_by(
        ...     len, descending=True
        ... )
        >>> top = longest.limit(2).collect()
        >>> _ = flow.run(on="local")
        >>> top.result()
        ['ccc', 'bb']
        """
        checked_function("sort_by", key)
        spec = nodes.SortBy(key, is_descending=descending)
        return self._add("sort_by", spec, name, width=1)

    # Inside

    def _add(
        self, verb: str, spec: Spec, name: str | None, **attributes: Any
    ) -> Stream[Any]:
        node = self._graph.add(verb, spec, (self._node.id,), name=name, **attributes)
        return Stream(self._graph, node)

    def _regrouped(
        self, verb: str, name: str | None, **attributes: Any
    ) -> Stream[T_co]:
        return self._add(verb, nodes.Regroup(), name, **attributes)

    def _keyed(self, verb: str, function: object, name: str | None) -> Node:
        spec = nodes.KeyBy(checked_function(verb, function))
        inputs = (self._node.id,)
        return self._graph.add(verb, spec, inputs, name=name, regroups=Fields())

    def _input(self, verb: str, stream: object) -> int:
        if isinstance(stream, Stream):
            return input_of(verb, self._graph, stream)
        msg = f"`{verb}` at {user_location()} takes a Stream, got {stream!r}"
        if isinstance(stream, KeyedStream):
            msg += "; call .drop_key() or .unkey() on it first"
        raise UsageError(msg)

    def __repr__(self) -> str:
        return f"<Stream from {self._node.verb!r} at {self._node.location}>"

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Any:
            """Explain why a verb of keyed streams is not here."""
            if verb.startswith("_") or not hasattr(KeyedStream, verb):
                refuse_foreign("Stream", verb)
                msg = f"a Stream has no verb {verb!r}"
                raise AttributeError(msg)
            advice = "call .key_by(...) first"
            if verb in {"unkey", "drop_key"}:
                advice = "leave it out, as functions get its rows as they are"
            elif hasattr(GroupedStream, verb):
                advice = "call .key_by(...) or .group_by(...) first"
            msg = (
                f"`{verb}` at {user_location()} needs a keyed stream, got a Stream from "
                f"`{self._node.verb}` at {self._node.location}; {advice}"
            )
            raise UsageError(msg)


def _itself(row: Any) -> Any:
    return row
