"""The real clock; nothing else in the package reads the time of the machine."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
