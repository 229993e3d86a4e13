"""Let every kind of fault happen at every single step of a small job.

Method: run the job once to see how many turns it takes; then once for every turn and
every blow, with the blow just before that turn.  Everything else is the same in all runs.
The job is as small as one with three epochs, a sink, state and a shuffle can be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from tests.simulation import recovery_flows
from tests.support.examples import some_of

from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import Fault, FaultKind, SwarmOptions
from millstream.simulation.run import Simulator

MICROSECOND = 1_000
MILLISECOND = 1_000_000
WORKERS = 2
ONE, TWO = PeerId(1), PeerId(2)
SEED = 7
EPOCHS_MIN = 3
LEASE_MS = 200
LONG_NS = 3 * LEASE_MS * MILLISECOND
"""Whoever is away for so long is given up, and comes back all the same."""
SHORT_NS = LEASE_MS * MILLISECOND // 4
FEW_STEPS = 30
SOME_STEPS = 4
"""In `make check` and in `make test` only every so many steps are tried."""
STATE_OF_TASK = re.compile(r"-\d+-\d+-\d+-\d+\.state")


@dataclass(frozen=True, slots=True)
class Blow:
    """What happens at one moment, to which flow, and how the job may end.

    Attributes
    ----------
    fate
        What is drawn where the simulator draws: small numbers let a writer finish after
        its process has died, and the next driver come soon.
    """

    faults: tuple[Fault, ...]
    flow: str = "small"
    fate: float = 0.9
    endings: frozenset[str] = frozenset({"succeeded"})


def fault(
    kind: FaultKind, peer: PeerId, other: PeerId | None = None, duration_ns: int = 0
) -> Fault:
    return Fault(0, kind, peer, other, duration_ns, is_fatal=True)


def blow(kind: FaultKind, peer: PeerId = ONE, duration_ns: int = 0) -> Blow:
    """Return a single fault that the job must survive."""
    return Blow((fault(kind, peer, duration_ns=duration_ns),))


def damage(flow: str, peer: PeerId, *endings: str) -> Blow:
    """Return damage to the newest state, and a crash that makes somebody read it."""
    faults = (fault(FaultKind.DAMAGE, ONE), fault(FaultKind.CRASH, peer))
    return Blow(faults, flow, endings=frozenset({"succeeded", *endings}))


FAULTS = {
    "worker 1 crashes": blow(FaultKind.CRASH, ONE),
    "worker 2 crashes": blow(FaultKind.CRASH, TWO),
    "both workers crash": Blow(
        (fault(FaultKind.CRASH, ONE), fault(FaultKind.CRASH, TWO))
    ),
    "the driver crashes": blow(FaultKind.CRASH, COORDINATOR),
    "a worker crashes and writes later": Blow(
        (fault(FaultKind.CRASH, ONE),), fate=0.0005
    ),
    "the driver crashes and writes later": Blow(
        (fault(FaultKind.CRASH, COORDINATOR),), fate=0.0005
    ),
    "a worker freezes": blow(FaultKind.FREEZE, TWO, LONG_NS),
    "the driver freezes": blow(FaultKind.FREEZE, COORDINATOR, LONG_NS),
    "a worker is cut off": blow(FaultKind.PARTITION, ONE, LONG_NS),
    "a link is cut": Blow((fault(FaultKind.PARTITION, ONE, TWO, LONG_NS),)),
    "connections are reset": blow(FaultKind.RESET, TWO),
    "a link is slow": Blow((fault(FaultKind.CLOG, ONE, TWO, SHORT_NS),)),
    "the disk is full": blow(FaultKind.FULL, duration_ns=SHORT_NS),
    "the disk is stuck": blow(FaultKind.STUCK, duration_ns=SHORT_NS),
    "a worker meets damage": damage("small_late", ONE, "SnapshotError"),
    "the driver meets damage": damage("small", COORDINATOR, "SnapshotError"),
    "a second driver starts": blow(FaultKind.TAKEOVER),
    "somebody cancels": Blow(
        (fault(FaultKind.CANCEL, ONE),),
        endings=frozenset({"succeeded", "JobCancelledError"}),
    ),
}


def simulator_of(flow: str) -> Simulator:
    case = getattr(recovery_flows, flow)()
    settings = {
        "snapshot_every_ms": 1,
        "source_idle_ms": 10,
        "slice_batches": 4,
        "lease_ms": LEASE_MS,
        "heartbeat_ms": LEASE_MS // 4,
    }
    config = case.flow.config(settings)
    deployment = deploy(case.flow.plan, config, WORKERS, SnapshotContext("steps", ""))
    return Simulator(lambda *_: deployment, config, check=case.check, is_keeping=True)


def options_of(simulator: Simulator) -> SwarmOptions:
    return SwarmOptions(
        WORKERS,
        simulator.config,
        delay_ns_min=20 * MICROSECOND,
        delay_ns_max=40 * MICROSECOND,
        turn_ns_max=30 * MICROSECOND,
        is_exit_reported=True,
        is_keeping=True,
        rows_per_epoch=2,
        piece_ns_max=20 * MICROSECOND,
    )


class Counting(Cluster):
    """A cluster that remembers how long it ran."""

    last_turns = 0
    last_epochs = 0

    def close(self) -> None:
        Counting.last_turns, Counting.last_epochs = self.turn_count, self._epoch
        super().close()


class Fate(Random):
    """Draws the same number every time, and of files the newest one of a task."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def random(self) -> float:
        return self._number

    def choice(self, names: Any) -> Any:
        return max(names, key=lambda name: (bool(STATE_OF_TASK.search(name)), name))


