"""Run a job in plain processes on this machine: real sockets, no Java."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from millstream.launch.recruit import Recruiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.launch.options import LaunchOptions
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment

__all__ = ["ProcessRun", "start", "worker_count"]

_WAIT_S = 0.02
_EXIT_S = 2.0


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one per core, unless otherwise asked for."""
    return options.workers or os.cpu_count() or 1


def start(
    deployment: Deployment,
    commit: Callable[[], None],
    options: LaunchOptions,  # noqa: ARG001 - as the other launchers
) -> ProcessRun:
    """Start one process per worker."""
    return ProcessRun(Recruiter(deployment, commit))


class ProcessRun:
    """The workers of a job as child processes."""

    def __init__(self, recruiter: Recruiter) -> None:
        self.coordinator = recruiter.coordinator
        self._children: dict[PeerId, subprocess.Popen[bytes]] = {}
        for worker in recruiter.worker_ids:
            command = [sys.executable, "-m", "millstream.launch.resident"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - ours
            assert child.stdin is not None
            pickle.dump(recruiter.bootstrap(worker), child.stdin, protocol=5)
            child.stdin.close()
            self._children[worker] = child

    def step(self) -> None:
        """Step the coordinator and look after the children."""
        self.coordinator.step(_WAIT_S)
        for worker, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[worker]
                self.coordinator.worker_exited(worker, _reason(child.pid, code))

    def close(self) -> None:
        """End every child that is still there."""
        self.coordinator.close()
        for child in self._children.values():
            try:
                child.wait(_EXIT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _reason(pid: int, code: int) -> str:
    if code < 0:
        return f"its process {pid} was ended by {signal.Signals(-code).name}"
    return f"its process {pid} ended with exit code {code}"
