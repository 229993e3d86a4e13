"""The harness of one function: it does what a task does, and refuses what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms
from millstream.testing import FunctionHarness, ManualClock


class Counting(ms.StatefulFunction[str, int, int]):
    """Counts the records of a key."""

    count = ms.ValueState[int](default=0)

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self) -> None:
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")

    def on_record(self, key: str, value: int) -> list[int]:
        self.count.update(self.count.get() + value)
        return [self.count.get()]

    def on_end(self, key: str) -> list[int]:
        return [-self.count.get()]


def test_harness_gathers_what_the_function_returns() -> None:
    """Each call returns its own part of it."""
    harness = FunctionHarness(Counting())

    assert harness.record("a", 1) == [("a", 1)]
    assert harness.record("a", 2) == [("a", 3)]
    assert harness.state("a") == {"count": 3}
    assert harness.state("b") == {}
    assert harness.end() == [("a", -3)]
    assert harness.output == [("a", 1), ("a", 3), ("a", -3)]


def test_snapshot_can_be_gone_back_to_more_than_once() -> None:
    """What came after it is forgotten each time, but not what was put out."""
    harness = FunctionHarness(Counting())
    harness.record("a", 1)
    kept = harness.snapshot()
    harness.record("a", 5)
    for _ in range(2):
        harness.restore(kept)
        assert harness.record("a", 1) == [("a", 2)]

    assert [value for _, value in harness.output] == [1, 6, 2, 2]


def test_function_is_opened_and_closed_as_in_a_task() -> None:
    """Restoring makes another instance of it."""
    function = Counting()
    harness = FunctionHarness(function)
    harness.restore(harness.snapshot())
    harness.close()

    assert function.log == ["open", "close", "open", "close"]


def test_time_goes_on_in_the_clock_that_was_given() -> None:
    """Two functions may share one."""
    clock = ManualClock()
    FunctionHarness(Counting(), clock=clock).advance("2s")

    assert clock.wall_ms() == 2_000


MISTAKES: dict[str, Any] = {
    "takes no timestamps, got timestamp=5": lambda h, _: h.record("a", 1, timestamp=5),
    "takes records with timestamps": lambda _, h: h.record("a", 1),
    "has no event time; make it with timed=True": lambda h, _: h.watermark(5),
    "the watermark -1 is before 0": lambda _, h: (h.watermark(0), h.watermark(-1)),
    "has ended": lambda h, _: (h.end(), h.record("a", 1)),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistake_is_refused(text: str) -> None:
    """A test that tells nonsense would prove nothing."""
    untimed = FunctionHarness(Counting())
    timed = FunctionHarness(Counting(), timed=True)

    with pytest.raises(ms.UsageError, match=text):
        MISTAKES[text](untimed, timed)
