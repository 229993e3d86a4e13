"""Run a whole job in one thread of this process: no Java, no sockets.

The workers and the coordinator are those of every other launcher; they take turns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.launch.options import LaunchOptions
    from millstream.runtime.deployment import Deployment

__all__ = ["LocalRun", "start", "worker_count"]

_NO_LEASE_MS = 10**9
"""In one thread a silent worker is a busy one, perhaps at a breakpoint: none is lost."""

_IDLE_S = 0.0005
"""Longest pause when nobody has anything to do; a cancellation ends it."""


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one, unless more were asked for."""
    return options.workers or 1


def start(
    deployment: Deployment,
    commit: Callable[[], None],
    options: LaunchOptions,  # noqa: ARG001 - as the other launchers
) -> LocalRun:
    """Begin a job."""
    return LocalRun(deployment, commit)


class LocalRun:
    """All workers of a job, stepped one after the other."""

    def __init__(self, deployment: Deployment, commit: Callable[[], None]) -> None:
        clock = SystemClock()
        hub = Hub()
        config = replace(deployment.config, lease_ms=_NO_LEASE_MS)
        deployment = replace(deployment, config=config)
        ids = [PeerId(1 + index) for index in range(deployment.worker_count)]
        self.coordinator = Coordinator(
            ids, hub.join(COORDINATOR), clock, config, commit
        )
        self._workers = [
            Worker(own, deployment, hub.join(own), clock, ("", 0), pid=os.getpid())
            for own in ids
        ]
        self._pause = threading.Event()

    def step(self) -> None:
        """Give everybody a turn."""
        is_working = self.coordinator.step()
        for worker in self._workers:
            if worker.is_over:
                worker.close()
            else:
                is_working |= worker.step()
        if not is_working and not self.coordinator.is_over:
            wait_s = min((w.wait_s() for w in self._workers), default=0.0)
            self._pause.wait(min(wait_s, _IDLE_S))

    def close(self) -> None:
        """Close every worker and the coordinator."""
        for worker in self._workers:
            worker.close()
        self.coordinator.close()
