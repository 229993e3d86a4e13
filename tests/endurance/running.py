"""One endless job in a process of its own: started, looked at, hurt, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from tests.endurance.driver import STATE, STATUS
from tests.endurance.paced import Ages
from tests.spark.driving import driver_environment

__all__ = ["Running", "Sample"]

MEBIBYTE = 1 << 20
GROWN_UP_S = 45.0
"""A younger worker still fills its caches, and does not count."""
END_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a job at a moment, in seconds since the run began."""

    job: str
    at_s: float
    figures: dict[str, float]


@dataclass(slots=True)
class Running:
    """A job that runs."""

    name: str
    directory: Path
    on: str
    keys: int
    speed: int = 1
    grown_up_s: float = GROWN_UP_S
    kills: int = 0
    began_s: float = field(default_factory=time.monotonic)
    process: subprocess.Popen[bytes] = field(init=False)
    _last_epoch: int = 0
    _known: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.temporary.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.endurance.driver", self.name]
        command += [str(self.directory), self.on, str(self.keys), str(self.speed)]
        with (self.directory / "said").open("wb") as said:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=driver_environment(TMPDIR=str(self.temporary)),
            )

    @property
    def temporary(self) -> Path:
        """The temporary directory of its processes; nothing may stay there."""
        return self.directory / "tmp"

    @property
    def status(self) -> dict[str, Any]:
        """What the driver has written down last; empty before that."""
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.directory / STATUS).read_text())
            return found
        return {}

    @property
    def said(self) -> str:
        return (self.directory / "said").read_text()

    def kill_worker(self) -> bool:
        """Kill the oldest worker of a job that has begun; return whether that was done."""
        status = self.status
        pids: list[int] = status["workers"] if status.get("epoch") else []
        with suppress(ProcessLookupError, psutil.NoSuchProcess, ValueError):
            victim = min(pids, key=lambda pid: psutil.Process(pid).create_time())
            os.kill(victim, signal.SIGKILL)
            self.kills += 1
            return True
        return False

    def sample(self, since_s: float) -> Sample | None:
        """Measure everything; None before the first epoch."""
        status = self.status
        if not status.get("epoch") or self.process.poll() is not None:
            return None
        figures = self._of_processes(status["workers"]) | self._of_disk()
        fresh = {"pause ms": "pauses_ms", "snapshot ms": "snapshots_ms"}
        for figure, name in fresh.items():
            values = [v for epoch, v in status[name] if epoch > self._last_epoch]
            if values:
                figures[figure] = _middle(values)
        self._last_epoch = status["epoch"]
        now_s = time.monotonic()
        ages = Ages.read(self.directory, now_s - since_s - 1)
        if ages:
            figures["latency ms"] = _middle(ages)
        return Sample(self.name, now_s - self.began_s, figures)

    def _of_processes(self, workers: list[int]) -> dict[str, float]:
        figures: dict[str, float] = {}
        driver = psutil.Process(self.process.pid)
        figures["driver MB"] = driver.memory_info().rss / MEBIBYTE
        grown_up = []
        for pid in workers:
            with suppress(psutil.NoSuchProcess):
                worker = psutil.Process(pid)
                age_s = datetime.now(UTC).timestamp() - worker.create_time()
                if age_s > self.grown_up_s:
                    grown_up.append(worker)
        with suppress(psutil.NoSuchProcess, ValueError):
            rss = max(worker.memory_info().rss for worker in grown_up)
            fds = max(worker.num_fds() for worker in grown_up)
            threads = max(worker.num_threads() for worker in grown_up)
            figures |= {
                "worker MB": rss / MEBIBYTE,
                "descriptors": fds,
                "threads": threads,
            }
        return figures

    def _of_disk(self) -> dict[str, float]:
        sizes = []
        # Files and directories go while this looks at them.
        for folder, _, names in os.walk(self.directory / STATE):
            for name in names:
                with suppress(FileNotFoundError):
                    sizes.append(Path(folder, name).stat().st_size)
        scratch = list(self.temporary.glob("millstream-state-*"))
        return {
            "state files": len(sizes),
            "state MB": sum(sizes) / MEBIBYTE,
            "scratch dirs": len(scratch),
        }

    def close(self) -> list[str]:
        """End the job; return what was not as it should be."""
        assert self.process.stdin is not None
        status = self.status
        self.process.stdin.close()
        try:
            code = self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"{self.name} did not end within {END_WITHIN_S:.0f} s"]
        problems = []
        if code or "cancelled" not in self.said:
            problems.append(f"{self.name} ended with {code}: {self.said[-2000:]}")
        if status.get("recoveries", 0) < bool(self.kills):
            problems.append(f"{self.name} lost a worker and did not recover")
        left = [path.name for path in self.temporary.glob("millstream-state-*")]
        if left:
            problems.append(f"{self.name} left {left} behind")
        return problems


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
