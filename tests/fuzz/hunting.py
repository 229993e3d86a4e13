"""Search for a scenario that goes wrong; Hypothesis draws, and shrinks what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import FlakyFailure
from tests.fuzz.drawing import scenarios
from tests.fuzz.reducing import reduced
from tests.fuzz.running import play
from tests.fuzz.telling import told

if TYPE_CHECKING:
    from tests.fuzz.scenarios import Scenario

__all__ = ["EXAMPLES", "Finding", "hunt"]

EXAMPLES = 50
"""Scenarios of one seed."""


class WrongError(AssertionError):
    """A scenario went wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A scenario that goes wrong, and how."""

    seed: int
    scenario: Scenario
    problem: str

    def __str__(self) -> str:
        return (
            f"{told(self.scenario, self.problem)}\n"
            f"# Repeat the search that found it with `make fuzz SEED={self.seed}`."
        )


def hunt(
    number: int, examples: int = EXAMPLES, *, shrinks: bool = True
) -> Finding | None:
    """Play the scenarios of a seed until one goes wrong; return the smallest like it."""
    found: list[tuple[Scenario, str]] = []
    phases = [Phase.generate, *([Phase.shrink] if shrinks else [])]

    @seed(number)
    @settings(
        max_examples=examples,
        phases=phases,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios())
    def holds(scenario: Scenario) -> None:
        if problem := play(scenario):
            found.append((scenario, problem))
            raise WrongError(problem)

    try:
        holds()
    except (WrongError, FlakyFailure):
        return Finding(number, *(reduced(*found[-1]) if shrinks else found[-1]))
    return None
