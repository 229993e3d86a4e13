"""Jobs that write parts and hold rows back: what readers see, and what copies stand for."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually
from tests.support.examples import mostly_slow

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


class Counts(ms.Source[tuple[int, int]]):
    """Six sensors that count for ever."""

    is_bounded = False

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"sensor {i}", i) for i in range(SENSORS)]

    def open(self, split: ms.Split, offset: int, config: Any) -> Any:
        return CountsReader(split.payload, offset)


class CountsReader(ms.SourceReader[tuple[int, int]]):
    """Gives a few numbers and then none for a while, so that snapshots get through."""

    offset = 0

    def __init__(self, sensor: int, offset: int) -> None:
        self.sensor, self.offset, self.is_due = sensor, offset, False

    def read(self, rows: int) -> list[tuple[int, int]]:
        self.is_due = not self.is_due
        if not self.is_due:
            return []
        first, self.offset = self.offset, self.offset + 5
        return [(self.sensor, number) for number in range(first, self.offset)]


class Sums(ms.StatefulFunction[int, tuple[int, int], tuple[int, int]]):
    """Tells with every tenth number of a sensor how many there were, and their sum."""

    count = ms.ValueState(default=0)
    total = ms.ValueState(default=0)

    def on_record(self, key: int, value: tuple[int, int]) -> list[tuple[int, int]]:
        count, total = self.count.get() + 1, self.total.get() + value[1]
        self.count.update(count)
        self.total.update(total)
        return [(count, total)] if count % 10 == 0 else []


SENSORS = 6


def told(directory: Path) -> dict[int, list[list[int]]]:
    """Return what was told of every sensor."""
    found: dict[int, list[list[int]]] = {sensor: [] for sensor in range(SENSORS)}
    for part in directory.glob("part-*"):
        for line in part.read_text().splitlines():
            sensor, sums = json.loads(line)
            found[sensor].append(sums)
    return {sensor: sorted(sums) for sensor, sums in found.items()}


def has_told_more(directory: Path, before: dict[int, list[list[int]]]) -> bool:
    now = told(directory)
    return all(len(now[sensor]) > len(before[sensor]) for sensor in now)


@pytest.mark.parametrize("on", mostly_slow("local", "processes"))
def test_endless_keyed_job_goes_on_after_cancels_at_other_widths(
    tmp_path: Path, on: Any
) -> None:
    """Every sum is there once, and is that of all numbers before it."""
    out = tmp_path / "out"
    for workers in (2, 2, 3, 1):
        made = ms.Flow("endless")
        sums = made.read(Counts(), name="counts").key_by(lambda row: row[0], name="key")
        sums.process(Sums(), name="sums").write_jsonl(
            out, roll_every="0s", name="lines"
        )
        before = told(out)
        job = made.start(
            on=on, workers=workers, state=tmp_path / "state", snapshot_every="20ms",
            source_idle_ms=5,
        )  # fmt: skip
        eventually(partial(has_told_more, out, before))
        job.cancel()
        with pytest.raises(ms.JobCancelledError):
            job.wait()

        for sums_of_one in told(out).values():
            counts = range(10, 10 * len(sums_of_one) + 1, 10)
            assert sums_of_one == [[n, n * (n - 1) // 2] for n in counts]
