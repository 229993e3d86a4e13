"""The driver program of the chaos runs: unique ids through two shuffles into files.

    python tests/faults/chaos_flow.py DIRECTORY processes|spark [MASTER]

Started again with the same directory it goes on.  It writes down who its workers are,
for whoever wants to kill them, and at its end what it has counted.  When ids are due
depends on the clock and on a file with the time at which the run began; where they end
on a file that appears one day, with more ids in it than ever were due.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BEGAN", "COUNTED", "FIRST_KEYS", "LIMIT", "OUT", "RATE", "SECOND_KEYS"]
__all__ += [
    "SETTINGS",
    "WORKERS",
    "WORKERS_FILE",
    "Ids",
    "begin",
    "build",
    "whole_file",
]

WORKERS = 2
RATE = 2000
"""Ids that become due in each split, each second."""
FIRST_KEYS, SECOND_KEYS = 35, 7
"""The first key of an id decides its second, so the order by first key can be kept."""
COUNT_KEYS = 11
BEGAN, LIMIT, OUT, COUNTED, WORKERS_FILE = "began", "limit", "out", "counted", "workers"
LOOK_S = 0.1
SETTINGS: dict[str, Any] = {
    "snapshot_every_ms": 300,
    "heartbeat_ms": 200,
    "lease_ms": 2_000,
    "stop_grace_ms": 1_000,
}


def begin(directory: Path) -> None:
    """Let the time begin from which on ids become due."""
    (directory / BEGAN).write_text(str(time.monotonic_ns()))


def whole_file(path: Path, text: str) -> None:
    """Let a file appear as a whole."""
    hidden = path.with_name(f"{path.name}.new")
    hidden.write_text(text)
    hidden.replace(path)


class Ids(ms.Source[int]):
    """Split `rank` of `size` has the ids rank, rank + size, rank + 2 size, ..."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"{rank}", (rank, task_count)) for rank in range(task_count)]

    def open(
        self, split: ms.Split, offset: int, config: ms.Config
    ) -> ms.SourceReader[int]:
        rank, size = split.payload
        return IdsReader(self._directory, rank, size, offset)


class IdsReader(ms.SourceReader[int]):
    """Returns ids as they become due."""

    def __init__(self, directory: Path, rank: int, size: int, offset: int) -> None:
        self._began_ns = int((directory / BEGAN).read_text())
        self._limit = directory / LIMIT
        self._rank = rank
        self._size = size
        self._offset = offset

    def read(self, rows: int) -> list[int] | None:
        passed_s = (time.monotonic_ns() - self._began_ns) / 1e9
        end = int(passed_s * RATE)
        if self._limit.exists():
            end = min(end, int(self._limit.read_text()))
            if self._offset >= int(self._limit.read_text()):
                return None
        first, self._offset = self._offset, min(end, self._offset + rows)
        return [i * self._size + self._rank for i in range(first, self._offset)]

    @property
    def offset(self) -> int:
        return self._offset


def counting(keep: Callable[[Any, int], Any]) -> Callable[[int, Any], tuple[int, Any]]:
    """Return a function for `map_with_state` that numbers the values of a key."""
    return lambda count, value: (count + 1, keep(value, count + 1))


def build(
    directory: Path, roll_every: str = "1s"
) -> tuple[ms.Flow, ms.ResultHandle[Any]]:
    """Return a flow that writes `second key, id, number by first and second key`."""
    flow = ms.Flow("chaos")
    ids = flow.read(Ids(directory))
    first = ids.key_by(lambda i: i % FIRST_KEYS)
    numbered = first.map_with_state(0, counting(lambda i, n: (i, n))).drop_key()
    second = numbered.key_by(lambda pair: pair[0] % SECOND_KEYS)
    twice = second.map_with_state(0, counting(lambda pair, n: (*pair, n))).unkey()
    lines = twice.map(lambda row: f"{row[0]} {row[1][0]} {row[1][1]} {row[1][2]}")
    lines.write_text(directory / OUT, roll_every=roll_every)
    return flow, ids.group_by(lambda i: i % COUNT_KEYS).count().collect()


def main() -> None:
    directory, on = Path(sys.argv[1]), sys.argv[2]
    flow, counts = build(directory)
    where: dict[str, Any] = {"on": on}
    if len(sys.argv) > 3:
        where["master"] = sys.argv[3]
    job = flow.start(
        **where,
        workers=WORKERS,
        state=directory / "state",
        **SETTINGS,
    )
    while not job.wait(LOOK_S):
        seen = {"pids": job.worker_pids(), "status": job.status(), "epoch": job.epoch}
        whole_file(directory / WORKERS_FILE, json.dumps(seen))
    recoveries = [recovery.reason for recovery in job.recoveries()]
    counted = {"counts": counts.result(), "recoveries": recoveries}
    whole_file(directory / COUNTED, json.dumps(counted))


if __name__ == "__main__":
    main()
