"""Run a job in plain processes on this machine: real sockets, no Java."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.launch.bootstrapping import Bootstrapper
from millstream.launch.machine import share_of_cores

if TYPE_CHECKING:
    from millstream.launch.options import LaunchOptions
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext

__all__ = ["ProcessRun", "start", "worker_count"]

_WAIT_S = 0.02
_EXIT_S = 2.0


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one per core, unless otherwise asked for."""
    return options.workers or os.cpu_count() or 1


def start(
    deployment: Deployment,
    driver: DriverContext,
    options: LaunchOptions,
) -> ProcessRun:
    """Start one process per worker."""
    cores = share_of_cores(deployment.worker_count)
    bootstrapper = Bootstrapper(
        deployment, driver, cores=cores, is_insecure=options.insecure
    )
    return ProcessRun(bootstrapper)


class ProcessRun:
    """The workers of a job as child processes."""

    def __init__(self, bootstrapper: Bootstrapper) -> None:
        self.coordinator = bootstrapper.coordinator
        self._bootstrapper = bootstrapper
        self._children: dict[PeerId, subprocess.Popen[bytes]] = {}
        try:
            self._start(bootstrapper.worker_ids)
        except BaseException:
            self.close()
            raise

    def _start(self, workers: list[PeerId]) -> None:
        """Start a child for every worker; all of them begin before any is fed."""
        for worker in workers:
            self._children[worker] = _spawn()
        for worker in workers:
            bootstrap = pickle.dumps(self._bootstrapper.bootstrap(worker), protocol=5)
            _feed(self._children[worker], bootstrap)

    def step(self) -> None:
        """Step the coordinator and look after the children."""
        self.coordinator.step(_WAIT_S)
        wanted, self.coordinator.wanted_workers = self.coordinator.wanted_workers, []
        self._start(wanted)
        for worker, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[worker]
                self.coordinator.worker_exited(worker, _reason(child.pid, code))

    def close(self) -> None:
        """End every child that is still there."""
        self.coordinator.close()
        patience_s = _EXIT_S
        for child in self._children.values():
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(patience_s)
            except subprocess.TimeoutExpired:
                patience_s = 0.0
                child.kill()
                child.wait()


def _spawn() -> subprocess.Popen[bytes]:
    """Start a worker that waits for its bootstrap.

    Its session is its own: an interrupt from the keyboard is for the driver, which
    tells the workers; and a worker whose driver is gone ends by itself.
    """
    command = [sys.executable, "-m", "millstream.launch.worker_main"]
    return subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, start_new_session=True
    )


def _feed(child: subprocess.Popen[bytes], bootstrap: bytes) -> None:
    """Write the bootstrap; a child that has died already is noticed elsewhere."""
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(bootstrap)


def _reason(pid: int, code: int) -> str:
    if code < 0:
        return f"its process {pid} was ended by {signal.Signals(-code).name}"
    return f"its process {pid} ended with exit code {code}"
