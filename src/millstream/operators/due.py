"""Which keys have something to do next, and when.

It follows from the state of the keys, and is made anew when that has been restored.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.values import Key

__all__ = ["DueKeys", "chunks"]

_STALE_MIN = 64


class DueKeys:
    """The keys that are due, each with the time at which to look at it.

    A key has one time, the earliest it was given; whoever looks at it then gives it the
    next.  So a time that is put off again and again costs no more than a look.

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

    __slots__ = ("_keys_at", "_noted", "_times", "time_of")

    def __init__(self) -> None:
        #: When each key is due; to be read only.
        self.time_of: dict[Key, int] = {}
        #: Keys by time; stale where `time_of` says otherwise.
        self._keys_at: dict[int, list[Key]] = {}
        #: Those times, as a heap.
        self._times: list[int] = []
        #: How many keys there are in `_keys_at`, stale ones included.
        self._noted = 0

    def __len__(self) -> int:
        return len(self.time_of)

    @property
    def first(self) -> int | None:
        """The earliest time, if there is one."""
        while self._times:
            time = self._times[0]
            keys = self._keys_at[time]
            while keys and self.time_of.get(keys[-1]) != time:
                keys.pop()
                self._noted -= 1
            if keys:
                return time
            heapq.heappop(self._times)
            del self._keys_at[time]
        return None

    def add(self, key: Key, time: int) -> None:
        """Let a key be due at a time, if it is not due before."""
        known = self.time_of.get(key)
        if known is not None and known <= time:
            return
        self.time_of[key] = time
        keys = self._keys_at.get(time)
        if keys is None:
            self._keys_at[time] = [key]
            heapq.heappush(self._times, time)
        else:
            keys.append(key)
        self._noted += 1
        if self._noted > 2 * len(self.time_of) + _STALE_MIN:
            self._note_anew()

    def take(self) -> list[Key]:
        """Return the keys of the earliest time, which are no longer due."""
        if self.first is None:
            return []
        time = heapq.heappop(self._times)
        noted, keys = self._keys_at.pop(time), []
        self._noted -= len(noted)
        for key in noted:
            if self.time_of.get(key) == time:
                del self.time_of[key]
                keys.append(key)
        return keys

    def taken(self, last: int) -> Iterator[tuple[int, list[Key]]]:
        """Yield the times up to `last` with the keys due then, which are no longer due.

        Keys may be added meanwhile.
        """
        while (time := self.first) is not None and time <= last:
            yield time, self.take()

    def clear(self) -> None:
        """Forget all keys."""
        self.time_of.clear()
        self._keys_at.clear()
        self._times.clear()
        self._noted = 0

    def _note_anew(self) -> None:
        """Drop what is stale, before it outweighs the rest."""
        kept = list(self.time_of.items())
        self.clear()
        for key, time in kept:
            self.add(key, time)


def chunks(keys: Iterable[Key], count: int = 1024) -> Iterator[list[Key]]:
    """Yield keys some at a time."""
    waiting = iter(keys)
    while chunk := list(islice(waiting, count)):
        yield chunk
