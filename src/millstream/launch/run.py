"""A run: the coordinator of one job, and whatever else this process must drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.launch.options import LaunchOptions
    from millstream.runtime.coordinator import Coordinator
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext

__all__ = ["Launcher", "Run"]


class Run(Protocol):
    """What a launcher returns once it has begun to start workers."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the job."""
        ...

    def step(self) -> None:
        """Move the job forward; may wait a few milliseconds when there is nothing.

        That is a step of the coordinator.  Then the launcher takes `wanted_workers` off it
        and starts them, and says by `worker_exited` why a worker of `lost_workers` is
        gone, as soon as it knows; it says so of every worker whose process has ended.
        """
        ...

    def close(self) -> None:
        """Leave no process, thread, socket or file behind."""
        ...


class Launcher(Protocol):
    """What a module must have to start workers: `local`, `processes`, `spark`."""

    def worker_count(self, options: LaunchOptions) -> int:
        """Return how many workers a job gets."""
        ...

    def start(
        self, deployment: Deployment, driver: DriverContext, options: LaunchOptions
    ) -> Run:
        """Begin a job."""
        ...
