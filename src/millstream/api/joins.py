"""Verbs that join two streams by key, with or without time.

They check what they are given, say what the state of a join is bounded by, and add a
node to the plan.  How rows are kept and matched is in `operators.joins.base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from millstream.api.building import located, user_location
from millstream.api.event_time import checked_timed
from millstream.api.graph import Wrapped, input_of
from millstream.api.join_specs import (
    OF_TABLES,
    asof_spec,
    checked_how,
    interval_spec,
    regular_spec,
    table_spec,
    window_spec,
)
from millstream.errors import UsageError
from millstream.plan.joins import (
    How,
)

if TYPE_CHECKING:
    from millstream.api.graph import Graph
    from millstream.api.keyed import KeyedStream
    from millstream.plan.joins import JoinSpec
    from millstream.plan.time import Duration
    from millstream.plan.windows import TimeWindows

__all__ = ["JoinVerbs", "TableHow", "table_input"]

K = TypeVar("K")
U = TypeVar("U")
V_co = TypeVar("V_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

AnyHow = Literal["inner", "left", "right", "full", "semi", "anti"]
TableHow = Literal["inner", "left", "semi", "anti"]


class JoinVerbs(Wrapped, Generic[K, V_co]):
    """Joins of a keyed stream with another one."""

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["inner"] = ...,
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U]]: ...

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["left"],
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U | None]]: ...

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["right"],
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U]]: ...

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["full"],
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U | None]]: ...

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["semi", "anti"],
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, V_co]: ...

    @overload
    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: AnyHow,
        ttl: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, Any]: ...

    def join(
        self,
        right: KeyedStream[K, U],
        *,
        how: AnyHow = "inner",
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Pair every value with every value of `right` that has the same key.

        Results are ``(left, right)`` values; with `how` ``"semi"`` and ``"anti"``, left
        values alone.  A row without a partner comes at the end of the input, or when it
        has waited for `ttl` by the clock; its other side is None.  Inner joins of timed
        streams are timed.

        moves data: no · state: all rows of both sides, or those of the last `ttl`

        Warns
        -----
        UnboundedStateWarning
            If an input may never end and there is no `ttl`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("join")
        >>> ages = flow.from_iterable([("ann", 31), ("bob", 5)]).key_by(lambda r: r[0])
        >>> towns = flow.from_iterable([("ann", "Ulm")]).key_by(lambda r: r[0])
        >>> pairs = ages.map(lambda r: r[1]).join(towns.map(lambda r: r[1]), how="left")
        >>> rows = pairs.collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [('ann', (31, 'Ulm')), ('bob', (5, None))]
        """
        inputs = self._inputs("join", right)
        with located("join"):
            spec = regular_spec("join", self._graph, inputs, how, ttl)
        is_timed = spec.how is How.INNER and self._are_timed(inputs)
        return self._joined("join", spec, inputs, name, is_timed=is_timed)

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: Literal["inner"] = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U]]: ...

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: Literal["left"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U | None]]: ...

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: Literal["right"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U]]: ...

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: Literal["full"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U | None]]: ...

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: Literal["semi", "anti"],
        name: str | None = ...,
    ) -> KeyedStream[K, V_co]: ...

    @overload
    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: AnyHow,
        name: str | None = ...,
    ) -> KeyedStream[K, Any]: ...

    def window_join(
        self,
        right: KeyedStream[K, U],
        window: TimeWindows,
        *,
        how: AnyHow = "inner",
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Pair values of both sides that have the same key and are in the same window.

        Results come when a window is over, and have its last time.  In sliding windows
        the same pair comes once for every window that both are in.

        moves data: no · state: the rows of windows that are not over

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("window_join")
        >>> def timed(name, rows):
        ...     stream = flow.from_iterable(rows, name=name)
        ...     return stream.event_time(lambda row: row[1]).key_by(lambda row: row[0])
        >>> views = timed("views", [("ann", 1), ("ann", 12)])
        >>> clicks = timed("clicks", [("ann", 3), ("ann", 4)])
        >>> pairs = views.window_join(clicks, ms.windows.tumbling(10)).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(pairs.result())
        [('ann', (('ann', 1), ('ann', 3))), ('ann', (('ann', 1), ('ann', 4)))]
        """
        with located("window_join"):
            spec = window_spec(how, window)
        inputs = self._inputs("window_join", right)
        is_timed = spec.is_event_time
        if is_timed:
            self._check_times("window_join", inputs)
        return self._joined("window_join", spec, inputs, name, is_timed=is_timed)

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: Literal["inner"] = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U]]: ...

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: Literal["left"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U | None]]: ...

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: Literal["right"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U]]: ...

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: Literal["full"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co | None, U | None]]: ...

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: Literal["semi", "anti"],
        name: str | None = ...,
    ) -> KeyedStream[K, V_co]: ...

    @overload
    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: AnyHow,
        name: str | None = ...,
    ) -> KeyedStream[K, Any]: ...

    def interval_join(
        self,
        right: KeyedStream[K, U],
        lower: Duration,
        upper: Duration,
        *,
        how: AnyHow = "inner",
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Pair values with those of `right` that are `lower` to `upper` later.

        Both bounds are included; a negative one is earlier.  A pair comes as soon as both
        rows are there, and has the larger timestamp.  A row without a partner comes, and
        is timed, when none can come any more.

        moves data: no · state: the rows that may still find a partner

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("interval_join")
        >>> def timed(name, rows):
        ...     stream = flow.from_iterable(rows, name=name)
        ...     return stream.event_time(lambda row: row[1]).key_by(lambda row: row[0])
        >>> orders = timed("orders", [("A", 10), ("B", 20)])
        >>> payments = timed("payments", [("A", 15), ("B", 90)])
        >>> paid = orders.interval_join(payments, 0, 30, how="left").collect()
        >>> _ = flow.run(on="local")
        >>> sorted(paid.result())
        [('A', (('A', 10), ('A', 15))), ('B', (('B', 20), None))]
        """
        with located("interval_join"):
            spec = interval_spec(how, lower, upper)
        inputs = self._inputs("interval_join", right)
        self._check_times("interval_join", inputs)
        return self._joined("interval_join", spec, inputs, name, is_timed=True)

    @overload
    def asof_join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["inner"] = ...,
        direction: Literal["backward", "forward", "nearest"] = ...,
        tolerance: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U]]: ...

    @overload
    def asof_join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["left"],
        direction: Literal["backward", "forward", "nearest"] = ...,
        tolerance: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U | None]]: ...

    @overload
    def asof_join(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["inner", "left"],
        direction: Literal["backward", "forward", "nearest"] = ...,
        tolerance: Duration | None = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, Any]: ...

    def asof_join(
        self,
        right: KeyedStream[K, U],
        *,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        tolerance: Duration | None = None,
        how: Literal["inner", "left"] = "inner",
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Pair every value with the one of `right` that is nearest in time.

        A result comes, and is timed, when no nearer one can come.

        moves data: no · state: left rows that wait, and right rows that may be needed

        Parameters
        ----------
        direction
            ``"backward"`` for the last one that is not later, ``"forward"`` for the first
            one that is not earlier, ``"nearest"`` for the nearer one of these.  Of values
            with the same timestamp the largest counts.
        tolerance
            How far away it may be.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("asof_join")
        >>> def timed(name, rows):
        ...     stream = flow.from_iterable(rows, name=name)
        ...     return stream.event_time(lambda row: row[1]).key_by(lambda row: row[0])
        >>> trades = timed("trades", [("A", 10), ("A", 20)])
        >>> quotes = timed("quotes", [("A", 8), ("A", 13), ("A", 14)])
        >>> pairs = trades.asof_join(quotes).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(pairs.result())
        [('A', (('A', 10), ('A', 8))), ('A', (('A', 20), ('A', 14)))]
        """
        with located("asof_join"):
            spec = asof_spec(how, direction, tolerance)
        inputs = self._inputs("asof_join", right)
        self._check_times("asof_join", inputs)
        return self._joined("asof_join", spec, inputs, name, is_timed=True)

    @overload
    def join_table(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["inner"] = ...,
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U]]: ...

    @overload
    def join_table(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["left"],
        name: str | None = ...,
    ) -> KeyedStream[K, tuple[V_co, U | None]]: ...

    @overload
    def join_table(
        self,
        right: KeyedStream[K, U],
        *,
        how: Literal["semi", "anti"],
        name: str | None = ...,
    ) -> KeyedStream[K, V_co]: ...

    @overload
    def join_table(
        self,
        right: KeyedStream[K, U],
        *,
        how: TableHow,
        name: str | None = ...,
    ) -> KeyedStream[K, Any]: ...

    def join_table(
        self,
        right: KeyedStream[K, U],
        *,
        how: TableHow = "inner",
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Look every value up in a table: the newest value of each key of `right`.

        If both sides are timed, a value sees the table as it was at its own time, and the
        result is the same in every run.  If not, and `right` ends, values wait until all
        of it is there; if it may never end, they see what has come before them.  A value of
        None takes its key out of the table.

        moves data: no · state: the newest row of every key, and left rows that wait

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("join_table")
        >>> sales = flow.from_iterable([("A", 3), ("B", 4)]).key_by(lambda r: r[0])
        >>> names = flow.from_iterable([("A", "apple")]).key_by(lambda r: r[0])
        >>> table = names.map(lambda r: r[1])
        >>> rows = sales.map(lambda r: r[1]).join_table(table, how="left").collect()
        >>> _ = flow.run(on="local")
        >>> sorted(rows.result())
        [('A', (3, 'apple')), ('B', (4, None))]
        """
        with located("join_table"):
            kind = checked_how(how, OF_TABLES)
        inputs = self._inputs("join_table", right)
        is_timed = self._are_timed(inputs)
        spec = table_spec(kind, self._graph, inputs, is_broadcast=False)
        return self._joined("join_table", spec, inputs, name, is_timed=is_timed)

    def _inputs(self, verb: str, right: object) -> tuple[int, int]:
        return self._node.id, table_input(verb, self._graph, right)

    def _are_timed(self, inputs: tuple[int, int]) -> bool:
        return all(self._graph.plan.nodes[i].makes_times for i in inputs)

    def _check_times(self, verb: str, inputs: tuple[int, int]) -> None:
        with located(verb):
            for source in inputs:
                checked_timed(self._graph.plan.nodes[source])

    def _joined(
        self,
        verb: str,
        spec: JoinSpec,
        inputs: tuple[int, int],
        name: str | None,
        *,
        is_timed: bool,
    ) -> KeyedStream[K, Any]:
        times = {"takes_times": True, "makes_times": True} if is_timed else {}
        node = self._graph.add(verb, spec, inputs, name=name, takes_pairs=True, **times)
        return self._graph.keyed(node)


def table_input(verb: str, graph: Graph, right: object) -> int:
    """Return the id of the operator of the right side, which must have keys."""
    if not isinstance(right, JoinVerbs):
        msg = (
            f"`{verb}` at {user_location()} takes a keyed stream as its right side, got "
            f"{right!r}; call .key_by(...) on it first"
        )
        raise UsageError(msg)
    return input_of(verb, graph, right)
