"""Output directories whose part files appear as a whole or not at all.

Each task writes one part file below ``<directory>/.millstream-<job>/``, which readers
of the directory skip.  The commit moves the finished parts beside it and writes
``_SUCCESS`` last.  A part that a killed task left behind keeps its temporary name and
is never moved.

`DirectorySink` is the base of all file sinks; those of text and JSON rows are here.

Nothing here knows when a job is complete; the driver calls `commit` or `abort`.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import abstractmethod
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import quote

from millstream.connectors.base import Sink, SinkWriter
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DirectorySink", "EncodedSink", "JsonLinesSink", "PartWriter", "TextSink"]

T_contra = TypeVar("T_contra", contravariant=True)

_STAGING_PREFIX = ".millstream-"
_PART_PREFIX = "part-"
_TEMPORARY_SUFFIX = ".tmp"
_SUCCESS = "_SUCCESS"

_MADE_DIRECTORY = "made-directory"
"""Marks in the staging directory that the output directory was not there before."""

_OLD_PARTS_REMOVED = "old-parts-removed"
"""Marks that the parts now in the directory are new, should a commit be repeated."""

_WRITE_BUFFER_BYTES = 1024 * 1024


class DirectorySink(Sink[T_contra]):
    """One part file per task, moved into the directory by the commit.

    Parameters
    ----------
    directory
        Where the part files go; made if it is not there.  All workers must see it.
    overwrite
        Replace the part files of an earlier run instead of refusing to start.  Other
        files in the directory stay.
    """

    _suffix: str

    def __init__(
        self, directory: str | os.PathLike[str], *, overwrite: bool = False
    ) -> None:
        if "://" in os.fspath(directory):
            msg = f"cannot write to {directory}; name a local or mounted directory"
            raise UsageError(msg)
        self._directory = Path(directory).expanduser().absolute()
        self._overwrite = overwrite
        for path in (self._directory, *self._directory.parents):
            if path.exists() and not path.is_dir():
                msg = (
                    f"cannot write to the directory {directory}: {path} is a file; "
                    "name another directory"
                )
                raise UsageError(msg)

    def prepare(self, job: str) -> None:
        """Make the directory, or check that it has room for the output."""
        is_new = not self._directory.exists()
        if not is_new and not self._overwrite:
            self._check_empty()
        staging = self._staging(job)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        if is_new:
            (staging / _MADE_DIRECTORY).touch()

    def open(self, job: str, task: int) -> SinkWriter[T_contra]:
        """Return the writer of the task's part file."""
        part = self._staging(job) / f"{_PART_PREFIX}{task:05}{self._suffix}"
        return self._writer(part)

    def commit(self, job: str) -> None:
        """Move the finished parts into the directory; safe to repeat."""
        staging = self._staging(job)
        if not staging.exists():
            if (self._directory / _SUCCESS).exists():
                return
            msg = (
                f"cannot commit the output in {self._directory}: {staging} with the "
                "finished parts is gone; run the flow again"
            )
            raise FileNotFoundError(msg)
        if self._overwrite:
            self._remove_old_parts(staging / _OLD_PARTS_REMOVED)
        for part in sorted(staging.glob(f"{_PART_PREFIX}*{self._suffix}")):
            part.replace(self._directory / part.name)
        _sync_directory(self._directory)
        (self._directory / _SUCCESS).touch()
        _sync_directory(self._directory)
        shutil.rmtree(staging)

    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""
        staging = self._staging(job)
        made_directory = (staging / _MADE_DIRECTORY).exists()
        shutil.rmtree(staging, ignore_errors=True)
        if made_directory and not any(self._directory.iterdir()):
            self._directory.rmdir()

    def _remove_old_parts(self, done: Path) -> None:
        if done.exists():
            return
        (self._directory / _SUCCESS).unlink(missing_ok=True)
        for path in self._directory.glob(f"{_PART_PREFIX}*"):
            if path.is_file():
                path.unlink()
        _sync_directory(self._directory)
        done.touch()

    def _staging(self, job: str) -> Path:
        return self._directory / f"{_STAGING_PREFIX}{quote(job, safe='')}"

    def _check_empty(self) -> None:
        names = sorted(
            path.name
            for path in self._directory.iterdir()
            if not path.name.startswith(_STAGING_PREFIX)
        )
        if names:
            msg = (
                f"the output directory {self._directory} is not empty (it holds "
                f"{names[0]!r}); remove it, name another, or pass overwrite=True"
            )
            raise UsageError(msg)

    @abstractmethod
    def _writer(self, part: Path) -> PartWriter[T_contra]:
        """Return a writer of a part file."""


class EncodedSink(DirectorySink[T_contra]):
    """A directory whose parts are batches turned into bytes, one after the other."""

    #: What every part begins with.
    _head = b""

    def _writer(self, part: Path) -> PartWriter[T_contra]:
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
    """Writes a temporary file that `close` makes a finished part."""

    def __init__(self, part: Path) -> None:
        self._part = part
        self._file = _new_file(part)

    def close(self) -> None:
        """Bring the part to disk under its final name."""
        if self._file.closed:
            return
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        Path(self._file.name).replace(self._part)
        _sync_directory(self._part.parent)

    def abandon(self) -> None:
        """Close the file; the driver's abort removes it."""
        self._file.close()


class _EncodedWriter(PartWriter[T_contra]):
    def __init__(
        self, part: Path, encode: Callable[[list[T_contra]], bytes], head: bytes
    ) -> None:
        super().__init__(part)
        self._encode = encode
        self._file.write(head)

    def write(self, rows: list[T_contra]) -> None:
        if len(rows) > 0:
            self._file.write(self._encode(rows))


def _new_file(part: Path) -> BinaryIO:
    """Open a file for this attempt; an earlier attempt may still hold its own."""
    for attempt in count():
        path = part.with_name(f"{part.name}.{attempt}{_TEMPORARY_SUFFIX}")
        try:
            return path.open("xb", buffering=_WRITE_BUFFER_BYTES)
        except FileExistsError:
            continue
        except FileNotFoundError:
            msg = (
                f"{part.parent}, which the driver made, is not there on this worker; "
                "write to a directory that the driver and all workers share"
            )
            raise FileNotFoundError(msg) from None
    raise AssertionError


def _sync_directory(directory: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
