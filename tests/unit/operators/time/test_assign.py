"""event_time: idle splits, timestamps ahead of the clock, promises of users' own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import node

from millstream.operators.time.assign import AssignTimestampsOperator
from millstream.plan.time import AssignTime, LateTimestamp
from millstream.protocol.ids import Epoch
from millstream.protocol.watermark import Watermark
from millstream.state.base import ALL_SHARDS
from millstream.state.task_state import TaskState
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = ["left", "right"]
REFUSED = 99


class AssignHarness:
    """The operator, a clock, and two splits."""

    def __init__(self, every_ms: float = 0, **options: Any) -> None:
        self.clock = ManualClock()
        spec = AssignTime(lambda row: row, **options)
        self.operator = AssignTimestampsOperator((node(spec),), every_ms, self.clock)

    def read(self, split: str, *times: Any) -> list[Any]:
        self.operator.origin = split
        return self.operator.process(list(times))

    def again(self, **options: Any) -> AssignHarness:
        """Return another one that goes on where this one was cut."""
        other = AssignHarness(**options)
        self.moved_to(other)
        return other

    def moved_to(self, other: AssignHarness) -> None:
        """Restore the other one from what this one keeps."""
        capture = self.state.capture(Epoch(1), Epoch(0))
        other.state.restore(capture.segments("event_time", 0), ALL_SHARDS)

    @property
    def state(self) -> TaskState:
        assert isinstance(self.operator.state, TaskState)
        return self.operator.state

    def due(self, *splits: str) -> Watermark | None:
        return self.operator.due(splits or BOTH, self.clock.monotonic_ns())


def test_quiet_split_holds_time_back_until_it_is_idle() -> None:
    """Behind `idle_after` the others go on without it; its next row counts again."""
    harness = AssignHarness(idle_after_ms=1_000)
    harness.read("left", 50)
    first = harness.due()
    harness.clock.advance("600ms")
    harness.read("left", 70)
    harness.clock.advance("600ms")
    without_right = harness.due()
    harness.read("right", 60)
    harness.clock.advance("1ms")
    with_right = harness.due()
    harness.read("right", 90)

    assert first is None
    assert without_right == Watermark(69)
    assert with_right is None, "time does not fall"
    assert harness.due() is None
    harness.read("left", 80)
    assert harness.due() == Watermark(79)


def test_when_all_splits_are_idle_so_is_the_task() -> None:
    """Whoever reads it should not wait for it."""
    harness = AssignHarness(idle_after_ms=1_000)
    harness.read("left", 50)
    harness.due()
    harness.clock.advance("2s")

    assert harness.due() == Watermark(49, is_idle=True)
    harness.read("right", 60)
    assert harness.due() == Watermark(59)


def test_wakes_when_a_split_would_become_idle() -> None:
    """Nothing need come for that."""
    harness = AssignHarness(idle_after_ms=1_000)
    harness.read("left", 50)
    harness.due()

    assert harness.operator.wake_ns(harness.clock.monotonic_ns()) == 1_000_000_000


def test_timestamp_far_ahead_does_not_move_time() -> None:
    """One broken clock does not make everybody else late."""
    harness = AssignHarness(max_future_skew_ms=1_000)
    rows = harness.read("left", 10, 5_000, 11)

    assert [type(time) for time, _ in rows] == [int, int, int]
    assert harness.due("left") == Watermark(10)
    assert harness.operator.ahead_count == 1


def test_promise_of_zero_is_a_promise() -> None:
    """Nothing is special about the first millisecond of 1970."""
    harness = AssignHarness(watermark=lambda: lambda _row, time: time)
    harness.read("left", 0)

    assert harness.due("left") == Watermark(0)


def test_user_makes_promises_by_split() -> None:
    """Every split has a function of its own; None promises nothing new."""

    def factory() -> Callable[[int, int], int | None]:
        seen: list[int] = []

        def promise(row: int, _time: int) -> int | None:
            seen.append(row)
            return row if len(seen) == 2 else None

        return promise

    harness = AssignHarness(watermark=factory)
    harness.read("left", 5, 6)
    harness.read("right", 3)

    assert harness.due("left") == Watermark(6)
    assert harness.due("right") is None


def every_second() -> Callable[[int, int], int | None]:
    """Return a rule that remembers how many rows it has seen, and refuses some."""
    seen: list[int] = []

    def promise(row: int, time: int) -> int | None:
        seen.append(row)
        if row == REFUSED:
            raise ValueError(row)
        return time if len(seen) % 2 == 0 else None

    return promise


def test_rule_that_has_promised_nothing_yet_remembers_what_it_saw() -> None:
    """A snapshot has it, though there is no promise of that split."""
    harness = AssignHarness(watermark=every_second)
    harness.read("left", 5)
    other = harness.again(watermark=every_second)
    other.read("left", 6)

    assert other.due("left") == Watermark(6)


def test_rule_that_raises_has_not_seen_the_batch() -> None:
    """Where dead letters are collected, the rows before it come again."""
    harness = AssignHarness(watermark=every_second)
    harness.operator.origin = "left"
    undo = harness.operator.begin_undo([REFUSED])
    with pytest.raises(ValueError, match=str(REFUSED)):
        harness.read("left", REFUSED)
    undo()
    harness.read("left", 5)

    assert harness.due("left") is None


def test_a_new_round_has_new_rules() -> None:
    """Also for those who have brought nothing since the snapshot."""
    harness = AssignHarness(watermark=every_second)
    harness.read("left", 5)
    other = harness.again(watermark=every_second)
    other.operator.reset()
    other.read("left", 6)

    assert other.due("left") is None


def test_what_others_have_promised_is_not_kept() -> None:
    """A split that was read on elsewhere has promised more there."""
    harness = AssignHarness(watermark=every_second)
    harness.read("left", 5, 6)
    harness.read("right", 7, 8)
    left, right = (harness.again(watermark=every_second) for _ in BOTH)
    left.operator.forget_others(["left"])
    right.operator.forget_others(["right"])
    left.read("left", 20, 21)
    whole = AssignHarness(watermark=every_second)
    right.moved_to(whole)
    left.moved_to(whole)

    assert whole.due("right") == Watermark(8)
    assert whole.due("left") == Watermark(21)


def test_origins_that_nobody_knows_promise_what_all_had_promised_together() -> None:
    """At another width other rows come by a channel than before."""
    harness = AssignHarness()
    harness.read("left", 5)
    harness.read("right", 70)
    harness.due()
    other = harness.again()
    other.operator.begin_anew(["one", "two"])

    assert other.read("one", 5, 4) == [(5, 5), (LateTimestamp(4, 4), 4)]
    assert other.due("one", "two") == Watermark(4)


def test_watermarks_keep_their_distance() -> None:
    """Each one sends the buffers, so they must not be too many."""
    harness = AssignHarness(every_ms=100)
    harness.read("left", 1)
    first = harness.due("left")
    harness.read("left", 2)
    too_soon = harness.due("left")
    harness.clock.advance("100ms")

    assert (first, too_soon) == (Watermark(0), None)
    assert harness.due("left") == Watermark(1)


def test_datetimes_are_timestamps() -> None:
    """Naive ones are UTC; what is below a millisecond is cut off."""
    harness = AssignHarness()
    naive = datetime(1970, 1, 1, 0, 0, 1, 999)  # noqa: DTZ001 - on purpose
    aware = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)

    assert [time for time, _ in harness.read("left", naive, aware)] == [1_000, 2_000]


def test_anything_else_is_refused() -> None:
    """A float would lose the milliseconds of today."""
    with pytest.raises(TypeError, match="'soon' is no timestamp; expected an int"):
        AssignHarness().read("left", "soon")


def test_a_new_round_begins_at_the_beginning_of_time() -> None:
    """Rows of the next round may be as old as those of this one."""
    harness = AssignHarness()
    harness.read("left", 5)
    harness.operator.reset()

    assert not any(
        isinstance(time, LateTimestamp) for time, _ in harness.read("left", 1)
    )
