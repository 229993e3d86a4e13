"""Draws programs and scenarios; the first of every choice is the simplest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from tests.fuzz.catalogue import VERBS
from tests.fuzz.changes import drawn_change
from tests.fuzz.meaning import bounded, meaning, size_of
from tests.fuzz.programs import Program, Step
from tests.fuzz.scenarios import Leg, Scenario
from tests.fuzz.sink_verbs import DIRECTORIES, FILE_SINKS
from tests.fuzz.verbs import ALL_DISORDER

if TYPE_CHECKING:
    from tests.fuzz.scenarios import Beside, Launcher

__all__ = ["programs", "scenarios"]

SOURCES = ("iterable", "parallel", "frame")
ROWS_MAX = 400
"""More are not made by any step: joins of joins grow."""
STEPS_MAX = 7
WORKERS_MAX = 4
TICKS_NS = (20_000, 100_000, 200_000)
SHARES: dict[Launcher, int] = {"local": 70, "processes": 1, "simulator": 4}
"""How often a launcher is drawn."""
LAUNCHERS = [launcher for launcher, share in SHARES.items() for _ in range(share)]
_TWICE = (
    "iterate",
    "iterate_frame",
    "iterate_join",
    "agg",
    "grouped",
    "limit",
    "limit_frame",
)
"""Verbs for which much depends on when they are interrupted, and on what follows."""
_MIDDLE = [n for n, v in VERBS.items() if v.takes and not v.is_sink]
_SINKS = [n for n, v in VERBS.items() if v.is_sink]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return sources, steps on them, and a sink at least at every loose end."""
    program, known = Program(()), dict[str, Any]()
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(SOURCES))
        step = Step(f"s{number}", kind, (), _arguments(draw, kind))
        program, known = _added(program, known, step)
    for number in range(draw(st.integers(0, STEPS_MAX))):
        step = _step(draw, program, f"n{number}")
        if size_of(meaning(step, known)) <= ROWS_MAX:
            program, known = _added(program, known, step)
    return _with_order(_with_sinks(draw, program))


def _with_order(program: Program) -> Program:
    """Return the program with late rows only where one source decides on them."""
    for step in program.steps:
        if VERBS[step.verb].is_ordered:
            (before,) = step.inputs
            is_source = program.step(before).verb in {"iterable", "frame"}
            if not is_source:
                arguments = (*step.arguments[:-1], ALL_DISORDER)
                program = program.with_step(replace(step, arguments=arguments))
    return program


def _added(
    program: Program, known: dict[str, Any], step: Step
) -> tuple[Program, dict[str, Any]]:
    return program.with_step(step), {**known, step.name: meaning(step, known)}


def _arguments(draw: st.DrawFn, verb: str) -> tuple[Any, ...]:
    return tuple(draw(strategy) for strategy in VERBS[verb].arguments)


def _step(draw: st.DrawFn, program: Program, name: str) -> Step:
    """Return a step that some of the steps so far can be the input of."""
    kinds = {step.name: VERBS[step.verb].makes for step in program.steps}
    fitting: dict[str, list[list[str]]] = {}
    for verb in _MIDDLE:
        wanted = VERBS[verb].takes
        choices = [[n for n, kind in kinds.items() if kind == take] for take in wanted]
        for number in VERBS[verb].bounded:
            choices[number] = [n for n in choices[number] if bounded(program, n)]
        if all(choices) and len({n for c in choices for n in c}) >= len(choices):
            fitting[verb] = choices
    often = [verb for verb in _TWICE if verb in fitting]
    verb = draw(st.sampled_from([*fitting, *often]))
    inputs: list[str] = []
    for choice in fitting[verb]:
        free = [other for other in choice if other not in inputs]
        inputs.append(draw(st.sampled_from(free or choice)))
    return Step(name, verb, tuple(inputs), _arguments(draw, verb))


def _with_sinks(draw: st.DrawFn, program: Program) -> Program:
    """Return the program with sinks at all loose ends, and perhaps one more."""
    names = [step.name for step in program.steps]
    ends = [name for name in names if not program.readers(name)]
    more = draw(st.sampled_from(["", *names]))
    is_shared = draw(st.integers(0, 29)) == 17
    places = iter(DIRECTORIES)
    for number, name in enumerate([*ends, more] if more else ends):
        made = VERBS[program.step(name).verb].makes
        fitting = [sink for sink in _SINKS if VERBS[sink].takes == (made,)]
        verb = draw(st.sampled_from(fitting))
        arguments = _arguments(draw, verb)
        if verb in FILE_SINKS:
            arguments = (DIRECTORIES[0] if is_shared else next(places, ""),)
            verb = verb if arguments[0] else fitting[0]
            arguments = arguments if arguments[0] else ()
        program = program.with_step(Step(f"o{number}", verb, (name,), arguments))
    return program


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Return a program with the runs that it goes through."""
    program = draw(programs())
    launcher = draw(st.sampled_from(LAUNCHERS))
    if launcher != "local":
        return _somewhere_else(draw, program, launcher)
    stops = [
        draw(st.integers(1, 5)) for _ in range(draw(st.sampled_from([0, 1, 1, 2, 1])))
    ]
    again = [0] if draw(st.integers(0, 3)) == 3 else []
    leg = _leg(draw, Leg(program), 0 if not stops else stops[0])
    legs = [leg]
    for stop in [*stops[1:], *([0] if stops else []), *again]:
        is_again = not legs[-1].stop
        leg = replace(leg, may_refuse=False, drops=False)
        if not is_again and draw(st.booleans()):
            leg = drawn_change(draw, leg)
        leg = _leg(draw, leg, stop)
        legs.append(leg)
    return Scenario(tuple(legs))


def _leg(draw: st.DrawFn, leg: Leg, stop: int) -> Leg:
    kinds: list[Beside] = ["", "", "", "apart", "same state"]
    if any(step.verb in FILE_SINKS for step in leg.program.steps):
        kinds.append("same output")
    return replace(
        leg,
        workers=draw(st.integers(1, WORKERS_MAX)),
        stop=stop,
        tick_ns=draw(st.sampled_from(TICKS_NS)),
        batch_rows=draw(st.sampled_from([2, 1, 16])),
        beside=draw(st.sampled_from(kinds)),
    )


def _somewhere_else(draw: st.DrawFn, program: Program, launcher: Launcher) -> Scenario:
    """Return a scenario with real processes, or with simulated crashes."""
    widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    legs = [
        Leg(program, workers, 0 if number == len(widths) - 1 else 1)
        for number, workers in enumerate(widths)
    ]
    return Scenario(tuple(legs), launcher, draw(st.integers(0, 10_000)))
