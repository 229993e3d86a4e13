r"""Files of lines as data frames, cut into byte ranges so that all tasks read one file.

A split owns the records that *begin* in its range ``[start, end)``: it starts behind the
first newline at or after ``start - 1`` and reads its last record to the end, wherever
that is.  The offset of a reader is the byte at which the next unread record begins.

A block of whole records is parsed at once.  Only where that fails it is halved, again
and again, until the bad records stand alone.

What a record is and how it is parsed is up to a `LineFormat`; nothing here knows more
than that a newline, a byte 10, ends it.
"""

from __future__ import annotations

import codecs
import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from millstream.connectors.bad_rows import BadRow, MalformedError, marked, too_many
from millstream.connectors.base import Source, SourceReader, Split
from millstream.connectors.line_numbers import LineNumbers
from millstream.connectors.paths import (
    asked_for,
    changed_files,
    file_size,
    opened_file,
)
from millstream.connectors.places import Places
from millstream.connectors.plain import check_plain
from millstream.credentials import shown
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.config import Config

__all__ = [
    "ByteRange",
    "LineFormat",
    "LineFrames",
    "lines_of",
    "placed",
    "sample",
]

_MIB = 1024 * 1024
_SPLIT_BYTES_MIN = _MIB
_SPLIT_BYTES_MAX = 64 * _MIB

_SPLITS_PER_TASK = 16
"""Enough for tasks that are ahead to have splits left that others have not begun."""

_BLOCK_BYTES_MAX = 8 * _MIB
"""More bytes at once would let the other tasks of the worker wait for too long."""

_FIRST_BLOCK = 16
"""How much larger than the least the first block may be; small ones are parsed slowly."""

_ROW_BYTES_GUESS = 16

_SAMPLE_BYTES = 65_536
_EMPTY_BLOCKS_PER_READ_MAX = 16
_TEXT_BYTES_MAX = 65_536
"""What is kept of the text of a bad row."""


