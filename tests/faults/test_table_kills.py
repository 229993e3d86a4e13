"""Drivers that die around a commit: the table still gets every row exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.table_driver import ROWS
from tests.spark.driving import driver_environment
from tests.support.databases import SqlitePlace

if TYPE_CHECKING:
    from tests.support.databases import TablePlace

pytestmark = pytest.mark.fault

DRIVER = Path(__file__).parent / "table_driver.py"


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_driver_killed_around_its_commit_writes_every_row_once(
    tables: TablePlace, tmp_path: Path, when: str
) -> None:
    """Between the commit and the note that it was done nobody knows but the table."""
    where = (
        ("sqlite", str(tables.path))
        if isinstance(tables, SqlitePlace)
        else ("postgres", tables.dsn)
    )
    command = [sys.executable, str(DRIVER), *where, str(tmp_path / "state"), when]

    killed = subprocess.run(command, env=driver_environment(), check=False)
    seen = tables.run("SELECT count(*), count(DISTINCT n), max(n) FROM words")[0]
    finished = subprocess.run(command, env=driver_environment(), check=False)

    assert killed.returncode == -signal.SIGKILL
    assert 0 < seen[0] == seen[1]
    assert finished.returncode == 0
    numbers = tables.run("SELECT n FROM words ORDER BY n")
    assert numbers == [(n,) for n in range(ROWS)]
