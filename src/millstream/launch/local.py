"""Run a whole job in one thread of this process: no Java, no sockets.

The workers and the coordinator are those of every other launcher; they take turns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from millstream.launch.snapshot_context import worker_store
from millstream.plan.iteration import worker_scope
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.runtime.background import Inline, Threaded, for_driver
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub
from millstream.runtime.memory import resident_bytes
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from millstream.launch.options import LaunchOptions, ManualTime
    from millstream.ports import Background
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext

__all__ = ["LocalRun", "start", "worker_count"]

_NO_LEASE_MS = 10**9
"""In one thread a silent worker is a busy one, perhaps at a breakpoint: none is lost."""

_LEAP_MS = 60_000
"""Most that a clock set by hand goes on at once; it need not stop at every heartbeat."""

_IDLE_S = 0.0005
"""Longest pause when nobody has anything to do; a cancellation ends it."""


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one, unless more were asked for."""
    return options.workers or 1


def start(
    deployment: Deployment, driver: DriverContext, options: LaunchOptions
) -> LocalRun:
    """Begin a job."""
    return LocalRun(deployment, driver, options.clock)


class LocalRun:
    """All workers of a job, stepped one after the other.

    Parameters
    ----------
    manual
        A clock that is set by hand.  Then nobody waits: when nobody has anything to do,
        it is set to the time at which somebody has.
    """

    def __init__(
        self,
        deployment: Deployment,
        driver: DriverContext,
        manual: ManualTime | None = None,
    ) -> None:
        self._manual = manual
        self._clock = manual or SystemClock()
        self._hub = Hub()
        config = replace(deployment.config, lease_ms=_NO_LEASE_MS)
        if manual is not None:
            config = replace(config, heartbeat_ms=_LEAP_MS)
        self._deployment = replace(deployment, config=config)
        ids = [PeerId(1 + index) for index in range(deployment.worker_count)]
        self.coordinator = Coordinator(
            ids,
            self._deployment,
            self._hub.join(COORDINATOR),
            self._clock,
            background=for_driver() if manual is None else Inline(),
            driver=driver,
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
            background=(
                Inline() if store is None else self._background(f"millstream-{own}")
            ),
            store=store,
            resident_bytes=resident_bytes,
        )

    def _background(self, name: str) -> Background:
        """Return who writes files; other threads know nothing of a clock set by hand."""
        return Threaded(name) if self._manual is None else Inline()

    def step(self) -> None:
        """Give everybody a turn."""
        is_working = self.coordinator.step()
        while self.coordinator.wanted_workers:
            self._workers.append(self._worker(self.coordinator.wanted_workers.pop()))
        for worker in self._workers:
            if worker.is_over:
                worker.close()
            else:
                with worker_scope(worker):
                    is_working |= worker.step()
        if not is_working and not self.coordinator.is_over:
            self._wait(min((w.wait_s() for w in self._workers), default=0.0))

    def _wait(self, wait_s: float) -> None:
        if self._manual is None:
            self._pause.wait(min(wait_s, _IDLE_S))
        else:
            self._manual.advance(timedelta(seconds=max(wait_s, _IDLE_S)))

    def close(self) -> None:
        """Close every worker and the coordinator."""
        for worker in self._workers:
            worker.close()
        self.coordinator.close()
