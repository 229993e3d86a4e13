"""The aggregates of values by key: verbs of a keyed stream, and of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from millstream.api.aggregating import aggregated, checked_fold, checked_reduce, scanned
from millstream.api.building import checked_aggregate
from millstream.api.graph import Wrapped
from millstream.plan.aggregate import MISSING, Aggregate, builtin

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.logical import Node

__all__ = ["KeyedAggregateVerbs"]

V_co = TypeVar("V_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)
U_co = TypeVar("U_co", covariant=True)
A = TypeVar("A")


class KeyedAggregateVerbs(Wrapped, Generic[V_co, S_co, R_co, N_co, U_co]):
    """Aggregates of the values of every key.

    Their results are an `S_co`: an `R_co` where they are of the type of the values, an `N_co`
    where they are numbers, and a `U_co` where they are sets of values.
    """

    def reduce(
        self, function: Callable[[V_co, V_co], V_co], *, name: str | None = None
    ) -> R_co:
        """Combine the values of a key two by two with an associative function.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("reduce")
        >>> words = flow.from_iterable(["a", "bb", "cc"]).key_by(len)
        >>> joined = words.reduce(lambda x, y: x + y).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(joined.result())
        [(1, 'a'), (2, 'bbcc')]
        """
        return cast("R_co", self._aggregated(checked_reduce(function), name))

    def fold(
        self,
        initial: A,
        function: Callable[[A, V_co], A],
        *,
        merge: Callable[[A, A], A] | None = None,
        name: str | None = None,
    ) -> S_co:
        """Update a copy of `initial` with every value of a key.

        With `merge`, which joins two folded parts, values are combined before they move.

        moves data: all rows, or combined ones · state: one value per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("fold")
        >>> words = flow.from_iterable(["a", "bb", "cc"]).key_by(len)
        >>> lists = words.fold([], lambda items, word: [*items, word]).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(lists.result())
        [(1, ['a']), (2, ['bb', 'cc'])]
        """
        return cast(
            "S_co", self._aggregated(checked_fold(initial, function, merge), name)
        )

    def count(self, *, name: str | None = None) -> N_co:
        """Count the values of every key.

        moves data: combined rows · state: a number per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("count")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.count().map(lambda count: -count).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, -1), (1, -3)]
        """
        return cast("N_co", self._aggregated(builtin("count"), name))

    def sum(self, *, name: str | None = None) -> R_co:
        """Add up the values of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sum")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.sum().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 7)]
        """
        return cast("R_co", self._aggregated(builtin("sum"), name))

    def min(self, *, name: str | None = None) -> R_co:
        """Find the smallest value of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("min")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.min().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 1)]
        """
        return cast("R_co", self._aggregated(builtin("min"), name))

    def max(self, *, name: str | None = None) -> R_co:
        """Find the largest value of every key.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("max")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.max().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3)]
        """
        return cast("R_co", self._aggregated(builtin("max"), name))

    def mean(self, *, name: str | None = None) -> S_co:
        """Compute the mean of the values of every key.

        moves data: combined rows · state: sum and count per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("mean")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.mean().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2.0), (1, 2.3333333333333335)]
        """
        return cast("S_co", self._aggregated(builtin("mean"), name))

    def first(self, *, name: str | None = None) -> R_co:
        """Take the value of every key that arrives first.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("first")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.first().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 1)]
        """
        return cast("R_co", self._aggregated(builtin("first"), name))

    def last(self, *, name: str | None = None) -> R_co:
        """Take the value of every key that arrives last.

        moves data: combined rows · state: one value per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.last().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, 2), (1, 3)]
        """
        return cast("R_co", self._aggregated(builtin("last"), name))

    def unique(self, *, name: str | None = None) -> U_co:
        """Collect the distinct values of every key into a set.

        moves data: combined rows · state: a set per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("unique")
        >>> by_parity = flow.from_iterable([1, 2, 3, 3]).key_by(lambda i: i % 2)
        >>> rows = by_parity.unique().collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [(0, {2}), (1, {1, 3})]
        """
        return cast("U_co", self._aggregated(builtin("unique"), name))

    def aggregate(self, aggregate: Aggregate, *, name: str | None = None) -> S_co:
        """Apply an aggregate of your own; see `millstream.Aggregate`.

        moves data: combined rows if it can merge · state: one value per key · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("aggregate")
        >>> longest = ms.Aggregate(
        ...     "longest", len, lambda n, word: max(n, len(word)), max
        ... )
        >>> words = flow.from_iterable(["ab", "a", "b"]).key_by(lambda word: word[0])
        >>> rows = words.aggregate(longest).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [('a', 2), ('b', 1)]
        """
        return cast("S_co", self._aggregated(checked_aggregate(aggregate), name))

    def scan(
        self,
        function: Aggregate | Callable[[Any, V_co], Any],
        *,
        initial: Any = MISSING,
        name: str | None = None,
    ) -> S_co:
        """Emit the running aggregate of the key after every value.

        `function` combines the aggregate so far with a value, from `initial` on if it
        is given and from the first value on if not; or it is an `Aggregate`.

        moves data: all rows · state: one value per key · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("scan")
        >>> totals = flow.from_iterable([1, 2, 3]).key_by(lambda i: i % 2)
        >>> running = totals.scan(lambda total, i: total + i).collect()
        >>> _ = flow.run(on="local")
        >>> running.result()
        [(1, 1), (0, 2), (1, 4)]
        """
        node = scanned(self._graph, self._node, function, initial, name)
        return cast("S_co", self._of_aggregate(node))

    def _aggregated(self, aggregate: Aggregate, name: str | None) -> Any:
        node = aggregated(self._graph, self._node, aggregate, name)
        return self._of_aggregate(node)

    def _of_aggregate(self, node: Node) -> Any:
        """Return what is made of the results of an aggregate."""
        raise NotImplementedError
