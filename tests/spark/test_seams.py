"""What holds on one machine holds on real Spark: the same rows, and the same sentences."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.loop_join_flows import HOW, ROADS, START, walked, walks
from tests.spark.driving import eventually

import millstream as ms
from millstream.errors import SnapshotError
from millstream.windows import tumbling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

HALF = 300
ROWS = 60
"""Of a split."""

ROLLS: dict[str, dict[str, Any]] = {
    "small": {"roll": 100, "roll_every": "1h"},
    "often": {"roll_every": "50ms"},
    "late": {"roll_every": "1h"},
}
"""By size, by age, and one that holds everything back until the end."""


class Gated(ms.Source[int]):
    """One half of the numbers, and the other one when the gate is there."""

    is_parallel = False

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split("numbers")]

    def open(self, split: ms.Split, offset: int, config: Any) -> GatedReader:
        return GatedReader(self.gate, offset)


class GatedReader(ms.SourceReader[int]):
    """Reads ten at once."""

    offset = 0

    def __init__(self, gate: Path, offset: int) -> None:
        self.gate, self.offset = gate, offset

    def read(self, rows: int) -> list[int] | None:
        if self.offset == 2 * HALF:
            return None
        if self.offset >= HALF and not self.gate.exists():
            return []
        self.offset += 10
        return list(range(self.offset - 10, self.offset))


def key(number: int) -> Any:
    """Return a NaN that is no other one, for every second number."""
    return float("nan") if number % 2 else number % 10


def seen(directory: Path) -> list[str]:
    parts = directory.glob("part-*")
    return sorted(line for part in parts for line in part.read_text().split())


def test_a_killed_worker_costs_no_row_of_rolled_parts_and_no_count_of_nan(
    spark: SparkSession, tmp_path: Path
) -> None:
    """However rows are held back, and also where a key is not equal to itself."""
    gate = tmp_path / "gate"
    flow = ms.Flow("seams")
    numbers = flow.read(Gated(gate), name="numbers").shuffle()
    for name, roll in ROLLS.items():
        numbers.map(str).write_text(tmp_path / name, name=name, **roll)
    counted = numbers.key_by(key).map_with_state(0, lambda n, _: (n + 1, n + 1))
    texts = counted.unkey().map(lambda pair: f"{pair[0]}:{pair[1]}")
    texts.write_text(tmp_path / "counts", name="counts", roll_every="50ms")
    job = flow.start(
        spark=spark, workers=2, state=tmp_path / "state", snapshot_every="50ms"
    )
    eventually(lambda: len(seen(tmp_path / "often")) == HALF)
    os.kill(job.worker_pids()[1], signal.SIGKILL)
    eventually(lambda: job.recoveries() and job.status() == "running")
    gate.touch()
    job.wait()

    for name in ROLLS:
        assert seen(tmp_path / name) == sorted(map(str, range(2 * HALF)))
        assert not list((tmp_path / name).glob(".*"))
    by_key = dict.fromkeys(("0", "2", "4", "6", "8"), HALF // 5) | {"nan": HALF}
    expected = [f"{k}:{n}" for k, count in by_key.items() for n in range(1, count + 1)]
    assert seen(tmp_path / "counts") == sorted(expected)


def told(flow: ms.Flow, error: type[Exception], **place: Any) -> str:
    """Return what a run is refused or fails with."""
    with pytest.raises(error) as caught:
        flow.run(**place)
    return str(caught.value)


def leaving(_: int) -> int:
    sys.exit("enough")


def test_exit_of_a_function_is_told_like_everywhere(spark: SparkSession) -> None:
    """It is the function's error, and ends no executor."""
    flow = ms.Flow("leaving")
    flow.from_iterable([5]).map(leaving).collect()

    text = told(flow, ms.OperatorError, spark=spark, workers=2)

    assert text == told(flow, ms.OperatorError, on="local", workers=2)
    assert "SystemExit: enough" in text


