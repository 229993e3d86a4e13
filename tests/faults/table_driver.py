"""A driver that writes numbers to a table and kills itself once, where it is told to.

Usage: ``table_driver.py sqlite|postgres PLACE STATE before|inside|after``
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
from millstream.connectors.postgres import PostgresDatabase
from millstream.connectors.sql import SqlSink
from millstream.connectors.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.sql import Database

ROWS = 30_000


class DyingSink(SqlSink):
    """Kills the driver at its second commit, unless that has happened already."""

    def __init__(self, database: Database, when: str, note: Path) -> None:
        super().__init__(database, "words", ["word", "n"], name="numbers")
        self._when = when
        self._note = note
        self._commits = 0

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        self._commits += bool(transactions)
        is_due = self._commits > 1 and not self._note.exists()
        self._die(is_due=is_due and self._when == "before")
        if is_due and self._when == "inside":
            self._database = _Dying(self._database, self._die)  # type: ignore[assignment]
        super().commit(job, epoch, transactions)
        self._die(is_due=is_due and self._when == "after")

    def _die(self, *, is_due: bool = True) -> None:
        if is_due:
            self._note.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class _Dying:
    """A database whose transaction never gets as far as its end."""

    def __init__(self, database: Database, die: Any) -> None:
        self._database = database
        self._die = die

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._database.transaction() as cursor:
            yield cursor
            self._die()


def numbers() -> Iterator[int]:
    """Yield numbers slowly enough for several snapshots."""
    pause = threading.Event()
    for number in range(ROWS):
        if number % 300 == 0:
            pause.wait(0.002)
        yield number


def main(kind: str, place: str, state: str, when: str) -> None:
    database = SqliteDatabase(place) if kind == "sqlite" else PostgresDatabase(place)
    flow = ms.Flow("numbers")
    rows = flow.from_iterable(numbers).map(lambda n: (f"{n % 7}", n))
    rows.write(DyingSink(database, when, Path(f"{state}.died")), name="numbers")
    flow.run(
        on="local",
        workers=2,
        state=state,
        snapshot_every="20ms",
        source_batch_rows=100,
        slice_batches=1,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
