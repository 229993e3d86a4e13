"""Windows by hand: what a random test would hardly hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.windowing import MEMORY, SHARDS, window_operator_of

from millstream.operators.failure import blame
from millstream.plan import aggregate as aggregates
from millstream.plan.aggregate import Aggregate
from millstream.plan.time import LateRow, LateTimestamp
from millstream.plan.windows import (
    Action,
    CountWindows,
    GlobalWindow,
    SessionWindows,
    TimeWindows,
    Trigger,
    TriggerContext,
    Windowed,
)
from millstream.protocol.ids import Epoch
from millstream.state.settings import StateSettings
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable


COUNT, SUM, UNIQUE = map(aggregates.builtin, ("count", "sum", "unique"))
STORED = [
    pytest.param(MEMORY, id="memory"),
    pytest.param(StateSettings(SHARDS, "rocksdb", cache_entries=2), id="rocksdb"),
]


def tumbling(size: int = 10) -> TimeWindows:
    return TimeWindows(size, size, 0, "event")


def sliding(size: int, slide: int) -> TimeWindows:
    return TimeWindows(size, slide, 0, "event")


def said(batches: Iterable[list[Any]]) -> list[Any]:
    return [row for batch in batches for row in batch]


def timed(*times: int, key: str = "k") -> list[Any]:
    return [(key, (time, time)) for time in times]


def test_window_is_over_when_nothing_of_it_can_follow() -> None:
    """One millisecond before the end is the last time of a window."""
    operator = window_operator_of(Windowed(tumbling(), COUNT))
    operator.process(timed(0, 9, 10))

    assert said(operator.advance(8)) == []
    assert said(operator.advance(9)) == [("k", (9, 2))]
    assert said(operator.finish()) == [("k", (19, 1))]


def test_windows_before_1970_are_as_long_as_others() -> None:
    """Numbers of windows are rounded down, not towards zero."""
    operator = window_operator_of(Windowed(tumbling(), COUNT))
    operator.process(timed(-1, -10, -11, 0))

    assert said(operator.finish()) == [
        ("k", (-11, 1)),
        ("k", (-1, 2)),
        ("k", (9, 1)),
    ]


def test_time_may_jump_over_any_number_of_empty_windows() -> None:
    """Ten million million windows of a millisecond cost nothing."""
    operator = window_operator_of(Windowed(sliding(3, 1), SUM))
    operator.process(timed(1))
    operator.process(timed(10**16))

    times = [time for _, (time, _) in said(operator.advance(10**16 + 10))]

    assert times == [1, 2, 3, 10**16, 10**16 + 1, 10**16 + 2]


def test_row_of_an_idle_origin_that_finds_its_window_gone_is_late() -> None:
    """It was on time for its origin, but nobody waited for that."""
    operator = window_operator_of(Windowed(tumbling(), COUNT))
    said(operator.advance(25))

    assert operator.process(timed(3, 21, 26)) == []
    assert operator.late == [LateRow("k", 3, 3)]
    assert operator.late_count == 1
    assert said(operator.finish()) == [("k", (29, 2))]


@pytest.mark.parametrize("settings", STORED)
def test_time_that_was_reached_is_stored_with_the_windows(
    settings: StateSettings,
) -> None:
    """After a crash the same rows are late as before it."""
    spec = Windowed(tumbling(), COUNT)
    operator = window_operator_of(spec, settings)
    said(operator.advance(25))
    operator.process(timed(26, 31))
    assert operator.state is not None
    capture = operator.state.capture(Epoch(1), Epoch(0))
    segments = list(capture.segments("window", 0))
    operator.close()

    restored = window_operator_of(spec, settings)
    assert restored.state is not None
    for kind in ("shared", "rows"):
        own = [segment for segment in segments if segment.kind.value == kind]
        restored.state.restore(own, (0, SHARDS))
    restored.process(timed(19))

    assert restored.late == [LateRow("k", 19, 19)]
    assert said(restored.advance(29)) == [("k", (29, 1))]
    assert said(restored.finish()) == [("k", (39, 1))]
    restored.close()


def test_row_behind_is_left_out_of_the_windows_that_its_origin_had_closed() -> None:
    """Though they are still open here, because another origin is slower."""
    operator = window_operator_of(Windowed(sliding(10, 5), COUNT))
    operator.process(timed(6, 12))
    operator.process([("k", (LateTimestamp(7, 9), "late"))])

    assert said(operator.finish()) == [
        ("k", (9, 1)),
        ("k", (14, 3)),
        ("k", (19, 1)),
    ]
    assert operator.late == []


def test_late_row_changes_a_result_that_windows_had_in_common() -> None:
    """What was put together for the windows before is put together anew."""
    operator = window_operator_of(Windowed(sliding(100, 5), SUM))
    operator.process(timed(*range(1, 100, 5)))
    said(operator.advance(104))
    operator.process([("k", (LateTimestamp(6, 104), 1000))])
    on_time = sum(range(11, 100, 5))

    assert said(operator.advance(109)) == [("k", (109, on_time))]
    assert operator.late == [LateRow("k", 1000, 6)]

    operator.process([("k", (LateTimestamp(57, 109), 1000))])

    assert said(operator.advance(114)) == [("k", (114, on_time - 11 + 1000))]


def test_windows_that_overlap_a_thousandfold_cost_a_few_merges_each() -> None:
    """What they have in common is put together once."""
    merges = []

    def merge(left: int, right: int) -> int:
        merges.append(1)
        return left + right

    counted = Aggregate("total", int, lambda total, value: total + value, merge)
    operator = window_operator_of(Windowed(sliding(1000, 1), counted))
    for start in range(0, 5000, 100):
        operator.process(timed(*range(start, start + 100)))
    results = said(operator.finish())

    assert len(results) == 5999
    assert results[2500] == ("k", (2500, sum(range(1501, 2501))))
    assert len(merges) <= 3 * len(results)


def test_result_does_not_change_when_its_panes_do() -> None:
    """A set that was sent on is not the one that later rows are put into."""
    operator = window_operator_of(Windowed(tumbling(), UNIQUE, lateness_ms=100))
    operator.process(timed(1))
    ((_, (_, first)),) = said(operator.advance(20))
    ((_, (_, second)),) = operator.process([("k", (LateTimestamp(2, 20), 2))])

    assert (first, second) == ({1}, {1, 2})


def test_merge_that_changes_what_it_is_given_spoils_no_pane() -> None:
    """Functions of users get copies of what other windows need."""

    def extend(left: list[int], right: list[int]) -> list[int]:
        left.extend(right)
        return left

    lists = Aggregate("lists", lambda v: [v], lambda part, v: extend(part, [v]), extend)
    operator = window_operator_of(Windowed(sliding(10, 5), lists))
    operator.process(timed(1, 6, 11))

    results = [value for _, (_, value) in said(operator.finish())]

    assert results == [[1], [1, 6], [6, 11], [11]]


def test_many_values_of_a_window_do_not_wait_for_its_end() -> None:
    """Where order counts, a value waits only until no earlier one can follow."""
    seen: list[int] = []

    def note(total: int, value: int) -> int:
        seen.append(value)
        return total + value

    operator = window_operator_of(
        Windowed(tumbling(100_000), aggregates.reduce(note), is_ordered=True)
    )
    for start in range(0, 4096, 256):
        operator.process(timed(*reversed(range(start, start + 256))))
        said(operator.advance(start + 255))

    assert len(seen) > 3000
    assert seen == sorted(seen)


def test_session_goes_on_when_a_row_comes_less_than_the_gap_later() -> None:
    """A row exactly one gap later begins a new one."""
    spec = Windowed(SessionWindows(10, "event"), COUNT, shows_window=True)
    operator = window_operator_of(spec)
    operator.process(timed(0, 9, 19))

    results = [value for _, (_, value) in said(operator.finish())]

    assert results == [((0, 19), 2), ((19, 29), 1)]


def test_row_between_two_sessions_makes_them_one() -> None:
    """Nothing is said about either before it is clear that they are two."""
    operator = window_operator_of(Windowed(SessionWindows(10, "event"), SUM))
    operator.process(timed(0, 15))
    assert said(operator.advance(8)) == []
    operator.process([("k", (9, 100))])

    assert said(operator.advance(23)) == []
    assert said(operator.advance(24)) == [("k", (24, 115))]
    assert said(operator.finish()) == []


def test_late_row_makes_a_session_longer_that_was_given() -> None:
    """Within the lateness that is allowed, the longer one is given too."""
    spec = Windowed(SessionWindows(10, "event"), COUNT, lateness_ms=50)
    operator = window_operator_of(spec)
    operator.process(timed(0))
    assert said(operator.advance(20)) == [("k", (9, 1))]

    assert operator.process([("k", (LateTimestamp(5, 20), 5))]) == [("k", (14, 2))]
    assert said(operator.finish()) == []


def in_processing_time(
    spec: Windowed, clock: ManualClock, settings: StateSettings | None = None
) -> Any:
    return window_operator_of(spec, settings, clock, is_timed=False)


def test_processing_time_windows_are_over_by_the_clock() -> None:
    """The operator asks to be called when the first one is."""
    clock = ManualClock()
    window = TimeWindows(100, 20, 0, "processing")
    operator = in_processing_time(Windowed(window, SUM), clock)
    clock.advance("50ms")
    operator.process([("k", 1), ("k", 2)])
    assert operator.tick_at_ms == 60

    clock.advance("15ms")
    assert said(operator.tick(clock.wall_ms())) == [("k", 3)]
    assert operator.tick_at_ms == 80
    operator.process([("k", 10)])
    clock.advance("15ms")
    assert said(operator.tick(clock.wall_ms())) == [("k", 13)]
    assert said(operator.finish()) == [("k", 13), ("k", 13), ("k", 13), ("k", 10)]


def test_clock_that_goes_back_puts_no_row_into_a_window_that_is_over() -> None:
    """Time does not go back for windows."""
    clock = ManualClock(start_ns=95_000_000)
    window = TimeWindows(10, 10, 0, "processing")
    operator = in_processing_time(Windowed(window, COUNT), clock)
    said(operator.tick(100))
    operator.process([("k", 1)])

    assert operator.tick_at_ms == 110
    assert operator.late == []


def test_processing_time_windows_ask_for_a_call_after_they_were_restored() -> None:
    """The clock may have passed their end in the meantime."""
    clock = ManualClock()
    spec = Windowed(TimeWindows(10, 10, 0, "processing"), COUNT)
    operator = in_processing_time(spec, clock, MEMORY)
    operator.process([("k", 1)])
    assert operator.state is not None
    capture = operator.state.capture(Epoch(1), Epoch(0))

    restored = in_processing_time(spec, clock, MEMORY)
    assert restored.state is not None
    restored.state.restore(list(capture.segments("window", 0)), (0, SHARDS))

    assert restored.tick_at_ms == 10
    assert said(restored.tick(1000)) == [("k", 1)]
    assert restored.tick_at_ms is None


def test_windows_by_the_clock_are_told_once_when_tasks_become_one() -> None:
    """One task has told a window before the cut that another has not; they become one."""
    clock = ManualClock()
    spec = Windowed(TimeWindows(100, 50, 0, "processing"), COUNT)
    tasks = [in_processing_time(spec, clock, MEMORY) for _ in range(2)]
    for key, task in zip(("quick", "slow"), tasks, strict=True):
        task.process([(key, 1)])
    clock.advance("60ms")
    assert said(tasks[0].tick(clock.wall_ms())) == [("quick", 1)]
    segments: list[Any] = []
    for index, task in enumerate(tasks):
        assert task.state is not None
        segments += task.state.capture(Epoch(1), Epoch(0)).segments("window", index)

    restored = in_processing_time(spec, clock, MEMORY)
    assert restored.state is not None
    restored.state.restore(segments, (0, SHARDS))

    assert said(restored.tick(clock.wall_ms())) == [("slow", 1)]
    clock.advance("60ms")
    assert sorted(said(restored.tick(clock.wall_ms()))) == [("quick", 1), ("slow", 1)]
    assert said(restored.finish()) == []


def test_processing_time_session_ends_when_nothing_has_come_for_the_gap() -> None:
    """By the clock."""
    clock = ManualClock()
    spec = Windowed(SessionWindows(10, "processing"), COUNT, shows_window=True)
    operator = in_processing_time(spec, clock)
    operator.process([("k", 1)])
    clock.advance("8ms")
    operator.process([("k", 1)])
    assert said(operator.tick(10)) == []

    assert operator.tick_at_ms == 18
    assert said(operator.tick(18)) == [("k", ((0, 18), 2))]


class Batches(Trigger):
    """Three rows, or what there is a second after the first."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        if context.count == 1:
            context.call_at(context.now + 1000)
        return Action.FIRE | Action.PURGE if context.count == 3 else Action.CONTINUE

    def on_time(self, time: int, context: TriggerContext) -> Action:
        return Action.FIRE | Action.PURGE


