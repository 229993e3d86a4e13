"""Time that passes a little with every look at the clock.

So a local job with many workers is one thread that does the same in every run: snapshots
are cut in the middle of things, and the job is stopped right after the epoch that is asked
for, without waiting for anything.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    import millstream as ms

__all__ = ["TickingClock"]

_LOOKS_MAX = 400_000
"""A job that looks at the clock this often is taken for one that hangs."""


class TickingClock(ManualClock):
    """A clock for one job, which it stops when an epoch is complete.

    Parameters
    ----------
    stop
        After how many epochs of this run; 0 to let the job come to its end.
    meanwhile
        Called once, when the first of them is complete: what happens beside the job.

    Attributes
    ----------
    has_stopped, hangs
        Whether the job was cancelled for its epoch, or because it goes on for ever.
    """

    def __init__(
        self, tick_ns: int, stop: int, meanwhile: Callable[[], object] | None = None
    ) -> None:
        super().__init__()
        self.has_stopped = False
        self.hangs = False
        self.looks = 0
        self._tick_ns = tick_ns
        self._stop = stop
        self._meanwhile = meanwhile
        self._job: ms.Job | None = None
        self._begun = 0
        self._starter = threading.get_ident()
        self._is_started = threading.Event()

    def watch(self, job: ms.Job) -> None:
        """Let the job begin."""
        self._job = job
        self._begun = job.epoch
        self._is_started.set()

    def monotonic_ns(self) -> int:
        """Return a time that no other look has seen."""
        if threading.get_ident() != self._starter:
            self._is_started.wait()
            self._look()
        self._now_ns += self._tick_ns
        return self._now_ns

    def _look(self) -> None:
        job = self._job
        assert job is not None
        self.looks += 1
        epochs = job.epoch - self._begun
        if self._meanwhile is not None and epochs >= 1:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        if self._stop and epochs >= self._stop:
            self._stop = 0
            self.has_stopped = True
            job.cancel("the fuzzer stops it here")
        if self.looks == _LOOKS_MAX:
            self.hangs = True
            job.cancel("it seems to hang")
