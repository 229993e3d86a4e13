"""Which keys have something to do next, and when.

It follows from the state of the keys, and is made anew when that has been restored.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DueKeys"]


class DueKeys:
    """The next time of every key.

    Examples
    --------
    >>> due = DueKeys()
    >>> due.add("a", 7), due.add("b", 9), due.add("b", 8), due.add("a", 8)
    (None, None, None, None)
    >>> due.first
    7
    >>> list(due.taken(8))
    [(7, ['a']), (8, ['b'])]
    """

    def __init__(self) -> None:
        self._time_of: dict[Any, int] = {}
        self._keys_at: dict[int, list[Any]] = {}
        self._times: list[int] = []

    @property
    def first(self) -> int | None:
        """The earliest time; a key that went there may have an earlier one by now."""
        return self._times[0] if self._times else None

    def add(self, key: Any, time: int) -> None:
        """Let a key be due at a time, if it is not due before."""
        known = self._time_of.get(key)
        if known is not None and known <= time:
            return
        self._time_of[key] = time
        keys = self._keys_at.get(time)
        if keys is None:
            self._keys_at[time] = [key]
            heapq.heappush(self._times, time)
        else:
            keys.append(key)

    def taken(self, last: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the times up to `last` with the keys due then, which are no longer due.

        Keys may be added meanwhile.
        """
        time_of = self._time_of
        while self._times and self._times[0] <= last:
            time = heapq.heappop(self._times)
            keys = []
            for key in self._keys_at.pop(time):
                if time_of.get(key) == time:
                    del time_of[key]
                    keys.append(key)
            if keys:
                yield time, keys

    def clear(self) -> None:
        """Forget all keys."""
        self._time_of.clear()
        self._keys_at.clear()
        self._times.clear()
