"""Scripted kills of a job's workers: again and again, while it recovers, two at once.

The job is the one of the chaos runs; what is compared with plain Python are the ids in
its files, as a multiset and in their order by key.  What is left to chance there happens
here on purpose: each script waits for its moment and looks at whether it came in time.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import chaos_flow
from tests.faults.chaos import check_output, end_input
from tests.spark.driving import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import millstream as ms

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

WORKERS = 3
IN_A_ROW = 5
"""Spark gives a task up that has failed four times."""
LEASE_MS = 10_000
"""A worker that stands still for a moment is not given up."""


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def replaced(job: ms.Job, before: list[int]) -> list[int]:
    """Wait until there are as many workers as at first; return those that are new."""

    def new() -> list[int]:
        pids = job.worker_pids()
        is_full = len(pids) == WORKERS and job.status() == "running"
        return [pid for pid in pids if pid not in before] if is_full else []

    found: list[int] = eventually(new)
    return found


def kill_one_again_and_again(job: ms.Job) -> None:
    """Kill a worker, its replacement as soon as it is there, and so on."""
    before = job.worker_pids()
    victim = before[0]
    for _ in range(IN_A_ROW):
        kill(victim)
        (victim,) = replaced(job, before)
        before.append(victim)


def kill_one_during_recovery(job: ms.Job) -> None:
    """Kill a worker, and another one before the job has recovered from the first loss.

    The third one stands still meanwhile, so the job cannot have recovered.
    """
    first, second, third = before = job.worker_pids()
    count = len(job.recoveries())
    os.kill(third, signal.SIGSTOP)
    try:
        kill(first)
        eventually(lambda: len(job.recoveries()) > count)
        kill(second)
        eventually(lambda: second not in job.worker_pids())
        assert not job.recoveries()[count].restore_ns, "it has recovered too soon"
    finally:
        os.kill(third, signal.SIGCONT)
    replaced(job, before)


def kill_two_at_once(job: ms.Job) -> None:
    """Kill two of three workers at the same moment."""
    first, second, _ = before = job.worker_pids()
    kill(first, second)
    replaced(job, before)


SCRIPTS = (kill_one_again_and_again, kill_one_during_recovery, kill_two_at_once)


@pytest.fixture(params=["processes", pytest.param("spark", marks=pytest.mark.spark)])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ms.Job]:
    """Give a job that runs and has taken snapshots."""
    place: dict[str, Any] = {"on": "processes"}
    if request.param == "spark":
        place = {"spark": request.getfixturevalue("spark")}
    chaos_flow.begin(tmp_path)
    flow, _ = chaos_flow.build(tmp_path)
    job = flow.start(
        **place,
        workers=WORKERS,
        state=tmp_path / "state",
        **chaos_flow.SETTINGS | {"lease_ms": LEASE_MS},
    )
    eventually(lambda: job.epoch >= 2)
    yield job
    job.cancel()


def test_nothing_is_lost_doubled_or_out_of_order(job: ms.Job, tmp_path: Path) -> None:
    """Whatever is killed while the job goes back, or is gone at the same time."""
    for script in SCRIPTS:
        script(job)

    ids = end_input(tmp_path, WORKERS)
    job.wait()

    assert job.recoveries()
    assert check_output(tmp_path / chaos_flow.OUT, ids, WORKERS) == ids
