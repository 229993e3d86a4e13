"""PostgreSQL as the database of a `SqlSink`; pieces are rows of a table of ours.

`psycopg` is imported where it is first needed.  What it makes of Python's types is its
business.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from millstream.connectors.sql import Database
from millstream.credentials import Credential, harmless, without_credentials
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from millstream.connectors.sql import TableRow

__all__ = ["PostgresDatabase"]

_CREATE_STAGED = """
CREATE TABLE IF NOT EXISTS millstream_staged (
    scope TEXT NOT NULL, piece TEXT NOT NULL, content BYTEA NOT NULL,
    PRIMARY KEY (scope, piece)
)
"""

_CREATING = 0x6D696C6C
"""The advisory lock that those who create our tables take in turn."""


_SECRET_OPTIONS = (
    "oauth_client_secret",
    "password",
    "scram_client_key",
    "scram_server_key",
    "sslpassword",
)


class PostgresDatabase(Database):
    """A database on a server that driver and workers reach.

    Parameters
    ----------
    dsn
        A connection string or URL of libpq; it travels to the workers, password and all.
    """

    marker = "%s"

    def __init__(self, dsn: str) -> None:
        if find_spec("psycopg") is None:
            msg = (
                "psycopg, which speaks to PostgreSQL, is not installed; install "
                "millstream[postgres], on the workers too"
            )
            raise UsageError(msg)
        self._dsn = Credential(dsn, _checked_secrets(dsn))

    def __str__(self) -> str:
        return "PostgreSQL"

    def quoted(self, name: str) -> str:
        """Return a name as an identifier in a statement whose markers are ``%s``."""
        return super().quoted(name).replace("%", "%%")

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor]:
        """Begin a transaction on a connection of its own."""
        with self._connected() as connection, connection.cursor() as cursor:
            yield cursor

    def _connected(self) -> psycopg.Connection:
        import psycopg  # noqa: PLC0415 - optional

        try:
            return psycopg.connect(self._dsn.value)
        except psycopg.Error as error:
            if harmless(error) is not None:
                raise
            raise type(error)(without_credentials(str(error))) from None

    def create(self, statement: str) -> None:
        """Make a table of ours, and that of the pieces, after others that do the same."""
        with self.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
            cursor.execute(statement)
            cursor.execute(_CREATE_STAGED)

    def check_values(self, rows: list[TableRow], columns: Sequence[str]) -> None:
        """Accept everything: what fits depends on types that only the server knows."""

    def stage(self, scope: str, piece: str, data: bytes) -> None:
        """Insert a row that only the commit looks for."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT INTO millstream_staged (scope, piece, content) VALUES (%s, %s, %s)",
                (scope, piece, data),
            )

    def staged(self, scope: str, piece: str) -> bytes | None:
        """Return the content of the row."""
        with self.transaction() as cursor:
            cursor.execute(
                "SELECT content FROM millstream_staged WHERE scope = %s AND piece = %s",
                (scope, piece),
            )
            found = cursor.fetchone()
        return None if found is None else bytes(found[0])

    def discard(self, scope: str, pieces: Sequence[str] | None = None) -> None:
        """Delete the rows."""
        statement, values = "DELETE FROM millstream_staged WHERE scope = %s", [scope]
        with self.transaction() as cursor:
            if pieces is None:
                cursor.execute(statement, values)
            else:
                wanted = [scope, list(pieces)]
                cursor.execute(f"{statement} AND piece = ANY(%s)", wanted)

    def discard_before(self, scope: str, piece: str) -> None:
        """Delete the rows."""
        with self.transaction() as cursor:
            cursor.execute(
                "DELETE FROM millstream_staged WHERE scope = %s "
                'AND piece COLLATE "C" < %s',
                (scope, piece),
            )


def _checked_secrets(dsn: str) -> list[str]:
    """Return the secrets in a connection string; refuse one that libpq may misread.

    libpq repeats what it does not understand, which may be a part of the password; so
    nothing of a malformed string is quoted, nor what libpq says about it.
    """
    from psycopg import Error  # noqa: PLC0415 - optional
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        found = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except Error:
        raise _malformed() from None
    ports = found.get("port", "").split(",")
    name = found.get("dbname", "")
    is_url = dsn.startswith(("postgresql://", "postgres://"))
    if (
        "@" in found.get("host", "")
        or not all(port.isdigit() or not port for port in ports)
        or any(mark in name for mark in ("://", "password="))
        or (is_url and "@" in name and f"/{name}" in dsn)
    ):
        raise _malformed()
    return [found[option] for option in _SECRET_OPTIONS if found.get(option)]


def _malformed() -> UsageError:
    msg = (
        "the connection string is malformed; write it as libpq reads it, "
        "'host=db dbname=shop' with values that hold spaces in quotes, or as a URL in "
        "which @, /, : and % of a password are percent-encoded"
    )
    return UsageError(msg)
