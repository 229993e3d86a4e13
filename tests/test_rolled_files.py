"""Jobs that write parts and hold rows back: what readers see, and what copies stand for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path


def lines(directory: Path) -> list[int]:
    parts = directory.glob("part-*")
    return sorted(int(line) for part in parts for line in part.read_text().split())


class Numbers(ms.Source[int]):
    """0 to 9, and 10 to 19 once the gate is there."""

    is_parallel = False

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split("all")]

    def open(self, split: ms.Split, offset: int, config: Any) -> Any:
        return NumbersReader(self.gate, offset)


class NumbersReader(ms.SourceReader[int]):
    """Reads them one by one."""

    offset = 0

    def __init__(self, gate: Path, offset: int) -> None:
        self.gate, self.offset = gate, offset

    def read(self, rows: int) -> list[int] | None:
        if self.offset == 20:
            return None
        if self.offset >= 10 and not self.gate.exists():
            return []
        self.offset += 1
        return [self.offset - 1]


def has_gone_on(job: ms.Job, epoch: int) -> bool:
    return job.epoch > epoch


def flow(out: Path, gate: Path, **options: Any) -> ms.Flow:
    made = ms.Flow("rolled")
    rows = made.read(Numbers(gate), name="numbers").shuffle()
    rows.map(str).write_text(out, name="texts", **options)
    return made


def test_rows_are_visible_when_their_part_is_rolled(tmp_path: Path) -> None:
    """With the default that is a minute, so the first ten wait for the end here."""
    out, gate = tmp_path / "out", tmp_path / "gate"
    job = flow(out, gate).start(
        on="local", state=str(tmp_path / "state"), snapshot_every="5ms"
    )
    eventually(lambda: job.epoch > 5)
    assert lines(out) == []
    gate.touch()
    job.wait()

    assert lines(out) == list(range(20))
    assert len(list(out.glob("part-*"))) == 1


def test_a_part_per_snapshot_is_shown_if_that_is_wanted(tmp_path: Path) -> None:
    """Whoever waits for rows asks for small parts."""
    out, gate = tmp_path / "out", tmp_path / "gate"
    job = flow(out, gate, roll_every="0s").start(
        on="local", state=str(tmp_path / "state"), snapshot_every="5ms"
    )
    eventually(lambda: lines(out) == list(range(10)))
    gate.touch()
    job.wait()

    assert lines(out) == list(range(20))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_savepoint_holds_nothing_back(tmp_path: Path, workers: int) -> None:
    """It stands for itself: a fork of the job writes the rest, while the first goes on."""
    out, gate = tmp_path / "out", tmp_path / "gate"
    job = flow(out, gate).start(
        on="local", state=str(tmp_path / "state"), snapshot_every="5ms"
    )
    eventually(lambda: job.epoch > 3)
    job.savepoint(tmp_path / "copy")
    shown = lines(out)
    gate.touch()
    job.wait()
    flow(tmp_path / "fork", gate).run(
        on="local", workers=workers, resume_from=str(tmp_path / "copy")
    )

    assert shown == list(range(10))
    assert lines(out) == list(range(20))
    assert lines(tmp_path / "fork") == list(range(10, 20))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_cancelled_job_goes_on_with_what_it_held_back(
    tmp_path: Path, workers: int
) -> None:
    """At another width too, once and twice."""
    out, gate, state = tmp_path / "out", tmp_path / "gate", str(tmp_path / "state")
    for _ in range(2):
        job = flow(out, gate).start(
            on="local", workers=workers, state=state, snapshot_every="5ms"
        )
        begun = job.epoch
        eventually(partial(has_gone_on, job, begun + 3))
        job.cancel()
        with pytest.raises(ms.JobCancelledError):
            job.wait()
        workers = 4 - workers
    assert lines(out) == []
    gate.touch()
    flow(out, gate).run(on="local", workers=workers, state=state)

    assert lines(out) == list(range(20))
    assert not list(out.glob(".*"))