def test_a_side_is_joined_in_every_round_like_everywhere(spark: SparkSession) -> None:
    """It comes from outside the loop, over sockets, and once."""
    flow = ms.Flow("walks")
    found = {how: walks(flow, how).collect(name=f"{how} found") for how in HOW}

    flow.run(spark=spark, workers=3)

    for how, handle in found.items():
        assert sorted(handle.result()) == walked(how, START, ROADS)


class Measured(ms.Source[Any]):
    """Splits whose times differ by far, each with some rows that are behind."""

    def splits(self, task_count: int) -> list[ms.Split]:
        return [ms.Split(f"from {first}", first) for first in (0, 1000, 40, 5)]

    def open(self, split: ms.Split, offset: int, config: Any) -> MeasuredReader:
        return MeasuredReader(split.payload, offset)


class MeasuredReader(ms.SourceReader[Any]):
    """Reads a row at once; every fifth is forty behind."""

    offset = 0

    def __init__(self, first: int, offset: int) -> None:
        self.first, self.offset = first, offset

    def read(self, rows: int) -> list[Any] | None:
        if self.offset == ROWS:
            return None
        time = self.first + 3 * self.offset - (40 if self.offset % 5 == 4 else 0)
        self.offset += 1
        return [(self.first, time)]


def late_rows(*, is_read_twice: bool, **place: Any) -> list[list[Any]]:
    """Return sums of windows, the rows that came too late for them, and all rows."""
    flow = ms.Flow("times")
    rows = flow.read(Measured(), name="rows")
    timed = rows.event_time(lambda row: row[1], out_of_order="10ms")
    windows = timed.key_by(lambda row: row[0]).window(tumbling("20ms")).count()
    found: list[ms.ResultHandle[Any]] = [
        windows.unkey().collect(),
        windows.late().collect(),
    ]
    if is_read_twice:
        found.append(rows.shuffle().collect())
    flow.run(**place)
    return [sorted(each.result()) for each in found]


def test_a_second_reader_does_not_change_who_is_late_on_spark(
    spark: SparkSession,
) -> None:
    """Time is given in a stage behind the source then, which hears of splits by marks."""
    counts, late = late_rows(is_read_twice=False, on="local", workers=1)
    assert late

    *found, all_rows = late_rows(is_read_twice=True, spark=spark, workers=3)

    assert found == [counts, late]
    assert len(all_rows) == 4 * ROWS


def kept(aggregate: Callable[[Any], Any]) -> ms.Flow:
    flow = ms.Flow("kept")
    aggregate(flow.from_iterable([1, 2, 3]).group_by(lambda n: n % 2)).collect()
    return flow


def test_a_changed_operator_is_refused_like_everywhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the same fingerprints, before anything of Spark is started."""
    texts = []
    places: list[dict[str, Any]] = [{"spark": spark}, {"on": "local"}]
    for number, place in enumerate(places):
        settings = {**place, "workers": 2, "state": tmp_path / str(number)}
        kept(lambda rows: rows.count(name="op")).run(**settings)
        other = kept(lambda rows: rows.sum(name="op"))
        texts.append(told(other, SnapshotError, **settings))

    assert texts[0] == texts[1]
    assert texts[0].startswith("the state of 'op' in epoch 1 is that of ")


class Holding:
    """A function that holds an open file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open()

    def __call__(self, row: int) -> int:
        return row + len(self.file.read())


def test_a_captured_open_file_is_refused_before_spark_is_asked(
    tmp_path: Path,
) -> None:
    """With its name, where the flow is built."""
    (tmp_path / "file").write_text("x")
    holding = Holding(tmp_path / "file")
    with holding.file as file:
        rows = ms.Flow("holding").from_iterable([1])
        for function, name in (
            (holding, "'file'"),
            (lambda row: row + len(file.read()), "'file'"),
            (lambda row: holding(row + 1), "'holding'"),
        ):
            with pytest.raises(ms.UsageError, match=f"{name} .*TextIOWrapper"):
                rows.map(function)
