"""Sinks that write part files to a directory: the base of all, and those of rows.

`millstream.connectors.output` says where the parts are until the driver commits, and how
they appear; nothing here knows that, or when a job is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import abstractmethod
from typing import TYPE_CHECKING, BinaryIO, TypedDict, TypeVar, Unpack

from millstream.config import byte_count, nanoseconds
from millstream.connectors.base import Sink, SinkWriter
from millstream.connectors.claims import Claim
from millstream.connectors.committed import last_epoch_in
from millstream.connectors.output import output_to
from millstream.connectors.parts import PartFormat, PartsWriter, Roll
from millstream.credentials import Credential
from millstream.values import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from millstream.connectors.parts import SealedParts
    from millstream.connectors.paths import StrPath
    from millstream.values import Rows

__all__ = [
    "ROLL_EVERY",
    "ROLL_SIZE",
    "DirectorySink",
    "EncodedSink",
    "JsonLinesSink",
    "PartOptions",
    "TextSink",
]

T_contra = TypeVar("T_contra", contravariant=True)

ROLL_SIZE = "128MB"
ROLL_EVERY = "1min"
_COPY_BYTES = 1024 * 1024


class PartOptions(TypedDict, total=False):
    """What all sinks of part files can be told.

    Attributes
    ----------
    overwrite
        Replace the part files of an earlier run instead of refusing to start.  Other
        files in the directory stay.
    name
        What the parts are called after; the operator's name.
    roll, roll_every
        When a part is complete: at this size, such as ``"128MB"``, or this long after
        its first row, such as ``"5min"``.
    """

    overwrite: bool
    name: str
    roll: str | int
    roll_every: str | timedelta


class DirectorySink(Sink[T_contra]):
    """Part files, moved into the directory by the commit that completes them.

    Parameters
    ----------
    directory
        Where the part files go, a path or a URL; made if it is not there.  All workers
        must see it.
    """

    suffix: str

    def __init__(self, directory: StrPath, **options: Unpack[PartOptions]) -> None:
        self.output = output_to(directory)
        self._place = Credential(os.fspath(directory))
        self.destination = self.output.place
        self.name = options.get("name", "")
        size, every = (
            options.get("roll", ROLL_SIZE),
            options.get("roll_every", ROLL_EVERY),
        )
        self.roll = Roll(byte_count(size), nanoseconds(every))
        self._overwrite = options.get("overwrite", False)

    def claim(
        self, job: str, *, state: str = "", is_resumed: bool = False, key: bytes = b""
    ) -> Callable[[], None]:
        """Take the directory for this sink of this job, or refuse."""
        claim = Claim.of_this_process(job, self.name, state)
        overwrite = self._overwrite and not is_resumed
        return self.output.claim(
            claim, overwrite=overwrite, is_resumed=is_resumed, key=key
        )

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:
        """Make the directory, or check that it has room for the output."""
        if is_resumed:
            self.output.prepare_again(job)
        else:
            self.output.prepare(job, overwrite=self._overwrite)

    def open(self, job: str, task: int) -> SinkWriter[T_contra]:
        """Return the writer of the task's part files."""
        return PartsWriter(self, job, task)

    def commit(self, job: str, epoch: int, transactions: list[SealedParts]) -> None:  # noqa: ARG002
        """Move complete parts into the directory; safe to repeat.

        The first commit after a recovery removes what older generations left behind: all
        that the snapshot still needs is named by the transactions.
        """
        sealed = transactions
        moves = [move for each in sealed for move in each.moves]
        self.output.commit(job, moves, overwrite=self._overwrite)
        self.output.discard(job, [name for each in sealed for name in each.spent])
        if any(each.is_first for each in sealed):
            held = {name for each in sealed for name in each.held}
            self.output.clean(job, max(each.generation for each in sealed), held)

    def committed_epoch(self, job: str) -> int | None:
        """Return the newest epoch whose parts are in the directory.

        Parts that a job is yet to replace by its first one are not its own.
        """
        if self._overwrite and self.output.is_to_replace(job):
            return 0
        return last_epoch_in(self._place.value)

    def complete(self, job: str) -> None:
        """Write ``_SUCCESS``; safe to repeat."""
        self.output.complete(job)

    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""
        self.output.abort(job)

    @abstractmethod
    def make_format(self, file: BinaryIO) -> PartFormat[T_contra]:
        """Return what turns rows into the bytes of a part file."""

    @abstractmethod
    def merge(self, pieces: Iterable[BinaryIO], file: BinaryIO) -> None:
        """Write the rows of finished pieces to one file."""


class EncodedSink(DirectorySink[T_contra]):
    """A directory whose parts are batches turned into bytes, one after the other."""

    #: What every part begins with.
    _head = b""

    def make_format(self, file: BinaryIO) -> PartFormat[T_contra]:
        return _Encoded(file, self._encode, self._head)

    def merge(self, pieces: Iterable[BinaryIO], file: BinaryIO) -> None:
        file.write(self._head)
        for piece in pieces:
            with piece:
                piece.read(len(self._head))
                shutil.copyfileobj(piece, file, _COPY_BYTES)

    @abstractmethod
    def _encode(self, rows: list[T_contra]) -> bytes:
        """Return the rows as lines, each with its line end."""


class TextSink(EncodedSink[str]):
    """Text rows, one per line, as UTF-8."""

    suffix = ".txt"

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


class JsonLinesSink(EncodedSink[Row]):
    """Rows as JSON, one per line; a tuple becomes a list."""

    suffix = ".jsonl"

    def _encode(self, rows: Rows) -> bytes:
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
        lines: list[str] = []
        try:
            lines.extend(map(encode, rows))
        except (TypeError, ValueError) as error:
            row = rows[len(lines)]
            msg = (
                f"write_jsonl cannot write a row of type {type(row).__name__} as JSON "
                f"({error}); map it to dicts, lists, str, int, finite float, bool and "
                "None"
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
