"""SQLite as the database of a `SqlSink`; pieces are files beside the database file.

A database in a file is for one machine: the driver inserts all rows, and workers only
write pieces.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from millstream.connectors.confining import folder_at
from millstream.connectors.sql import Database
from millstream.errors import OperationalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.connectors.confining import Folder
    from millstream.connectors.sql import TableRow

__all__ = ["SqliteDatabase"]

_BUSY_TIMEOUT_S = 30.0
"""How long a commit waits for other writers, and for readers that do not end."""

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_PRIMARY_CODE = 0xFF
"""The part of an error's code that does not go into detail."""

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
            cursor = self._begun(connection)
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            cursor.close()  # a statement that was not read to its end is in the way
            connection.commit()

    def _begun(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        """Take the right to write, or say that somebody has it."""
        try:
            connection.execute("PRAGMA synchronous = FULL")
            return connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE not in _LOCKED:
                raise
            msg = (
                f"{self} is locked: another connection has held its right to write for "
                f"{_BUSY_TIMEOUT_S:g} s; end that transaction, and run the flow again"
            )
            raise OperationalError(msg) from None

    def create(self, statement: str) -> None:
        """Make a table that nobody else can make meanwhile."""
        with self.transaction() as cursor:
            cursor.execute(statement)

    def check_values(self, rows: list[TableRow], columns: Sequence[str]) -> None:
        """Refuse what `sqlite3` would refuse later, in the driver, for the whole epoch."""
        kinds = set(map(type, chain.from_iterable(rows)))
        is_plain = all(issubclass(kind, _HELD) for kind in kinds)
        if is_plain and not any(issubclass(kind, int | float) for kind in kinds):
            return
        for row in rows:
            for column, value in zip(columns, row, strict=True):
                if not isinstance(value, _HELD):
                    raise _not_held(column, value, f"of type {type(value).__name__}")
                if isinstance(value, int) and not -_INTEGER_END <= value < _INTEGER_END:
                    raise _not_held(column, value, "beyond 64 bits")
                if isinstance(value, float) and value != value:  # noqa: PLR0124
                    raise _not_held(column, value, "stored as NULL by it")

    def stage(self, scope: str, piece: str, data: bytes) -> None:
        """Write a file that nobody else writes, beside the database."""
        if not self._path.exists():
            msg = (
                f"{self._path} is not there on this worker; for as many rows as these, "
                "put it where the driver and all workers see it, or use a database server"
            )
            raise FileNotFoundError(msg)
        mode = self._mode()
        with self._beside() as beside:
            with suppress(FileExistsError):
                # Whoever reads a row may look for it.
                beside.make(self._name(scope), 0o700 | mode | (mode & 0o444) >> 2)
            with beside.within(self._name(scope)) as folder:
                if folder is None:
                    raise FileNotFoundError(str(self._path.parent / self._name(scope)))
                with os.fdopen(folder.create(piece, 0o600), "wb") as file:
                    os.fchmod(file.fileno(), mode)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                folder.sync()

    def staged(self, scope: str, piece: str) -> bytes | None:
        """Return the content of the file."""
        with self._beside() as beside, beside.within(self._name(scope)) as folder:
            file = None if folder is None else folder.opened(piece)
            if file is None:
                return None
            with file:
                return file.read()

    def discard(self, scope: str, pieces: Sequence[str] | None = None) -> None:
        """Remove the files, and the directory with the last of them."""
        with self._beside() as beside:
            if pieces is None:
                beside.remove_tree(self._name(scope))
                return
            with beside.within(self._name(scope)) as folder:
                if folder is not None:
                    for piece in pieces:
                        folder.remove(piece)

    def discard_before(self, scope: str, piece: str) -> None:
        """Remove the files."""
        with self._beside() as beside, beside.within(self._name(scope)) as folder:
            if folder is not None:
                for name in folder.names():
                    if name < piece:
                        folder.remove(name)

    @contextmanager
    def _beside(self) -> Iterator[Folder]:
        """Open the directory that the database lies in."""
        with folder_at(self._path.parent) as folder:
            if folder is None:
                raise FileNotFoundError(str(self._path.parent))
            yield folder

    def _mode(self) -> int:
        """Return who may read and write pieces: those who may the database itself."""
        return 0o600 | stat.S_IMODE(self._path.stat().st_mode) & 0o666

    def _name(self, scope: str) -> str:
        return f"{self._path.name}.millstream-{quote(scope, safe='')}"


def _not_held(column: str, value: object, why: str) -> TypeError:
    text = repr(value)
    shown = text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - of a line
    msg = (
        f"SQLite cannot hold the value {shown} of column {column!r}, which is {why}; map "
        "it to None, int, float, str or bytes"
    )
    return TypeError(msg)
