"""A clock that a test sets by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.config import nanoseconds

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["ManualClock"]


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

    def advance(self, duration: str | timedelta) -> None:
        """Let time pass, for example ``"50ms"``."""
        self._now_ns += nanoseconds(duration)
