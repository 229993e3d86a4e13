"""How long a task has worked, and how long its readers have kept it waiting."""

from __future__ import annotations

__all__ = ["Occupancy"]


class Occupancy:
    """Adds up the time of one task."""

    def __init__(self) -> None:
        self.busy_ns = 0
        self._blocked_ns = 0
        self._since_ns: int | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for its readers."""
        return self._since_ns is not None

    def block(self, now_ns: int) -> None:
        """Note that it waits."""
        if self._since_ns is None:
            self._since_ns = now_ns

    def unblock(self, now_ns: int) -> None:
        """Note that it waits no more."""
        if self._since_ns is not None:
            self._blocked_ns += now_ns - self._since_ns
            self._since_ns = None

    def blocked_ns(self, now_ns: int) -> int:
        """Return how long it has waited in all, the present wait included.

        That may have begun after the caller looked at the clock.
        """
        since_ns = self._since_ns
        return self._blocked_ns + (0 if since_ns is None else max(0, now_ns - since_ns))
