"""What tests have in common that kill workers while something waits for its time.

There are two splits of rows, some of them late.  They come slowly, and the second half
does not come before a file says that there is a hurry: whoever is killed before that is
killed in the middle, however slow the machine is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.spark.driving import eventually
from tests.support.joining import Came
from tests.support.windowing import Arrival

import millstream as ms
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "COUNT",
    "DISORDER",
    "KEYS",
    "SETTINGS",
    "Row",
    "Rule",
    "Slowly",
    "arrivals",
    "came",
    "killed",
    "killed_in_turn",
    "row",
    "rows_of",
    "settled",
]

COUNT, KEYS = 600, 7
DISORDER = 6
SETTINGS: dict[str, Any] = {"snapshot_every_ms": 50, "source_idle_ms": 10}
Row = tuple[int, int]
"""Key and timestamp; no two rows have the same."""

Rule = Callable[[Row, int], int | None]
"""What a row and its timestamp promise; None for nothing new."""


def row(number: int) -> Row:
    """Return a row; every twentieth is far behind."""
    behind = 60 if number % 20 == 19 else number * 7 % DISORDER
    return number % KEYS, 3 * number - behind


def rows_of(rank: int, size: int) -> list[Row]:
    """Deal the rows out to the tasks of a source."""
    return [row(number) for number in range(rank, COUNT, size)]


class Slowly(ms.Source[Row]):
    """The rows, one at a time until there is a hurry, and only half of them."""

    def __init__(self, hurry: Path) -> None:
        self._hurry = hurry

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"part {i}", (i, task_count)) for i in range(task_count)]

    def open(self, split: ms.Split, offset: int, config: ms.Config) -> _SlowReader:
        return _SlowReader(rows_of(*split.payload), offset, self._hurry)


class _SlowReader(ms.SourceReader[Row]):
    def __init__(self, rows: list[Row], offset: int, hurry: Path) -> None:
        self._rows, self._offset, self._hurry = rows, offset, hurry
        self._rests = False

    def read(self, rows: int) -> list[Row] | None:
        wanted = rows if self._hurry.exists() else self._few()
        batch = self._rows[self._offset : self._offset + wanted]
        self._offset += len(batch)
        return batch if self._offset < len(self._rows) or batch else None

    def _few(self) -> int:
        """Return how many rows may come now: every other time one, and half of all."""
        self._rests = not self._rests
        return 0 if self._rests or 2 * self._offset >= len(self._rows) else 1

    @property
    def offset(self) -> int:
        return self._offset


def bounded() -> Rule:
    """Return the rule of a bound of disorder."""
    return lambda _row, time: time - DISORDER - 1


def arrivals(make_rule: Callable[[], Rule] = bounded) -> list[Arrival]:
    """Return all rows, each with what its split had promised before it."""
    made = []
    for rank in range(2):
        rule, promise = make_rule(), BEGINNING
        for key, time in rows_of(rank, 2):
            made.append(Arrival(key, time, time, promise))
            new = rule((key, time), time)
            promise = promise if new is None else max(promise, new)
    return made


def came() -> list[Came]:
    """Return all rows as the oracles of joins see them."""
    return [
        Came(a.key, a.time, a.value, a.promised if a.time <= a.promised else BEGINNING)
        for a in arrivals()
    ]


def killed_in_turn(job: ms.Job, hurry: Path) -> None:
    """Kill a worker and then another one, each when all operators have rows."""
    eventually(lambda: is_busy(job))
    for _ in range(2):
        settled(job)
        killed(job)
    hurry.touch()
    assert job.wait()
    assert all(recovery.epoch > 0 for recovery in job.recoveries())


def is_busy(job: ms.Job) -> bool:
    """Whether every stage has had rows but those that collect results."""
    return all(m.rows_in for m in job.metrics() if "collect" not in m.name)


def settled(job: ms.Job) -> None:
    """Wait until what is there now is in a snapshot."""
    seen = job.epoch
    # The epoch that is open may have been cut already.
    eventually(lambda: job.epoch >= seen + 2)


def killed(job: ms.Job) -> None:
    """Kill the worker that has been there for longest, and wait until the job goes on."""
    epoch, recoveries = job.epoch, len(job.recoveries())
    os.kill(eventually(job.worker_pids)[0], signal.SIGKILL)
    eventually(lambda: len(job.recoveries()) > recoveries and job.epoch > epoch)
