"""The short form of `make endure`: kills, many quick snapshots, and nothing that piles up."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.endurance.plotting import plot
from tests.endurance.running import Running
from tests.endurance.slopes import Allowance, judged, slope_of
from tests.spark.driving import eventually

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = 90
"""After the last kill; deltas are merged every 33."""
FILES_MAX = 220
"""Chains of 33 deltas of two tasks of two stages, three manifests, and some on their way."""
WITHIN_S = 90.0


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_killed_workers_leave_nothing_that_piles_up(tmp_path: Path) -> None:
    """Neither files of state nor directories of RocksDB, and no counter falls."""
    job = Running("windows", tmp_path / "windows", "processes", keys=1000, speed=20)
    rows: list[int] = []
    samples = []
    try:
        for kills in (1, 2):
            eventually(lambda: job.status.get("epoch"), WITHIN_S)
            assert job.kill_worker()
            eventually(partial(_has_recovered, job, kills), WITHIN_S)
        last = job.status["epoch"]
        deadline_s, pause = time.monotonic() + WITHIN_S, threading.Event()
        while job.status["epoch"] < last + EPOCHS and time.monotonic() < deadline_s:
            rows.append(job.status["rows_in"])
            found = job.sample(since_s=1.0)
            assert found is not None, job.said
            samples.append(found)
            pause.wait(0.5)
    finally:
        problems = job.close()

    assert problems == []
    assert rows == sorted(rows)
    assert max(sample.figures["state files"] for sample in samples) < FILES_MAX
    assert max(sample.figures["scratch dirs"] for sample in samples) <= 4
    plot(samples, [], 1.0, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def _has_recovered(job: Running, times: int) -> bool:
    return bool(job.status["recoveries"] >= times)


def noisy(rise: float) -> list[tuple[float, float]]:
    """Return a series with a saw of 20, a few wild points, and a rise over all."""
    return [
        (float(n), 100.0 + n % 7 * 3 + (500 if n % 31 == 0 else 0) + rise * n / 200)
        for n in range(200)
    ]


def test_rise_is_told_from_noise() -> None:
    """A healthy job passes, and a slow leak does not."""
    allowance = Allowance(15)
    healthy = judged("job", "MB", noisy(0), allowance)
    leaking = judged("job", "MB", noisy(60), allowance)

    assert healthy is not None
    assert not healthy.is_rising
    assert leaking is not None
    assert leaking.is_rising
    assert "RISES" in str(leaking)


def test_few_points_prove_nothing() -> None:
    """A figure that was hardly measured is not judged."""
    assert judged("job", "MB", noisy(60)[:5], Allowance(0)) is None
    assert slope_of([(1.0, 5.0)]).low < 0
