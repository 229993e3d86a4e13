"""A clock that a test sets by hand, and flows that run by it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.config import nanoseconds
from millstream.launch.options import LaunchOptions, default_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

__all__ = ["ManualClock", "manual_time"]


class ManualClock:
    """A `ports.Clock` that stands still until it is told otherwise.

    Examples
    --------
    >>> from millstream.testing import ManualClock
    >>> clock = ManualClock()
    >>> clock.advance("50ms")
    >>> clock.monotonic_ns()
    50000000
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start."""
        return self._now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which was when the clock began at 0."""
        return self._now_ns // 1_000_000

    def advance(self, duration: str | timedelta) -> None:
        """Let time pass, for example ``"50ms"``."""
        self._now_ns += nanoseconds(duration)


@contextmanager
def manual_time(clock: ManualClock | None = None) -> Iterator[ManualClock]:
    """Let the flows that are started inside run on ``local``, by a clock of their own.

    Nobody waits: when no worker has anything to do, the clock is set to the time at
    which one has.  A source that has nothing is asked again after `source_idle_ms`, such
    as a `ScriptedSource` at the second of two pauses (the first one ends a batch).  So
    hours of processing time pass at once, in the same way in every run.

    Examples
    --------
    >>> import millstream as ms
    >>> from millstream.testing import Pause, ScriptedSource, manual_time
    >>> class Quiet(ms.StatefulFunction):
    ...     def on_record(self, key, value):
    ...         self.timers.after("1h")
    ...
    ...     def on_timer(self, key, timer):
    ...         yield timer.time // 60_000, "quiet for an hour"
    >>> flow = ms.Flow("quiet")
    >>> a_while = Pause(), Pause()
    >>> visits = flow.read(ScriptedSource(["ann", *a_while, "bob", *a_while, "cyd"]))
    >>> quiet = visits.key_by(str).process(Quiet()).collect()
    >>> with manual_time() as clock:
    ...     _ = flow.run(source_idle_ms=45 * 60_000)
    >>> quiet.result()
    [('ann', (60, 'quiet for an hour'))]
    """
    clock = clock or ManualClock()
    with default_options(LaunchOptions(on="local", clock=clock)):
        yield clock
