"""A job that is killed at the steps of rolling and committing, one after the other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.rolling_driver import ROWS
from tests.spark.driving import driver_environment

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

DRIVER = Path(__file__).parent / "rolling_driver.py"
STEPS = [1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 37, 58, 0]


def test_a_job_killed_at_every_step_shows_every_row_once(tmp_path: Path) -> None:
    """Whatever was held back, merged, moved or removed half, the next run goes on."""
    codes = []
    for step in STEPS:
        command = [sys.executable, str(DRIVER), str(tmp_path), str(step)]
        done = subprocess.run(command, env=driver_environment(), check=False)
        codes.append(done.returncode)

    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) > len(STEPS) // 2
    assert set(codes) == {0, -signal.SIGKILL}
    parts = list((tmp_path / "out").glob("part-*"))
    rows = [int(row) for part in parts for row in part.read_text().split()]
    assert sorted(rows) == list(range(ROWS))
    assert not list((tmp_path / "out").glob(".*"))
