"""The verb that looks rows up in a table of which every worker has a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from millstream.api.building import checked_function, located
from millstream.api.graph import Wrapped
from millstream.api.join_specs import OF_TABLES, checked_how, table_spec
from millstream.api.joins import table_input
from millstream.plan.grouping import Broadcast, Shuffle
from millstream.plan.joins import JoinAsof
from millstream.plan.nodes import DropKey, KeyBy, Read, Regroup
from millstream.plan.time import AssignTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph
    from millstream.api.joins import TableHow
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["BroadcastJoinVerbs"]

K = TypeVar("K")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


class BroadcastJoinVerbs(Wrapped, Generic[T_co]):
    """Joins of a stream without keys with a table that every worker has all of."""

    @overload
    def join_broadcast(
        self,
        table: KeyedStream[K, U],
        key: Callable[[T_co], K],
        *,
        how: Literal["inner"] = ...,
        name: str | None = ...,
    ) -> Stream[tuple[T_co, U]]: ...

    @overload
    def join_broadcast(
        self,
        table: KeyedStream[K, U],
        key: Callable[[T_co], K],
        *,
        how: Literal["left"],
        name: str | None = ...,
    ) -> Stream[tuple[T_co, U | None]]: ...

    @overload
    def join_broadcast(
        self,
        table: KeyedStream[K, U],
        key: Callable[[T_co], K],
        *,
        how: Literal["semi", "anti"],
        name: str | None = ...,
    ) -> Stream[T_co]: ...

    @overload
    def join_broadcast(
        self,
        table: KeyedStream[K, U],
        key: Callable[[T_co], K],
        *,
        how: TableHow,
        name: str | None = ...,
    ) -> Stream[Any]: ...

    def join_broadcast(
        self,
        table: KeyedStream[K, U],
        key: Callable[[T_co], K],
        *,
        how: TableHow = "inner",
        name: str | None = None,
    ) -> Stream[Any]:
        """Look every row up in a table of which every worker has a copy.

        Results are pairs of row and value of the table.  Rows stay where they are, which
        pays if there are many of them and the table is small; see
        `KeyedStream.join_table` for what is in the table when.

        moves data: the table, to every worker · state: the table, and rows that wait

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("join_broadcast")
        >>> names = flow.from_iterable([("A", "apple")]).key_by(lambda r: r[0])
        >>> sales = flow.from_iterable([("A", 3), ("B", 4)], name="sales")
        >>> named = sales.join_broadcast(names, lambda sale: sale[0]).collect()
        >>> _ = flow.run(on="local")
        >>> named.result()
        [(('A', 3), ('A', 'apple'))]
        """
        verb, graph = "join_broadcast", self._graph
        checked_function(verb, key)
        with located(verb):
            kind = checked_how(how, OF_TABLES)
        left, right = self._node.id, table_input(verb, graph, table)
        own = name or graph.plan.free_name(verb)
        spec = table_spec(kind, graph, (left, right), is_broadcast=True)
        is_timed = isinstance(spec, JoinAsof)
        if not is_timed:
            left, right = graph.untimed(left), graph.untimed(right)
        # Behind a source that exists once all workers have a part in it.
        spreads = Shuffle() if _is_single_source(graph, self._node) else None
        keyed = graph.add(
            verb, KeyBy(key), (left,), name=f"{own}.key", regroups=spreads
        )
        spread = graph.add(
            verb,
            Regroup(),
            (right,),
            name=f"{own}.table",
            takes_pairs=True,
            regroups=Broadcast(),
        )
        times = {"takes_times": True, "makes_times": True} if is_timed else {}
        inputs = (keyed.id, spread.id)
        node = graph.add(verb, spec, inputs, name=own, takes_pairs=True, **times)
        rows = graph.add(
            verb, DropKey(), (node.id,), name=f"{own}.rows", takes_pairs=True
        )
        return graph.stream(rows)


def _is_single_source(graph: Graph, node: Node) -> bool:
    while isinstance(node.spec, AssignTime):
        node = graph.plan.nodes[node.inputs[0]]
    return isinstance(node.spec, Read) and not node.spec.source.is_parallel
