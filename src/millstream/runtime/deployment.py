"""What a worker needs to know to do its part of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.plan.stages import StagePlan
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
    """

    job: str
    stages: StagePlan
    worker_count: int
    splits: dict[int, tuple[Split, ...]]
    config: Config
    run: str = ""
    plan_hash: str = ""
    state: StateSettings | None = None
    state_directory: str = ""
    state_key: bytes = b""
