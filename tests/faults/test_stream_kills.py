"""A stream of Spark's whose driver and workers are killed, run after run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.spark.driving import driver_environment, eventually, is_gone

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("stream_driver.py")
PATIENCE_S = 180.0


def started(directory: Path, workers: int) -> tuple[subprocess.Popen[str], list[int]]:
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER), str(directory), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=driver_environment(),
    )
    assert driver.stdout is not None
    line = driver.stdout.readline()
    assert line, f"the driver ended with exit code {driver.wait()}"
    return driver, json.loads(line)


def written(directory: Path) -> list[int]:
    """Return what is committed."""
    texts = [file.read_text() for file in (directory / "out").glob("*.jsonl")]
    return sorted(json.loads(line)["value"] for t in texts for line in t.splitlines())


def are_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def await_rows(directory: Path, more: int, driver: subprocess.Popen[str]) -> None:
    goal = len(written(directory)) + more
    eventually(
        lambda: len(written(directory)) >= goal or driver.poll() is not None, PATIENCE_S
    )
    assert driver.poll() is None, f"the driver ended with {driver.returncode}"


def test_a_stream_goes_on_exactly_once_whoever_is_killed(tmp_path: Path) -> None:
    """A driver twice in a row, a worker between, each time at another width."""
    for workers, is_worker_killed in ((2, False), (1, True)):
        driver, pids = started(tmp_path, workers)
        with driver:
            await_rows(tmp_path, 20, driver)
            if is_worker_killed:
                os.kill(pids[0], signal.SIGKILL)
                await_rows(tmp_path, 20, driver)
            driver.kill()
        eventually(partial(are_gone, pids), PATIENCE_S)

    driver, _ = started(tmp_path, 3)
    with driver:
        await_rows(tmp_path, 20, driver)
        (tmp_path / "end").touch()
        assert driver.wait(PATIENCE_S) == 0

    values = written(tmp_path)
    assert values == list(range(len(values)))
    assert not list((tmp_path / "state").glob("staged/*")), "complete: nothing is left"
