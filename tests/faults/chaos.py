"""Kill workers, executors and the driver of a running job at random, and look closely.

    python -m tests.faults.chaos --kills 50 --seconds 240      (or: make chaos)

The job numbers unique ids by two keys, one after the other, and writes them to files
(`chaos_flow`).  While it runs, workers are killed or frozen and woken later, executors
and the driver are killed; a driver is started again with the same directory.  What is
committed must at every moment be a beginning without gaps, and at the end everything:
no id lost, none twice, and for every key in order.

A process is killed only if it descends from a driver or a cluster that was started here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
from tests.faults import chaos_flow as flow
from tests.spark.driving import driver_environment, eventually

from millstream.testing.standalone import StandaloneCluster

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Chaos", "Place", "check_output", "end_input"]

_PROGRAM = Path(flow.__file__)
_UP_WITHIN_S = 120.0
_END_WITHIN_S = 300.0
_FROZEN_S = (1.0, 6.0)
_BETWEEN_S = (0.2, 3.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the job runs, and what may be killed there, by weight."""

    on: str
    master: str = ""
    cluster: StandaloneCluster | None = None
    weights: dict[str, int] = field(
        default_factory=lambda: {"worker": 6, "freeze": 2, "leader": 1}
    )

    @property
    def arguments(self) -> list[str]:
        """What the driver program is told."""
        return [self.on, self.master] if self.master else [self.on]


class Chaos:
    """One run: a driver, what was done to it, and what it must have written."""

    def __init__(self, directory: Path, place: Place, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._directory = directory
        self._place = place
        self._random = random.Random(seed)
        self._pause = threading.Event()
        self._frozen: list[tuple[float, psutil.Process]] = []
        flow.begin(directory)
        self._driver = self._start_driver()

    @property
    def kills(self) -> int:
        """How many processes were killed or frozen."""
        return sum(self.done.values())

    def run_chaos(self, kills: int, seconds: float) -> None:
        """Kill until there were so many kills and so much time has passed."""
        end_s = time.monotonic() + seconds
        kinds, weights = zip(*self._place.weights.items(), strict=True)
        while self.kills < kills or time.monotonic() < end_s:
            self._wait(self._random.uniform(*_BETWEEN_S))
            (kind,) = self._random.choices(kinds, weights)
            if getattr(self, f"_{kind}")():
                self.done[kind] += 1
                print(f"{self.kills}: {kind}, {self._seen()}", flush=True)  # noqa: T201

    def conclude(self) -> list[str]:
        """Let the job end; check all that it wrote; return why it recovered at last."""
        ids = end_input(self._directory)
        deadline_s = time.monotonic() + _END_WITHIN_S
        while self._driver.poll() is None:
            assert time.monotonic() < deadline_s, f"it does not end: {self._seen()}"
            self._wake()
            self._pause.wait(0.1)
        self._check_driver(0)
        check_output(self._directory / flow.OUT, ids)
        counted = json.loads((self._directory / flow.COUNTED).read_text())
        assert sum(count for _, count in counted["counts"]) == ids
        return list(counted["recoveries"])

    def close(self) -> None:
        """Leave nothing behind."""
        self._driver.kill()
        self._driver.wait()
        for _, process in self._frozen:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    # What is done to the job

    def _worker(self) -> bool:
        """Kill a worker."""
        victim = self._some_worker()
        if victim is not None:
            victim.kill()
        return victim is not None

    def _freeze(self) -> bool:
        """Stop a worker, for less or for longer than its lease."""
        victim = self._some_worker()
        if victim is None:
            return False
        victim.suspend()
        wake_s = time.monotonic() + self._random.uniform(*_FROZEN_S)
        self._frozen.append((wake_s, victim))
        return True

    def _executor(self) -> bool:
        """Kill an executor, which takes its workers with it."""
        assert self._place.cluster is not None
        pids = self._place.cluster.executor_pids()
        if pids:
            os.kill(self._random.choice(pids), signal.SIGKILL)
        return bool(pids)

    def _leader(self) -> bool:
        """Kill the driver, look at what it has committed, and start it again."""
        self._driver.kill()
        self._check_driver(-signal.SIGKILL)
        check_output(self._directory / flow.OUT)
        self._start_driver()
        return True

    def _some_worker(self) -> psutil.Process | None:
        """Return a worker that runs, if it is known and certainly ours."""
        roots = [self._driver.pid]
        if self._place.cluster is not None:
            roots += self._place.cluster.worker_pids
        found = [p for p in _family(roots) if p.pid in self._seen().get("pids", [])]
        return self._random.choice(found) if found else None

    # The driver

    def _start_driver(self) -> subprocess.Popen[bytes]:
        (self._directory / flow.WORKERS_FILE).unlink(missing_ok=True)
        with (self._directory / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, _PROGRAM, self._directory, *self._place.arguments],
                stdout=log,
                stderr=log,
                env=driver_environment(),
            )
        self._driver = driver
        eventually(self._is_up, _UP_WITHIN_S)
        return driver

    def _is_up(self) -> bool:
        self._check_running()
        return self._seen().get("status") == "running"

    def _check_running(self) -> None:
        assert self._driver.poll() is None, f"the driver ended: {self._log()}"

    def _check_driver(self, code: int) -> None:
        assert self._driver.wait() == code, self._log()

    def _seen(self) -> dict[str, Any]:
        """Return what the driver said of its job last."""
        try:
            found: dict[str, Any] = json.loads(
                (self._directory / flow.WORKERS_FILE).read_text()
            )
        except FileNotFoundError:
            return {}
        return found

    def _log(self) -> str:
        return (self._directory / "driver.log").read_text(errors="replace")[-4000:]

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._check_running()
            self._wake()
            self._pause.wait(0.05)

    def _wake(self) -> None:
        now_s = time.monotonic()
        for wake_s, process in self._frozen:
            if wake_s <= now_s:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        self._frozen = [frozen for frozen in self._frozen if frozen[0] > now_s]


