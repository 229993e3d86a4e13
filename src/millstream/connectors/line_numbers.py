"""The numbers of lines that begin at known bytes of a file.

Nobody counts lines while a file is read, since each task sees a part of it.  Only when a
number is asked for, the newlines before the byte are counted, a bounded number at a time,
from the nearest byte whose number is known already.

Nothing here knows what is in a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LineNumbers"]

_MIB = 1024 * 1024

_BYTES_PER_TURN = 16 * _MIB
"""More would let the other tasks of the worker wait for too long."""

_COUNTED_BYTES_MAX = 4 * 1024 * _MIB
"""So far into a file a byte must do: nobody wants to wait for the number."""


class LineNumbers:
    """Counts the newlines before given bytes, each of them behind the last.

    Parameters
    ----------
    known
        Newlines before some bytes; shared by all readers of the file, and added to.
    read
        Returns ``count`` bytes of the file from a position on.
    """

    def __init__(
        self, known: dict[int, int], read: Callable[[int, int], bytes]
    ) -> None:
        self._known = known
        self._read = read
        self._position = 0
        self._newlines = 0

    def is_near(self, at: int) -> bool:
        """Count on towards a byte; whether `number` can answer for it now."""
        if at > _COUNTED_BYTES_MAX:
            return True
        nearest = max((byte for byte in list(self._known) if byte <= at), default=0)
        if nearest > self._position:
            self._position, self._newlines = nearest, self._known[nearest]
        self._count_to(min(at, self._position + _BYTES_PER_TURN))
        if self._position < at:
            return False
        self._known[at] = self._newlines
        return True

    def number(self, at: int) -> int | None:
        """Return the number, from 1, of the line that begins at a byte near by.

        None where more than 4 GiB would have to be counted.
        """
        if at > _COUNTED_BYTES_MAX:
            return None
        self._count_to(at)
        return self._newlines + 1

    def _count_to(self, at: int) -> None:
        for position in range(self._position, at, _MIB):
            block = self._read(position, min(_MIB, at - position))
            self._newlines += block.count(b"\n")
        self._position = max(self._position, at)
