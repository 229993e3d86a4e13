r"""Lines of text files, cut into byte ranges so that all tasks read one big file.

A split owns the lines that *begin* in its range ``[start, end)``.  It finds the first
of them behind the first newline at or after ``start - 1`` and reads the last of them
to its end, wherever that is.  So every line has exactly one owner, whatever the cuts.
The offset of a reader is the byte at which the next unread line begins.

A line ends with ``\n`` or ``\r\n`` and is returned without it.  Nothing else ends a
line: not a lone ``\r``, nor what `str.splitlines` splits at besides.

Nothing here knows what is in a line, or how a file is found.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.paths import (
    asked_for,
    changed_files,
    file_size,
    opened_file,
)
from millstream.connectors.places import Places
from millstream.connectors.plain import check_plain, line_files
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.config import Config
    from millstream.connectors.paths import StrPath

__all__ = ["TextSource"]

_MIB = 1024 * 1024
_SPLIT_BYTES_MIN = _MIB
_SPLIT_BYTES_MAX = 64 * _MIB

_SPLITS_PER_TASK = 16
"""Enough for tasks that are ahead to have splits left that others have not begun."""

_BLOCKS_PER_READ_MAX = 16
"""Blocks searched for the end of a long line before the others get their turn."""


@dataclass(frozen=True, slots=True)
class _ByteRange:
    """Bytes ``[start, end)`` of a file that had `size` bytes when it was cut.

    `path` is the file's name in `Places`.
    """

    path: str
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class _Decoding:
    """How bytes become text."""

    encoding: str
    errors: str

    @property
    def has_bom(self) -> bool:
        return self.encoding == "utf-8"


class TextSource(Source[str]):
    """Lines of the files that the paths name.

    Parameters
    ----------
    paths
        A file, a directory (all files below it, except those whose name begins with
        a dot or an underscore), a glob such as ``books/**/*.txt``, or several of
        them.  Each file is read once, however many of them name it.
    encoding
        Any encoding in which a newline is the byte 10.  A byte order mark at the
        start of a UTF-8 file is dropped.
    errors
        What happens to bytes that cannot be decoded, as in `bytes.decode`.
    """

    is_bounded = True
    timed_parts = 8

    def __init__(
        self,
        paths: StrPath | Iterable[StrPath],
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
    ) -> None:
        self._decoding = _decoding(encoding, errors)
        files = line_files("read_text", paths)
        self._asked = asked_for(files)
        self._files = Places(files)

    def splits(self, task_count: int) -> list[Split]:
        """Cut the files into ranges of about equal size; an empty file has none."""
        sizes = {path: file_size(self._files[path]) for path in self._files}
        wanted = sum(sizes.values()) // (_SPLITS_PER_TASK * task_count)
        split_bytes = min(max(wanted, _SPLIT_BYTES_MIN), _SPLIT_BYTES_MAX)
        return [
            Split(f"{part.path}[{part.start}:{part.end}]", part)
            for path, size in sizes.items()
            for part in _parts(path, size, split_bytes)
        ]

    def identity(self) -> str:
        """Return the paths, and how bytes become text."""
        return f"the lines of {self._asked} in {self._decoding.encoding}"

    def changes(self, splits: Sequence[Split]) -> list[str]:
        """Return which files have come or have grown."""
        known = {split.payload.path: split.payload.size for split in splits}
        return changed_files(self._files, known)

    def open(self, split: Split, offset: int, config: Config) -> _TextReader:
        """Return a reader of the lines that begin in the range, from `offset` on."""
        part: _ByteRange = split.payload
        file = opened_file(self._files[part.path])
        return _TextReader(part, file, offset, self._decoding, config)


class _TextReader(SourceReader[str]):
    """Reads the lines that begin in a byte range."""

    def __init__(
        self,
        part: _ByteRange,
        file: BinaryIO,
        offset: int,
        decoding: _Decoding,
        config: Config,
    ) -> None:
        self._part = part
        self._decoding = decoding
        self._block_bytes = config.source_block_bytes
        self._line_bytes_max = config.packet_bytes_max
        # An offset up to `start` says only that nothing was read yet, so the first
        # line is still to be found; a later one is where a line begins.
        self._is_aligned = offset > part.start or part.start == 0
        self._offset = max(offset, part.start)
        self._position = self._offset if self._is_aligned else part.start - 1
        self._pending: list[bytes] = []
        self._file = file

    def read(self, rows: int) -> list[str] | None:  # noqa: ARG002
        """Return the lines that end in the next block, ``[]`` inside a long line."""
        for _ in range(_BLOCKS_PER_READ_MAX):
            if self._offset >= self._part.end:
                return None
            if not self._is_aligned:
                self._align()
                continue
            lines = self._next_lines()
            if lines:
                return lines
        return []

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        self._file.close()

    def _align(self) -> None:
        """Look for a newline in one block; none up to the end means no line of ours."""
        if self._position >= self._part.end:
            self._offset = self._part.end
            return
        block = self._block(self._part.end - self._position)
        newline = block.find(b"\n")
        if newline < 0:
            self._position += len(block)
            return
        self._is_aligned = True
        self._offset = self._position = self._position + newline + 1

    def _next_lines(self) -> list[str]:
        """Read one block; return the lines it completes."""
        missing = self._part.end - self._position
        block = self._block(missing if missing > 0 else self._block_bytes)
        # Inside the range every line is ours; behind it only the one begun inside.
        newline = block.rfind(b"\n") if missing > 0 else block.find(b"\n")
        self._position += len(block)
        cut = newline + 1 if block else 0
        if block and not cut:
            self._pending.append(block)
            self._check_length()
            return []
        self._pending.append(block[:cut])
        data = b"".join(self._pending)
        lines = self._decoded(data)
        self._offset += len(data)
        self._pending = [block[cut:]]
        return lines

    def _check_length(self) -> None:
        if self._position - self._offset > self._line_bytes_max:
            msg = (
                f"the line at byte {self._offset} of {self._part.path} has no "
                f"end within packet_bytes_max={self._line_bytes_max} bytes; is it a text "
                "file?  If so, raise that setting"
            )
            raise ValueError(msg)

    def _block(self, bytes_max: int) -> bytes:
        """Return bytes from the position on; none only at the end of the file."""
        self._file.seek(self._position)
        block = self._file.read(min(bytes_max, self._block_bytes))
        if not block and self._position < self._part.size:
            msg = (
                f"{self._part.path} had {self._part.size} bytes when the flow was "
                f"planned and now ends at byte {self._position}; a file must not "
                "change while a flow reads it"
            )
            raise OSError(msg)
        return block

    def _decoded(self, data: bytes) -> list[str]:
        """Return whole lines, the last of which may lack its line end."""
        at = self._offset
        if at == 0:
            check_plain(self._part.path, data)
        if at == 0 and self._decoding.has_bom and data.startswith(codecs.BOM_UTF8):
            at = len(codecs.BOM_UTF8)
            data = data[at:]
        try:
            text = data.decode(self._decoding.encoding, self._decoding.errors)
        except UnicodeDecodeError as error:
            msg = (
                f"byte {at + error.start} of {self._part.path} is not "
                f"{self._decoding.encoding} ({error.reason}); tell read_text the "
                "file's encoding=, or errors='replace' to read on"
            )
            raise ValueError(msg) from error
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines


def _decoding(encoding: str, errors: str) -> _Decoding:
    try:
        name = codecs.lookup(encoding).name
        name = "utf-8" if name == "utf-8-sig" else name
        newline = "\n".encode(name)
    except LookupError as error:
        msg = f"read_text cannot decode text: {error}; try encoding='utf-8'"
        raise UsageError(msg) from None
    try:
        codecs.lookup_error(errors)
    except LookupError:
        msg = f"errors can be strict, replace or ignore, got {errors!r}"
        raise UsageError(msg) from None
    if newline != b"\n":
        msg = (
            f"read_text cannot cut {encoding} files into lines, since a newline is "
            "not the byte 10 there; convert them to utf-8 first"
        )
        raise UsageError(msg)
    return _Decoding(name, errors)


def _parts(path: str, size: int, split_bytes: int) -> list[_ByteRange]:
    """Cut a file into equal ranges of at most `split_bytes`."""
    count = -(-size // split_bytes)
    cuts = [size * number // count for number in range(count)] + [size]
    return [_ByteRange(path, start, end, size) for start, end in pairwise(cuts)]
