"""Strangers who open connections as fast as they can, while a real job runs.

On plain processes and on Spark, whose own ports are not attacked: how it stands a flood is
its business.  What must hold: the job gives the same rows as without them, whenever they
come.  What it takes longer is not looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.faults.flooder import listening
from tests.spark.driving import eventually

import millstream as ms
from millstream.launch import bootstrapping
from millstream.protocol.handshake import Protection

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

FLOODER = Path(__file__).with_name("flooder.py")
ROWS = 4_000
COORDINATOR_AND_WORKERS = 3
COORDINATOR_AND_SURVIVOR = 2
SUMS = sorted((key, sum(range(key, ROWS, 7))) for key in range(7))


@pytest.fixture
def others(place: dict[str, Any]) -> list[int]:
    """Give the ports that this process has without a job: of Spark and of test servers."""
    return sorted(listening(psutil.Process()))


@contextmanager
def flood(others: list[int], ports_min: int) -> Iterator[None]:
    """Attack every port of a job of this process, at least so many."""
    words = [os.getpid(), *others]
    command = [sys.executable, str(FLOODER), *map(str, words)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as flooder:
        assert flooder.stdin is not None
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == b"ready\n"
        yield
        flooder.stdin.close()
        assert int(flooder.stdout.readline()) >= ports_min


def sums(pause_s: float = 0.0) -> tuple[ms.Flow, Any]:
    flow = ms.Flow("sums")
    numbers = flow.from_parallel(paced(pause_s))
    return flow, numbers.group_by(lambda i: i % 7).sum().collect()


def paced(pause_s: float) -> Any:
    def numbers(rank: int, size: int) -> Iterator[int]:
        import threading  # noqa: PLC0415 - in the worker

        pause = threading.Event()
        for number in range(rank, ROWS, size):
            if pause_s and number % 100 == 0:
                pause.wait(pause_s)
            yield number

    return numbers


@pytest.fixture(params=[Protection.MAC, Protection.TLS], ids=lambda each: each.name)
def protection(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Protection:
    """Let jobs on loopback be protected like this."""
    chosen: Protection = request.param
    monkeypatch.setattr(bootstrapping, "protection_of", lambda *_, is_insecure: chosen)
    return chosen


def test_a_flood_during_the_start_changes_no_result(
    protection: Protection, place: dict[str, Any], others: list[int]
) -> None:
    """Workers that are turned away come again; what Spark starts once is there already."""
    sums()[0].run(**place)
    flow, found = sums()

    with flood(others, ports_min=1):
        flow.run(**place)

    assert sorted(found.result()) == SUMS


def test_a_flood_of_a_running_job_changes_no_result(
    protection: Protection, place: dict[str, Any], others: list[int]
) -> None:
    """Connections that have proved themselves are not for strangers to displace."""
    flow, found = sums(pause_s=0.1)
    job = flow.start(**place)
    eventually(lambda: job.status() == "running")

    with flood(others, ports_min=COORDINATOR_AND_WORKERS):
        job.wait()

    assert sorted(found.result()) == SUMS


def test_a_flood_during_recovery_changes_no_result(
    protection: Protection, place: dict[str, Any], others: list[int], tmp_path: Path
) -> None:
    """A replacement and its peers find each other among strangers."""
    flow, found = sums(pause_s=0.1)
    job = flow.start(**place, state=tmp_path / "state", snapshot_every="200ms")
    eventually(lambda: job.status() == "running")

    with flood(others, ports_min=COORDINATOR_AND_SURVIVOR):
        os.kill(job.worker_pids()[0], signal.SIGKILL)
        job.wait()

    assert sorted(found.result()) == SUMS
    assert any("is started in its place" in line for line in job.story())
