"""What a worker needs to know to do its part of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.plan.stages import StagePlan

__all__ = ["Deployment"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The flow as every worker of a job gets it.

    Attributes
    ----------
    job
        Unique name of this run.
    splits
        Splits of every source, by node id; made once, in the driver.
    """

    job: str
    stages: StagePlan
    worker_count: int
    splits: dict[int, tuple[Split, ...]]
    config: Config
