"""Real processes that die, freeze, hang or raise: the job ends, with the right words.

Everything here runs on plain processes and on Spark; the deadlines are generous, and
what is checked is the message and that nothing is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.spark.driving import driver_environment, eventually, is_gone

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.standalone import StandaloneCluster

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

ENDLESS = Path(__file__).parent.parent / "spark" / "programs" / "endless.py"


def ticks(rank: int, size: int) -> Iterator[int]:
    pause = threading.Event()
    while not pause.wait(0.01):
        yield rank


def started(flow: ms.Flow, place: dict[str, Any], **settings: Any) -> ms.Job:
    """Start a flow and wait until it runs."""
    job = flow.start(**place, **settings)
    eventually(lambda: job.status() == "running")
    return job


def endless() -> ms.Flow:
    flow = ms.Flow("endless")
    flow.from_parallel(ticks).shuffle().filter(lambda _: False).collect()
    return flow


def assert_nothing_is_left(job: ms.Job, place: dict[str, Any], pids: list[int]) -> None:
    """Check that processes are gone and that Spark is free again."""
    assert job.status() in {"failed", "cancelled"}
    if "spark" in place:
        tracker = place["spark"].sparkContext.statusTracker()
        eventually(lambda: not tracker.getActiveJobsIds())
        assert place["spark"].range(10).count() == 10
    eventually(lambda: all(map(is_gone, pids)))


def test_a_killed_worker_ends_the_job_with_the_launchers_reason(
    place: dict[str, Any],
) -> None:
    """Whoever started the process knows more than whoever lost its connection."""
    job = started(endless(), place)
    victim = job.worker_pids()[0]

    os.kill(victim, signal.SIGKILL)

    with pytest.raises(ms.WorkerLostError) as caught:
        job.wait()
    reason = (
        "its Python process ended unexpectedly"
        if "spark" in place
        else f"its process {victim} was ended by SIGKILL"
    )
    assert reason in str(caught.value)
    assert_nothing_is_left(job, place, [victim])


def test_a_worker_killed_before_it_registers_is_replaced(tmp_path: Path) -> None:
    """It has hardly begun to import when it dies; the job begins with another one."""
    flow = ms.Flow("early")
    total = flow.from_iterable(range(100)).shuffle().sum()
    before = set(psutil.Process().children())
    job = flow.start(on="processes", workers=2, state=tmp_path / "state")
    victim = min(set(psutil.Process().children()) - before, key=lambda p: p.pid)

    victim.kill()

    job.wait()
    assert total.result() == 4950
    assert not job.recoveries(), "it had not registered yet"
    lost = (
        f"was lost: its process {victim.pid} was ended by SIGKILL; worker 2 is started"
    )
    assert any(lost in line for line in job.story())


def test_a_frozen_worker_is_lost_when_its_lease_ends_and_is_then_ended(
    place: dict[str, Any],
) -> None:
    """Its connection stays open and Spark believes it alive; only the lease tells."""
    job = started(endless(), place, lease_ms=1500, heartbeat_ms=200, stop_grace_ms=500)
    victim = job.worker_pids()[0]

    os.kill(victim, signal.SIGSTOP)

    with pytest.raises(ms.WorkerLostError, match=r"it was silent for \d"):
        job.wait()
    assert_nothing_is_left(job, place, [victim])


def hang(row: int) -> int:
    threading.Event().wait(3600)
    return row


def test_a_hung_function_does_not_survive_a_cancellation(place: dict[str, Any]) -> None:
    """User code that never returns cannot be asked to; its process is ended."""
    flow = ms.Flow("stuck")
    flow.from_parallel(lambda rank, size: range(3)).map(hang).collect()
    job = started(flow, place, stop_grace_ms=500)
    pids = job.worker_pids()

    job.cancel("enough")

    with pytest.raises(ms.JobCancelledError, match="enough"):
        job.wait()
    assert_nothing_is_left(job, place, pids)


def test_an_exception_of_the_user_ends_the_job_with_its_cause(
    place: dict[str, Any],
) -> None:
    """One sentence names the operator; the user's own exception is the cause."""
    flow = ms.Flow("faulty")
    flow.from_parallel(lambda rank, size: range(3)).map(
        lambda i: 1 // (i - 1)
    ).collect()
    job = flow.start(**place)

    with pytest.raises(ms.OperatorError, match="ZeroDivisionError") as caught:
        job.wait()

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert_nothing_is_left(job, place, [] if "spark" in place else job.worker_pids())


def start_driver(*arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start the endless program; return it and its workers once they run."""
    driver = subprocess.Popen(
        [sys.executable, str(ENDLESS), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=driver_environment(),
    )
    assert driver.stdout is not None
    line = driver.stdout.readline()
    assert line, f"the driver ended with exit code {driver.wait()}"
    return driver, json.loads(line)


@pytest.mark.parametrize(
    "arguments",
    [("processes",), pytest.param(("spark", "local[2]"), marks=pytest.mark.spark)],
    ids=["processes", "spark"],
)
def test_no_worker_outlives_a_killed_driver(arguments: tuple[str, ...]) -> None:
    """Nobody is left to tell the workers; they notice."""
    driver, pids = start_driver(*arguments)

    with driver:
        driver.kill()

    eventually(lambda: all(map(is_gone, pids)))


@pytest.mark.spark
def test_a_killed_executor_ends_the_job_with_sparks_reason(
    cluster: StandaloneCluster,
) -> None:
    """The JVM takes its Python workers with it, and Spark's retry is not let in."""
    driver, pids = start_driver("spark", cluster.master)
    victim = cluster.executor_pids()[0]

    os.kill(victim, signal.SIGKILL)

    with driver:
        assert driver.stdout is not None
        fate = driver.stdout.read()
    assert fate.startswith("WorkerLostError: worker ")
    assert "was lost: " in fate
    eventually(lambda: all(map(is_gone, [victim, *pids])))
