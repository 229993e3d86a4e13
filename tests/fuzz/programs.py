"""A random program: steps that name their inputs, as plain immutable data.

Nothing here knows what a verb means; see `verbs`.  The repr of everything is Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Program", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """A verb of `verbs.VERBS` with its arguments, under a name."""

    name: str
    verb: str
    inputs: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """Steps, each after those that it reads."""

    steps: tuple[Step, ...]

    def step(self, name: str) -> Step:
        """Return the step of a name."""
        (found,) = [step for step in self.steps if step.name == name]
        return found

    def readers(self, name: str) -> list[Step]:
        """Return the steps that read another one."""
        return [step for step in self.steps if name in step.inputs]

    def origins(self, name: str) -> set[str]:
        """Return a step and all that it follows from."""
        found = {name}
        for step in reversed(self.steps):
            if step.name in found:
                found.update(step.inputs)
        return found

    def with_step(self, step: Step) -> Program:
        """Return the program with one more step, or with another one of its name."""
        names = [other.name for other in self.steps]
        if step.name not in names:
            return Program((*self.steps, step))
        return Program(tuple(step if s.name == step.name else s for s in self.steps))

    def without(self, names: set[str]) -> Program:
        """Return the program without some steps; none that is left may read them."""
        return Program(tuple(step for step in self.steps if step.name not in names))

    def renamed_input(self, before: str, after: str, except_in: str = "") -> Program:
        """Return the program with one step read in place of another."""

        def turned(step: Step) -> Step:
            inputs = tuple(after if name == before else name for name in step.inputs)
            return step if step.name == except_in else replace(step, inputs=inputs)

        return Program(tuple(map(turned, self.steps)))
