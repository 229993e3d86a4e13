"""Sinks that write part files to a directory: the base of all, and those of rows.

`millstream.connectors.output` says where the parts are until the driver commits, and how
they appear; nothing here knows that, or when a job is complete.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from millstream.connectors.base import Sink, SinkWriter
from millstream.connectors.output import output_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.output import Output, Part
    from millstream.connectors.paths import StrPath

__all__ = [
    "DirectorySink",
    "EncodedSink",
    "JsonLinesSink",
    "PartFormat",
    "PartsWriter",
    "TextSink",
]

T_contra = TypeVar("T_contra", contravariant=True)


class DirectorySink(Sink[T_contra]):
    """Part files, one per task and epoch, moved into the directory by the commit.

    Parameters
    ----------
    directory
        Where the part files go, a path or a URL; made if it is not there.  All workers
        must see it.
    overwrite
        Replace the part files of an earlier run instead of refusing to start.  Other
        files in the directory stay.
    """

    _suffix: str

    def __init__(self, directory: StrPath, *, overwrite: bool = False) -> None:
        self._output = output_to(directory)
        self._overwrite = overwrite

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        """Make the directory, or check that it has room for the output."""
        if is_resumed:
            self._output.prepare_again(job)
        else:
            self._output.prepare(job, overwrite=self._overwrite)

    def open(self, job: str, task: int) -> SinkWriter[T_contra]:
        """Return the writer of the task's part files."""
        return PartsWriter(self._output, job, task, self._suffix, self._format)

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:  # noqa: ARG002
        """Move the parts of an epoch into the directory; safe to repeat."""
        self._output.commit(job, transactions, overwrite=self._overwrite)

    def complete(self, job: str) -> None:
        """Write ``_SUCCESS``; safe to repeat."""
        self._output.complete(job)

    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""
        self._output.abort(job)

    @abstractmethod
    def _format(self, file: BinaryIO) -> PartFormat[T_contra]:
        """Return what turns rows into the bytes of a part file."""


class PartFormat(ABC, Generic[T_contra]):
    """Writes the rows of one part to its file."""

    @abstractmethod
    def write(self, rows: list[T_contra]) -> None:
        """Take a batch."""

    def finish(self) -> None:
        """Write what is still held back, and what a file of this format ends with."""


class PartsWriter(SinkWriter[T_contra]):
    """Writes a part file from one cut to the next.

    The first epoch has a part also if it has no rows, so that an output without rows
    still has its header or schema.
    """

    def __init__(
        self,
        output: Output,
        job: str,
        task: int,
        suffix: str,
        make_format: Callable[[BinaryIO], PartFormat[T_contra]],
    ) -> None:
        self._open_part = partial(output.part, job, task, suffix)
        self._make_format = make_format
        self._part: Part | None = None
        self._format: PartFormat[T_contra] | None = None

    def write(self, rows: list[T_contra]) -> None:
        if len(rows) > 0:
            self._opened().write(rows)

    def seal(self, epoch: int) -> Any:
        if self._part is None and epoch > 1:
            return None
        self._opened().finish()
        part, self._part, self._format = self._part, None, None
        assert part is not None
        return part.finish(epoch)

    def close(self) -> None:
        if self._part is not None:
            self._part.abandon()

    def _opened(self) -> PartFormat[T_contra]:
        if self._format is None:
            self._part = self._open_part()
            self._format = self._make_format(self._part.file)
        return self._format


class EncodedSink(DirectorySink[T_contra]):
    """A directory whose parts are batches turned into bytes, one after the other."""

    #: What every part begins with.
    _head = b""

    def _format(self, file: BinaryIO) -> PartFormat[T_contra]:
        return _Encoded(file, self._encode, self._head)

    @abstractmethod
    def _encode(self, rows: list[T_contra]) -> bytes:
        """Return the rows as lines, each with its line end."""


class TextSink(EncodedSink[str]):
    """Text rows, one per line, as UTF-8."""

    _suffix = ".txt"

    def _encode(self, rows: list[str]) -> bytes:
        try:
            return "\n".join([*rows, ""]).encode()
        except TypeError:
            kinds: list[type] = [type(row) for row in rows]
            kind = next(kind for kind in kinds if not issubclass(kind, str))
            msg = (
                f"write_text takes rows of type str, got a {kind.__name__}; "
                "put .map(str) before it"
            )
            raise TypeError(msg) from None


class JsonLinesSink(EncodedSink[Any]):
    """Rows as JSON, one per line; a tuple becomes a list."""

    _suffix = ".jsonl"

    def _encode(self, rows: list[Any]) -> bytes:
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        lines: list[str] = []
        try:
            lines.extend(map(encode, rows))
        except (TypeError, ValueError) as error:
            row = rows[len(lines)]
            msg = (
                f"write_jsonl cannot write a row of type {type(row).__name__} as JSON "
                f"({error}); map it to dicts, lists, str, int, float, bool and None"
            )
            raise TypeError(msg) from error
        lines.append("")
        return "\n".join(lines).encode()


class _Encoded(PartFormat[T_contra]):
    def __init__(
        self, file: BinaryIO, encode: Callable[[list[T_contra]], bytes], head: bytes
    ) -> None:
        self._file = file
        self._encode = encode
        file.write(head)

    def write(self, rows: list[T_contra]) -> None:
        self._file.write(self._encode(rows))