def test_trigger_fires_by_rows_and_by_time() -> None:
    """Whichever comes first."""
    spec = Windowed(GlobalWindow(Batches(), None), None)
    clock = ManualClock()
    operator = in_processing_time(spec, clock)

    assert operator.process([("k", n) for n in range(4)]) == [("k", [0, 1, 2])]
    assert operator.tick_at_ms == 1000
    assert said(operator.tick(1000)) == [("k", [3])]
    assert said(operator.finish()) == []


class Running(Trigger):
    """After every second row all there was; its own number is state."""

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        context.state["rows"] = context.state.get("rows", 0) + 1
        return Action.FIRE if context.state["rows"] % 2 == 0 else Action.CONTINUE

    def on_end(self, context: TriggerContext) -> Action:
        return Action.CONTINUE


def test_trigger_that_does_not_purge_sees_all_rows_again() -> None:
    """And what was sent on before does not change."""
    lists = aggregates.fold([], lambda items, value: items.append(value) or items)
    spec = Windowed(GlobalWindow(Running(), None), lists)
    operator = in_processing_time(spec, ManualClock())

    made = operator.process([("k", n) for n in range(5)])

    assert made == [("k", [0, 1]), ("k", [0, 1, 2, 3])]
    assert said(operator.finish()) == []


