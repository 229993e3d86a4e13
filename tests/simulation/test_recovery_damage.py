"""A worker crashes, and the snapshot to go back to is damaged: an older one is used.

Method: in every seed, when some epoch is complete, a file that no older epoch needs is
damaged, and a worker crashes a moment later.  Besides, in half of the seeds, whatever
else the seed draws goes wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation import recovery_flows
from tests.simulation.recovery_flows import late_writing, stateful
from tests.support.examples import is_exhaustive

from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import PeerId
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import (
    Fault,
    FaultKind,
    SwarmOptions,
    draw_options,
)
from millstream.simulation.run import Simulator
from millstream.simulation.seed import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Case

    from millstream.config import Config
    from millstream.runtime.deployment import Deployment

MAKERS = (stateful, late_writing)
FEW_SEEDS = 12
MANY_SEEDS = 200 if is_exhaustive() else 10
CHUNK_SEEDS = min(50, MANY_SEEDS)
EPOCHS_MIN = 2
RETAINED = 3
"""So many epochs are kept, and so there is an older one."""


class Damaging(Cluster):
    """Damages the newest epoch, and nothing that an older one needs, and crashes."""

    fallen_back = 0
    driver_starts = 0

    def __init__(
        self, deployment: Deployment, options: SwarmOptions, seed: int
    ) -> None:
        self._own = stream(seed, "damage")
        self._damage_at = self._own.randint(EPOCHS_MIN, 4)
        self._damaged_epoch = 0
        super().__init__(deployment, options, seed)

    def turn(self) -> None:
        epoch = self.coordinator.snapshots.complete_epoch
        if not self._damaged_epoch and epoch >= self._damage_at:
            self._damage(epoch)
        super().turn()

    def _damage(self, epoch: int) -> None:
        manifest = self.coordinator.snapshots.manifests.manifest
        assert manifest is not None
        own = [ref.name for ref in manifest.files if ref.epoch == epoch]
        is_first = len(self.disk.names("manifests")) == 1
        if not own or is_first or manifest.transactions or not self.workers:
            return
        self._damaged_epoch = epoch
        name = self._own.choice(own)
        self.disk.damaged.add(name)
        self.disk.files[name] = self.disk.files[name][:-1]
        victim = PeerId(self._own.choice(sorted(self.workers)))
        self.inject(Fault(0, FaultKind.CRASH, victim, is_fatal=True))

    def close(self) -> None:
        recoveries = self.coordinator.recoveries
        Damaging.fallen_back += any(
            0 < r.epoch < self._damaged_epoch for r in recoveries
        )
        Damaging.driver_starts += len(self.sites)
        super().close()


def options_of(seed: int, config: Config) -> SwarmOptions:
    """Return the drawn options; in half of the seeds nothing else goes wrong."""
    level: Any = ("none", "benign")[seed % 2]
    options = draw_options(seed, config, level, is_keeping=True)
    kept = replace(options.config, snapshots_retained=RETAINED)
    return replace(options, config=kept, deltas_max=32)


def simulated(name: str, seeds: range) -> tuple[list[str], int, int]:
    """Return what went wrong, and how often an older epoch was used by how many drivers."""
    case: Case = getattr(recovery_flows, name)()
    simulator = Simulator(
        lambda config, count: deploy(
            case.flow.plan, config, count, SnapshotContext("d", "")
        ),
        case.flow.config({}),
        check=case.check,
        cluster_class=Damaging,
        is_keeping=True,
    )
    Damaging.fallen_back = Damaging.driver_starts = 0
    found = []
    for seed in seeds:
        outcome = simulator.run_with(options_of(seed, simulator.config), seed)
        found += [f"{name}, seed {seed}: {problem}" for problem in outcome.problems]
        if outcome.outcome != "succeeded":
            found.append(f"{name}, seed {seed}: {outcome.outcome}: {outcome.message}")
    return found, Damaging.fallen_back, Damaging.driver_starts


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_older_epoch_is_used_in_place_in_a_few_seeds(make: Callable[[], Case]) -> None:
    """The rows are right, and the driver was not started again for it."""
    problems, fallen_back, drivers = simulated(make.__name__, range(FEW_SEEDS))

    assert problems == []
    assert fallen_back >= FEW_SEEDS // 2
    assert drivers == FEW_SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("first", range(FEW_SEEDS, FEW_SEEDS + MANY_SEEDS, CHUNK_SEEDS))
def test_older_epoch_is_used_in_place_in_many_seeds(
    make: Callable[[], Case], first: int
) -> None:
    """The same, in pieces that processes can share."""
    seeds = range(first, first + CHUNK_SEEDS)
    problems, fallen_back, _ = simulated(make.__name__, seeds)

    assert problems == []
    assert fallen_back >= CHUNK_SEEDS // 2
