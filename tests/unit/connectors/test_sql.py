"""Tables get the rows of an epoch together with its number, once, or nothing at all."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support import sinking
from tests.support.databases import SqlitePlace

import millstream as ms
from millstream.connectors.sql import SqlSink
from millstream.connectors.sqlite import SqliteDatabase
from millstream.errors import OperationalError, OperatorError, UsageError
from millstream.state.plain import decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.databases import TablePlace

WORDS = "SELECT word, n FROM words ORDER BY n, word"
UNIQUE = "SELECT word, n FROM unique_words ORDER BY word"
MANY = [("w" * 40, i) for i in range(20_000)]


def sink_of(
    place: TablePlace,
    table: str = "words",
    *,
    upsert_by: Sequence[str] = (),
    name: str = "s",
) -> SqlSink:
    sink = SqlSink(place.database, table, ["word", "n"], name=name, upsert_by=upsert_by)
    sink.prepare("job")
    return sink


def sealed(sink: SqlSink, rows: Any, task: int = 0) -> Any:
    """Let a task write rows and return its transaction as the manifest would."""
    writer = sink.open("job", task)
    writer.write(rows)
    transaction = decode(encode(sinking.sealed(writer, 1)))
    writer.close()
    return transaction


def test_rows_appear_at_the_commit_and_not_before(tables: TablePlace) -> None:
    """Readers never see what may still be taken back."""
    sink = sink_of(tables)
    transactions = [sealed(sink, [("a", 1)]), sealed(sink, [("b", 2)], task=1)]

    assert tables.run(WORDS) == []
    sink.commit("job", 1, transactions)
    assert tables.run(WORDS) == [("a", 1), ("b", 2)]


def test_a_repeated_commit_changes_nothing(tables: TablePlace) -> None:
    """A driver that cannot know whether its commit arrived says it again."""
    sink = sink_of(tables)
    older, newer = sealed(sink, [("a", 1)]), sealed(sink, [("b", 2)])
    sink.commit("job", 1, [older])
    sink.commit("job", 1, [older])
    sink.commit("job", 2, [newer])
    sink.commit("job", 2, [newer])

    assert tables.run(WORDS) == [("a", 1), ("b", 2)]


def test_an_epoch_behind_the_last_one_is_refused(tables: TablePlace) -> None:
    """Its rows are not in the table if a copy of the state directory ran ahead."""
    sink = sink_of(tables)
    sink.commit("job", 7, [sealed(sink, [("a", 1)])])

    with pytest.raises(
        OperationalError, match="other rows of epoch 7 of job job are in"
    ):
        sink.commit("job", 6, [sealed(sink, [("b", 2)])])
    assert tables.run(WORDS) == [("a", 1)]


def test_two_jobs_keep_epochs_of_their_own_in_one_table(tables: TablePlace) -> None:
    """Two flows of one name, with sinks of one name, are two jobs all the same."""
    sink = sink_of(tables)
    sink.commit("flow-1", 9, [sealed(sink, [("a", 1)])])
    sink.commit("flow-2", 1, [sealed(sink, [("b", 2)])])

    assert tables.run(WORDS) == [("a", 1), ("b", 2)]


def test_rows_that_were_sealed_for_another_table_are_refused(
    tables: TablePlace,
) -> None:
    """Sinks without a name are counted, so a new one before may take a name over."""
    before, after = sink_of(tables), sink_of(tables, upsert_by=())
    after._table = "others"

    with pytest.raises(
        OperationalError, match=r"written for words \(word, n\).* keep it"
    ):
        after.commit("job", 1, [sealed(before, [("a", 1)])])
    assert tables.run(WORDS) == []


def test_pieces_of_dead_generations_go_with_the_first_commit_of_the_next(
    tables: TablePlace,
) -> None:
    """An endless job never completes, so nobody would remove them later."""
    sink = sink_of(tables)
    transaction: Any = None
    for generation in (1, 2):
        writer = sink.open("job", 0)
        writer.generation = generation
        writer.write(MANY)
        transaction = sinking.sealed(writer, 1)
    assert tables.pieces() > 1
    sink.commit("job", 1, [transaction])

    assert tables.pieces() == 0
    assert tables.run(WORDS) == MANY


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_database_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Whoever looks for a missing table finds it and wonders."""
    monkeypatch.setattr("millstream.connectors.sqlite._BUSY_TIMEOUT_S", 0.05)
    place = SqlitePlace(tmp_path / "test.db")
    place.run("CREATE TABLE words (word TEXT, n INTEGER)")
    holder = sqlite3.connect(place.path, isolation_level=None)
    holder.execute(f"BEGIN {lock}")
    sink = SqlSink(place.database, "words", ["word", "n"], name="s")
    with pytest.raises(OperationalError, match=r"test\.db is locked: another connec"):
        sink.prepare("job")
    holder.execute("ROLLBACK")
    sink.prepare("job")
    holder.execute(f"BEGIN {lock}")
    with pytest.raises(
        OperationalError, match=r"rows of epoch 1 .* is locked: another"
    ):
        sink.commit("job", 1, [sealed(sink, [("a", 1)])])
    holder.close()


