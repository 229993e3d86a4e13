"""Iterations: operators that repeat, over rows and over keyed rows.

`iterate` feeds what its body made into the next round, `cycle` gives every round the same
input and a state that the round before has changed, `delta_iterate` keeps the best value of
every key and works on those that got better.  Whatever a round makes, all of it is there
before the next round begins; an operator that waits for the end of its input waits for the
end of the round.

How the parts of a loop hang together is in `millstream.plan.iteration`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from millstream.api.building import (
    checked_callable,
    checked_count,
    checked_flow,
    checked_function,
    user_location,
)
from millstream.errors import UsageError
from millstream.plan.grouping import Broadcast, Fields
from millstream.plan.iteration import (
    BodyInput,
    Decide,
    Iteration,
    IterationKind,
    LoopHead,
    LoopResult,
    RoundState,
)
from millstream.plan.nodes import Regroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.flow import Flow
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.nodes import Node

__all__ = ["KeyedRoundVerbs", "RoundVerbs", "Rounds", "checked_ends"]

T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Rounds:
    """An iteration that is being built."""

    flow: Flow
    verb: str
    name: str
    head: Node
    body_input: Node

    @classmethod
    def begun(
        cls, flow: Flow, verb: str, source: int, iteration: Iteration, name: str | None
    ) -> Rounds:
        """Add the head of an iteration, and what its body begins with."""
        name = name or flow.plan.free_name(verb)
        frames = iteration.makes_frames
        spec = LoopHead(iteration)
        head = flow.add(verb, spec, (source,), name=name, makes_frames=frames)
        body_input = flow.add(
            verb, BodyInput(), (head.id,), name=f"{name}.body", makes_frames=frames
        )
        return cls(flow, verb, name, head, body_input)

    def closed_free(self, again: int) -> None:
        """Let what goes round again come back."""
        self.flow.plan.close_loop(self.head, (again, self._decider().id))

    def _decider(self, *results: int) -> Node:
        spec = self.head.spec
        assert isinstance(spec, LoopHead)
        return self.flow.add(
            self.verb,
            Decide(spec.iteration),
            (self.head.id, *results),
            name=f"{self.name}.decider",
            width=1,
            regroups=Broadcast(),
        )

    def closed(self, tail: int, *, makes_frames: bool = False) -> Node:
        """Let what the body made come back; return what the iteration results in."""
        spec = self.head.spec
        assert isinstance(spec, LoopHead)
        does_return = spec.iteration.does_return
        decider = self._decider() if does_return else self._decider(tail)
        back = (tail, decider.id) if does_return else (decider.id,)
        self.flow.plan.close_loop(self.head, back)
        return self.flow.add(
            self.verb,
            LoopResult(),
            (self.head.id,),
            name=f"{self.name}.result",
            makes_frames=makes_frames,
        )


def checked_ends(verb: str, until: object, max_rounds: object) -> int | None:
    """Return how many rounds there may be; refuse an iteration that never ends."""
    if until is None and max_rounds is None:
        msg = (
            f"`{verb}` at {user_location()} would go on for ever; say how many rounds "
            "there are with max_rounds=, or when to stop with until="
        )
        raise UsageError(msg)
    if until is not None:
        checked_function(verb, until)
    return optional_count(verb, max_rounds)


def optional_count(verb: str, max_rounds: object) -> int | None:
    """Return how many rounds there may be, if anybody said so."""
    if max_rounds is None:
        return None
    return checked_count(verb, "max_rounds", max_rounds, least=0)


def checked_reduction(verb: str, reduce: object, until: object) -> Any:
    """Return the reduction of a round, which `until` needs."""
    if until is not None and reduce is None:
        msg = (
            f"`{verb}` at {user_location()} has an until= but no reduce=; `until` gets "
            "what `reduce` makes of all rows of a round"
        )
        raise UsageError(msg)
    return optional_function(verb, reduce)


def optional_function(verb: str, function: object) -> Any:
    """Return a function that may be left out, if workers can get and call it."""
    return None if function is None else checked_function(verb, function)


class RoundVerbs(Generic[T_co]):
    """Iterations over the rows of a `Stream`."""

    _flow: Flow
    _node: Node

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
            reduce=checked_reduction("iterate", reduce, until),
            until=until,
            show=optional_function("iterate", show),
        )
        rounds = Rounds.begun(self._flow, "iterate", self._node.id, iteration, name)
        tail = _stream_of("iterate", body, (_stream(rounds.body_input, self._flow),))
        return _stream(rounds.closed(tail.as_input("iterate", self._flow)), self._flow)

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
        rounds = Rounds.begun(self._flow, "cycle", self._node.id, iteration, name)
        given = (_stream(rounds.body_input, self._flow), shown)
        tail = _stream_of("cycle", body, given)
        return _stream(rounds.closed(tail.as_input("cycle", self._flow)), self._flow)

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
        good as bounded.  A bounded loop ends when nothing is left in it.

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
        flow = self._flow
        iteration = free_loop(max_hops)
        rounds = Rounds.begun(flow, "loop", self._node.id, iteration, name)
        checked_callable("loop", body)
        made = body(_stream(rounds.body_input, flow))
        again, out = checked_pair(made)
        if not isinstance(again, RoundVerbs) or not isinstance(out, RoundVerbs):
            refuse_made("loop", "two Streams, (again, out)", made)
        rounds.closed_free(again.as_input("loop", flow))
        return _stream(flow.plan.nodes[out.as_input("loop", flow)], flow)

    def as_input(self, verb: str, flow: Flow) -> int:
        """Return the id of its operator, for a verb that joins streams of one flow."""
        checked_flow(verb, flow, self._flow)
        return self._node.id


class KeyedRoundVerbs(Generic[K, V_co]):
    """Iterations over the values of a `KeyedStream`."""

    _flow: Flow
    _node: Node

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
        from millstream.api.keyed import KeyedStream  # noqa: PLC0415 - it imports us

        iteration = Iteration(
            IterationKind.DELTA,
            rounds_max=optional_count("delta_iterate", max_rounds),
            improve=checked_function("delta_iterate", improve),
        )
        flow = self._flow
        source = _by_key(flow, self._node)
        rounds = Rounds.begun(flow, "delta_iterate", source, iteration, name)
        checked_callable("delta_iterate", body)
        made = body(KeyedStream(flow, rounds.body_input))
        if not isinstance(made, KeyedStream):
            refuse_made("delta_iterate", "a KeyedStream", made)
        tail = made.as_input("delta_iterate", flow)
        return KeyedStream(flow, rounds.closed(_by_key(flow, flow.plan.nodes[tail])))


def free_loop(max_hops: object) -> Iteration:
    """Return a loop without rounds."""
    hops_max = None
    if max_hops is not None:
        hops_max = checked_count("loop", "max_hops", max_hops)
    return Iteration(IterationKind.FREE, hops_max=hops_max)


def checked_pair(made: object) -> tuple[Any, Any]:
    """Return what goes round again, and what leaves."""
    if not isinstance(made, tuple) or len(made) != 2:  # noqa: PLR2004 - a pair
        refuse_made("loop", "a pair of streams, (again, out)", made)
    return made


def cycle_of(
    state: Any,
    update: object,
    until: Any,
    max_rounds: object,
    show: object,
    *,
    makes_frames: bool = False,
) -> tuple[RoundState[Any], Iteration]:
    """Return the state as the body sees it, and the iteration."""
    shown = RoundState(state)
    iteration = Iteration(
        IterationKind.CYCLE,
        makes_frames=makes_frames,
        rounds_max=checked_ends("cycle", until, max_rounds),
        until=until,
        initial=state,
        update=checked_function("cycle", update),
        state=shown,
        show=optional_function("cycle", show),
    )
    return shown, iteration


def _by_key(flow: Flow, node: Node) -> int:
    """Return a node whose rows go to the task of their key."""
    if isinstance(node.regroups, Fields):
        return node.id
    inputs = (node.id,)
    moved = flow.add("delta_iterate", Regroup(), inputs, regroups=Fields())
    return moved.id


def _stream(node: Node, flow: Flow) -> Stream[Any]:
    from millstream.api.stream import Stream  # noqa: PLC0415 - it imports us

    return Stream(flow, node)


def _stream_of(verb: str, body: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    from millstream.api.stream import Stream  # noqa: PLC0415 - it imports us

    checked_callable(verb, body)
    made = body(*given)
    if not isinstance(made, Stream):
        refuse_made(verb, "a Stream", made)
    return made


def refuse_made(verb: str, expected: str, made: object) -> NoReturn:
    """Say that a body returned something else."""
    msg = f"the body of `{verb}` at {user_location()} must return {expected}, got {made!r}"
    raise UsageError(msg)
