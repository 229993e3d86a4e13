"""Kill a worker or the driver at every single step of a small job.

Method: run the job once to see how many turns it takes; then once for every turn, with
a crash just before it.  Everything else is the same in all runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation import recovery_flows
from tests.simulation.recovering import pool

from millstream.launch.job import deploy
from millstream.launch.keeping import Keeping
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import Fault, FaultKind, SwarmOptions
from millstream.simulation.run import Simulator

if TYPE_CHECKING:
    from tests.simulation.flows import Case

    from millstream.config import Config
    from millstream.runtime.deployment import Deployment

MICROSECOND = 1_000
WORKERS = 2
SEED = 7
EPOCHS_MIN = 3
PEERS = (COORDINATOR, PeerId(1), PeerId(2))
SOME_STEPS = 40
"""In `make check` only every so many steps are tried."""
OTHER_STEPS = 5
"""One flow is crashed at every step, the others at every so many."""
CHUNKS = 8


def simulator_of(case: Case) -> Simulator:
    def make(config: Config, count: int) -> Deployment:
        return deploy(case.flow.plan, config, count, Keeping("steps", ""))

    settings = {
        "snapshot_every_ms": 1,
        "source_batch_rows": 8,
        "source_idle_ms": 1,
        "slice_batches": 2,
        "lease_ms": 1_000,
    }
    config = case.flow.config(settings)
    return Simulator(make, config, check=case.check, is_keeping=True)


def options_of(simulator: Simulator) -> SwarmOptions:
    return SwarmOptions(
        WORKERS,
        simulator.config,
        delay_ns_min=10 * MICROSECOND,
        delay_ns_max=100 * MICROSECOND,
        turn_ns_max=30 * MICROSECOND,
        is_exit_reported=True,
        is_keeping=True,
        rows_per_epoch=16,
        piece_ns_max=100 * MICROSECOND,
    )


class Counting(Cluster):
    """A cluster that remembers how long it ran."""

    last_turns = 0
    last_epochs = 0

    def close(self) -> None:
        Counting.last_turns, Counting.last_epochs = self.turn_count, self._epoch
        super().close()


def crashing(peer: PeerId, turn: int) -> type[Cluster]:
    """Return clusters in which a peer vanishes before its job's turn of that number."""

    class Crashing(Cluster):
        def turn(self) -> None:
            if self.turn_count == turn and not self.fired:
                self.inject(Fault(0, FaultKind.CRASH, peer, is_fatal=True))
            super().turn()

    return Crashing


def turns_of(name: str) -> int:
    """Return how many turns the job takes in which nobody crashes."""
    simulator = simulator_of(getattr(recovery_flows, name)())
    simulator.cluster_class = Counting
    assert not simulator.run_with(options_of(simulator), SEED).problems
    assert Counting.last_epochs >= EPOCHS_MIN
    return Counting.last_turns


def problems_of(name: str, peer: PeerId, turns: range) -> list[str]:
    """Crash the peer at each of these turns and return what went wrong."""
    simulator = simulator_of(getattr(recovery_flows, name)())
    options = options_of(simulator)
    found: list[str] = []
    for turn in turns:
        simulator.cluster_class = crashing(peer, turn)
        outcome = simulator.run_with(options, SEED)
        found += [f"turn {turn}: {problem}" for problem in outcome.problems]
        if outcome.outcome != "succeeded":
            found.append(f"turn {turn}: {outcome.outcome}: {outcome.message}")
    return found


@pytest.mark.parametrize("peer", PEERS)
def test_crash_at_some_steps_changes_nothing(peer: PeerId) -> None:
    """The rows are right, whoever was killed when."""
    turns = range(0, turns_of("counted"), SOME_STEPS)

    assert problems_of("counted", peer, turns) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["counted", "stateful", "in_order"])
def test_crash_at_every_step_changes_nothing(name: str) -> None:
    """The rows are right, whoever was killed when; the steps are shared out."""
    every = 1 if name == "counted" else OTHER_STEPS
    turns = range(0, turns_of(name), every)
    chunks = [(peer, turns[start::CHUNKS]) for peer in PEERS for start in range(CHUNKS)]
    with pool() as executor:
        parts = executor.map(
            problems_of, [name] * len(chunks), *zip(*chunks, strict=True)
        )
        assert [problem for part in parts for problem in part] == []
