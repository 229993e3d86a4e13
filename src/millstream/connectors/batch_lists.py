"""A directory that one process fills batch by batch while others read along.

::

    batches/12-9f3c/...   files of batch 12; never changed once they are listed
    lists/12              which files those are; written last and in one step
    read/3                the last batch that reader 3 is done with
    end                   how many batches there are, and why there are no more
    closed                nobody reads on
    kept                  what was read may be read again, so whoever knows better forgets it

A list and the end carry the SHA-256 of their text, a list also the length of every file,
so nobody reads what is cut short.  A batch that is written again, because its writer
did not live to see it listed, gets files of its own; once listed it stays as it is.
What no reader needs any more is forgotten, but for the newest list: it tells how far the
writer had come.

Nothing here knows who writes, what is in the files, or who reads which of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["AHEAD_BATCHES_MAX", "BatchDirectory", "End", "ListedFile"]

AHEAD_BATCHES_MAX = 64
"""Batches that a writer may be ahead of the slowest reader."""

_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a batch, complete and never changed."""

    path: Path
    byte_count: int


@dataclass(frozen=True, slots=True)
class End:
    """How many batches there are in all, and the error that ended them, if one did."""

    batch_count: int
    error: str | None


class BatchDirectory:
    """The lists of batches in one directory, from either side."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def make(self, *, is_kept: bool = False) -> None:
        """Make the folders; by the writer, before anybody reads."""
        for name in ("batches", "lists", "read"):
            (self.path / name).mkdir()
        if is_kept:
            (self.path / "kept").touch()

    def reopen(self) -> None:
        """Go on with a directory that was left; readers say anew how far they are."""
        for name in ("closed", "end"):
            (self.path / name).unlink(missing_ok=True)
        for mark in (self.path / "read").iterdir():
            mark.unlink()

    def new_place(self, batch: int) -> Path:
        """Return a path, at which nothing is yet, for the files of a batch."""
        return self.path / "batches" / f"{batch}-{secrets.token_hex(4)}"

    def publish(self, batch: int, files: list[Path]) -> None:
        """List the files of a batch, which are complete; the first list counts."""
        if self.listed(batch) is not None:
            return
        for path in [*files, *{file.parent for file in files}, self.path / "batches"]:
            _sync(path)
        entries = [
            [str(file.relative_to(self.path)), file.stat().st_size] for file in files
        ]
        _write(self._list(batch), {"batch": batch, "files": entries}, is_synced=True)
        _sync(self.path / "lists")

    def listed(self, batch: int) -> list[ListedFile] | None:
        """Return the files of a batch, or None if it is not there yet."""
        record = _read(self._list(batch))
        if record is None:
            return None
        return [ListedFile(self.path / name, size) for name, size in record["files"]]

    def finish(self, error: str | None) -> None:
        """Say that no more batches will come."""
        batch_count = 1 + max(self._numbers("lists"), default=-1)
        _write(self.path / "end", {"batch_count": batch_count, "error": error})

    def end(self) -> End | None:
        """Return how it ended, or None while more may come."""
        record = _read(self.path / "end")
        return None if record is None else End(**record)

    def mark_read(self, part: int, batch: int) -> None:
        """Say that a reader is done with a batch and all before it."""
        _write(self.path / "read" / str(part), {"batch": batch})

    def has_room(self, batch: int, part_count: int) -> bool:
        """Whether the slowest reader is near enough for this batch to be written."""
        return batch - self._slowest(part_count) <= AHEAD_BATCHES_MAX

    def await_room(self, batch: int, part_count: int) -> bool:
        """Wait until there is room; return False if nobody reads on."""
        pause = threading.Event()
        while not self.is_closed:
            if self.has_room(batch, part_count):
                return True
            pause.wait(_PAUSE_S)
        return False

    def forget(self, batch: int) -> None:
        """Remove the files of all batches before this one, which nobody reads again."""
        newest = max(self._numbers("lists"), default=-1)
        for number in self._numbers("lists"):
            if number < min(batch, newest):
                self._list(number).unlink()
        for place in (self.path / "batches").iterdir():
            if int(place.name.partition("-")[0]) < batch:
                shutil.rmtree(place)

    def forget_read(self, part_count: int) -> None:
        """Remove what all readers are done with, unless it may be read again."""
        if not (self.path / "kept").exists():
            self.forget(self._slowest(part_count) + 1)

    def close(self) -> None:
        """Say that nobody reads on."""
        with suppress(FileNotFoundError):
            (self.path / "closed").touch()

    @property
    def is_closed(self) -> bool:
        """Whether nobody reads on, or the directory is gone."""
        return (self.path / "closed").exists() or not self.path.exists()

    def _slowest(self, part_count: int) -> int:
        """Return the last batch that all readers are done with."""
        marks = (_read(self.path / "read" / str(part)) for part in range(part_count))
        return min(-1 if mark is None else int(mark["batch"]) for mark in marks)

    def _numbers(self, folder: str) -> list[int]:
        names = (file.name for file in (self.path / folder).iterdir())
        return [int(name) for name in names if name.isdecimal()]

    def _list(self, batch: int) -> Path:
        return self.path / "lists" / str(batch)


def _write(path: Path, record: dict[str, Any], *, is_synced: bool = False) -> None:
    """Write a record under its name in one step."""
    body = json.dumps(record).encode()
    unfinished = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with unfinished.open("xb") as file:
        file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    if is_synced:
        _sync(unfinished)
    unfinished.replace(path)


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a record, or None if it is not there."""
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(body).hexdigest().encode() != digest:
        msg = (
            f"{path} is damaged: its text does not match its digest; run the flow again"
        )
        raise ValueError(msg)
    record: dict[str, Any] = json.loads(body)
    return record
