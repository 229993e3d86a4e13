"""The oracle: what every sink of a program must get, in plain Python and Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz.catalogue import VERBS

if TYPE_CHECKING:
    from tests.fuzz.programs import Program, Step

__all__ = ["bounded", "expected", "meaning", "size_of"]


def meaning(step: Step, known: dict[str, Any]) -> Any:
    """Return what a step makes of what its inputs made."""
    inputs = (known[name] for name in step.inputs)
    return VERBS[step.verb].means(*inputs, *step.arguments)


def expected(program: Program) -> dict[str, Any]:
    """Return what every step makes of its input; of sinks, what they get."""
    known: dict[str, Any] = {}
    for step in program.steps:
        known[step.name] = meaning(step, known)
    return known


def bounded(program: Program, name: str) -> bool:
    """Return whether the engine knows that a step's input ends."""
    origins = program.origins(name)
    return all(s.verb != "parallel" for s in program.steps if s.name in origins)


def size_of(data: Any) -> int:
    """Return how many rows there are."""
    return len(data) if hasattr(data, "__len__") else 1
