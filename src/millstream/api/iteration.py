"""Iterations: operators that repeat, over rows and over keyed rows.

`iterate` feeds what its body made into the next round, `cycle` gives every round the same
input and a state that the round before has changed, `delta_iterate` keeps the best value of
every key and works on those that got better.  Whatever a round makes, all of it is there
before the next round begins; an operator that waits for the end of its input waits for the
end of the round.

How they are built is in `api.rounds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.graph import Wrapped, input_of
from millstream.api.rounds import (
    Rounds,
    checked_ends,
    checked_pair,
    checked_reduction,
    cycle_of,
    free_loop,
    made_by,
    needed_function,
    optional_count,
    optional_function,
    refuse_made,
)
from millstream.plan.grouping import Fields
from millstream.plan.iteration import Iteration, IterationKind
from millstream.plan.nodes import Regroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.iteration import RoundState
    from millstream.plan.logical import Node

__all__ = ["KeyedRoundVerbs", "RoundVerbs"]

T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
S = TypeVar("S")


class RoundVerbs(Wrapped, Generic[T_co]):
    """Iterations over the rows of a `Stream`."""

    def iterate(
        self,
        body: Callable[[Stream[Any]], Stream[Any]],
        *,
        reduce: Callable[[Any, Any], Any] | None = None,
        until: Callable[[Any], object] | None = None,
        max_rounds: int | None = None,
        show: Callable[[Any], float] | None = None,
        name: str | None = None,
    ) -> Stream[Any]:
        """Repeat operators: what `body` makes of the rows is what the next round gets.

        After a round, `reduce` makes one value of all rows; if `until` is true for it, or
        after `max_rounds` rounds, or when there are no rows left, the rows are the result.

        moves data: what the body moves · state: all rows · waits for the end: yes

        Parameters
        ----------
        body
            Called once, with a stream; returns the stream of the next round.
        reduce
            One value of two; it must not matter in which order.
        show
            What progress and metrics show of the reduced value.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("iterate")
        >>> grown = (
        ...     flow.from_iterable(range(5))
        ...     .iterate(
        ...         lambda rows: rows.map(lambda i: i * 2),
        ...         reduce=lambda a, b: a + b,
        ...         until=lambda total: total > 100,
        ...         max_rounds=10,
        ...     )
        ...     .collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> sorted(grown.result())
        [0, 16, 32, 48, 64]
        """
        iteration = Iteration(
            IterationKind.ITERATE,
            rounds_max=checked_ends("iterate", until, max_rounds),
            reduce=checked_reduction("iterate", reduce, until, "one", "other"),
            until=until,
            show=optional_function("iterate", "show", show, "reduced"),
        )
        rounds = Rounds.begun(self._graph, "iterate", self._node.id, iteration, name)
        tail = _stream_of("iterate", body, rows=self._graph.stream(rounds.body_input))
        return self._graph.stream(rounds.closed(input_of("iterate", self._graph, tail)))

    def cycle(
        self,
        state: S,
        body: Callable[[Stream[T_co], RoundState[S]], Stream[Any]],
        update: Callable[[S, list[Any]], S],
        *,
        until: Callable[[S], object] | None = None,
        max_rounds: int | None = None,
        show: Callable[[S], float] | None = None,
        name: str | None = None,
    ) -> Stream[S]:
        """Repeat operators over the same rows, with a state that every round changes.

        Every round begins with all rows of the input, which stay in the memory of their
        workers (and on disk beyond `loop_memory_bytes`).  Functions in the body read the
        state as `state.value`.  After the round, `update` gets the state and a list of all
        rows that the body made, in one place, and returns the state of the next round.

        The result is a stream of one row, the last state.

        moves data: what the body makes, and the state · state: all rows · waits for the
        end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("cycle")
        >>> total = (
        ...     flow.from_iterable([1, 2, 3])
        ...     .cycle(
        ...         0,
        ...         lambda rows, state: rows.map(lambda i: i + state.value),
        ...         update=lambda state, rows: state + sum(rows),
        ...         until=lambda state: state > 20,
        ...     )
        ...     .collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> total.result()
        [30]
        """
        shown, iteration = cycle_of(state, update, until, max_rounds, show)
        rounds = Rounds.begun(self._graph, "cycle", self._node.id, iteration, name)
        rows = self._graph.stream(rounds.body_input)
        tail = _stream_of("cycle", body, rows=rows, state=shown)
        return self._graph.stream(rounds.closed(input_of("cycle", self._graph, tail)))

    def loop(
        self,
        body: Callable[[Stream[Any]], tuple[Stream[Any], Stream[Any]]],
        *,
        max_hops: int | None = None,
        name: str | None = None,
    ) -> Stream[Any]:
        """Let rows go round operators, each at its own pace.

        `body` gets a stream of the input and of what comes round, and returns two: what
        goes round again, and what leaves.  There are no rounds; unbounded input is as
        good as bounded.  A bounded loop ends when nothing is left in it; any loop ends
        when nobody needs more of what leaves.

        moves data: what the body moves · state: what the body keeps · waits for the end: no

        Parameters
        ----------
        max_hops
            Most times that a record, and what was made of it, may go round; the job fails
            when there is one more.  Batches are kept apart by it, which costs some speed.

        Examples
        --------
        >>> import millstream as ms
        >>> def halve(rows):
        ...     halved = rows.map(lambda i: i // 2)
        ...     return halved.filter(lambda i: i > 10), halved.filter(lambda i: i <= 10)
        >>> flow = ms.Flow("loop")
        >>> small = flow.from_iterable([100, 7, 64]).loop(halve).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(small.result())
        [3, 6, 8]
        """
        graph = self._graph
        iteration = free_loop(max_hops)
        rounds = Rounds.begun(graph, "loop", self._node.id, iteration, name)
        made = made_by("loop", body, rows=graph.stream(rounds.body_input))
        again, out = checked_pair(made, RoundVerbs, "Stream")
        ends = input_of("loop", graph, again), input_of("loop", graph, out)
        return graph.stream(rounds.closed_free(*ends))


class KeyedRoundVerbs(Wrapped, Generic[K, V_co]):
    """Iterations over the values of a `KeyedStream`."""

    def delta_iterate(
        self,
        improve: Callable[[Any, Any], Any],
        body: Callable[[KeyedStream[K, Any]], KeyedStream[K, Any]],
        *,
        max_rounds: int | None = None,
        name: str | None = None,
    ) -> KeyedStream[K, Any]:
        """Keep the best value of every key, and work on those that got better.

        The values of the input are the first candidates.  For each of them, and for each
        that a round makes, `improve` gets the value of the key so far (None if there is
        none) and the candidate; it returns the new value, or None to leave it as it is.
        The keys whose values changed are what the next round begins with, as long as
        there are any; then all keys with their values are the result.

        moves data: by key · state: a value for every key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms
        >>> edges = {"a": "b", "b": "c"}
        >>> flow = ms.Flow("reachable")
        >>> hops = (
        ...     flow.from_iterable([("a", 0)])
        ...     .key_by(lambda pair: pair[0])
        ...     .map(lambda pair: pair[1])
        ...     .delta_iterate(
        ...         lambda known, hops: hops if known is None else None,
        ...         lambda new: (
        ...             new.unkey()
        ...             .filter(lambda pair: pair[0] in edges)
        ...             .key_by(lambda pair: edges[pair[0]])
        ...             .map(lambda pair: pair[1] + 1)
        ...         ),
        ...     )
        ...     .collect()
        ... )
        >>> _ = flow.run(on="local")
        >>> sorted(hops.result())
        [('a', 0), ('b', 1), ('c', 2)]
        """
        iteration = Iteration(
            IterationKind.DELTA,
            rounds_max=optional_count("delta_iterate", max_rounds),
            improve=needed_function(
                "delta_iterate", "improve", improve, "known", "candidate"
            ),
        )
        graph = self._graph
        base = name or graph.plan.free_name("delta_iterate")
        source = _by_key(graph, self._node, f"{base}.keys")
        rounds = Rounds.begun(graph, "delta_iterate", source, iteration, base)
        new = graph.keyed(rounds.body_input)
        made = made_by("delta_iterate", body, new=new)
        if not isinstance(made, KeyedRoundVerbs):
            refuse_made("delta_iterate", "KeyedStream", made)
        tail = input_of("delta_iterate", graph, made)
        candidates = _by_key(graph, graph.plan.nodes[tail], f"{base}.candidates")
        return graph.keyed(rounds.closed(candidates))


def _by_key(graph: Graph, node: Node, name: str) -> int:
    """Return a node whose rows go to the task of their key."""
    if isinstance(node.regroups, Fields):
        return node.id
    moved = graph.add(
        "delta_iterate", Regroup(), (node.id,), name=name, regroups=Fields()
    )
    return moved.id


def _stream_of(verb: str, body: Callable[..., Any], **given: Any) -> Any:
    made = made_by(verb, body, **given)
    if not isinstance(made, RoundVerbs):
        refuse_made(verb, "Stream", made)
    return made
