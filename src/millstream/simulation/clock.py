"""Time that passes only when the simulator says so."""

from __future__ import annotations

__all__ = ["SkewedClock", "VirtualClock"]

_START_MS = 1_750_000_000_000
"""Wall time at which every simulation begins, some day of 2025."""

_SKEW_MS = 5_000
"""Most that the wall clocks of two machines differ."""


class VirtualClock:
    """The clock of a whole simulated cluster.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> clock.advance(5)
    >>> clock.monotonic_ns()
    5
    """

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        """Nanoseconds since the start of the simulation."""
        return self.now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return _START_MS + self.now_ns // 1_000_000

    def advance(self, duration_ns: int) -> None:
        """Let time pass."""
        assert duration_ns >= 0, "time never goes back"
        self.now_ns += duration_ns

    def jump(self, time_ns: int) -> None:
        """Go to a point in time, unless it has passed already."""
        self.now_ns = max(self.now_ns, time_ns)


class SkewedClock:
    """The clock of one simulated machine, which started at another time."""

    def __init__(self, base: VirtualClock, offset_ns: int) -> None:
        self._base = base
        self._offset_ns = offset_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since this machine started."""
        return self._base.now_ns + self._offset_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970; machines agree on it only so far."""
        return self._base.wall_ms() + self._offset_ns % _SKEW_MS
