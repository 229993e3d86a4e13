"""Sources that release records by the clock, or as fast as they are asked.

A record is the time at which it was *due*, in nanoseconds of the monotonic clock, which
processes of one machine share.  Its age can be taken anywhere later, and a source that
is asked late does not hide the delay.
"""

from __future__ import annotations

import time

import millstream as ms


class Metronome(ms.Source[int]):
    """A record per interval."""

    is_parallel = False

    def __init__(self, records: int, interval_ns: int) -> None:
        self._records = records
        self._interval_ns = interval_ns

    def splits(self, task_count: int) -> list[ms.Split]:  # noqa: ARG002
        """Return the one split."""
        return [ms.Split("metronome")]

    def open(
        self,
        split: ms.Split,  # noqa: ARG002
        offset: int,
        config: ms.Config,  # noqa: ARG002
    ) -> ms.SourceReader[int]:
        """Return a reader that leaves out the first `offset` records."""
        return MetronomeReader(self._records, self._interval_ns, offset)


class MetronomeReader(ms.SourceReader[int]):
    """Releases what has become due since it was asked last."""

    def __init__(self, records: int, interval_ns: int, offset: int) -> None:
        self._records = records
        self._interval_ns = interval_ns
        self._offset = offset
        self._next_ns = time.monotonic_ns()

    def read(self, rows: int) -> list[int] | None:
        """Return the records that are due."""
        if self._offset >= self._records:
            return None
        late_ns = time.monotonic_ns() - self._next_ns
        due_count = max(0, late_ns // self._interval_ns + 1)
        count = min(due_count, self._records - self._offset, rows)
        end_ns = self._next_ns + count * self._interval_ns
        due = list(range(self._next_ns, end_ns, self._interval_ns))
        self._next_ns = end_ns
        self._offset += count
        return due

    @property
    def offset(self) -> int:
        """How many records were released."""
        return self._offset


class Torrent(ms.Source[int]):
    """Records as fast as they are taken; each is due when it is."""

    is_parallel = False

    def __init__(self, records: int) -> None:
        self._records = records

    def splits(self, task_count: int) -> list[ms.Split]:  # noqa: ARG002
        """Return the one split."""
        return [ms.Split("torrent")]

    def open(
        self,
        split: ms.Split,  # noqa: ARG002
        offset: int,
        config: ms.Config,  # noqa: ARG002
    ) -> ms.SourceReader[int]:
        """Return a reader that leaves out the first `offset` records."""
        return TorrentReader(self._records, offset)


class TorrentReader(ms.SourceReader[int]):
    """Releases whatever it is asked for."""

    def __init__(self, records: int, offset: int) -> None:
        self._records = records
        self._offset = offset

    def read(self, rows: int) -> list[int] | None:
        """Return that many records."""
        if self._offset >= self._records:
            return None
        count = min(rows, self._records - self._offset)
        self._offset += count
        return [time.monotonic_ns()] * count

    @property
    def offset(self) -> int:
        """How many records were released."""
        return self._offset
