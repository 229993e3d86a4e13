"""SQLite as the database of a `SqlSink`; pieces are files beside the database file.

A database in a file is for one machine: the driver inserts all rows, and workers only
write pieces.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millstream.connectors.sql import Database
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SqliteDatabase"]

_BUSY_TIMEOUT_S = 60.0
"""How long a commit waits for other writers, and for readers that do not end."""

_INTEGER_END = 1 << 63
_HELD = (int, float, str, bytes, bytearray, memoryview, type(None))


class SqliteDatabase(Database):
    """A database file that is there already."""

    marker = "?"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).expanduser().absolute()
        if not self._path.is_file():
            msg = (
                f"there is no SQLite database {self._path}; create it, with the table to "
                "write to"
            )
            raise UsageError(msg)

    def __str__(self) -> str:
        return f"SQLite's {self._path}"

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Hold the only right to write until the end."""
        uri = f"{self._path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S
        )
        with closing(connection):
            connection.execute("PRAGMA synchronous = FULL")
            cursor = connection.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            cursor.close()  # a statement that was not read to its end is in the way
            connection.commit()

    def create(self, statement: str) -> None:
        """Make a table that nobody else can make meanwhile."""
        with self.transaction() as cursor:
            cursor.execute(statement)

    def check_values(self, rows: list[tuple[Any, ...]], columns: Sequence[str]) -> None:
        """Refuse what `sqlite3` would refuse later, in the driver, for the whole epoch."""
        kinds = set(map(type, chain.from_iterable(rows)))
        if all(kind is not int and issubclass(kind, _HELD) for kind in kinds):
            return
        for row in rows:
            for column, value in zip(columns, row, strict=True):
                if not isinstance(value, _HELD):
                    raise _not_held(column, value, f"of type {type(value).__name__}")
                if isinstance(value, int) and not -_INTEGER_END <= value < _INTEGER_END:
                    raise _not_held(column, value, "beyond 64 bits")

    def stage(self, scope: str, piece: str, data: bytes) -> None:
        """Write a file that nobody else writes, beside the database."""
        if not self._path.exists():
            msg = (
                f"{self._path} is not there on this worker; for as many rows as these, "
                "put it where the driver and all workers see it, or use a database server"
            )
            raise FileNotFoundError(msg)
        directory = self._directory(scope)
        directory.mkdir(exist_ok=True)
        with (directory / piece).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def staged(self, scope: str, piece: str) -> bytes | None:
        """Return the content of the file."""
        file = self._directory(scope) / piece
        return file.read_bytes() if file.exists() else None

    def discard(self, scope: str, pieces: Sequence[str] | None = None) -> None:
        """Remove the files, and the directory with the last of them."""
        directory = self._directory(scope)
        if pieces is None:
            shutil.rmtree(directory, ignore_errors=True)
            return
        for piece in pieces:
            (directory / piece).unlink(missing_ok=True)

    def _directory(self, scope: str) -> Path:
        name = f"{self._path.name}.millstream-{quote(scope, safe='')}"
        return self._path.with_name(name)


def _not_held(column: str, value: Any, why: str) -> TypeError:
    text = repr(value)
    shown = text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - of a line
    msg = (
        f"SQLite cannot hold the value {shown} of column {column!r}, which is {why}; map "
        "it to None, int, float, str or bytes"
    )
    return TypeError(msg)
