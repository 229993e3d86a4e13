"""Break snapshots and recovery on purpose: the checkers must notice every time.

Method: patch one line of the engine into a mistake that somebody could make, and run
seeds of a flow with snapshots until one of them has a problem.  A mistake that survives
means that the seeds that pass prove little.
"""

from __future__ import annotations

import pytest
from tests.simulation import (
    driver_mistakes,
    frame_join_mistakes,
    frame_window_mistakes,
    join_mistakes,
    loop_mistakes,
    task_mistakes,
    timed_loop_mistakes,
    timer_mistakes,
    window_mistakes,
)
from tests.simulation.mistakes import MISTAKES

from millstream.testing import SimulationFailedError, simulate

SEEDS_MAX = 100


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed has a problem, and the report says how to see it again."""
    mistake = MISTAKES[name]
    case = mistake.make()
    mistake.patch(monkeypatch)
    seeds = range(mistake.seed, mistake.seed + SEEDS_MAX)

    with pytest.raises(SimulationFailedError) as caught:
        simulate(case.flow, seeds=seeds, snapshots=True, check=case.check)
    failure = caught.value.report.first_failure
    assert failure is not None
    assert f"seed={failure.seed}, snapshots=True" in str(caught.value)


def test_there_are_enough_mistakes() -> None:
    """At least fifty, of tasks, drivers, loops, timers, joins and windows."""
    modules = {mistake.patch.__module__ for mistake in MISTAKES.values()}

    assert len(MISTAKES) >= 50
    assert modules == {
        task_mistakes.__name__,
        driver_mistakes.__name__,
        frame_join_mistakes.__name__,
        frame_window_mistakes.__name__,
        join_mistakes.__name__,
        loop_mistakes.__name__,
        timed_loop_mistakes.__name__,
        timer_mistakes.__name__,
        window_mistakes.__name__,
    }
