"""Timers of a worker: a heap of deadlines, asked once per step."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.runtime.channels import OutputChannel

__all__ = ["Timers"]


class Timers:
    """Deadlines of output buffers, earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OutputChannel]] = []
        self._count = 0

    @property
    def next_ns(self) -> int | None:
        """The earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def set(self, deadline_ns: int, channel: OutputChannel) -> None:
        """Fire the channel's timer at the deadline."""
        self._count += 1
        heapq.heappush(self._heap, (deadline_ns, self._count, channel))

    def fire(self, now_ns: int) -> None:
        """Fire every timer whose deadline has passed."""
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, _, channel = heapq.heappop(self._heap)
            channel.fire_timer(deadline_ns)
