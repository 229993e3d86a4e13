"""Databases for tests of sinks: an SQLite file, and a PostgreSQL server of our own."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.connectors.postgres import PostgresDatabase
from millstream.connectors.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.sql import Database

__all__ = ["PostgresPlace", "SqlitePlace", "TablePlace", "postgres_server", "tables"]

STARTED_S = 60
UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""


@dataclass(frozen=True)
class SqlitePlace:
    """A database file, looked at by a connection that is not the sink's."""

    path: Path

    @property
    def database(self) -> Database:
        return SqliteDatabase(self.path)

    def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()

    def pieces(self) -> int:
        beside = self.path.parent.glob(f"{self.path.name}.millstream-*/*")
        return len(list(beside))


@dataclass(frozen=True)
class PostgresPlace:
    """A database on a server, looked at by a connection that is not the sink's."""

    dsn: str

    @property
    def database(self) -> Database:
        return PostgresDatabase(self.dsn)

    def run(self, statement: str) -> list[Any]:
        import psycopg  # noqa: PLC0415 - optional

        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def pieces(self) -> int:
        count: int = self.run("SELECT count(*) FROM millstream_staged")[0][0]
        return count


TablePlace = SqlitePlace | PostgresPlace


def server_programs() -> Path | None:
    """Return where `initdb` and `postgres` are, on the path or where Debian has them."""
    found = shutil.which("initdb")
    places = [Path(found).resolve()] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return places[0].parent if places else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Run a server on a socket in a directory of its own; return how to connect."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = server_programs()
    if programs is None:
        pytest.skip("initdb and postgres are not installed (Debian: postgresql)")
    root = Path(tempfile.mkdtemp(prefix="millstream-pg-"))
    rights: dict[str, Any] = {}
    if os.getuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        os.chown(root, user.pw_uid, user.pw_gid)
        rights = {"user": user.pw_uid, "group": user.pw_gid}
    data = root / "data"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": root, **rights}
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "test", "-A", "trust", "-N"],
        check=True,
        **quiet,
    )
    control: list[str | Path] = [
        programs / "pg_ctl",
        "-D",
        data,
        "-w",
        "-t",
        str(STARTED_S),
    ]
    options = f"-k {root} -c listen_addresses='' -c fsync=off"
    start = [*control, "-l", root / "log", "-o", options, "start"]
    subprocess.run(start, check=True, **quiet)
    try:
        yield f"host={root} user=test dbname=postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)
        shutil.rmtree(root)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TablePlace:
    """Return a database with an empty table ``words`` of ``word`` and ``n``."""
    place: TablePlace
    if request.param == "sqlite":
        place = SqlitePlace(tmp_path / "test.db")
    else:
        place = PostgresPlace(request.getfixturevalue("postgres_server"))
        for table in ("words", "unique_words", "millstream_epochs"):
            place.run(f"DROP TABLE IF EXISTS {table}")
    place.run("CREATE TABLE words (word TEXT, n INTEGER CHECK (n < 1000000))")
    place.run("CREATE TABLE unique_words (word TEXT PRIMARY KEY, n INTEGER)")
    return place
