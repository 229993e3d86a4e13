"""Watch the jobs that a program starts: show their progress, and see them off.

Samples the counters of a running job a few times a second from a thread of its own;
`observe.progress` makes the line and `terminal` shows it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.launch.progress import sample_of
from millstream.observe.progress import progress_line, summary_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.cli.terminal import StatusLine
    from millstream.launch.job import Job

__all__ = ["JobWatch"]

_REDRAW_S = 0.2
_WINDOW = 6
"""Samples that a rate is taken over: about a second, several reports of the workers."""

_ENDED = frozenset({"succeeded", "stopped", "complete", "failed", "cancelled"})


class JobWatch:
    """Every job of one program; with a status line it shows their progress."""

    def __init__(
        self, line: StatusLine | None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._line = line
        self._now_s = now_s
        self._jobs: list[Job] = []
        self._threads: list[threading.Thread] = []
        self._summaries: list[str] = []

    def see(self, job: Job) -> None:
        """Watch a job that was just started."""
        self._jobs.append(job)
        if self._line is not None:
            thread = threading.Thread(
                target=self._show,
                args=(job, self._line),
                name=f"millstream-progress-{job.name}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait for jobs that the program started and left alone."""
        for job in self._unfinished():
            job.wait()

    def close(self) -> None:
        """End every job that still runs, then print one line about each of all."""
        for job in self._unfinished():
            job.cancel("the program that started it has ended")
            with contextlib.suppress(MillstreamError):
                job.wait()
        for thread in self._threads:
            thread.join()
        if self._line is not None:
            for summary in self._summaries:
                self._line.say(summary)

    def _unfinished(self) -> list[Job]:
        return [job for job in self._jobs if job.status() not in _ENDED]

    def _show(self, job: Job, line: StatusLine) -> None:
        """Redraw the line until the job is over; the body of a thread."""
        began_s = self._now_s()
        samples = deque([sample_of(job, 0.0)], maxlen=_WINDOW)
        while not _is_over(job):
            samples.append(sample_of(job, self._now_s() - began_s))
            is_running = job.status() == "running"
            name = job.name if is_running else f"{job.name} · {job.status()}"
            line.draw(progress_line(name, samples[0], samples[-1]))
        line.clear()
        last = sample_of(job, self._now_s() - began_s)
        self._summaries.append(summary_line(job.name, job.status(), last))


def _is_over(job: Job) -> bool:
    """Wait a moment for the end; how the job ended is for the program to see."""
    try:
        return job.wait(_REDRAW_S)
    except Exception:  # noqa: BLE001 - see above
        return True
