"""What waits: batches in memory up to a limit, all else in unnamed temporary files.

A file without a name is gone with the process that opened it, however that ends, and its
space is given back with the last piece of it.  Nothing here knows why something waits.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast
from weakref import finalize

from millstream.state.batches import ARROW_MAGIC, arrow_bytes, frame_from_arrow
from millstream.state.plain import decode_lists, encode_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.values import Batch

__all__ = [
    "BufferedBatch",
    "Piece",
    "SpillBuffer",
    "SpillFile",
    "SpillQueue",
    "batch_from_bytes",
]

B = TypeVar("B", bound="Batch")

_FILE_BYTES = 64 * 1024 * 1024
_FILES = 16
"""A file that is this long, or has one part in so many of what is on disk, gets no more
batches: so it can be given back, and yet there are few."""


def bytes_of_batch(batch: Batch) -> bytes:
    """Return a batch of either kind as bytes."""
    return encode_lists(batch) if isinstance(batch, list) else arrow_bytes(batch)


def batch_from_bytes(data: bytes) -> Batch:
    """Return the batch of bytes of `bytes_of_batch` that were checked to be ours."""
    if data[:4] == ARROW_MAGIC:
        return frame_from_arrow(memoryview(data))
    return decode_lists(data)[0]


class SpillFile:
    """A file without a name, closed when nobody has a piece of it any more.

    Examples
    --------
    >>> file = SpillFile()
    >>> first, second = file.append(b"mill"), file.append(b"stream")
    >>> second.read(), first.read()
    (b'stream', b'mill')
    """

    def __init__(self) -> None:
        self.number, path = tempfile.mkstemp(prefix="millstream-spilled-")
        finalize(self, os.close, self.number)
        Path(path).unlink()
        self.length = 0

    def append(self, data: bytes) -> Piece:
        """Write bytes at the end; return the piece of the file that they are."""
        piece, rest = Piece(self, self.length, len(data)), memoryview(data)
        while rest:  # A nearly full disk, and two gigabytes, are written in parts.
            written = os.pwrite(self.number, rest, self.length)
            self.length += written
            rest = rest[written:]
        return piece


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes in a file; `read` may be called by any thread, and again."""

    file: SpillFile
    offset: int
    nbytes: int

    def read(self) -> bytes:
        """Return the bytes."""
        data = b""
        while len(data) < self.nbytes:
            rest, place = self.nbytes - len(data), self.offset + len(data)
            more = os.pread(self.file.number, rest, place)
            assert more, "a file without a name became shorter"
            data += more
        return data


@dataclass(slots=True)
class BufferedBatch:
    """A batch in a buffer; `load` may be called by any thread."""

    nbytes: int
    batch: Batch | None = None
    file: Piece | None = None

    def load(self) -> Batch:
        """Return the batch."""
        if self.batch is not None:
            return self.batch
        return batch_from_bytes(self._piece().read())

    def data(self) -> bytes:
        """Return the bytes of the batch."""
        if self.batch is not None:
            return bytes_of_batch(self.batch)
        return self._piece().read()

    def _piece(self) -> Piece:
        assert self.file is not None, "a batch is neither in memory nor on disk"
        return self.file


class SpillBuffer:
    """Keeps batches for whoever holds on to the `BufferedBatch` it returns.

    Parameters
    ----------
    memory_bytes
        Batches beyond it go to disk.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._file: SpillFile | None = None
        #: Bytes of the batches in memory, about.
        self.nbytes = 0
        #: Bytes of the batches on disk.
        self.disk_bytes = 0
        #: Bytes of all batches that ever went to disk.
        self.spilled_bytes = 0

    def put(self, batch: Batch) -> BufferedBatch:
        """Keep a batch."""
        nbytes = _size(batch)
        if self.nbytes + nbytes <= self._memory_bytes:
            self.nbytes += nbytes
            return BufferedBatch(nbytes, batch)
        data = bytes_of_batch(batch)
        full_bytes = max(_FILE_BYTES, self.disk_bytes // _FILES)
        if self._file is None or self._file.length > full_bytes:
            self._file = SpillFile()
        self.disk_bytes += len(data)
        self.spilled_bytes += len(data)
        return BufferedBatch(len(data), None, self._file.append(data))

    def free(self, kept: Iterable[BufferedBatch]) -> None:
        """Make room: these are not needed any more."""
        for each in kept:
            if each.file is None:
                self.nbytes -= each.nbytes
            else:
                self.disk_bytes -= each.nbytes
        if not self.disk_bytes:
            self._file = None


class SpillQueue(Generic[B]):
    """A queue of batches, of which those beyond `memory_bytes` wait on disk.

    Examples
    --------
    >>> queue = SpillQueue(memory_bytes=0)
    >>> queue.append([1, 2]), queue.append([3])
    (None, None)
    >>> list(queue), queue.popleft(), len(queue)
    ([[1, 2], [3]], [1, 2], 1)
    """

    def __init__(self, memory_bytes: int) -> None:
        self._buffer = SpillBuffer(memory_bytes)
        self._kept: deque[BufferedBatch] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[B]:
        """Yield all batches, oldest first; they stay in the queue."""
        return (self._loaded(kept) for kept in list(self._kept))

    @property
    def disk_bytes(self) -> int:
        """Bytes of the batches on disk."""
        return self._buffer.disk_bytes

    def append(self, batch: B) -> None:
        """Put a batch behind all others."""
        self._kept.append(self._buffer.put(batch))

    def popleft(self) -> B:
        """Return the batch that has waited longest."""
        kept = self._kept.popleft()
        self._buffer.free([kept])
        return self._loaded(kept)

    @staticmethod
    def _loaded(kept: BufferedBatch) -> B:
        return cast("B", kept.load())  # a batch comes back as what it was

    def clear(self) -> None:
        """Give memory and disk space back."""
        self._buffer.free(self._kept)
        self._kept.clear()


def _size(batch: Batch) -> int:
    """Return about how many bytes a batch takes; of rows, as many as the first each."""
    if not isinstance(batch, list):
        return int(batch.estimated_size())
    if not batch:
        return 0
    try:
        return len(encode_lists(batch[:1])) * len(batch)
    except Exception:  # noqa: BLE001 - what cannot be stored stays in memory anyway
        return 64 * len(batch)
