"""An endless source by the clock, and a log of how long its rows were on their way.

A row is its number and the millisecond at which it was due, since the run began.  A reader
that is opened again goes on by the same clock, so what it has missed comes at once.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import millstream as ms

__all__ = ["Ages", "Paced", "Row"]

Row = tuple[int, int]
_SPLITS = 2


class Paced(ms.Source[Row]):
    """So many rows in each second, from two splits."""

    timed_parts = _SPLITS

    def __init__(self, began_ns: int, rate: int) -> None:
        self.began_ns = began_ns
        self.rate = rate

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"clock {rank}", rank) for rank in range(_SPLITS)]

    def open(
        self, split: ms.Split, offset: int, config: ms.Config
    ) -> ms.SourceReader[Row]:
        return _Reader(self, split.payload, offset)


class _Reader(ms.SourceReader[Row]):
    def __init__(self, source: Paced, rank: int, offset: int) -> None:
        self._began_ns = source.began_ns
        self._rate = source.rate / _SPLITS
        self._rank = rank
        self._offset = offset

    def read(self, rows: int) -> list[Row]:
        passed_s = (time.monotonic_ns() - self._began_ns) / 1e9
        end = min(int(passed_s * self._rate), self._offset + rows)
        first, self._offset = self._offset, max(end, self._offset)
        return [
            (number * _SPLITS + self._rank, int(number / self._rate * 1000))
            for number in range(first, self._offset)
        ]

    @property
    def offset(self) -> int:
        return self._offset


class Ages:
    """Notes how old rows are, a line of time, median and greatest age each second."""

    def __init__(self, directory: Path, began_ns: int) -> None:
        self._directory = directory
        self._began_ns = began_ns
        self._second = 0
        self._ages: list[float] = []

    def note(self, due_ms: int) -> None:
        """Note a row that has arrived."""
        now_ns = time.monotonic_ns()
        second = now_ns // 10**9
        if second > self._second and self._ages:
            ages = sorted(self._ages)
            line = f"{self._second} {ages[len(ages) // 2]:.1f} {ages[-1]:.1f}\n"
            with Path(self._directory, f"ages-{os.getpid()}").open("a") as file:
                file.write(line)
            self._ages.clear()
        self._second = second
        self._ages.append((now_ns - self._began_ns) / 1e6 - due_ms)

    @staticmethod
    def read(directory: Path, since_s: float) -> list[float]:
        """Return the medians of the seconds since then by the clock, of all processes."""
        found = []
        for path in directory.glob("ages-*"):
            for line in path.read_text().splitlines():
                second, middle, *_ = line.split()
                if int(second) >= since_s:
                    found.append(float(middle))
        return found