def test_trigger_in_event_time_is_called_by_watermarks() -> None:
    """With the time it asked for."""
    spec = Windowed(GlobalWindow(Batches(), "event"), COUNT)
    operator = window_operator_of(spec, MEMORY)
    operator.process(timed(500))

    assert operator.tick_at_ms is None
    assert said(operator.advance(1499)) == []
    (row,) = said(operator.advance(1500))
    assert row[1][1] == 1


class Stuck(Batches):
    """Asks for the time that it is called for."""

    def on_time(self, time: int, context: TriggerContext) -> Action:
        context.call_at(time)
        return Action.CONTINUE


def test_trigger_that_asks_for_the_same_time_again_is_refused() -> None:
    """It would be called for ever."""
    spec = Windowed(GlobalWindow(Stuck(), "event"), COUNT)
    operator = window_operator_of(spec)
    operator.process(timed(500))

    with pytest.raises(ValueError, match="asks to be called at 1500"):
        said(operator.advance(2000))


def test_trigger_is_called_for_a_time_before_the_rows_behind_it() -> None:
    """Though one watermark brings both."""
    spec = Windowed(GlobalWindow(Batches(), "event"), None)
    operator = window_operator_of(spec)

    made = operator.process(timed(0, 999, 1001))

    assert [value for _, (_, value) in made] == [[0, 999]]


