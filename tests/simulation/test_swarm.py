"""Many seeds over many flows: everything varies, and every promise must hold."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.flows import (
    CASES,
    broadcast,
    endless,
    failing,
    ordered,
    word_count,
)
from tests.simulation.visits import Visits, pieces
from tests.support.examples import fresh_seeds, is_exhaustive

from millstream.operators.rows.ordering import SortOperator
from millstream.protocol.job import JobCore
from millstream.runtime.channels import OutputChannel, RemoteCarrier
from millstream.runtime.router import _Owners
from millstream.runtime.worker import Worker
from millstream.simulation.options import STORAGE_KINDS, FaultKind
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Case

SEEDS_PER_FLOW = 100
SECONDS_PER_FLOW = 0.5
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
    assert simulate(case.flow, seeds=seeds, check=case.check, fails=case.fails).is_clean


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_flow_keeps_its_promises_in_many_seeds(make: Callable[[], Case]) -> None:
    """More than a thousand in `.ci/run`; in `make test` others every day."""
    case = make()
    seeds = seeds_of(make, SEEDS_PER_FLOW)
    for seed in seeds if is_exhaustive() else fresh_seeds(SECONDS_PER_FLOW):
        assert simulate(
            case.flow, seeds=[seed], check=case.check, fails=case.fails
        ).is_clean


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_nothing_but_time_is_lost_to_benign_faults(make: Callable[[], Case]) -> None:
    """Delays, clogged links and short freezes never end a job."""
    case = make()
    report = simulate(
        case.flow, seeds=4, faults="benign", check=case.check, fails=case.fails
    )

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
def test_trace_does_not_depend_on_the_process() -> None:
    """`hash` of a str differs between processes; the trace must not."""
    program = (
        "from millstream.testing import simulate\n"
        "from tests.simulation.flows import word_count\n"
        "print([o.trace_hash for o in simulate(word_count().flow, seeds=6).outcomes])"
    )

    def traces(hash_seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", program]
        return subprocess.check_output(command, env=environment, text=True)

    assert traces(1) == traces(2)


def always(*_: Any) -> bool:
    return True


RARE_BRANCHES: dict[str, tuple[type[Any], str, Callable[..., Any]]] = {
    "a writer gets credit back": (RemoteCarrier, "add_credit", always),
    "a timer sends a buffer": (OutputChannel, "fire_timer", always),
    "a reader wants nothing more": (OutputChannel, "close", always),
    "a sort goes to disk": (SortOperator, "_spill", always),
    "a router forgets its keys": (_Owners, "clear", always),
    "a link between workers breaks": (JobCore, "_handle_link", always),
    "a launcher tells of a death": (JobCore, "_handle_exited", always),
    "a worker leaves by itself": (Worker, "_leave", always),
}


@pytest.mark.slow
def test_swarm_comes_to_every_rare_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no seed ever does, no seed proves."""
    visits = Visits(monkeypatch, RARE_BRANCHES)
    cases = [make() for make in (word_count, ordered, endless)]

    for seeds in pieces(range(40)):
        for case in cases:
            if visits.missing:
                simulate(case.flow, seeds=seeds, check=case.check, fails=case.fails)

    assert visits.missing == []


@pytest.mark.slow
def test_swarm_meets_every_fault_and_every_ending() -> None:
    """A fault that never hits, or an ending that never comes, tests nothing."""
    faults = {kind.value for kind in set(FaultKind) - set(STORAGE_KINDS)}
    endings = {
        "succeeded",
        "WorkerLostError",
        "TransportError",
        "LaunchError",
        "JobCancelledError",
    }
    met: set[str] = set()
    ended: set[str] = set()

    for seeds in pieces(range(300)):
        if met != faults or ended != endings:
            report = simulate(word_count().flow, seeds=seeds)
            met |= set(report.fault_counts)
            ended |= set(report.outcome_counts)

    assert met == faults
    assert ended == endings


def test_what_is_under_way_to_a_worker_that_has_failed_is_nobodys_fault() -> None:
    """In this seed a batch meets it failed, and the end behind the batch meets it stopped."""
    case = failing()
    report = simulate(case.flow, seeds=[9040], check=case.check, fails=case.fails)

    assert report.is_clean
