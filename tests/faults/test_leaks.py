"""Many jobs, ended in every way, leave no process, thread, descriptor or file."""

from __future__ import annotations

import gc
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.spark.driving import eventually

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

LOCAL: dict[str, Any] = {"on": "local", "workers": 2}
PROCESSES: dict[str, Any] = {"on": "processes", "workers": 2}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a temporary directory that is this test's own, and must be empty at the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield place
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert list(place.iterdir()) == []


def ticks(rank: int, size: int) -> Iterator[int]:
    pause = threading.Event()
    while not pause.wait(0.001):
        yield rank


def succeed(place: dict[str, Any], output: Path) -> None:
    flow = ms.Flow("succeeds")
    numbers = flow.from_iterable(range(100))
    numbers.map(str).write_text(output)
    counts = numbers.group_by(lambda i: i % 3).count().collect()
    flow.run(**place)
    assert sorted(counts.result()) == [(0, 34), (1, 33), (2, 33)]


def cancel(place: dict[str, Any], output: Path) -> None:
    flow = ms.Flow("cancelled")
    flow.from_parallel(ticks).map(str).shuffle().write_text(output)
    job = flow.start(**place)
    eventually(lambda: job.status() == "running")
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()


def cancel_early(place: dict[str, Any], output: Path) -> None:
    flow = ms.Flow("cancelled-early")
    flow.from_parallel(ticks).map(str).write_text(output)
    job = flow.start(**place)
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()


def fail(place: dict[str, Any], output: Path) -> None:
    flow = ms.Flow("fails")
    flow.from_iterable(range(100)).map(lambda i: 1 // (i - 50)).map(str).write_text(
        output
    )
    with pytest.raises(ms.OperatorError):
        flow.run(**place)


ENDINGS: list[Callable[[dict[str, Any], Path], None]] = [
    succeed,
    cancel,
    fail,
    cancel_early,
]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def footprint() -> tuple[int, int]:
    """Return how many threads and descriptors this process has."""
    gc.collect()
    return threading.active_count(), psutil.Process().num_fds()


@pytest.mark.parametrize(
    ("place", "count"), [(LOCAL, 100), (PROCESSES, 20)], ids=["local", "processes"]
)
def test_many_jobs_leave_nothing_behind(
    place: dict[str, Any], count: int, tmp_path: Path
) -> None:
    """Success, cancellation before and after the start, and failure take turns."""
    for end in ENDINGS:
        end(place, tmp_path / f"warm-up-{end.__name__}")
    before, children_before = footprint(), children()

    for cycle in range(count):
        end = ENDINGS[cycle % len(ENDINGS)]
        output = tmp_path / f"output-{cycle}"
        end(place, output)
        assert output.exists() == (end is succeed)

    assert footprint() == before
    assert children() <= children_before