def test_failing_function_names_its_row() -> None:
    """The loop over the batch knows how far it came."""
    operator = window_operator_of(Windowed(tumbling(), SUM))
    rows = [("k", (1, 1)), ("k", (2, 2)), ("k", (3, "x"))]

    with pytest.raises(TypeError) as raised:
        operator.process(rows)

    assert blame(raised.value, operator, rows).row_index == 2


def test_batch_that_failed_leaves_nothing_behind() -> None:
    """Neither rows, nor windows that wait for them."""
    operator = window_operator_of(Windowed(tumbling(), SUM), MEMORY)
    said(operator.advance(20))
    rows = [("k", (21, 1)), ("j", (35, "x")), ("j", (36, 2))]
    undo = operator.begin_undo(rows)
    with pytest.raises(TypeError):
        operator.process(rows)
    undo()

    assert said(operator.finish()) == []


def test_count_windows_share_what_they_have_in_common_again_after_a_failure() -> None:
    """What was remembered of panes that were put back is forgotten."""
    spec = Windowed(CountWindows(20, 2, drops_incomplete=True), SUM)
    operator = window_operator_of(spec, MEMORY, is_timed=False)
    operator.process([("k", n) for n in range(21)])
    bad = [("k", 21), ("k", 22), ("k", "x")]
    undo = operator.begin_undo(bad)
    with pytest.raises(TypeError):
        operator.process(bad)
    undo()

    made = operator.process([("k", n) for n in range(100, 103)])

    assert made == [("k", sum(range(2, 21)) + 100), ("k", sum(range(4, 21)) + 303)]


def test_iteration_begins_every_round_with_no_windows() -> None:
    """Nothing of a round is left, and time begins anew."""
    operator = window_operator_of(Windowed(tumbling(), COUNT))
    operator.process(timed(5))
    said(operator.advance(100))
    operator.process(timed(105))
    operator.reset()
    operator.process(timed(7))

    assert said(operator.finish()) == [("k", (9, 1))]
    assert operator.late == []
