"""Sources that give so many rows with every epoch, and jobs that are left in the middle.

A job can be left at a certain epoch or round without waiting for a clock, and go on with
other workers or as another program.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.spark.driving import eventually

import millstream as ms
from millstream.connectors.base import Source, SourceReader, Split

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.config import Config

__all__ = [
    "LENGTHS",
    "SETTINGS",
    "Pace",
    "Paced",
    "Programs",
    "has_ended",
    "in_epoch",
    "in_round",
]

SETTINGS: dict[str, Any] = {
    "on": "local",
    "snapshot_every": "2ms",
    "source_idle_ms": 1,
    "source_batch_rows": 2,
    "local_channel_batches": 1,
    "buffer": ms.fixed(1),
}
LENGTHS = (2, 60, 2)
PER_EPOCH = 3


@dataclass
class Pace:
    """How many epochs a job has completed; rows come as if there were that many.

    The longest split has a row that comes only when the pace is over, so that a job which
    is to be left does not end before, however slow the machine is.
    """

    job: ms.Job | None = None
    is_over: bool = False

    @property
    def rows(self) -> int:
        epoch = 0 if self.job is None else self.job.epoch
        if self.is_over:
            return 10**9
        return min(PER_EPOCH * (1 + epoch), max(LENGTHS) - 1)


@dataclass
class _PacedReader(SourceReader[int]):
    pace: Pace
    first: int
    length: int
    position: int

    def read(self, rows: int) -> list[int] | None:
        if self.position >= self.length:
            return None
        stop = min(self.position + rows, self.length, self.pace.rows)
        found = list(range(self.first + self.position, self.first + stop))
        self.position = max(stop, self.position)
        return found

    @property
    def offset(self) -> int:
        return self.position


@dataclass
class Paced(Source[int]):
    """Splits of different lengths, a few rows with every epoch."""

    pace: Pace
    lengths: tuple[int, ...] = LENGTHS
    is_bounded = False

    def splits(self, task_count: int) -> list[Split]:
        del task_count
        return [Split(f"split {i}", i) for i in range(len(self.lengths))]

    def open(self, split: Split, offset: int, config: Config) -> SourceReader[int]:
        del config
        first = sum(self.lengths[: split.payload])
        return _PacedReader(self.pace, first, self.lengths[split.payload], offset)


@dataclass
class Programs:
    """Makes the flow for each run of one job."""

    build: Callable[..., None]
    directory: Path
    pace: Pace = field(default_factory=Pace)

    def flow(self, **changes: Any) -> ms.Flow:
        flow = ms.Flow("resumed")
        self.build(flow, self.pace, **changes)
        return flow

    def leave_at(self, workers: int, is_reached: Callable[[ms.Job], bool]) -> None:
        """Run until something is so, and cancel."""
        job = self.flow().start(
            state=self.directory / "state", workers=workers, **SETTINGS
        )
        self.pace.job = job
        eventually(lambda: job.epoch > 0 and is_reached(job))
        job.cancel()
        with suppress(ms.JobCancelledError):
            job.wait()

    def finish(
        self, workers: int, *, drops: bool = False, **changes: Any
    ) -> dict[str, Any]:
        """Go on to the end and return what was collected."""
        self.pace.is_over = True
        state = self.directory / "state"
        job = self.flow(**changes).run(
            state=state, workers=workers, drop_state=drops, **SETTINGS
        )
        return job.result()


def in_epoch(number: int) -> Callable[[ms.Job], bool]:
    return lambda job: job.epoch >= number


def has_ended(operator: str, *, was_left: bool = False) -> Callable[[ms.Job], bool]:
    """Whether a snapshot says that an operator ended, or that nobody read from it."""

    def is_stored(job: ms.Job) -> bool:
        manifest = job._run.coordinator.snapshots.manifests.manifest
        return manifest is not None and (operator, was_left) in manifest.ended_operators

    return is_stored


def in_round(number: int) -> Callable[[ms.Job], bool]:
    def is_reached(job: ms.Job) -> bool:
        done = [stage.rounds.done for stage in job.metrics() if stage.rounds]
        return max(done, default=0) >= number

    return is_reached
