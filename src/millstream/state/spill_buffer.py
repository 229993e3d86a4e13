"""Batches that wait: in memory up to a limit, beyond it in unnamed temporary files.

A file without a name is gone with the process that opened it, however that ends, and its
space is given back with the last batch in it.  Nothing here knows why batches wait.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from millstream.state.batches import ARROW_MAGIC, arrow_bytes, frame_from_arrow
from millstream.state.plain import decode_lists, encode_lists

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Kept", "SpillBuffer", "batch_from_bytes"]

_FILE_BYTES = 64 * 1024 * 1024
"""A file that has become this long gets no more batches, so that it can be given back."""


def bytes_of_batch(batch: Any) -> bytes:
    """Return a batch of either kind as bytes."""
    return encode_lists(batch) if isinstance(batch, list) else arrow_bytes(batch)


def batch_from_bytes(data: bytes) -> Any:
    """Return the batch of bytes of `bytes_of_batch` that were checked to be ours."""
    if data[:4] == ARROW_MAGIC:
        return frame_from_arrow(memoryview(data))
    return decode_lists(data)[0]


class _File:
    """A file without a name, closed when nobody has a batch in it any more."""

    def __init__(self) -> None:
        self.number, path = tempfile.mkstemp(prefix="millstream-batches-")
        finalize(self, os.close, self.number)
        Path(path).unlink()
        self.length = 0

    def append(self, data: bytes) -> int:
        """Write bytes at the end; return where that is."""
        offset = self.length
        os.pwrite(self.number, data, offset)
        self.length += len(data)
        return offset


@dataclass(slots=True)
class Kept:
    """A batch on a shelf; `load` may be called by any thread."""

    nbytes: int
    batch: Any = None
    file: _File | None = None
    offset: int = 0

    def load(self) -> Any:
        """Return the batch."""
        return self.batch if self.file is None else batch_from_bytes(self._read())

    def data(self) -> bytes:
        """Return the bytes of the batch."""
        return bytes_of_batch(self.batch) if self.file is None else self._read()

    def _read(self) -> bytes:
        assert self.file is not None
        return os.pread(self.file.number, self.nbytes, self.offset)


class SpillBuffer:
    """Keeps batches for whoever holds on to the `Kept` it returns.

    Parameters
    ----------
    memory_bytes
        Batches beyond it go to disk.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._file: _File | None = None
        #: Bytes of the batches in memory, about.
        self.nbytes = 0
        #: Bytes of all batches that ever went to disk.
        self.spilled_bytes = 0

    def put(self, batch: Any) -> Kept:
        """Keep a batch."""
        nbytes = _size(batch)
        if self.nbytes + nbytes <= self._memory_bytes:
            self.nbytes += nbytes
            return Kept(nbytes, batch)
        data = bytes_of_batch(batch)
        if self._file is None or self._file.length > _FILE_BYTES:
            self._file = _File()
        self.spilled_bytes += len(data)
        return Kept(len(data), None, self._file, self._file.append(data))

    def free(self, kept: Iterable[Kept]) -> None:
        """Make room: these are not needed any more."""
        self.nbytes -= sum(each.nbytes for each in kept if each.file is None)


def _size(batch: Any) -> int:
    """Return about how many bytes a batch takes; of rows, as many as the first each."""
    if not isinstance(batch, list):
        return int(batch.estimated_size())
    if not batch:
        return 0
    try:
        return len(encode_lists(batch[:1])) * len(batch)
    except Exception:  # noqa: BLE001 - what cannot be stored stays in memory anyway
        return 64 * len(batch)
