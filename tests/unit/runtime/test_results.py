"""Rows that came to the driver: in order, once, and only those that count."""

from __future__ import annotations

import pickle

import pytest

from millstream.errors import OperationalError
from millstream.runtime.results import (
    ResultPart,
    Results,
    packed_parts,
    unpacked_parts,
)
from millstream.state.plain import encode_lists


def part(*rows: str, sink: str = "out", task: int = 0, epoch: int = 0) -> ResultPart:
    return ResultPart(sink, task, epoch, encode_lists(list(rows)))


def results_of(*parts: ResultPart) -> Results:
    results = Results()
    for each in parts:
        results.add(each)
    return results


def test_rows_are_in_the_order_of_tasks_and_then_as_they_came() -> None:
    """Whichever worker is faster, the user sees the same order."""
    results = results_of(
        part("d", task=1), part("a", "b"), part("e", task=1), part("c", epoch=1)
    )

    assert results.rows("out") == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("payload", [b"garbage", b"", pickle.dumps({"a": 1})])
def test_rows_that_cannot_be_read_are_one_error(payload: bytes) -> None:
    """It says whose they are; nothing else that unpickling raises gets out."""
    results = results_of(part("a"), ResultPart("out", 1, 0, payload))

    with pytest.raises(OperationalError, match="rows that task 1 sent to sink 'out'"):
        results.rows("out")


def test_sinks_do_not_mix() -> None:
    """Each has its own rows, or none."""
    results = results_of(part("a"), part("b", sink="other"))

    assert results.rows("other") == ["b"]
    assert results.rows("unheard") == []


def test_going_back_forgets_what_came_after_the_cut() -> None:
    """A row between two cuts belongs to the second; it will come again."""
    results = results_of(part("a", epoch=0), part("b", epoch=3), part("c", epoch=4))

    results.go_back(4)

    assert results.rows("out") == ["a", "b"]
    results.go_back(0)
    assert results.rows("out") == []


def test_rows_between_two_cuts_are_those_of_one_manifest() -> None:
    """Every part is in exactly one of them."""
    parts = [part(str(epoch), epoch=epoch) for epoch in range(6)]
    results = results_of(*parts)

    found = [results.between(*cuts) for cuts in ((0, 2), (2, 5), (5, 6))]

    assert found == [parts[:2], parts[2:5], parts[5:]]


def test_parts_survive_a_file() -> None:
    """Rows stay pickled until somebody wants them."""
    parts = [part("a", task=2, epoch=7), part(sink="other")]

    assert unpacked_parts(packed_parts(parts)) == parts