def _family(roots: Iterable[int]) -> list[psutil.Process]:
    """Return all processes below these."""
    found = []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            found += psutil.Process(root).children(recursive=True)
    return found


def end_input(directory: Path, splits: int = flow.WORKERS) -> int:
    """Let the ids of a run end soon; return how many there will have been."""
    began_ns = int((directory / flow.BEGAN).read_text())
    passed_s = (time.monotonic_ns() - began_ns) / 1e9
    limit = int((passed_s + 2) * flow.RATE)
    flow.whole_file(directory / flow.LIMIT, str(limit))
    return limit * splits


def check_output(
    directory: Path, ids: int | None = None, splits: int = flow.WORKERS
) -> int:
    """Check what is committed; it must be a beginning, or all `ids`; return its length.

    A second key is always written by the same task, and a task's parts are named in the
    order of epochs; so the order of the names is the order in which a key was written.
    """
    numbers: Counter[tuple[str, int]] = Counter()
    last: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    for path in sorted(directory.glob("part-*"), key=lambda path: path.stem):
        for line in path.read_text().splitlines():
            second, number, first_count, second_count = map(int, line.split())
            _check_next(numbers, ("second", second), second_count, path, line)
            first = number % flow.FIRST_KEYS
            _check_next(numbers, ("first", first), first_count, path, line)
            lane = (first, number % splits)
            before = last.get(lane, -1)
            assert before < number, f"{path.name}: {line!r} comes after id {before}"
            last[lane] = number
            seen.add(number)
    assert len(seen) == numbers.total() // 2, "an id is there twice"
    assert ids is None or seen == set(range(ids)), f"of {ids} only {len(seen)}"
    return len(seen)


def _check_next(
    numbers: Counter[tuple[str, int]],
    key: tuple[str, int],
    number: int,
    path: Path,
    line: str,
) -> None:
    numbers[key] += 1
    place = f"{path.name}: {line!r}"
    assert numbers[key] == number, f"{place} is number {numbers[key]} of {key}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--directory", type=Path, help="keep everything there")
    parser.add_argument("--on", choices=("processes", "local", "cluster"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    with ExitStack() as stack:
        directory = options.directory
        if directory is None:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="chaos-")))
        chaos = Chaos(directory, _place(options.on or "cluster", stack), options.seed)
        stack.callback(chaos.close)
        chaos.run_chaos(options.kills, options.seconds)
        chaos.conclude()
        rows = check_output(directory / flow.OUT)
    done = ", ".join(f"{count} {kind}" for kind, count in chaos.done.items())
    print(f"{chaos.kills} kills ({done}): {rows} ids, all there, once, in order")  # noqa: T201


def _place(name: str, stack: ExitStack) -> Place:
    if name == "processes":
        return Place("processes")
    if name == "local":
        return Place("spark", "local[4]")
    cluster = stack.enter_context(StandaloneCluster(workers=2, cores=2, memory="1g"))
    weights = {"worker": 6, "freeze": 2, "executor": 2, "leader": 1}
    return Place("spark", cluster.master, cluster, weights)


if __name__ == "__main__":
    main()
