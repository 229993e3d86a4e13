"""Run a whole job in one thread of this process: no Java, no sockets.

The workers and the coordinator are those of every other launcher; they take turns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.launch.keeping import worker_store
from millstream.plan.iteration import at_work
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.background import Inline, Threaded
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from millstream.launch.options import LaunchOptions
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import Backing

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
    backing: Backing,
    options: LaunchOptions,  # noqa: ARG001 - as the other launchers
) -> LocalRun:
    """Begin a job."""
    return LocalRun(deployment, backing)


class LocalRun:
    """All workers of a job, stepped one after the other."""

    def __init__(self, deployment: Deployment, backing: Backing) -> None:
        self._clock = SystemClock()
        self._hub = Hub()
        config = replace(deployment.config, lease_ms=_NO_LEASE_MS)
        self._deployment = replace(deployment, config=config)
        ids = [PeerId(1 + index) for index in range(deployment.worker_count)]
        self.coordinator = Coordinator(
            ids,
            self._deployment,
            self._hub.join(COORDINATOR),
            self._clock,
            background=Threaded("millstream-driver-files"),
            backing=backing,
        )
        self._workers = [self._worker(own) for own in ids]
        self._pause = threading.Event()

    def _worker(self, own: PeerId) -> Worker:
        store = worker_store(self._deployment)
        return Worker(
            own,
            self._deployment,
            self._hub.join(own),
            self._clock,
            ("", 0),
            pid=os.getpid(),
            background=Inline() if store is None else Threaded(f"millstream-{own}"),
            store=store,
        )

    def step(self) -> None:
        """Give everybody a turn."""
        is_working = self.coordinator.step()
        while self.coordinator.wanted_workers:
            self._workers.append(self._worker(self.coordinator.wanted_workers.pop()))
        for worker in self._workers:
            if worker.is_over:
                worker.close()
            else:
                with at_work(worker):
                    is_working |= worker.step()
        if not is_working and not self.coordinator.is_over:
            wait_s = min((w.wait_s() for w in self._workers), default=0.0)
            self._pause.wait(min(wait_s, _IDLE_S))

    def close(self) -> None:
        """Close every worker and the coordinator."""
        for worker in self._workers:
            worker.close()
        self.coordinator.close()
