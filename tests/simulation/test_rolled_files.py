"""Sinks of real files under simulated crashes: rows held back over epochs, rolled, merged.

Everything but the files is simulated; workers, drivers and disks of the snapshots fail at
every step of holding back, merging and committing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.examples import few_seeds

import millstream as ms
from millstream.connectors import parts
from millstream.connectors.files import TextSink
from millstream.connectors.output import staged_generation
from millstream.connectors.parts import PartsWriter
from millstream.simulation import connectors
from millstream.testing import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.connectors.parts import SealedParts

SECOND = 1_000_000_000
SEEDS = 40


class FileSink(connectors.RecordingSink):
    """Stands in for a sink of the flow and writes files all the same."""

    #: Set by the test.
    root: Path
    numbers = itertools.count()
    made: list[FileSink]

    def __init__(self, *, is_keeping: bool = True) -> None:
        super().__init__(is_keeping=is_keeping)
        self.directory = self.root / str(next(self.numbers))
        self.sink = TextSink(self.directory, name="out", roll=40, roll_every="3s")
        self.sink.prepare("job")
        self._seconds = itertools.count()
        self.last_epoch = 0
        self.made.append(self)

    @property
    def rows(self) -> list[Any]:
        files = sorted(self.directory.glob("part-*"), key=lambda path: path.stem)
        return [line for file in files for line in file.read_text().splitlines()]

    def open(self, job: str, task: int) -> Any:
        return PartsWriter(
            self.sink, "job", task, lambda: next(self._seconds) * SECOND // 4
        )

    def commit(self, job: str, epoch: int, transactions: list[Any]) -> None:
        self.sink.commit("job", epoch, transactions)
        sealed: list[SealedParts] = transactions
        if epoch < self.last_epoch:  # by a driver that has been superseded
            return
        self.last_epoch = epoch
        gone = {name for each in sealed for name in each.spent}
        gone |= {name for each in sealed for name, _ in each.moves}
        held = {name for each in sealed for name in each.held} - gone
        newest = max((each.generation for each in sealed), default=0)
        names = self.sink.output.staged("job")
        lost = held.difference(names)
        left = [n for n in names if n not in held and staged_generation(n) < newest]
        if any(each.is_first for each in sealed) and (lost or left):
            self.problems.append(f"lost {lost}, left {left}")

    def complete(self, job: str) -> None:
        super().complete("job")
        self.sink.complete("job")


@pytest.fixture
def file_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[FileSink]:
    FileSink.root, FileSink.made = tmp_path, []
    monkeypatch.setattr(connectors, "RecordingSink", FileSink)
    monkeypatch.setattr(parts, "_PIECES_MAX", 4)
    return FileSink.made


def flow() -> ms.Flow:
    made = ms.Flow("rolled")
    numbers = made.from_parallel(lambda i, n: range(i, 120, n))
    numbers.shuffle().map(str).write_text("nowhere", name="texts")
    return made


def test_every_row_is_in_one_part_once_whatever_crashes(
    file_sinks: list[FileSink],
) -> None:
    """Nothing that a manifest may still commit is removed, and nothing else stays."""
    seeds = few_seeds(SEEDS)
    report = simulate(flow(), seeds=seeds, snapshots=True)

    assert report.is_clean, report.summary()
    expected = Counter(map(str, range(120)))
    complete = [sink for sink in file_sinks if sink.commit_count]
    assert len(complete) > len(seeds) // 2
    for sink in complete:
        assert Counter(sink.rows) == expected
        assert not list(sink.directory.glob(".millstream-job"))
    counts = [len(list(sink.directory.glob("part-*"))) for sink in complete]
    assert sum(counts) / len(counts) < 60
