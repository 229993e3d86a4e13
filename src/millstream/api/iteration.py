"""Iterations: operators that repeat, over rows and over keyed rows.

`iterate` feeds what its body made into the next round, `cycle` gives every round the same
input and a state that the round before has changed, `delta_iterate` keeps the best value of
every key and works on those that got better.  Whatever a round makes, all of it is there
before the next round begins; an operator that waits for the end of its input waits for the
end of the round.

How the parts of a loop hang together is in `millstream.plan.iteration`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import cloudpickle

from millstream.api.building import (
    checked_callable,
    checked_count,
    checked_function,
    user_location,
)
from millstream.api.graph import Wrapped, input_of
from millstream.api.wrapping import keyed_of, stream_of
from millstream.errors import UsageError
from millstream.plan.grouping import Broadcast, Fields
from millstream.plan.iteration import (
    DECIDER,
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

    from millstream.api.graph import Graph
    from millstream.api.keyed import KeyedStream
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = [
    "KeyedRoundVerbs",
    "RoundVerbs",
    "Rounds",
    "checked_ends",
    "checked_pair",
    "checked_reduction",
    "cycle_of",
    "free_loop",
    "made_by",
    "optional_count",
    "optional_function",
    "refuse_made",
]

T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Rounds:
    """An iteration that is being built."""

    graph: Graph
    verb: str
    name: str
    head: Node
    body_input: Node

    @classmethod
    def begun(
        cls,
        graph: Graph,
        verb: str,
        source: int,
        iteration: Iteration,
        name: str | None,
    ) -> Rounds:
        """Add the head of an iteration, and what its body begins with.

        Rows keep their times, except where only the best of a key is kept.
        """
        name = name or graph.plan.free_name(verb)
        has_time = graph.plan.nodes[source].makes_times
        keeps_time = has_time and iteration.kind is not IterationKind.DELTA
        if not keeps_time:
            source = graph.untimed(source)
        given = {
            "makes_frames": iteration.makes_frames,
            "takes_times": keeps_time,
            "makes_times": keeps_time,
        }
        spec = LoopHead(iteration)
        head = graph.add(verb, spec, (source,), name=name, **given)
        body_input = graph.add(
            verb, BodyInput(), (head.id,), name=f"{name}.body", **given
        )
        return cls(graph, verb, name, head, body_input)

    def closed_free(self, again: int, out: int) -> Node:
        """Let what goes round again come back; return what leaves."""
        for made in (again, out):
            self._check_origin(made)
        again = self._like_head(again)
        self.graph.plan.close_loop(self.head, (again, self._decider().id))
        return self.graph.plan.nodes[out]

    def _like_head(self, made: int) -> int:
        """Return what comes back with times if the head has them, and else without."""
        node = self.graph.plan.nodes[made]
        if not self.head.takes_times:
            return self.graph.untimed(made)
        if not node.makes_times:
            msg = (
                f"the body of `{self.verb}` at {user_location()} began with rows that "
                f"have a time, but those that go round have lost it in `{node.verb}` at "
                f"{node.location}; give them one with event_time(...), or begin without "
                f"by drop_time() before `{self.verb}`"
            )
            raise UsageError(msg)
        return made

    def _check_origin(self, made: int) -> None:
        """Refuse what the body returns without having made it of what it got."""
        nodes = self.graph.plan.nodes
        found: set[int] = set()
        left = [made]
        while left:
            above = left.pop()
            if above not in found:
                found.add(above)
                left += nodes[above].inputs
        if self.body_input.id not in found:
            node = nodes[made]
            msg = (
                f"the body of `{self.verb}` at {user_location()} returns `{node.verb}` "
                f"at {node.location}, which is not made of what the body gets; begin "
                "with its parameter"
            )
            raise UsageError(msg)

    def _decider(self, *results: int, schema: Any = None) -> Node:
        spec = self.head.spec
        assert isinstance(spec, LoopHead)
        return self.graph.add(
            self.verb,
            Decide(spec.iteration, schema),
            (self.head.id, *results),
            name=f"{self.name}{DECIDER}",
            width=1,
            regroups=Broadcast(),
            takes_times=False,
        )

    def closed(
        self, tail: int, *, makes_frames: bool = False, schema: Any = None
    ) -> Node:
        """Let what the body made come back; return what the iteration results in.

        `schema` is that of what the body of a cycle makes, where that is data frames.
        """
        self._check_origin(tail)
        spec = self.head.spec
        assert isinstance(spec, LoopHead)
        does_return = spec.iteration.does_return
        tail = self._like_head(tail) if does_return else self.graph.untimed(tail)
        results = () if does_return else (tail,)
        decider = self._decider(*results, schema=schema)
        back = (tail, decider.id) if does_return else (decider.id,)
        self.graph.plan.close_loop(self.head, back)
        keeps_time = does_return and self.head.makes_times
        return self.graph.add(
            self.verb,
            LoopResult(),
            (self.head.id,),
            name=f"{self.name}.result",
            makes_frames=makes_frames,
            takes_times=keeps_time,
            makes_times=keeps_time,
        )


def checked_ends(
    verb: str, until: object, max_rounds: object, *, given: str = "reduced"
) -> int | None:
    """Return how many rounds there may be; refuse an iteration that never ends."""
    if until is None and max_rounds is None:
        msg = (
            f"`{verb}` at {user_location()} would go on for ever; say how many rounds "
            "there are with max_rounds=, or when to stop with until="
        )
        raise UsageError(msg)
    optional_function(verb, "until", until, given)
    return optional_count(verb, max_rounds)


def optional_count(verb: str, max_rounds: object) -> int | None:
    """Return how many rounds there may be, if anybody said so."""
    if max_rounds is None:
        return None
    return checked_count(verb, "max_rounds", max_rounds, least=0)


def checked_reduction(verb: str, reduce: object, until: object, *takes: str) -> Any:
    """Return the reduction of a round, which `until` needs."""
    if until is not None and reduce is None:
        msg = (
            f"`{verb}` at {user_location()} has an until= but no reduce=; `until` gets "
            "what `reduce` makes of all rows of a round"
        )
        raise UsageError(msg)
    return optional_function(verb, "reduce", reduce, *takes)


def optional_function(verb: str, name: str, function: object, *takes: str) -> Any:
    """Return a function that may be left out, if workers can get and call it."""
    return None if function is None else needed_function(verb, name, function, *takes)


def needed_function(verb: str, name: str, function: object, *takes: str) -> Any:
    """Return a function, if workers can get it and call it with what it takes."""
    checked_function(verb, function)
    _check_signature(verb, name, function, takes)
    return function


def _check_signature(
    verb: str, name: str, function: Any, takes: tuple[str, ...]
) -> None:
    """Refuse a function that cannot be called with this many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(*takes)
    except TypeError:
        msg = (
            f"`{verb}` at {user_location()} calls {name} with ({', '.join(takes)}), but "
            f"the function takes {signature}"
        )
        raise UsageError(msg) from None


