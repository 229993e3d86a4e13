"""What happened in a simulation: a hash of all of it, and the last events in words.

Two runs with the same seed have the same hash, or something in the engine depends on
more than the seed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from enum import IntEnum, auto
from struct import Struct

__all__ = ["Happening", "Trace"]

_ENTRY = Struct("<qBiiiq")
_STORY_EVENTS_MAX = 60


class Happening(IntEnum):
    """Kind of an event of a simulation."""

    TURN = auto()
    JUMP = auto()
    PACKET = auto()
    DROPPED = auto()
    CONNECTED = auto()
    LOST = auto()
    FAULT = auto()
    LEFT = auto()
    OVER = auto()


_Entry = tuple[int, int, int, int, int, int]


class Trace:
    """Hash and last events of one simulation."""

    def __init__(self) -> None:
        self.event_count = 0
        self._hash = hashlib.blake2b(digest_size=8)
        self._last: deque[_Entry] = deque(maxlen=_STORY_EVENTS_MAX)

    def note(
        self,
        time_ns: int,
        happening: Happening,
        peer: int,
        other: int = -1,
        *,
        channel: int = -1,
        detail: int = -1,
    ) -> None:
        """Take note of an event; `detail` is a sequence number or a kind."""
        entry = (time_ns, happening, peer, other, channel, detail)
        self.event_count += 1
        self._hash.update(_ENTRY.pack(*entry))
        self._last.append(entry)

    @property
    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()

    def story(self) -> str:
        """Return the last events, one per line."""
        return "\n".join(_line(entry) for entry in self._last)


def _line(entry: _Entry) -> str:
    time_ns, happening, peer, other, channel, detail = entry
    line = f"{time_ns / 1e6:12.3f} ms  {Happening(happening).name:<9} peer {peer}"
    if other >= 0:
        line += f", other {other}"
    if channel >= 0:
        line += f", channel {channel}"
    return line if detail < 0 else f"{line}, {detail}"
