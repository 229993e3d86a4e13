"""A run: the coordinator of one job, and whatever else this process must drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.runtime.coordinator import Coordinator

__all__ = ["Run"]


class Run(Protocol):
    """What a launcher returns once it has begun to start workers."""

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the job."""
        ...

    def step(self) -> None:
        """Move the job forward; may wait a few milliseconds when there is nothing."""
        ...

    def close(self) -> None:
        """Leave no process, thread, socket or file behind."""
        ...