def test_two_drivers_that_commit_at_once_write_the_rows_once(
    tables: TablePlace,
) -> None:
    """A driver that was thought dead may be in the middle of the same commit."""
    sink = sink_of(tables)
    transaction = sealed(sink, [("a", i) for i in range(5000)])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: sink.commit("job", 1, [transaction]), range(4)))

    assert tables.run("SELECT count(*) FROM words") == [(5000,)]


def test_many_rows_wait_in_pieces_which_the_commit_removes(tables: TablePlace) -> None:
    """The manifest of a snapshot stays small, and so does what a task remembers."""
    sink = sink_of(tables)
    writer = sink.open("job", 0)
    for start in range(0, len(MANY), 1000):
        writer.write(MANY[start : start + 1000])
    transaction = sinking.sealed(writer, 1)

    assert len(encode(transaction)) < 65_536
    assert tables.pieces() > 1
    assert tables.run(WORDS) == []
    sink.commit("job", 1, [transaction])
    assert tables.run(WORDS) == MANY
    assert tables.pieces() == 0
    sink.commit("job", 1, [transaction])
    assert tables.run(WORDS) == MANY


def test_pieces_of_failed_attempts_go_when_the_job_is_over(tables: TablePlace) -> None:
    """What a killed task had staged is nobody's."""
    sink, other = sink_of(tables), sink_of(tables, name="other")
    sealed(sink, MANY)
    kept = sealed(other, MANY)

    sink.complete("job")
    other.commit("job", 1, [kept])
    other.complete("job")

    assert tables.run("SELECT count(*) FROM words") == [(len(MANY),)]
    assert tables.pieces() == 0


def test_a_commit_that_fails_leaves_nothing_and_can_be_repeated(
    tables: TablePlace,
) -> None:
    """Half an epoch would be neither visible nor repeatable."""
    sink = sink_of(tables, "unique_words")
    tables.run("INSERT INTO unique_words VALUES ('b', 0)")
    transactions = [sealed(sink, [("a", 1), ("b", 2)])]

    with pytest.raises(OperationalError, match=r"rows of epoch 3 .*'unique_words'"):
        sink.commit("job", 3, transactions)
    assert tables.run(UNIQUE) == [("b", 0)]

    tables.run("DELETE FROM unique_words")
    sink.commit("job", 3, transactions)
    assert tables.run(UNIQUE) == [("a", 1), ("b", 2)]


def test_an_upsert_replaces_the_row_of_the_same_key(tables: TablePlace) -> None:
    """The last row of a key counts, within an epoch and over epochs."""
    sink = sink_of(tables, "unique_words", upsert_by=["word"])

    sink.commit("job", 1, [sealed(sink, [("a", 1), ("b", 1), ("a", 2)])])
    sink.commit("job", 2, [sealed(sink, [("b", 3)])])

    assert tables.run(UNIQUE) == [("a", 2), ("b", 3)]


def test_an_upsert_of_nothing_but_the_key_keeps_the_row(tables: TablePlace) -> None:
    """There is nothing to replace."""
    sink = SqlSink(
        tables.database, "unique_words", ["word"], name="s", upsert_by=["word"]
    )
    sink.prepare("job")

    sink.commit("job", 1, [sealed(sink, [("a",), {"word": "b"}, ("a",)])])

    assert tables.run(UNIQUE) == [("a", None), ("b", None)]


def test_two_sinks_of_a_job_may_write_to_one_table(tables: TablePlace) -> None:
    """What one has committed says nothing about the other."""
    for name in ("one", "two"):
        sink = sink_of(tables, name=name)
        sink.commit("job", 1, [sealed(sink, [(name, 1)])])

    assert tables.run(WORDS) == [("one", 1), ("two", 1)]


def test_other_rows_of_a_committed_epoch_are_refused(tables: TablePlace) -> None:
    """A state directory that was put back to an old copy must not lose rows silently."""
    sink = sink_of(tables)
    sink.commit("job", 1, [sealed(sink, [("a", 1)])])

    with pytest.raises(OperationalError, match="other rows of epoch 1 of job job"):
        sink.commit("job", 1, [sealed(sink, [("b", 2)])])
    assert tables.run(WORDS) == [("a", 1)]


