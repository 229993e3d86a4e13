"""The sinks that write to a table of a database, of rows and of frames.

What exactly-once means for a table is in `millstream.connectors.sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.api.building import located
from millstream.api.graph import Wrapped, WrappedFrame
from millstream.connectors.sql import SqlSink
from millstream.plan.nodes import Write

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from millstream.connectors.sql import Database

__all__ = ["FrameTableVerbs", "RowTableVerbs"]


class RowTableVerbs(Wrapped):
    """Verbs that end a stream in a table; a row is a tuple, or a dict by column."""

    def write_sqlite(
        self,
        path: str | os.PathLike[str],
        table: str,
        *,
        columns: Sequence[str],
        upsert_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Insert rows into a table of an SQLite database, each exactly once.

        Rows appear when the snapshot is complete that has them, all those of a snapshot
        at once; without a state directory, when the job has succeeded.

        moves data: no · state: rows since the last snapshot, on disk

        Parameters
        ----------
        path
            A database that has the table.  The driver inserts all rows.
        columns
            Columns of the table, in the order of a tuple's items.
        upsert_by
            Columns with a unique index: a row replaces the one with the same values
            there.  Rows of one such key must come from one task; see `key_by`.
        name
            What messages and plans call it.

        Examples
        --------
        >>> import sqlite3, tempfile
        >>> import millstream as ms
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     database = sqlite3.connect(f"{folder}/words.db")
        ...     _ = database.execute("CREATE TABLE counts (word TEXT, n INTEGER)")
        ...     flow = ms.Flow("write_sqlite")
        ...     counts = flow.from_iterable("aab").group_by(str).count()
        ...     counts.write_sqlite(
        ...         f"{folder}/words.db", "counts", columns=["word", "n"]
        ...     )
        ...     _ = flow.run(on="local")
        ...     database.execute("SELECT * FROM counts ORDER BY word").fetchall()
        ...     database.close()
        [('a', 2), ('b', 1)]
        """
        make = lambda: _sqlite(path)  # noqa: E731 - tried
        _write(
            self,
            "write_sqlite",
            make,
            table,
            columns=columns,
            upsert_by=upsert_by,
            name=name,
        )

    def write_postgres(
        self,
        dsn: str,
        table: str,
        *,
        columns: Sequence[str],
        upsert_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Insert rows into a table of a PostgreSQL database, each exactly once.

        Rows appear as with `write_sqlite`.  Needs ``millstream[postgres]``.

        moves data: no · state: rows since the last snapshot, in the database

        Parameters
        ----------
        dsn
            A connection string or URL of libpq that driver and workers can use.
        table
            A table that is there, such as ``"counts"`` or ``"public.counts"``.
        columns
            Columns of the table, in the order of a tuple's items.
        upsert_by
            Columns with a unique index: a row replaces the one with the same values
            there.  Rows of one such key must come from one task; see `key_by`.
        name
            What messages and plans call it.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("write_postgres")
        >>> rows = flow.from_iterable([("a", 1)])
        >>> rows.write_postgres(  # doctest: +SKIP
        ...     "host=db dbname=shop", "counts", columns=["word", "n"]
        ... )
        """
        make = lambda: _postgres(dsn)  # noqa: E731 - tried
        _write(
            self,
            "write_postgres",
            make,
            table,
            columns=columns,
            upsert_by=upsert_by,
            name=name,
        )


class FrameTableVerbs(WrappedFrame):
    """Verbs that end a frame in a table that has its columns."""

    def write_sqlite(
        self,
        path: str | os.PathLike[str],
        table: str,
        *,
        upsert_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Insert rows into a table of an SQLite database; see `Stream.write_sqlite`.

        moves data: no · state: rows since the last snapshot, on disk

        Examples
        --------
        >>> import sqlite3, tempfile
        >>> import millstream as ms, polars as pl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     database = sqlite3.connect(f"{folder}/words.db")
        ...     _ = database.execute("CREATE TABLE words (word TEXT, n INTEGER)")
        ...     flow = ms.Flow("write_sqlite")
        ...     rows = flow.from_iterable([("a", 1)])
        ...     frame = rows.to_frame({"word": pl.String, "n": pl.Int64})
        ...     frame.write_sqlite(f"{folder}/words.db", "words")
        ...     _ = flow.run(on="local")
        ...     database.execute("SELECT * FROM words").fetchall()
        ...     database.close()
        [('a', 1)]
        """
        make = lambda: _sqlite(path)  # noqa: E731 - tried
        columns = self.schema.names()
        _write(
            self,
            "write_sqlite",
            make,
            table,
            columns=columns,
            upsert_by=upsert_by,
            name=name,
        )

    def write_postgres(
        self,
        dsn: str,
        table: str,
        *,
        upsert_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Insert rows into a table of a PostgreSQL database.

        See `Stream.write_postgres`; the frame's columns are those of the table.

        moves data: no · state: rows since the last snapshot, in the database
        """
        make = lambda: _postgres(dsn)  # noqa: E731 - tried
        columns = self.schema.names()
        _write(
            self,
            "write_postgres",
            make,
            table,
            columns=columns,
            upsert_by=upsert_by,
            name=name,
        )


def _sqlite(path: str | os.PathLike[str]) -> Database:
    from millstream.connectors.sqlite import SqliteDatabase  # noqa: PLC0415 - rare

    return SqliteDatabase(path)


def _postgres(dsn: str) -> Database:
    from millstream.connectors.postgres import PostgresDatabase  # noqa: PLC0415 - rare

    return PostgresDatabase(dsn)


def _write(
    stream: RowTableVerbs | FrameTableVerbs,
    verb: str,
    make: Callable[[], Database],
    table: str,
    *,
    columns: Sequence[str],
    upsert_by: Sequence[str],
    name: str | None,
) -> None:
    graph = stream._graph  # noqa: SLF001 - a part of the stream
    known = name or graph.plan.free_name(verb)
    with located(verb):
        sink = SqlSink(make(), table, columns, name=known, upsert_by=upsert_by)
    graph.add(verb, Write(sink), (stream._node.id,), name=known)  # noqa: SLF001
