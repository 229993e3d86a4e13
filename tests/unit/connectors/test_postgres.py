"""Connection strings: what is malformed is never quoted, and no password is repeated."""

from __future__ import annotations

import traceback
from typing import NoReturn

import pytest

import millstream as ms
from millstream.connectors.postgres import PostgresDatabase

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

MALFORMED = (
    "postgresql://bob:hunter2%zz@host/db",
    "postgresql://bob:hun/ter2@host/db",
    "postgresql://bob:12/hunter2@host/db",
    "postgresql://bob:hunter2@x@host/db",
    "postgresql://bob:hunter2@host:hunter2/db",
    "host=db password=hunter2 secondword",
    "host=db password='hunter2",
    "hunter2",
    "hunter2=1",
    "dbname=postgresql://bob:hunter2@host/db",
    "dbname='host=db password=hunter2'",
)
SOUND = (
    "",
    "host=db dbname=shop",
    "host=db password='hun ter2'",
    "host=/run/pg,db port=5432,5433",
    "service=shop",
    "postgresql:///shop",
    "postgresql://bob:hunter2@host/db?application_name=a@b",
    "postgresql://bob:p%40ss%2Fw@[::1]:5432/d%40b",
    "postgres://bob:hun?ter2#@host",
)


def told(error: BaseException) -> str:
    """Return all that a traceback would show."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("dsn", MALFORMED)
def test_a_malformed_connection_string_is_not_quoted(dsn: str) -> None:
    """What libpq does not understand may be a part of the password."""
    rows = ms.Flow("dsn").from_iterable([("a", 1)])
    with pytest.raises(ms.UsageError, match="the connection string is malformed") as no:
        rows.write_postgres(dsn, "words", columns=["word", "n"])

    assert not [
        part for part in ("hunter2", "hun/", "ter2", "12/") if part in told(no.value)
    ]


@pytest.mark.parametrize("dsn", SOUND)
def test_a_sound_connection_string_is_taken_and_not_shown(dsn: str) -> None:
    """In whatever form libpq takes it."""
    database = PostgresDatabase(dsn)

    assert "hunter2" not in f"{database} {database!r} {vars(database)}"


@pytest.fixture
def _telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connecting fail with a text that repeats what it was given."""

    def connect(dsn: str) -> NoReturn:
        msg = f"connection to {dsn} failed: password hun ter2 is wrong"
        raise psycopg.OperationalError(msg)

    monkeypatch.setattr(psycopg, "connect", connect)


@pytest.mark.usefixtures("_telling")
def test_no_failure_to_connect_repeats_the_password() -> None:
    """Neither in the sentence, nor in the cause that a traceback shows."""
    flow = ms.Flow("dsn")
    rows = flow.from_iterable([("a", 1)])
    rows.write_postgres("host=db password='hun ter2'", "words", columns=["word", "n"])
    with pytest.raises(ms.UsageError, match="cannot write to the table 'words'") as no:
        flow.run(on="local", workers=1)
    with pytest.raises(psycopg.OperationalError, match=r"password \*\*\* is") as raw:
        PostgresDatabase("host=db password='hun ter2'").stage("a", "b", b"")

    for error in (no.value, raw.value):
        assert "hun ter2" not in f"{error} {error.__cause__}"
        assert error.__suppress_context__


def test_a_server_that_is_not_there_is_named() -> None:
    """What is harmless is passed on as it is."""
    password = "hunter2"
    database = PostgresDatabase(f"postgresql://bob:{password}@127.0.0.1:1/db")
    with pytest.raises(psycopg.OperationalError, match="port 1 failed") as no:
        database.create("SELECT 1")

    assert password not in told(no.value)