def test_a_damaged_piece_is_not_decoded(tmp_path: Path) -> None:
    """What lies beside the database may have been changed by anybody."""
    place = SqlitePlace(tmp_path / "test.db")
    place.run("CREATE TABLE words (word TEXT, n INTEGER)")
    sink = sink_of(place)
    transaction = sealed(sink, MANY)
    for piece in tmp_path.glob("test.db.millstream-*/*"):
        piece.write_bytes(piece.read_bytes()[:-1] + b"!")

    with pytest.raises(OperationalError, match="are damaged"):
        sink.commit("job", 1, [transaction])
    assert place.run(WORDS) == []


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (("a",), "this one is a tuple of 1"),
        ({"word": "a"}, "this one is a dict with the keys word"),
        ({"word": "a", "n": 1, "x": 2}, "this one is a dict with the keys word, n, x"),
        ("ab", "this one is a str"),
    ],
)
def test_a_row_of_another_shape_is_named(
    tmp_path: Path, row: object, found: str
) -> None:
    """The flow fails where the row is, not when the epoch is committed."""
    place = SqlitePlace(tmp_path / "test.db")
    place.run("CREATE TABLE words (word TEXT, n INTEGER)")
    flow = ms.Flow("shapes")
    rows: ms.Stream[object] = flow.from_iterable([("b", 2), row])
    rows.write_sqlite(place.path, "words", columns=["word", "n"])

    with pytest.raises(OperatorError, match=found):
        flow.run(on="local")
    assert place.run(WORDS) == []


@pytest.mark.parametrize("value", [date(2024, 1, 1), 1 << 63, [1], float("nan")])
def test_a_value_that_sqlite_cannot_hold_is_named(
    tmp_path: Path, value: object
) -> None:
    """At the commit it would be too late: the epoch could never be committed."""
    place = SqlitePlace(tmp_path / "test.db")
    place.run("CREATE TABLE words (word TEXT, n INTEGER)")

    with pytest.raises(TypeError, match=r"SQLite cannot hold the value .* column 'n'"):
        sealed(sink_of(place), [("a", None), ("b", value)])


@pytest.mark.parametrize(
    ("table", "columns", "upsert_by", "message"),
    [
        ("nowhere", ["word", "n"], [], "nowhere"),
        (
            "words",
            ["word", "m"],
            [],
            "the table must be there with the columns word, m",
        ),
        ("words", ["word", "n"], ["word"], "and a unique index on word"),
    ],
)
def test_a_table_that_does_not_fit_fails_before_anything_runs(
    tables: TablePlace,
    table: str,
    columns: list[str],
    upsert_by: list[str],
    message: str,
) -> None:
    """An hour later is too late to hear that a column is missing."""
    sink = SqlSink(tables.database, table, columns, name="s", upsert_by=upsert_by)

    with pytest.raises(UsageError, match=message):
        sink.prepare("job")


def test_misuse_names_the_users_line(tmp_path: Path) -> None:
    """Arguments are checked where they are written."""
    database = tmp_path / "test.db"
    rows = ms.Flow("misuse").from_iterable([("a", 1)])

    with pytest.raises(
        UsageError, match=r"test_sql.py:\d+: there is no SQLite database"
    ):
        rows.write_sqlite(database, "words", columns=["word", "n"])
    database.touch()
    with pytest.raises(UsageError, match="columns must be a list of different names"):
        rows.write_sqlite(database, "words", columns="word")
    with pytest.raises(UsageError, match="upsert_by must be a list of some of the"):
        rows.write_sqlite(database, "words", columns=["n"], upsert_by=["word"])


def test_a_frame_writes_its_columns(tables: TablePlace) -> None:
    """Names and order of the columns come from the frame's schema."""
    sink = sink_of(tables)

    sink.commit("job", 1, [sealed(sink, pl.DataFrame({"word": ["a"], "n": [1]}))])

    assert tables.run(WORDS) == [("a", 1)]


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    """A column may be called what it likes; nothing in it is read as SQL."""
    place = SqlitePlace(tmp_path / "test.db")
    place.run('CREATE TABLE "a ""table""" ("50%" INTEGER, "select" TEXT)')
    sink = SqlSink(SqliteDatabase(place.path), 'a "table"', ["50%", "select"], name="s")
    sink.prepare("job")

    sink.commit("job", 1, [sealed(sink, [(1, "x")])])

    assert place.run('SELECT * FROM "a ""table"""') == [(1, "x")]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_flow_fills_a_table(tables: TablePlace, workers: int) -> None:
    """From the verb to the table, through snapshots."""
    flow = ms.Flow("fill")
    counts = flow.from_iterable("mississippi").group_by(str).count()
    if isinstance(tables, SqlitePlace):
        counts.write_sqlite(tables.path, "words", columns=["word", "n"])
    else:
        counts.write_postgres(tables.dsn, "words", columns=["word", "n"])

    flow.run(on="local", workers=workers)

    assert tables.run(WORDS) == [("m", 1), ("p", 2), ("i", 4), ("s", 4)]
