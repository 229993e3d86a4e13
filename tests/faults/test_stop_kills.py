"""Stop a job while one of its workers is being killed: the last epoch is still the last."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.system.test_stopping import started, to_table, written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault


def test_job_is_stopped_although_a_worker_is_killed(tmp_path: Path) -> None:
    """It recovers first; what comes after the savepoint begins with the row after it."""
    database = tmp_path / "rows.db"
    flow = to_table(database)
    job = started(flow, database, on="processes", workers=2, state=tmp_path / "one")

    os.kill(job.worker_pids()[0], signal.SIGKILL)
    epoch = job.stop(tmp_path / "savepoint")
    before = written(database)

    assert (job.status(), job.epoch) == ("stopped", epoch)
    assert written(database) == before == list(range(len(before)))
    again = started(
        flow, database, state=tmp_path / "two", resume_from=tmp_path / "savepoint"
    )
    again.stop()
    after = written(database)
    assert after == list(range(len(after)))