def striking(chosen: Blow, turn: int) -> type[Cluster]:
    """Return clusters that a blow hits before their job's turn of that number."""

    class Striking(Cluster):
        has_struck = False

        def turn(self) -> None:
            if self.turn_count == turn and not self.has_struck:
                self.has_struck = True
                self._disasters = Fate(chosen.fate)
                for each in chosen.faults:
                    self.inject(each)
            super().turn()

    return Striking


def turns_of(flow: str) -> int:
    """Return how many turns the job takes in which nothing goes wrong."""
    simulator = simulator_of(flow)
    simulator.cluster_class = Counting
    assert not simulator.run_with(options_of(simulator), SEED).problems
    assert Counting.last_epochs >= EPOCHS_MIN
    return Counting.last_turns


def problems_of(name: str, turns: range) -> list[str]:
    """Strike at each of these turns and return what went wrong."""
    chosen = FAULTS[name]
    simulator = simulator_of(chosen.flow)
    options = options_of(simulator)
    found: list[str] = []
    for turn in turns:
        simulator.cluster_class = striking(chosen, turn)
        outcome = simulator.run_with(options, SEED)
        found += [f"{name}, turn {turn}: {problem}" for problem in outcome.problems]
        if outcome.outcome not in chosen.endings:
            how = f"{outcome.outcome}: {outcome.message}"
            found.append(f"{name}, turn {turn}: {how}")
    return found


def test_every_kind_of_fault_strikes() -> None:
    """A kind that the simulator learns must be tried here too."""
    struck = {each.kind for chosen in FAULTS.values() for each in chosen.faults}

    assert struck == set(FaultKind)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_at_some_steps_changes_nothing(name: str) -> None:
    """The rows are right, whatever went wrong when."""
    turns = some_of(range(turns_of(FAULTS[name].flow)), FEW_STEPS)

    assert problems_of(name, turns) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fault_at_every_step_changes_nothing(name: str) -> None:
    """All steps in `.ci/run`; in `make test` some of them, others every day."""
    turns = some_of(range(turns_of(FAULTS[name].flow)), SOME_STEPS)

    assert problems_of(name, turns) == []
