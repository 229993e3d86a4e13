"""Break snapshots and recovery on purpose: the checkers must notice every time.

Method: patch one line of the engine into a mistake that somebody could make, and run
seeds of a flow with snapshots until one of them has a problem.  A mistake that survives
means that the seeds that pass prove little.
"""

from __future__ import annotations

import pytest
from tests.simulation import (
    driver_mutants,
    frame_join_mutants,
    frame_window_mutants,
    join_mutants,
    loop_mutants,
    task_mutants,
    timed_loop_mutants,
    timer_mutants,
    window_mutants,
)
from tests.simulation.mutations import MUTANTS

from millstream.testing import SimulationFailedError, simulate

SEEDS_MAX = 100


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed has a problem, and the report says how to see it again."""
    mutant = MUTANTS[name]
    case = mutant.make()
    mutant.patch(monkeypatch)
    seeds = range(mutant.seed, mutant.seed + SEEDS_MAX)

    with pytest.raises(SimulationFailedError) as caught:
        simulate(case.flow, seeds=seeds, snapshots=True, check=case.check)
    failure = caught.value.report.first_failure
    assert failure is not None
    assert f"seed={failure.seed}, snapshots=True" in str(caught.value)


def test_there_are_enough_mutants() -> None:
    """At least fifty, of tasks, drivers, loops, timers, joins and windows."""
    modules = {mutant.patch.__module__ for mutant in MUTANTS.values()}

    assert len(MUTANTS) >= 50
    assert modules == {
        task_mutants.__name__,
        driver_mutants.__name__,
        frame_join_mutants.__name__,
        frame_window_mutants.__name__,
        join_mutants.__name__,
        loop_mutants.__name__,
        timed_loop_mutants.__name__,
        timer_mutants.__name__,
        window_mutants.__name__,
    }
