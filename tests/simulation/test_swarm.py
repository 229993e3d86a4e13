"""Many seeds over many flows: everything varies, and every promise must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.flows import CASES, broadcast, failing, word_count

from millstream.simulation.options import FaultKind
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Case

SEEDS_PER_FLOW = 110
FEW_SEEDS = 2


def seeds_of(make: Callable[[], Case], count: int) -> range:
    """Give every flow seeds of its own."""
    start = 1_000 * CASES.index(make)
    return range(start, start + count)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_flow_keeps_its_promises_in_a_few_seeds(make: Callable[[], Case]) -> None:
    """Right rows, or a failure that was asked for; nothing left behind."""
    case = make()
    seeds = seeds_of(make, FEW_SEEDS)
    assert simulate(case.flow, seeds=seeds, check=case.check).is_clean


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_flow_keeps_its_promises_in_many_seeds(make: Callable[[], Case]) -> None:
    """All flows together run through more than a thousand seeds."""
    assert SEEDS_PER_FLOW * len(CASES) >= 1_000
    case = make()
    seeds = seeds_of(make, SEEDS_PER_FLOW)
    assert simulate(case.flow, seeds=seeds, check=case.check).is_clean


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_nothing_but_time_is_lost_to_benign_faults(make: Callable[[], Case]) -> None:
    """Delays, clogged links and short freezes never end a job."""
    case = make()
    report = simulate(case.flow, seeds=4, faults="benign", check=case.check)

    expected = "OperatorError" if make is failing else "succeeded"
    assert report.outcome_counts == {expected: 4}


@pytest.mark.parametrize(
    "make", [word_count, broadcast], ids=lambda make: make.__name__
)
def test_same_seed_has_the_same_trace(make: Callable[[], Case]) -> None:
    """Nothing in the engine depends on more than the seed."""

    def traces() -> list[tuple[Any, ...]]:
        case = make()
        outcomes = simulate(case.flow, seeds=8).outcomes
        return [(o.trace_hash, o.outcome, o.turns, o.virtual_s) for o in outcomes]

    first = traces()

    assert traces() == first
    assert len(set(first)) == len(first)


@pytest.mark.slow
def test_swarm_meets_every_fault_and_every_ending() -> None:
    """A fault that never hits, or an ending that never comes, tests nothing."""
    report = simulate(word_count().flow, seeds=300)

    assert set(report.fault_counts) == {kind.value for kind in FaultKind}
    assert set(report.outcome_counts) == {
        "succeeded",
        "WorkerLostError",
        "TransportError",
        "LaunchError",
        "JobCancelledError",
    }
