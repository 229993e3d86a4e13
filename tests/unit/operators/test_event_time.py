"""event_time: idle splits, timestamps ahead of the clock, promises of users' own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.making import node

from millstream.operators.event_time import TimeAssigned
from millstream.plan.time import AssignTime, Behind
from millstream.protocol.watermark import Watermark
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = ["left", "right"]


class Stand:
    """The operator, a clock, and two splits."""

    def __init__(self, every_ms: float = 0, **options: Any) -> None:
        self.clock = ManualClock()
        spec = AssignTime(lambda row: row, **options)
        self.operator = TimeAssigned((node(spec),), every_ms, self.clock)

    def read(self, split: str, *times: Any) -> list[Any]:
        self.operator.origin = split
        return self.operator.process(list(times), 0)

    def due(self, *splits: str) -> Watermark | None:
        return self.operator.due(splits or BOTH, self.clock.monotonic_ns())


def test_quiet_split_holds_time_back_until_it_is_idle() -> None:
    """Behind `idle_after` the others go on without it; its next row counts again."""
    stand = Stand(idle_after_ms=1_000)
    stand.read("left", 50)
    first = stand.due()
    stand.clock.advance("600ms")
    stand.read("left", 70)
    stand.clock.advance("600ms")
    without_right = stand.due()
    stand.read("right", 60)
    stand.clock.advance("1ms")
    with_right = stand.due()
    stand.read("right", 90)

    assert first is None
    assert without_right == Watermark(69)
    assert with_right is None, "time does not fall"
    assert stand.due() is None
    stand.read("left", 80)
    assert stand.due() == Watermark(79)


def test_when_all_splits_are_idle_so_is_the_task() -> None:
    """Whoever reads it should not wait for it."""
    stand = Stand(idle_after_ms=1_000)
    stand.read("left", 50)
    stand.due()
    stand.clock.advance("2s")

    assert stand.due() == Watermark(49, is_idle=True)
    stand.read("right", 60)
    assert stand.due() == Watermark(59)


def test_wakes_when_a_split_would_become_idle() -> None:
    """Nothing need come for that."""
    stand = Stand(idle_after_ms=1_000)
    stand.read("left", 50)
    stand.due()

    assert stand.operator.wake_ns(stand.clock.monotonic_ns()) == 1_000_000_000


def test_timestamp_far_ahead_does_not_move_time() -> None:
    """One broken clock does not make everybody else late."""
    stand = Stand(max_ahead_ms=1_000)
    rows = stand.read("left", 10, 5_000, 11)

    assert [type(time) for time, _ in rows] == [int, int, int]
    assert stand.due("left") == Watermark(10)
    assert stand.operator.ahead_count == 1


def test_promise_of_zero_is_a_promise() -> None:
    """Nothing is special about the first millisecond of 1970."""
    stand = Stand(watermark=lambda: lambda _row, time: time)
    stand.read("left", 0)

    assert stand.due("left") == Watermark(0)


def test_user_makes_promises_by_split() -> None:
    """Every split has a function of its own; None promises nothing new."""

    def factory() -> Callable[[int, int], int | None]:
        seen: list[int] = []

        def promise(row: int, _time: int) -> int | None:
            seen.append(row)
            return row if len(seen) == 2 else None

        return promise

    stand = Stand(watermark=factory)
    stand.read("left", 5, 6)
    stand.read("right", 3)

    assert stand.due("left") == Watermark(6)
    assert stand.due("right") is None


def test_watermarks_keep_their_distance() -> None:
    """Each one sends the buffers, so they must not be too many."""
    stand = Stand(every_ms=100)
    stand.read("left", 1)
    first = stand.due("left")
    stand.read("left", 2)
    too_soon = stand.due("left")
    stand.clock.advance("100ms")

    assert (first, too_soon) == (Watermark(0), None)
    assert stand.due("left") == Watermark(1)


def test_datetimes_are_timestamps() -> None:
    """Naive ones are UTC; what is below a millisecond is cut off."""
    stand = Stand()
    naive = datetime(1970, 1, 1, 0, 0, 1, 999)  # noqa: DTZ001 - on purpose
    aware = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)

    assert [time for time, _ in stand.read("left", naive, aware)] == [1_000, 2_000]


def test_anything_else_is_refused() -> None:
    """A float would lose the milliseconds of today."""
    with pytest.raises(TypeError, match="'soon' is no timestamp; expected an int"):
        Stand().read("left", "soon")


def test_a_new_round_begins_at_the_beginning_of_time() -> None:
    """Rows of the next round may be as old as those of this one."""
    stand = Stand()
    stand.read("left", 5)
    stand.operator.restart(frozenset())

    assert not any(isinstance(time, Behind) for time, _ in stand.read("left", 1))