class LineFormat(ABC):
    """What the records of a file are, and how to parse many of them at once."""

    schema: pl.Schema
    #: False where a newline may be part of a record, so that a file cannot be cut.
    is_splittable: bool = True

    @abstractmethod
    def parse(self, data: bytes) -> pl.DataFrame:
        """Return the rows of whole records; raise `MalformedError` if one is bad."""

    def reading(self, columns: Sequence[str]) -> LineFormat:  # noqa: ARG002 - may be
        """Return a format that makes only these columns, or all if it cannot."""
        return self

    def cut(self, data: bytes) -> int:
        """Return how many of the bytes are whole records."""
        return data.rfind(b"\n") + 1

    def records(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the records and where they begin, without those that are no rows."""
        return placed(lines_of(data))

    def preamble(self, path: str, data: bytes) -> int:  # noqa: ARG002 - for headers
        """Return how many bytes at the start of a file are no records."""
        return len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0


def sample(files: list[str]) -> tuple[str, bytes, bool]:
    """Return the first bytes of the first file that has any, and whether that is all.

    The file is named as it may be shown.
    """
    for file in files:
        try:
            with opened_file(file) as opened:
                data = opened.read(_SAMPLE_BYTES)
            check_plain(shown(file), data)
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from None
        if data:
            return shown(file), data, len(data) < _SAMPLE_BYTES
    return shown(files[0]), b"", True


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``[start, end)`` of a file that had `size` bytes when it was cut.

    `path` is the file's name in `Places`.
    """

    path: str
    start: int
    end: int
    size: int


class LineFrames(Source[pl.DataFrame]):
    """The records of files as data frames.

    Parameters
    ----------
    files
        Absolute paths or URLs.
    line_format
        How records become rows.
    max_bad_rows
        With 0 a bad record fails the job.  Otherwise frames have the column
        `millstream.connectors.bad_rows.BAD_COLUMN`, which says what was wrong.
    """

    is_bounded = True
    timed_parts = 8

    def __init__(
        self, files: list[str], line_format: LineFormat, *, max_bad_rows: int = 0
    ) -> None:
        self._asked = asked_for(files)
        self._files = Places(files)
        self._max_bad_rows = max_bad_rows
        self._start_anew(line_format)

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns of good rows."""
        return self._format.schema

    def reading(self, columns: Sequence[str]) -> LineFrames:
        """Return a source of the same records that reads only these columns."""
        source = copy.copy(self)
        source._start_anew(self._format.reading(columns))  # noqa: SLF001 - of this class
        return source

    def _start_anew(self, line_format: LineFormat) -> None:
        self._format = line_format
        self._newlines: dict[str, dict[int, int]] = {}
        self._pace = _Pace()

    def splits(self, task_count: int) -> list[Split]:
        """Cut the files into ranges of about equal size; an empty file has none."""
        sizes = {path: file_size(self._files[path]) for path in self._files}
        # Rounded up: one split more would give the first task more than the others.
        wanted = -(-sum(sizes.values()) // (_SPLITS_PER_TASK * task_count))
        split_bytes = min(max(wanted, _SPLIT_BYTES_MIN), _SPLIT_BYTES_MAX)
        return [
            Split(f"{path}[{start}:{end}]", ByteRange(path, start, end, size))
            for path, size in sizes.items()
            for start, end in pairwise(self._cuts(size, split_bytes))
        ]

    def _cuts(self, size: int, split_bytes: int) -> list[int]:
        count = -(-size // split_bytes)
        if not self._format.is_splittable:
            count = min(count, 1)
        return [size * number // count for number in range(count)] + [size]

    def identity(self) -> str:
        """Return the paths, and what records are."""
        kind = type(self._format).__name__.removesuffix("Format").lower()
        return f"the {kind} records of {self._asked}"

    def changes(self, splits: Sequence[Split]) -> list[str]:
        """Return which files have come or have grown."""
        known = {split.payload.path: split.payload.size for split in splits}
        return changed_files(self._files, known)

    def open(
        self, split: Split, offset: int, config: Config
    ) -> SourceReader[pl.DataFrame]:
        """Return a reader of the records that begin in the range, from `offset` on."""
        part: ByteRange = split.payload
        newlines = self._newlines.setdefault(part.path, {})
        return _BlockReader(
            part,
            opened_file(self._files[part.path]),
            offset,
            self._format,
            config,
            max_bad_rows=self._max_bad_rows,
            newlines=newlines,
            pace=self._pace,
        )


@dataclass(slots=True)
class _Pace:
    """How many bytes make a row, as far as it is known; all readers share it."""

    row_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """Records that were parsed at once: the rows, and where the bad records are."""

    size: int
    good: pl.DataFrame
    bad: list[tuple[int, bytes, str]]


class _BlockReader(SourceReader[pl.DataFrame]):
    """Reads the records that begin in a byte range, block by block."""

    def __init__(
        self,
        part: ByteRange,
        file: BinaryIO,
        offset: int,
        line_format: LineFormat,
        config: Config,
        *,
        max_bad_rows: int,
        newlines: dict[int, int],
        pace: _Pace,
    ) -> None:
        self._part = part
        self._format = line_format
        self._max_bad_rows = max_bad_rows
        self._bad_count = 0
        self._batch_rows = config.frame_buffer.rows
        self._block_bytes_min = config.source_block_bytes
        self._pace = pace
        self._record_bytes_max = config.packet_bytes_max
        # An offset up to `start` says only that nothing was read yet, so the first
        # record is still to be found; a later one is where a record begins.
        self._is_aligned = offset > part.start or part.start == 0
        self._offset = max(offset, part.start)
        self._block: _Block | None = None
        self._lines = LineNumbers(newlines, self._bytes)
        self._file = file

    def read(self, rows: int) -> pl.DataFrame | None:
        """Return the rows of the next block, None behind the last.

        There are none as long as the lines before a bad row are being counted.
        """
        self._batch_rows = rows or self._batch_rows
        for _ in range(_EMPTY_BLOCKS_PER_READ_MAX):
            if not self._is_aligned:
                self._align()
            if self._block is None:
                if self._offset >= self._part.end:
                    return None
                self._block = self._next_block()
            if self._block.bad and not self._lines.is_near(self._offset):
                break
            frame = self._taken(self._block)
            if frame.height:
                return frame
        return self._framed(pl.DataFrame(schema=self._format.schema), [])

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        self._file.close()

    def _align(self) -> None:
        """Go to the first record that begins in the range, or to its end."""
        position = self._part.start - 1
        while position < self._part.end:
            data = self._bytes(position, self._block_bytes_min)
            newline = data.find(b"\n")
            if newline >= 0:
                position += newline + 1
                break
            position += len(data)
        self._offset = min(position, self._part.end)
        self._is_aligned = True

    def _next_block(self) -> _Block:
        data = self._next_records()
        skipped = 0
        if self._offset == 0:
            check_plain(self._part.path, data)
            skipped = self._format.preamble(self._part.path, data)
        good, bad = self._parsed(data[skipped:], self._offset + skipped)
        return _Block(len(data), good, bad)

    def _taken(self, block: _Block) -> pl.DataFrame:
        """Go on behind a block; return its rows."""
        frame = self._framed(block.good, [self._bad_row(*bad) for bad in block.bad])
        self._offset += block.size
        self._block = None
        if block.good.height:
            self._pace.row_bytes = block.size / block.good.height
        return frame

    @property
    def _block_bytes(self) -> int:
        """About how many bytes the rows of a batch have, within limits."""
        least = self._block_bytes_min
        row_bytes, most = self._pace.row_bytes, max(_BLOCK_BYTES_MAX, least)
        if row_bytes is None:
            row_bytes, most = _ROW_BYTES_GUESS, _FIRST_BLOCK * least
        return min(max(round(self._batch_rows * row_bytes), least), most)

    def _framed(self, good: pl.DataFrame, bad: list[BadRow]) -> pl.DataFrame:
        return marked(good, bad) if self._max_bad_rows else good

    def _next_records(self) -> bytes:
        """Return whole records from the offset on, at least one of them."""
        inside = self._part.end - self._offset
        behind = self._block_bytes_min
        # Blocks of about the same size, none of which is a mere remainder.
        blocks = round(inside / self._block_bytes)
        wanted = -(-inside // blocks) if blocks > 1 else inside + behind
        while True:
            data = self._bytes(self._offset, min(wanted, inside + behind))
            cut = self._cut(data)
            if cut:
                return data[:cut]
            if len(data) >= self._record_bytes_max:
                msg = (
                    f"the record at byte {self._offset} of {self._part.path} has "
                    f"no end within packet_bytes_max={self._record_bytes_max} bytes; "
                    "look for a quote that is left open, or raise that setting"
                )
                raise ValueError(msg)
            wanted, behind = 2 * wanted, 2 * max(wanted, behind)

    def _cut(self, data: bytes) -> int:
        """Return how many of the bytes at the offset are whole records of ours."""
        inside = self._part.end - self._offset
        if len(data) >= inside:
            newline = data.find(b"\n", inside - 1)
            if newline >= 0:
                return newline + 1
            if self._offset + len(data) >= self._part.size:
                return len(data)
        return self._format.cut(data)

    def _bytes(self, position: int, count: int) -> bytes:
        """Return `count` bytes from the position on, or all there are."""
        count = min(count, self._part.size - position)
        self._file.seek(position)
        data = self._file.read(count)
        while len(data) < count:
            more = self._file.read(count - len(data))
            if not more:
                msg = (
                    f"{self._part.path} had {self._part.size} bytes when the flow "
                    f"was planned and now ends at byte {position + len(data)}; a file must "
                    "not change while a flow reads it"
                )
                raise OSError(msg)
            data += more
        return data

    def _parsed(
        self, data: bytes, at: int
    ) -> tuple[pl.DataFrame, list[tuple[int, bytes, str]]]:
        """Return the good rows of whole records that begin at byte `at`, and the bad."""
        try:
            return self._format.parse(data), []
        except MalformedError:
            good = [pl.DataFrame(schema=self._format.schema)]
            bad: list[tuple[int, bytes, str]] = []
            records = [(at + begin, r) for begin, r in self._format.records(data)]
            self._salvage(records, good, bad)
            return pl.concat(good), bad

    def _salvage(
        self,
        records: list[tuple[int, bytes]],
        good: list[pl.DataFrame],
        bad: list[tuple[int, bytes, str]],
    ) -> None:
        """Part good from bad records, up to one bad one more than there may be."""
        if self._bad_count + len(bad) > self._max_bad_rows:
            return
        try:
            good.append(self._format.parse(b"".join(record for _, record in records)))
        except MalformedError as error:
            if len(records) == 1:
                bad.append((*records[0], str(error)))
                return
            middle = len(records) // 2
            self._salvage(records[:middle], good, bad)
            self._salvage(records[middle:], good, bad)

    def _bad_row(self, at: int, record: bytes, cause: str) -> BadRow:
        text = record[:_TEXT_BYTES_MAX].decode("utf-8", "backslashreplace")
        row = BadRow(
            file=self._part.path,
            line=self._lines.number(at),
            offset=at,
            text=text.rstrip("\r\n"),
            cause=cause,
        )
        self._bad_count += 1
        if self._bad_count > self._max_bad_rows:
            raise too_many(self._max_bad_rows, row)
        return row


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines with their newlines, which the last may lack."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def placed(records: list[bytes]) -> list[tuple[int, bytes]]:
    """Return contiguous records with the byte at which each begins."""
    result = []
    at = 0
    for record in records:
        result.append((at, record))
        at += len(record)
    return result
