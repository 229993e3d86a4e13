"""Groups: values of keys that wait for an aggregation or a window.

What ends a group is a stream of ``(key, result)`` rows, without keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.aggregating import aggregated, checked_fold, checked_reduce, scanned
from millstream.api.building import checked_aggregate, user_location
from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.window_verbs import KeyedWindowVerbs
from millstream.api.windows import pairs_of
from millstream.errors import UsageError
from millstream.plan.aggregate import MISSING, Aggregate, builtin

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["GroupedStream"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
A = TypeVar("A")


class GroupedStream(
    KeyedWindowVerbs[V_co, "Stream[tuple[K, Any]]", "Stream[tuple[K, V_co]]"],
    Generic[K, V_co],
):
    """Rows grouped by key; an aggregation or a window must follow.

    What that makes is a plain `Stream` of ``(key, result)`` pairs.
    """

    def reduce(
        self, function: Callable[[V_co, V_co], V_co], *, name: str | None = None
    ) -> Stream[tuple[K, V_co]]:
        """Combine the values of a key two by two with an associative function.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("reduce")
        >>> words = flow.from_iterable(["a", "bb", "cc"]).group_by(len)
        >>> joined = words.reduce(lambda x, y: x + y).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(joined.result())
        [(1, 'a'), (2, 'bbcc')]
        """
        return self._aggregated(checked_reduce(function), name)

    def fold(
        self,
        initial: A,
        function: Callable[[A, V_co], A],
        *,
        merge: Callable[[A, A], A] | None = None,
        name: str | None = None,
    ) -> Stream[tuple[K, A]]:
        """Update a copy of `initial` with every value of a key.

        With `merge`, which joins two folded parts, values are combined before they move.

        moves data: all rows, or combined ones · state: one value per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("fold")
        >>> words = flow.from_iterable(["a", "bb", "cc"]).group_by(len)
        >>> lists = words.fold([], lambda items, word: [*items, word]).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(lists.result())
        [(1, ['a']), (2, ['bb', 'cc'])]
        """
        return self._aggregated(checked_fold(initial, function, merge), name)

    def count(self, *, name: str | None = None) -> Stream[tuple[K, int]]:
        """Count the values of every key.

        moves data: combined rows · state: a number per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("count")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.count().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 1), (1, 3)]
        """
        return self._aggregated(builtin("count"), name)

    def sum(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Add up the values of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sum")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.sum().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 7)]
        """
        return self._aggregated(builtin("sum"), name)

    def min(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Find the smallest value of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("min")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.min().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 1)]
        """
        return self._aggregated(builtin("min"), name)

    def max(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Find the largest value of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("max")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.max().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3)]
        """
        return self._aggregated(builtin("max"), name)

    def mean(self, *, name: str | None = None) -> Stream[tuple[K, Any]]:
        """Compute the mean of the values of every key.

        moves data: combined rows · state: sum and count per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("mean")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.mean().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2.0), (1, 2.3333333333333335)]
        """
        return self._aggregated(builtin("mean"), name)

    def first(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Take the value of every key that arrives first.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("first")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.first().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 1)]
        """
        return self._aggregated(builtin("first"), name)

    def last(self, *, name: str | None = None) -> Stream[tuple[K, V_co]]:
        """Take the value of every key that arrives last.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.last().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3)]
        """
        return self._aggregated(builtin("last"), name)

    def unique(self, *, name: str | None = None) -> Stream[tuple[K, set[V_co]]]:
        """Collect the distinct values of every key into a set.

        moves data: combined rows · state: a set per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("unique")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).group_by(lambda i: i % 2)
        >>> rows = by_parity.unique().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, {2}), (1, {1, 3})]
        """
        return self._aggregated(builtin("unique"), name)

    def aggregate(
        self, aggregate: Aggregate, *, name: str | None = None
    ) -> Stream[tuple[K, Any]]:
        """Apply an aggregate of your own; see `millstream.Aggregate`.

        moves data: combined rows if it can merge · state: one value per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("aggregate")
        >>> longest = ms.Aggregate(
        ...     "longest", len, lambda n, word: max(n, len(word)), max
        ... )
        >>> words = flow.from_iterable(["ab", "a", "b"]).group_by(lambda word: word[0])
        >>> rows = words.aggregate(longest).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [('a', 2), ('b', 1)]
        """
        return self._aggregated(checked_aggregate(aggregate), name)

    def scan(
        self,
        function: Aggregate | Callable[[Any, V_co], Any],
        *,
        initial: Any = MISSING,
        name: str | None = None,
    ) -> Stream[tuple[K, Any]]:
        """Emit the running aggregate of the key after every value.

        `function` combines the aggregate so far with a value, from `initial` on if it
        is given and from the first value on if not; or it is an `Aggregate`.

        moves data: all rows · state: one value per key · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("scan")
        >>> totals = flow.from_iterable([1, 2, 3]).group_by(lambda i: i % 2)
        >>> running = totals.scan(lambda total, i: total + i).collect()
        >>> _ = flow.run(on="local")
        >>> running.result()
        [(1, 1), (0, 2), (1, 4)]
        """
        node = scanned(self._graph, self._node, function, initial, name)
        return self._graph.stream(node)

    def _aggregated(
        self, aggregate: Aggregate, name: str | None
    ) -> Stream[tuple[K, Any]]:
        node = aggregated(self._graph, self._node, aggregate, name)
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
