"""Data frames that wait on disk, in unnamed temporary files.

A file without a name is gone with the process that opened it, however that ends.  A frame
is stored as the length of an Arrow IPC stream, and the stream.

Nothing here knows why frames wait.
"""

from __future__ import annotations

import io
import tempfile
from collections import deque
from typing import TYPE_CHECKING

import polars as pl

from millstream.state.batches import arrow_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FrameFile", "FrameQueue"]

_LENGTH_BYTES = 8


class FrameFile:
    """Frames on disk, read once in the order in which they were written."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="millstream-frames-")  # noqa: SIM115 - kept
        self._read_to = 0
        self._left = 0

    def __len__(self) -> int:
        return self._left

    def append(self, frame: pl.DataFrame) -> None:
        """Store a frame behind all others."""
        stored = arrow_bytes(frame)
        self._file.seek(0, io.SEEK_END)
        self._file.write(len(stored).to_bytes(_LENGTH_BYTES, "little"))
        self._file.write(stored)
        self._left += 1

    def popleft(self) -> pl.DataFrame:
        """Return the oldest frame that was not read yet."""
        if not self._left:
            msg = "a file of frames was read beyond its last frame"
            raise IndexError(msg)
        self._file.seek(self._read_to)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "little")
        frame = pl.read_ipc_stream(io.BytesIO(self._file.read(length)))
        self._read_to += _LENGTH_BYTES + length
        self._left -= 1
        return frame

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the frames that were not read yet; they stay unread."""
        read_to, left = self._read_to, self._left
        try:
            while self._left:
                yield self.popleft()
        finally:
            self._read_to, self._left = read_to, left

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """Yield the frames that were not read yet, and give the disk space back."""
        while self._left:
            yield self.popleft()
        self.close()

    def close(self) -> None:
        """Give the disk space back; safe to call at any time."""
        self._file.close()


class FrameQueue:
    """A queue of frames, of which those beyond `memory_bytes` wait on disk."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._held: deque[pl.DataFrame] = deque()
        self._held_bytes = 0
        self._file: FrameFile | None = None

    def __len__(self) -> int:
        return len(self._held) + (0 if self._file is None else len(self._file))

    @property
    def is_on_disk(self) -> bool:
        """Whether some of the frames are in a file."""
        return self._file is not None

    def append(self, frame: pl.DataFrame) -> None:
        """Put a frame behind all others."""
        if self._file is None and self._held_bytes >= self._memory_bytes:
            self._file = FrameFile()
        if self._file is not None:
            self._file.append(frame)
            return
        self._held.append(frame)
        self._held_bytes += int(frame.estimated_size())

    def popleft(self) -> pl.DataFrame:
        """Return the frame that has waited longest."""
        if self._held:
            frame = self._held.popleft()
            self._held_bytes -= int(frame.estimated_size())
            return frame
        if self._file is None:
            msg = "a queue of frames was read beyond its last frame"
            raise IndexError(msg)
        frame = self._file.popleft()
        if not self._file:
            self.close()
        return frame

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield all frames, oldest first; they stay in the queue."""
        yield from self._held
        if self._file is not None:
            yield from self._file.frames()

    def close(self) -> None:
        """Give the disk space back; safe to call at any time."""
        if self._file is not None:
            self._file.close()
            self._file = None
