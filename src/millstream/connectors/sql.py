"""Sinks that write rows to a table of a database, each row exactly once.

What a task seals becomes rows of the table in one database transaction, together with
the number of the epoch in the table `millstream_epochs`; a commit that is repeated
finds the number there and changes nothing.  Until then the rows wait in the snapshot's
manifest, as a part of the transaction, or where there are many, in *pieces* that the
database keeps for us where no reader looks.

Nothing here knows which database it is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millstream.connectors.base import Later, Sink, SinkWriter
from millstream.connectors.confining import confined
from millstream.credentials import one_line
from millstream.errors import MillstreamError, OperationalError, UsageError
from millstream.state.plain import decode_lists, encode_lists
from millstream.values import Row, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from millstream.values import Batch, Rows

__all__ = ["Cursor", "Database", "SqlSink", "TableRow"]

TableRow: TypeAlias = tuple[Value, ...]
"""A row in the order of the columns; the database says what it can hold."""


class SealedRows(NamedTuple):
    """A transaction.

    Attributes
    ----------
    name
        Its own.
    target
        The table and columns that it is for.
    rows
        Its last rows.
    pieces
        Those before, with their SHA-256.
    """

    name: str
    generation: int
    target: str
    rows: list[TableRow]
    pieces: tuple[tuple[str, str], ...]


_PIECE = re.compile(r"\d{10}-[0-9a-f]{32}")
_PIECE_ROWS = 8192
_INLINE_BYTES = 64 * 1024
"""What the manifest of a snapshot may hold of one task; more goes into a piece."""

_CREATE_EPOCHS = """
CREATE TABLE IF NOT EXISTS millstream_epochs (
    job TEXT NOT NULL, sink TEXT NOT NULL, epoch BIGINT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (job, sink)
)
"""

_ADVANCE = """
INSERT INTO millstream_epochs (job, sink, epoch, seal) VALUES ({0}, {0}, {0}, {0})
ON CONFLICT (job, sink) DO UPDATE SET epoch = excluded.epoch, seal = excluded.seal
WHERE millstream_epochs.epoch < excluded.epoch
"""

_RECORDED = "SELECT epoch, seal FROM millstream_epochs WHERE job = {0} AND sink = {0}"


class Cursor(Protocol):
    """What is used of a cursor of Python's database interface."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed."""
        ...

    def execute(self, statement: str, values: Sequence[Value] = ..., /) -> object:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[TableRow], /) -> object:
        """Run a statement for every row."""
        ...

    def fetchone(self) -> TableRow | None:
        """Return the next row of the result."""
        ...


class Database(ABC):
    """What a `SqlSink` needs of a database; travels to the workers."""

    #: Stands for a value in a statement.
    marker: str

    @abstractmethod
    def __str__(self) -> str:
        """Return what messages call it, without any password."""

    def quoted(self, name: str) -> str:
        """Return a name as an identifier in a statement, case and all."""
        return '"' + name.replace('"', '""') + '"'

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Cursor]:
        """Return a cursor whose changes become visible together at the end, or never."""

    @abstractmethod
    def create(self, statement: str) -> None:
        """Run a ``CREATE TABLE IF NOT EXISTS``, maybe at the same time as others."""

    @abstractmethod
    def check_values(self, rows: list[TableRow], columns: Sequence[str]) -> None:
        """Refuse values that the database cannot hold, with a `TypeError`."""

    @abstractmethod
    def stage(self, scope: str, piece: str, data: bytes) -> None:
        """Keep data where no reader of tables looks, and make it durable."""

    @abstractmethod
    def staged(self, scope: str, piece: str) -> bytes | None:
        """Return what was staged, or None if it is not there."""

    @abstractmethod
    def discard(self, scope: str, pieces: Sequence[str] | None = None) -> None:
        """Remove these pieces, or all of the scope; some may be gone already."""

    @abstractmethod
    def discard_before(self, scope: str, piece: str) -> None:
        """Remove all pieces whose names come before this one, by bytes."""


