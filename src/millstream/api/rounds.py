"""How an iteration is built: its head, its decider, and the checks of what it is given.

How the parts of a loop hang together is in `millstream.plan.iteration`; nothing here knows
whether rows or frames go round.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import cloudpickle

from millstream.api.building import (
    checked_callable,
    checked_count,
    checked_function,
    user_location,
)
from millstream.errors import UsageError
from millstream.plan.grouping import Broadcast
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.graph import Graph
    from millstream.plan.logical import Node

__all__ = [
    "Rounds",
    "checked_ends",
    "checked_pair",
    "checked_reduction",
    "cycle_of",
    "free_loop",
    "made_by",
    "needed_function",
    "optional_count",
    "optional_function",
    "refuse_made",
]


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
            f"`{verb}` at {user_location()} would never terminate; pass max_rounds= "
            "or until="
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
