"""What a worker needs to know to do its part of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.plan.stages import Stage, StagePlan
    from millstream.state.manifest import Fingerprints
    from millstream.state.settings import StateSettings

__all__ = ["Deployment"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The flow as every worker of a job gets it.

    Attributes
    ----------
    job
        Unique name of this run.
    worker_count
        Number of workers that were asked for, and of task indexes.
    splits
        Splits of every source, by node id; made once, in the driver.
    run
        Names this start of the driver; no two starts have the same.
    plan_hash
        The same for flows that do the same to the same operators.
    state
        How state is kept; None for a job without snapshots.
    state_directory, state_key
        Where snapshots are, and the key that proves them.
    sources
        What the sources were asked to read, by operator.
    fingerprints
        What stands under the name of each operator that keeps something.
    migrations
        What has changed since the snapshot that the job begins with, in words.
    """

    job: str
    stages: StagePlan
    worker_count: int
    splits: dict[int, tuple[Split, ...]]
    config: Config
    run: str = ""
    plan_hash: str = ""
    state: StateSettings | None = None
    state_directory: str = field(default="", repr=False)
    state_key: bytes = field(default=b"", repr=False)
    sources: dict[str, str] = field(default_factory=dict)
    fingerprints: Fingerprints = field(default_factory=dict)
    migrations: tuple[str, ...] = ()

    def tasks(self, stage: Stage | None = None) -> frozenset[tuple[int, int]]:
        """Return stage and index of all tasks, or of those of one stage."""
        stages = self.stages.stages if stage is None else (stage,)
        width = self.worker_count
        return frozenset(
            (each.id, index)
            for each in stages
            for index in range(min(each.width or width, width))
        )
