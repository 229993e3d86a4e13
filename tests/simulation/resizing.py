"""Simulated jobs whose driver dies, and goes on with another number of workers each time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.job import Phase
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import Fault, FaultKind, draw_options
from millstream.simulation.run import Simulator
from millstream.simulation.seed import stream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.flows import Case

    from millstream.config import Config
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import SwarmOptions

WORKERS_MAX = 5
DEATHS_MAX = 3
EPOCH_MAX = 8


class Resizing(Cluster):
    """Goes on with another number of workers whenever a driver is started again."""

    def __init__(
        self, deployment: Deployment, options: SwarmOptions, seed: int
    ) -> None:
        self._widths = stream(seed, "widths")
        self.sites = []
        super().__init__(deployment, options, seed)

    def _start_driver(self) -> None:
        if self.sites:
            workers = self._widths.randint(1, WORKERS_MAX)
            self.options = replace(self.options, workers=workers)
            self.deployment = replace(self.deployment, worker_count=workers)
        super()._start_driver()


def resized(
    case: Case, seeds: Iterable[int], cluster_class: type[Cluster] = Resizing
) -> list[str]:
    """Return what went wrong in these seeds, one text for each."""
    config = case.flow.config({})

    def make(config: Config, workers: int) -> Deployment:
        return deploy(
            case.flow.plan, config, workers, SnapshotContext("simulation", "")
        )

    simulator = Simulator(
        make, config, check=case.check, cluster_class=cluster_class, is_keeping=True
    )
    found = []
    for seed in seeds:
        options = draw_options(seed, config, "benign", is_keeping=True)
        outcome = simulator.run_with(_with_deaths(options, seed), seed)
        if outcome.problems or outcome.outcome != "succeeded":
            problems = "; ".join(outcome.problems) or outcome.message
            found.append(f"{case.flow.name}, seed {seed}: {problems}")
    return found


def _with_deaths(options: SwarmOptions, seed: int) -> SwarmOptions:
    """Let the driver die a few times, each soon after some epoch."""
    rng = stream(seed, "deaths")
    deaths = tuple(
        Fault(
            round(10 ** rng.uniform(3, 7.5)),
            FaultKind.CRASH,
            COORDINATOR,
            is_fatal=True,
            phase=Phase.REGISTERING,
            epoch=rng.randint(1, EPOCH_MAX),
        )
        for _ in range(rng.randint(1, DEATHS_MAX))
    )
    return replace(options, faults=options.faults + deaths)
