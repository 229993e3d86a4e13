"""What people do to a program between two runs, and what must come of it.

Whatever keeps no state may come and go; the same aggregates may stand in another order.
A step that keeps something else under its old name goes on as if it had always been so, or
is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from tests.fuzz.catalogue import VERBS
from tests.fuzz.programs import Program, Step
from tests.fuzz.verbs import ALL_DISORDER, FRAME, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.scenarios import Leg

__all__ = ["drawn_change"]

ENDING_EARLY = {"limit", "limited", "limit_frame", "top", "top_frame", "zip"}
"""Verbs that may need no more rows although there are some."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something to do to a program: to which of its steps, and how."""

    places: Callable[[Program], list[Step]]
    apply: Callable[[st.DrawFn, Leg, Step], Leg]


def drawn_change(draw: st.DrawFn, leg: Leg) -> Leg:
    """Return a leg with a program that was changed in some way that is possible."""
    possible = [(places, c) for c in CHANGES if (places := c.places(leg.program))]
    places, change = draw(st.sampled_from(possible))
    return change.apply(draw, leg, draw(st.sampled_from(places)))


def _free_name(program: Program, letter: str) -> str:
    """Return a name that is not taken, nor was by a step that is gone."""
    numbers = [int(s.name[1:]) for s in program.steps]
    return f"{letter}{10 + max(numbers)}"


def _depends_on_order(program: Program, name: str) -> bool:
    """Return whether a reader's late rows are those of one source in its order."""
    return any(
        VERBS[step.verb].is_ordered and step.arguments[-1] != ALL_DISORDER
        for step in program.readers(name)
    )


def _streams(program: Program) -> list[Step]:
    """Return the steps that may get one more reader."""
    return [s for s in program.steps if VERBS[s.verb].makes in {ROWS, FRAME}]


def _orderless(program: Program) -> list[Step]:
    """Return the steps that something may stand behind, before all their readers."""
    made = _streams(program)
    return [step for step in made if not _depends_on_order(program, step.name)]


def _idle(program: Program) -> list[Step]:
    same = [s for s in program.steps if s.verb in {"same", "same_frame"}]
    return [step for step in same if not _depends_on_order(program, step.name)]


def _several_aggregates(program: Program) -> list[Step]:
    return [s for s in program.steps if s.verb == "agg" and len(s.arguments[0]) > 1]


def _stateful(program: Program) -> list[Step]:
    return [step for step in program.steps if VERBS[step.verb].kept]


def _sinks(program: Program) -> list[Step]:
    sinks = [step for step in program.steps if VERBS[step.verb].is_sink]
    return sinks if len(sinks) > 1 else []


def insert(draw: st.DrawFn, leg: Leg, place: Step) -> Leg:
    """Put something that changes nothing behind a step."""
    program, name = leg.program, _free_name(leg.program, "i")
    verb = "same" if VERBS[place.verb].makes == ROWS else "same_frame"
    arguments = tuple(draw(strategy) for strategy in VERBS[verb].arguments)
    position = program.steps.index(place) + 1
    made = Step(name, verb, (place.name,), arguments)
    turned = program.renamed_input(place.name, name).steps
    steps = (*turned[:position], made, *turned[position:])
    return replace(leg, program=Program(steps))


def remove(_: st.DrawFn, leg: Leg, step: Step) -> Leg:
    """Leave out something that changes nothing."""
    turned = leg.program.renamed_input(step.name, step.inputs[0])
    return replace(leg, program=turned.without({step.name}))


def branch(_: st.DrawFn, leg: Leg, place: Step) -> Leg:
    """Count what a step makes from now on, beside what reads it already."""
    program, name = leg.program, _free_name(leg.program, "b")
    verb = "count" if VERBS[place.verb].makes == ROWS else "collect_frame"
    changed = program.with_step(Step(name, verb, (place.name,)))
    # What nobody needed any more has ended and forgotten what it knew.
    may_refuse = any(step.verb in ENDING_EARLY for step in program.steps)
    free = leg.free | {name}
    return replace(leg, program=changed, free=free, may_refuse=may_refuse)


def addition(draw: st.DrawFn, leg: Leg, _: Step) -> Leg:
    """Read one more source, which begins at its beginning."""
    name, sink = _free_name(leg.program, "s"), _free_name(leg.program, "o")
    keys, salt = draw(st.sampled_from(["few", "odd"])), draw(st.integers(0, 5))
    uneven = Step(name, "parallel", (), ((2, 40), keys, salt))
    single = Step(name, "iterable", (), (12, keys, salt))
    program = leg.program.with_step(draw(st.sampled_from([single, uneven])))
    middle = _free_name(program, "n")
    program = program.with_step(Step(middle, "grouped", (name,), ("sum",)))
    return replace(leg, program=program.with_step(Step(sink, "collect", (middle,))))


def reorder(_: st.DrawFn, leg: Leg, step: Step) -> Leg:
    """Write the same aggregates the other way round."""
    names, kind = step.arguments
    turned = replace(step, arguments=((*names[1:], names[0]), kind))
    return replace(leg, program=leg.program.with_step(turned))


def rearrange(draw: st.DrawFn, leg: Leg, _: Step) -> Leg:
    """Write the same steps in another order."""
    left, steps = list(leg.program.steps), list[Step]()
    while left:
        names = {step.name for step in left}
        ready = [step for step in left if names.isdisjoint(step.inputs)]
        steps.append(draw(st.sampled_from(ready[::-1])))
        left.remove(steps[-1])
    return replace(leg, program=Program(tuple(steps)))


def retype(draw: st.DrawFn, leg: Leg, step: Step) -> Leg:
    """Let a step keep something else under its old name."""
    number = draw(st.sampled_from(VERBS[step.verb].kept))
    arguments = list(step.arguments)
    arguments[number] = draw(VERBS[step.verb].arguments[number])
    changed = replace(step, arguments=tuple(arguments))
    program = leg.program.with_step(changed)
    return replace(leg, program=program, may_refuse=changed != step)


def prune(draw: st.DrawFn, leg: Leg, sink: Step) -> Leg:
    """Leave out a sink and what only it needs; what that kept must be dropped."""
    program = leg.program
    others = [step.name for step in _sinks(program) if step != sink]
    needed = {name for other in others for name in program.origins(other)}
    gone = {step.name for step in program.steps} - needed
    drops = draw(st.booleans())
    return replace(
        leg, program=program.without(gone), drops=drops, may_refuse=not drops
    )


CHANGES = (
    Change(_orderless, insert),
    Change(_idle, remove),
    Change(_streams, branch),
    Change(lambda program: [program.steps[0]], addition),
    *[Change(_several_aggregates, reorder)] * 3,
    Change(lambda program: [program.steps[0]], rearrange),
    *[Change(_stateful, retype)] * 3,
    Change(_sinks, prune),
)
