"""Marks of splits: before the rows that they hold for, whatever waits for credit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tests.support.task_harness import TaskHarness

from millstream.protocol.barrier import Barrier, Splits
from millstream.protocol.ids import Epoch
from millstream.runtime.splits import SplitsReader
from millstream.runtime.task import TaskPhase
from millstream.testing import Pause, ScriptedSource

SCRIPTS = (list(range(5)), [Pause(), *range(100, 103)], list(range(200, 209)))


def heard_while_running(bench: TaskHarness, *, cuts: bool = False) -> list[Any]:
    """Run a task to its end; whatever comes is taken as late as can be."""
    heard: list[Any] = []
    for turn in range(1, 200):
        if cuts and turn % 3 == 0 and bench.phase() is TaskPhase.RUNNING:
            bench.task.announce(Barrier(Epoch(turn), Epoch(0)))
        bench.clock.advance("1s")
        if not bench.run():
            heard += bench.elements()
    assert bench.phase() is TaskPhase.ENDED
    return heard + bench.elements()


@pytest.mark.parametrize("cuts", [False, True])
@pytest.mark.parametrize("buffer_rows", [1, 3, 100])
@pytest.mark.parametrize("credit", [1, 2, 100])
def test_rows_stand_behind_the_mark_of_their_split(
    credit: int, buffer_rows: int, *, cuts: bool
) -> None:
    """A batch waits until the mark has left, though a cut is asked for meanwhile."""
    source = ScriptedSource(*SCRIPTS)
    names = [split.name for split in source.splits(1)]
    bench = TaskHarness(
        source, [], credit=credit, buffer_rows=buffer_rows, carries_splits=True
    )
    splits = SplitsReader(names)
    rows: dict[str, list[int]] = defaultdict(list)
    for element in heard_while_running(bench, cuts=cuts):
        if isinstance(element, Splits):
            splits.note(element)
        elif isinstance(element, list):
            assert splits.reading in splits.open(are_waiting=False)
            rows[splits.reading] += element

    own = [[row for row in script if isinstance(row, int)] for script in SCRIPTS]
    assert dict(rows) == dict(zip(names, own, strict=True))


def test_split_counts_until_it_is_over_and_as_begun_when_it_was_opened() -> None:
    """One that waits to be opened holds time back, unless splits are in order."""
    splits = SplitsReader(["a", "b"])
    assert splits.open(are_waiting=True) == ["a", "b"]
    assert splits.open(are_waiting=False) == []

    splits.note(Splits("a", begun=("a",)))
    assert (splits.reading, splits.open(are_waiting=False)) == ("a", ["a"])

    splits.note(Splits("b", begun=("b",), over=("a",)))
    assert splits.open(are_waiting=True) == splits.open(are_waiting=False) == ["b"]
