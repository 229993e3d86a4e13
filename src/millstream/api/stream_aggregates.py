"""Aggregates of a stream without keys: one result over all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.aggregating import checked_fold, checked_reduce
from millstream.api.graph import Wrapped
from millstream.api.handles import ResultHandle
from millstream.plan.aggregate import MISSING, builtin
from millstream.plan.nodes import AggregateAll, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.aggregate import Aggregate

__all__ = ["AggregateVerbs"]

T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")


class AggregateVerbs(Wrapped, Generic[T_co]):
    """One result over all rows, which a handle gives back."""

    def reduce(
        self, function: Callable[[T_co, T_co], T_co], *, name: str | None = None
    ) -> ResultHandle[T_co | None]:
        """Combine all rows two by two with an associative function.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("reduce")
        >>> total = flow.from_iterable(range(101)).reduce(lambda x, y: x + y)
        >>> _ = flow.run(on="local")
        >>> total.result()
        5050
        """
        return self._aggregated(checked_reduce(function), name)

    def fold(
        self,
        initial: A,
        function: Callable[[A, T_co], A],
        *,
        merge: Callable[[A, A], A] | None = None,
        name: str | None = None,
    ) -> ResultHandle[A]:
        """Update a copy of `initial` with every row.

        Without `merge` all rows move to one task; with it every task folds its own
        rows from `initial` and the parts are merged.

        moves data: all rows, or one per task · state: one value · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("fold")
        >>> length = flow.from_iterable(["a", "bc"]).fold(
        ...     0, lambda n, word: n + len(word)
        ... )
        >>> _ = flow.run(on="local")
        >>> length.result()
        3
        """
        return self._aggregated(checked_fold(initial, function, merge), name)

    def count(self, *, name: str | None = None) -> ResultHandle[int]:
        """Count all rows.

        moves data: one number per task · state: a number · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("count")
        >>> result = flow.from_iterable([2, 1, 3]).count()
        >>> _ = flow.run(on="local")
        >>> result.result()
        3
        """
        return self._aggregated(builtin("count"), name)

    def sum(self, *, name: str | None = None) -> ResultHandle[Any]:
        """Add all rows up; 0 where there are none.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("sum")
        >>> result = flow.from_iterable([2, 1, 3]).sum()
        >>> _ = flow.run(on="local")
        >>> result.result()
        6
        """
        return self._aggregated(builtin("sum"), name)

    def min(self, *, name: str | None = None) -> ResultHandle[T_co | None]:
        """Find the smallest row; None where there are none.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("min")
        >>> result = flow.from_iterable([2, 1, 3]).min()
        >>> _ = flow.run(on="local")
        >>> result.result()
        1
        """
        return self._aggregated(builtin("min"), name)

    def max(self, *, name: str | None = None) -> ResultHandle[T_co | None]:
        """Find the largest row; None where there are none.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("max")
        >>> result = flow.from_iterable([2, 1, 3]).max()
        >>> _ = flow.run(on="local")
        >>> result.result()
        3
        """
        return self._aggregated(builtin("max"), name)

    def mean(self, *, name: str | None = None) -> ResultHandle[Any]:
        """Compute the mean of all rows; None where there are none.

        moves data: one pair per task · state: a sum and a count · waits: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("mean")
        >>> result = flow.from_iterable([2, 1, 3]).mean()
        >>> _ = flow.run(on="local")
        >>> result.result()
        2.0
        """
        return self._aggregated(builtin("mean"), name)

    def first(self, *, name: str | None = None) -> ResultHandle[T_co | None]:
        """Take the row that arrives first; None where there are none.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("first")
        >>> result = flow.from_iterable([2, 1, 3]).first()
        >>> _ = flow.run(on="local")
        >>> result.result()
        2
        """
        return self._aggregated(builtin("first"), name)

    def last(self, *, name: str | None = None) -> ResultHandle[T_co | None]:
        """Take the row that arrives last; None where there are none.

        moves data: one row per task · state: one row · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("last")
        >>> result = flow.from_iterable([2, 1, 3]).last()
        >>> _ = flow.run(on="local")
        >>> result.result()
        3
        """
        return self._aggregated(builtin("last"), name)

    def _aggregated(self, aggregate: Aggregate, name: str | None) -> ResultHandle[Any]:
        verb = aggregate.name
        name = name or self._graph.plan.free_name(verb)
        node = self._graph.add(
            verb, AggregateAll(aggregate), (self._node.id,), name=name, width=1
        )
        empty = None if aggregate.empty is MISSING else aggregate.empty
        sink = self._graph.add(
            verb, Result(empty), (node.id,), name=f"{name}.result", width=1
        )
        handle = ResultHandle(
            self._graph, sink.id, name, lambda rows: rows[0] if rows else empty
        )
        self._graph.remember(handle)
        return handle
