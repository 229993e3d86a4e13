"""The log: silent until somebody asks, one line per decision then."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import millstream as ms
from millstream.errors import UsageError
from millstream.observe.log import log_level, show_log
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import millstream as ms
if __name__ == "__main__":
    flow = ms.Flow("told")
    flow.from_iterable(range(3)).map(lambda i: 1 // {least}).for_each(id)
    flow.run(on={on!r}, workers=1, progress_log_ms=1)
"""


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Leave the log as it was."""
    yield
    show_log("")


def run(directory: Path, log: str, *, on: str = "local", least: int = 1) -> str:
    """Run the program in a process of its own; return its standard error."""
    script = directory / "job.py"
    script.write_text(PROGRAM.format(on=on, least=least))
    env = {**os.environ, "MILLSTREAM_LOG": log}
    done = subprocess.run(
        [sys.executable, script], env=env, capture_output=True, text=True, check=False
    )
    return done.stderr


def flow_of(rows: list[int]) -> ms.Flow:
    flow = ms.Flow("told")
    flow.from_iterable(rows).map(lambda i: 1 // i).for_each(id)
    return flow


def test_library_is_silent_by_default(tmp_path: Path) -> None:
    """Not even a warning through the handler of last resort."""
    assert run(tmp_path, "") == ""


def test_log_is_switched_on_by_the_environment(tmp_path: Path) -> None:
    """Decisions, progress, and at debug what the worker process says itself."""
    written = run(tmp_path, "debug", on="processes")

    assert "INFO millstream.job: told-" in written
    assert ": the job succeeded" in written
    assert "INFO millstream.snapshots: told-" in written
    assert "INFO millstream.progress: told-" in written
    assert "DEBUG millstream.worker: worker 0 of told-" in written


def test_unknown_level_is_refused() -> None:
    """The sentence names the levels."""
    with pytest.raises(UsageError, match=r"MILLSTREAM_LOG=loud is not a level .* info"):
        show_log("loud")


def test_workers_log_at_the_level_of_the_driver() -> None:
    """What they are sent is a level by name, or nothing."""
    logger = logging.getLogger("millstream")
    assert log_level() == ""
    show_log("INFO")
    assert log_level() == "info"
    logger.setLevel(15)
    assert log_level() == ""


def test_records_reach_handlers_of_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program that configures logging needs nothing of ours."""
    with caplog.at_level(logging.INFO, "millstream"):
        flow_of([1]).run(on="local")

    assert [r.getMessage().partition(" s: ")[2] for r in caplog.records][-1] == (
        "the job succeeded"
    )


def test_error_carries_the_story() -> None:
    """After a failure nobody can ask the job any more; the error tells, pickled too."""
    flow = flow_of([1, 0])
    with pytest.raises(ms.OperatorError) as caught:
        flow.run(on="local")

    error = pickle.loads(pickle.dumps(caught.value))
    assert error.story == tuple(flow.last_job.story())
    assert "the job failed with OperatorError" in error.story[-1]
    (note,) = error.__notes__
    assert "generation 1 runs" in note
    assert "the job failed" not in note, "the message says that already"


def test_cancelled_job_tells_its_story_without_a_note() -> None:
    """Whoever cancelled needs no explanation below the traceback."""
    flow = ms.Flow("endless")
    flow.from_parallel(lambda _rank, _size: iter(int, 1)).for_each(id)
    job = flow.start(on="local")
    job.cancel("enough")
    with pytest.raises(ms.JobCancelledError) as caught:
        job.wait()

    assert caught.value.story[-1].endswith("the job was cancelled: enough")
    assert not hasattr(caught.value, "__notes__")


def test_simulator_tells_the_same_words() -> None:
    """A seed's story reads as that of a real job; only its time is virtual."""
    local = [line[14:] for line in flow_of([1]).run(on="local").story()]
    simulated = (
        simulate(flow_of([1]), seed=1, workers=1, faults=False).outcomes[0].story
    )

    assert [line[14:] for line in simulated][2:] == local[1:]
