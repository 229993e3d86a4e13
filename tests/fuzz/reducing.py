"""Make a scenario that goes wrong smaller step by step, after Hypothesis has done its part.

Hypothesis knows choices, not programs: it cannot take a step out of the middle.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.fuzz.catalogue import VERBS
from tests.fuzz.running import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.programs import Program
    from tests.fuzz.scenarios import Scenario

__all__ = ["reduced"]

_PLAYS_MAX = 150


def reduced(scenario: Scenario, problem: str) -> tuple[Scenario, str]:
    """Return a scenario with nothing left that could be left out, and its problem."""
    plays = 0
    is_smaller = True
    while is_smaller and plays < _PLAYS_MAX:
        is_smaller = False
        for other in _smaller(scenario):
            plays += 1
            if found := play(other):
                scenario, problem, is_smaller = other, found, True
                break
    return scenario, problem


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    legs = scenario.legs
    for number, (leg, after) in enumerate(pairwise(legs)):
        joined = replace(
            after,
            may_refuse=leg.may_refuse or after.may_refuse,
            drops=leg.drops or after.drops,
        )
        yield replace(scenario, legs=(*legs[:number], joined, *legs[number + 2 :]))
    for number, leg in enumerate(legs):
        if leg.beside:
            quiet = (*legs[:number], replace(leg, beside=""), *legs[number + 1 :])
            yield replace(scenario, legs=quiet)
    names = [step.name for step in legs[-1].program.steps]
    for name in reversed(names):
        made = [_without(leg.program, name) for leg in legs]
        kept = [p for p in made if p is not None and p.steps]
        if len(kept) == len(legs):
            pairs = zip(legs, kept, strict=True)
            smaller = tuple(replace(leg, program=p) for leg, p in pairs)
            yield replace(scenario, legs=smaller)


def _without(program: Program, name: str) -> Program | None:
    """Return a program without a sink and what only it needs, or without a step."""
    if name not in {step.name for step in program.steps}:
        return program
    step = program.step(name)
    sinks = [s.name for s in program.steps if VERBS[s.verb].is_sink]
    if name in sinks:
        kept = {n for other in sinks if other != name for n in program.origins(other)}
        return program.without({s.name for s in program.steps} - kept)
    for before in step.inputs:
        if VERBS[program.step(before).verb].makes == VERBS[step.verb].makes:
            shorter = program.renamed_input(name, before).without({name})
            needed = {n for sink in sinks for n in shorter.origins(sink)}
            return shorter.without({s.name for s in shorter.steps} - needed)
    return None
