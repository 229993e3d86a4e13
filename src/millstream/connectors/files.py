"""Sinks that write part files to a directory: the base of all, and those of rows.

`millstream.connectors.output` says where the parts are until the driver commits, and how
they appear; nothing here knows that, or when a job is complete.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.connectors.base import Sink, SinkWriter
from millstream.connectors.output import output_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.output import Part
    from millstream.connectors.paths import StrPath

__all__ = ["DirectorySink", "EncodedSink", "JsonLinesSink", "PartWriter", "TextSink"]

T_contra = TypeVar("T_contra", contravariant=True)


class DirectorySink(Sink[T_contra]):
    """One part file per task, moved into the directory by the commit.

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

    def prepare(self, job: str) -> None:
        """Make the directory, or check that it has room for the output."""
        self._output.prepare(job, overwrite=self._overwrite)

    def open(self, job: str, task: int) -> SinkWriter[T_contra]:
        """Return the writer of the task's part file."""
        return self._writer(self._output.part(job, task, self._suffix))

    def commit(self, job: str) -> None:
        """Move the finished parts into the directory; safe to repeat."""
        self._output.commit(job, overwrite=self._overwrite)

    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""
        self._output.abort(job)

    @abstractmethod
    def _writer(self, part: Part) -> PartWriter[T_contra]:
        """Return a writer of a part file."""


class EncodedSink(DirectorySink[T_contra]):
    """A directory whose parts are batches turned into bytes, one after the other."""

    #: What every part begins with.
    _head = b""

    def _writer(self, part: Part) -> PartWriter[T_contra]:
        return _EncodedWriter(part, self._encode, self._head)

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


class PartWriter(SinkWriter[T_contra]):
    """Writes the file of a part that `close` finishes."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._file = part.file
        self._is_open = True

    def close(self) -> None:
        """Bring the part to where the commit finds it."""
        if self._is_open:
            self._is_open = False
            self._part.finish()

    def abandon(self) -> None:
        """Close the file; the driver's abort removes it."""
        self._is_open = False
        self._part.abandon()


class _EncodedWriter(PartWriter[T_contra]):
    def __init__(
        self, part: Part, encode: Callable[[list[T_contra]], bytes], head: bytes
    ) -> None:
        super().__init__(part)
        self._encode = encode
        self._file.write(head)

    def write(self, rows: list[T_contra]) -> None:
        if len(rows) > 0:
            self._file.write(self._encode(rows))
