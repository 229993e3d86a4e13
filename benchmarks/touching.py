"""A source that fills state and then touches a share of it between two snapshots.

For the benchmarks of pauses and of recovery, which need state of a known size under a
known load.  How far the source has come stands on a *board*, a file that all processes
of the machine see; a source that is opened again there goes on by the same clock, so
what it has missed comes at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ENTRY_BYTES", "Board", "Toucher", "replaced"]

KEY_BYTES, COUNT_BYTES, TEXT_BYTES = 8, 8, 84
ENTRY_BYTES = KEY_BYTES + COUNT_BYTES + TEXT_BYTES
"""What `replaced` keeps for a key, with the key, without any encoding."""


def replaced(state: tuple[bytes, int], key: int) -> tuple[tuple[bytes, int], int]:
    """Return a new value for a key, and how often it was there; for `map_with_state`."""
    times = state[1] + 1
    return (b"%0*d" % (TEXT_BYTES, key * times), times), times


class Board:
    """When each part of the source had filled its keys, and how far it is."""

    def __init__(self, path: Path, parts: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(16 * parts))
        self._cells = np.memmap(path, np.int64, "r+", shape=(parts, 2))

    @property
    def is_full(self) -> bool:
        """Whether every part has returned all of its keys."""
        return bool(self._cells[:, 0].all())

    @property
    def offsets(self) -> list[int]:
        """How many rows each part has returned."""
        return [int(offset) for offset in self._cells[:, 1]]

    def filled_ns(self, part: int) -> int:
        """Return when a part had returned all of its keys: now, if it was not noted."""
        if not self._cells[part, 0]:
            self._cells[part, 0] = time.monotonic_ns()
        return int(self._cells[part, 0])

    def note(self, part: int, offset: int) -> None:
        """Note how far a part is."""
        self._cells[part, 1] = offset

    def clear_offsets(self) -> None:
        """Begin to note anew."""
        self._cells[:, 1] = 0


class Toucher(ms.Source[int]):
    """Keys from 0 on, all at once; then again, from 0 on, by the clock.

    Parameters
    ----------
    keys, updates
        How many keys there are, and how many of them come again.
    rate
        How many come again each second.
    idle_s
        How long the source goes on after the last row, so that all rows are stored.
    """

    def __init__(
        self, board: Path, *, keys: int, updates: int, rate: float, idle_s: float
    ) -> None:
        self.board = board
        self.keys = keys
        self.updates = updates
        self.rate = rate
        self.idle_s = idle_s

    def splits(self, task_count: int) -> list[ms.Split]:
        """Return one split per task, each with its share of the keys."""
        return [
            ms.Split(f"keys {rank}", (rank, task_count)) for rank in range(task_count)
        ]

    def open(
        self,
        split: ms.Split,
        offset: int,
        config: ms.Config,  # noqa: ARG002
    ) -> ms.SourceReader[int]:
        """Return a reader of one share."""
        rank, size = split.payload
        return _Reader(self, rank, size, offset)


class _Reader(ms.SourceReader[int]):
    """Reads one share of the keys."""

    def __init__(self, source: Toucher, rank: int, size: int, offset: int) -> None:
        self._board = Board(source.board, size)
        self._rank = rank
        self._keys = range(rank, source.keys, size)
        self._updates = source.updates // size
        self._rate = source.rate / size
        self._idle_s = source.idle_s
        self._offset = offset

    def read(self, rows: int) -> list[int] | None:
        """Return what is due."""
        count = len(self._keys)
        end = count
        if self._offset >= count:
            passed_s = (time.monotonic_ns() - self._board.filled_ns(self._rank)) / 1e9
            if passed_s > self._updates / self._rate + self._idle_s:
                return None
            end += min(self._updates, int(passed_s * self._rate))
        first = self._offset % count
        due = max(0, min(rows, end - self._offset, count - first))
        self._offset += due
        self._board.note(self._rank, self._offset)
        return list(self._keys[first : first + due])

    @property
    def offset(self) -> int:
        """How many keys were returned."""
        return self._offset