class SqlSink(Sink[Row]):
    """Rows of a table, inserted with the epoch in one transaction of the database.

    Parameters
    ----------
    name
        Tells the sinks of a job apart; the same when the job is started again.
    columns
        Columns of the table in the order of a row's items.
    upsert_by
        Columns with a unique index: a row replaces the one that has the same there.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        columns: Sequence[str],
        *,
        name: str,
        upsert_by: Sequence[str] = (),
    ) -> None:
        self._database = database
        self._name = name
        self._table = table
        self._columns = _checked_columns(columns, upsert_by)
        self._upsert_by = tuple(upsert_by)
        self._cleaned_generation = 0

    @property
    def _target(self) -> str:
        return f"{self._table} ({', '.join(self._columns)})"

    def prepare(self, job: str, *, is_resumed: bool = False) -> None:  # noqa: ARG002
        """Check that rows of these columns can be inserted; make our own tables."""
        try:
            self._database.create(_CREATE_EPOCHS)
            with self._database.transaction() as cursor:
                cursor.execute(f"EXPLAIN {self._insert('NULL')}", ())
        except MillstreamError:
            raise
        except Exception as error:  # noqa: BLE001 - of any driver
            msg = (
                f"cannot write to the table {self._table!r} of {self._database} "
                f"({one_line(error)}); the table must be there with the columns "
                f"{', '.join(self._columns)}"
            )
            if self._upsert_by:
                msg += f", and a unique index on {', '.join(self._upsert_by)}"
            raise UsageError(msg) from None

    def open(self, job: str, task: int) -> SinkWriter[Row]:  # noqa: ARG002 - all alike
        """Return the writer of one task."""
        scope = self._scope(job)
        return _RowsWriter(self._database, scope, self._columns, self._target)

    def commit(self, job: str, epoch: int, transactions: list[SealedRows]) -> None:
        """Insert the rows and note the epoch, unless that is done already."""
        sealed = transactions
        if not sealed:
            return
        pieces = confined(
            _PIECE, (piece for each in sealed for piece, _ in each.pieces)
        )
        with self._committing(epoch), self._database.transaction() as cursor:
            self._check_target(sealed)
            if self._advance(cursor, job, epoch, sealed):
                self._insert_rows(cursor, job, sealed)
        if pieces:
            self._discard(job, pieces)
        generation = max(each.generation for each in sealed)
        if generation > self._cleaned_generation:
            self._cleaned_generation = generation
            with suppress(Exception):  # what is left only takes up room
                first = _piece_name(generation, "")
                self._database.discard_before(self._scope(job), first)

    def committed_epoch(self, job: str) -> int | None:
        """Return the last epoch of the job whose rows are in the table."""
        self._database.create(_CREATE_EPOCHS)
        with self._database.transaction() as cursor:
            cursor.execute(_RECORDED.format(self._database.marker), (job, self._name))
            recorded = cursor.fetchone()
        return 0 if recorded is None else int(recorded[0])

    def complete(self, job: str) -> None:
        """Remove the pieces of attempts that failed."""
        self._discard(job)

    def abort(self, job: str) -> None:
        """Remove all pieces; what was committed stays."""
        self._discard(job)

    def _discard(self, job: str, pieces: Sequence[str] | None = None) -> None:
        """Remove pieces that nobody needs; if that fails, they only take up room."""
        with suppress(Exception):
            self._database.discard(self._scope(job), pieces)

    def _advance(
        self, cursor: Cursor, job: str, epoch: int, sealed: list[SealedRows]
    ) -> bool:
        """Note the epoch; return False if its rows are there already.

        A second driver that does the same waits here until the first has finished.  Epochs
        are committed one after the other, so a later one is another driver's.
        """
        names = "\n".join(each.name for each in sealed)
        seal = hashlib.sha256(names.encode()).hexdigest()
        marker = self._database.marker
        cursor.execute(_ADVANCE.format(marker), (job, self._name, epoch, seal))
        if cursor.rowcount == 1:
            return True
        cursor.execute(_RECORDED.format(marker), (job, self._name))
        recorded = cursor.fetchone()
        assert recorded is not None, "the row that could not be advanced"
        if tuple(recorded) != (epoch, seal):
            msg = (
                f"other rows of epoch {recorded[0]} of job {job} are in the table "
                "already; the state directory is an old copy, so go on with the one that wrote "
                "them, or begin with an empty one"
            )
            raise OperationalError(msg)
        return False

    def _insert_rows(self, cursor: Cursor, job: str, sealed: list[SealedRows]) -> None:
        statement = self._insert(self._database.marker)
        for each in sealed:
            for piece, digest in each.pieces:
                cursor.executemany(statement, self._piece(job, piece, digest))
            if each.rows:
                cursor.executemany(statement, each.rows)

    def _check_target(self, sealed: list[SealedRows]) -> None:
        """Refuse rows that another table was meant for, before the flow was changed."""
        for each in sealed:
            if each.target != self._target:
                msg = (
                    f"they were written for {each.target} by a sink that had the name "
                    f"{self._name!r} then; give sinks a name= and keep it"
                )
                raise OperationalError(msg)

    def _piece(self, job: str, piece: str, digest: str) -> list[TableRow]:
        data = self._database.staged(self._scope(job), piece)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            what = "missing" if data is None else "damaged"
            msg = f"the rows that a task sealed as {piece} are {what}"
            raise OperationalError(msg)
        rows: list[TableRow] = decode_lists(data)[0]  # the digest is the manifest's
        return rows

    def _insert(self, value: str) -> str:
        """Return the statement with `value` in the place of every value."""
        quoted = self._database.quoted
        columns = [quoted(column) for column in self._columns]
        table = ".".join(quoted(part) for part in self._table.split("."))
        values = ", ".join(value for _ in columns)
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608 - quoted
        if not self._upsert_by:
            return statement
        keys = [quoted(column) for column in self._upsert_by]
        others = [f"{c} = excluded.{c}" for c in columns if c not in keys]
        action = f"UPDATE SET {', '.join(others)}" if others else "NOTHING"
        return f"{statement} ON CONFLICT ({', '.join(keys)}) DO {action}"

    @contextmanager
    def _committing(self, epoch: int) -> Iterator[None]:
        """Say every failure of the database in one sentence."""
        try:
            yield
        except Exception as error:
            text = (
                str(error) if isinstance(error, OperationalError) else one_line(error)
            )
            msg = (
                f"the rows of epoch {epoch} cannot be inserted into the table "
                f"{self._table!r} of {self._database} ({text}); none of them was, and "
                "they are kept if the job has a state directory: mend that and run the "
                "flow again"
            )
            raise OperationalError(msg) from error

    def _scope(self, job: str) -> str:
        return f"{job}/{self._name}"


class _RowsWriter(SinkWriter[Row]):
    """Keeps the rows of one task until the next cut, most of them in pieces."""

    def __init__(
        self, database: Database, scope: str, columns: tuple[str, ...], target: str
    ) -> None:
        self._database = database
        self._target = target
        self._scope = scope
        self._columns = columns
        self._names = frozenset(columns)
        self._rows: list[TableRow] = []
        self._pieces: list[tuple[str, str]] = []

    def write(self, rows: Batch) -> None:
        made = self._tuples(rows) if isinstance(rows, list) else rows.rows()
        self._database.check_values(made, self._columns)
        self._rows += made
        if len(self._rows) >= _PIECE_ROWS:
            self._pieces.append(self._staged(_packed(self._rows)))
            self._rows = []

    def seal(self, epoch: int) -> Later | None:  # noqa: ARG002 - not in its name
        if not self._rows and not self._pieces:
            return None
        sealed = SealedRows(
            secrets.token_hex(16), self.generation, self._target, self._rows,
            tuple(self._pieces),
        )  # fmt: skip
        self._rows, self._pieces = [], []
        return Later(partial(self._stored, sealed))

    def _stored(self, sealed: SealedRows) -> SealedRows:
        """Bring rows that are too many for the manifest to where the others are."""
        data = _packed(sealed.rows)
        if len(data) <= _INLINE_BYTES:
            return sealed
        pieces = (*sealed.pieces, self._staged(data))
        return sealed._replace(rows=[], pieces=pieces)

    def _staged(self, data: bytes) -> tuple[str, str]:
        piece = _piece_name(self.generation, secrets.token_hex(16))
        self._database.stage(self._scope, piece, data)
        return piece, hashlib.sha256(data).hexdigest()

    def _tuples(self, rows: Rows) -> list[TableRow]:
        """Return every row as a tuple in the order of the columns."""
        pick, width = _picker(self._columns), len(self._columns)
        made: list[TableRow] = []
        rows_iterator = iter(rows)
        for row in rows_iterator:
            if isinstance(row, dict) and row.keys() == self._names:
                made.append(pick(row))
            elif isinstance(row, tuple | list) and len(row) == width:
                made.append(tuple(row))
            else:
                raise self._misshapen(row)
        return made

    def _misshapen(self, row: Row) -> TypeError:
        if isinstance(row, dict):
            found = f"a dict with the keys {', '.join(map(str, row)) or 'none'}"
        elif isinstance(row, tuple | list):
            found = f"a {type(row).__name__} of {len(row)}"
        else:
            found = f"a {type(row).__name__}"
        msg = (
            f"a row must be a tuple of {len(self._columns)} or a dict with the keys "
            f"{', '.join(self._columns)}, and this one is {found}; map it to one"
        )
        return TypeError(msg)


def _piece_name(generation: int, token: str) -> str:
    """Return a name that comes after those of older generations."""
    return f"{generation:010}-{token}"


def _packed(rows: list[TableRow]) -> bytes:
    return encode_lists(rows)


def _picker(columns: tuple[str, ...]) -> Callable[[dict[str, Value]], TableRow]:
    if len(columns) == 1:
        return lambda row: (row[columns[0]],)
    return itemgetter(*columns)


def _checked_columns(
    columns: Sequence[str], upsert_by: Sequence[str]
) -> tuple[str, ...]:
    given: object = columns
    names = tuple(columns)
    if isinstance(given, str) or not names or len({*names}) < len(names):
        msg = f"columns must be a list of different names, got {columns!r}"
        raise UsageError(msg)
    keys: object = upsert_by
    if isinstance(keys, str) or not {*upsert_by} <= {*names}:
        msg = (
            f"upsert_by must be a list of some of the columns {', '.join(names)}, got "
            f"{upsert_by!r}"
        )
        raise UsageError(msg)
    return names