def made_by(verb: str, body: Callable[..., Any], **given: Any) -> Any:
    """Return what a body makes."""
    checked_callable(verb, body)
    _check_signature(verb, "its body", body, tuple(given))
    return body(*given.values())


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
        tail = _stream_of(
            "iterate", body, rows=stream_of(self._graph, rounds.body_input)
        )
        return stream_of(
            self._graph, rounds.closed(input_of("iterate", self._graph, tail))
        )

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
        rows = stream_of(self._graph, rounds.body_input)
        tail = _stream_of("cycle", body, rows=rows, state=shown)
        return stream_of(
            self._graph, rounds.closed(input_of("cycle", self._graph, tail))
        )

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
        made = made_by("loop", body, rows=stream_of(graph, rounds.body_input))
        again, out = checked_pair(made, RoundVerbs, "Stream")
        ends = input_of("loop", graph, again), input_of("loop", graph, out)
        return stream_of(graph, rounds.closed_free(*ends))


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
        new = keyed_of(graph, rounds.body_input)
        made = made_by("delta_iterate", body, new=new)
        if not isinstance(made, KeyedRoundVerbs):
            refuse_made("delta_iterate", "KeyedStream", made)
        tail = input_of("delta_iterate", graph, made)
        candidates = _by_key(graph, graph.plan.nodes[tail], f"{base}.candidates")
        return keyed_of(graph, rounds.closed(candidates))


def free_loop(max_hops: object, schema: Any = None) -> Iteration:
    """Return a loop without rounds; `schema` is that of data frames."""
    hops_max = None
    if max_hops is not None:
        hops_max = checked_count("loop", "max_hops", max_hops)
    return Iteration(
        IterationKind.FREE,
        makes_frames=schema is not None,
        hops_max=hops_max,
        schema=schema,
    )


def checked_pair(made: object, kind: type[Any], kind_name: str) -> tuple[Any, Any]:
    """Return what goes round again, and what leaves."""
    if not isinstance(made, tuple) or len(made) != 2:  # noqa: PLR2004 - a pair
        refuse_made("loop", kind_name, made, is_pair=True)
    for one in made:
        if not isinstance(one, kind):
            refuse_made("loop", kind_name, one, is_pair=True)
    return made


def cycle_of(
    state: Any,
    update: object,
    until: Any,
    max_rounds: object,
    show: object,
    *,
    schema: Any = None,
) -> tuple[RoundState[Any], Iteration]:
    """Return the state as the body sees it, and the iteration."""
    _check_state(state)
    shown = RoundState(state, f"`cycle` at {user_location()}")
    iteration = Iteration(
        IterationKind.CYCLE,
        makes_frames=schema is not None,
        rounds_max=checked_ends("cycle", until, max_rounds, given="state"),
        until=until,
        initial=state,
        update=needed_function("cycle", "update", update, "state", "rows"),
        state=shown,
        show=optional_function("cycle", "show", show, "state"),
        schema=schema,
    )
    return shown, iteration


def _check_state(state: object) -> None:
    """Refuse a state that workers cannot get."""
    try:
        cloudpickle.dumps(state)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        msg = (
            f"`cycle` at {user_location()} begins with a state, a "
            f"{type(state).__name__}, that cannot be sent to workers ({error}); use "
            "plain data, or arrays and data frames"
        )
        raise UsageError(msg) from None


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


_ADVICE = {
    ("Frame", "GroupedFrame"): "aggregate it with .agg(...)",
    ("Frame", "Stream"): "go on with columns by .to_frame(...)",
    ("KeyedStream", "Stream"): "give it keys by .key_by(...)",
    ("Stream", "Frame"): "go on with rows by .to_rows()",
    ("Stream", "GroupedStream"): "aggregate it, with .count() or .reduce(...)",
    ("Stream", "KeyedStream"): "go on without keys by .unkey() or .drop_key()",
}


def refuse_made(
    verb: str, expected: str, made: object, *, is_pair: bool = False
) -> NoReturn:
    """Say that a body returned something else."""
    what, advice = f"a {expected}", "return what its last verb makes"
    if is_pair:
        what = f"two {expected}s, (again, out)"
        advice = "return what goes round again, and what leaves"
    advice = _ADVICE.get((expected, type(made).__name__), advice)
    msg = (
        f"the body of `{verb}` at {user_location()} must return {what}, got {made!r}; "
        f"{advice}"
    )
    raise UsageError(msg)
