"""How far a job has come, as a sample of its counters and as a line of the log.

`observe.progress` makes the line; the terminal of the command line has its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.observe.log import logger
from millstream.observe.progress import Sample, StageSample, progress_line
from millstream.plan.iteration import DECIDER
from millstream.runtime.clock import SystemClock

if TYPE_CHECKING:
    from millstream.launch.job import Job
    from millstream.launch.metrics import StageMetrics

__all__ = ["ProgressLog", "sample_of"]

_LOG = logger("progress")


class ProgressLog:
    """Logs a line about a job now and then, for programs that wait in `Flow.run`."""

    def __init__(self, job: Job, every_ms: int) -> None:
        self._job = job
        self._every_ns = every_ms * 1_000_000
        self._clock = SystemClock()
        self._began_ns = self._clock.monotonic_ns()
        self._due_ns = self._began_ns + self._every_ns
        self._before = Sample(0.0, ())

    def look(self) -> None:
        """Log a line if it is time for one and somebody listens."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + self._every_ns
        if _LOG.isEnabledFor(logging.INFO):
            now = sample_of(self._job, (now_ns - self._began_ns) / 1e9)
            _LOG.info("%s", progress_line(self._job.id, self._before, now))
            self._before = now


def sample_of(job: Job, at_s: float) -> Sample:
    """Return the counters of a job's stages."""
    return Sample(
        at_s,
        tuple(
            StageSample(
                stage.name.removesuffix(DECIDER),
                stage.is_source,
                stage.task_count,
                stage.rows_in,
                stage.busy_s,
                stage.blocked_s,
                _rounds(stage),
            )
            for stage in job.metrics()
        ),
    )


def _rounds(stage: StageMetrics) -> tuple[int, float | str] | None:
    rounds = stage.rounds
    if rounds is None or not rounds.history:
        return None
    return rounds.done, rounds.history[-1]
