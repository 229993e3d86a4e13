"""Joins one by one: what expires, what stays, what comes back after a change of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.joining import (
    SHARDS,
    Origin,
    TaskHarness,
    interval_oracle,
    made_of,
    plain,
)

from millstream.operators.joins.base import later
from millstream.operators.joins.sides import WholeSides
from millstream.plan.joins import (
    LEFT,
    RIGHT,
    Direction,
    How,
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)
from millstream.plan.time import LateRow, LateTimestamp
from millstream.protocol.ids import Epoch
from millstream.state.settings import StateSettings
from millstream.state.table import MemoryTable

if TYPE_CHECKING:
    from millstream.plan.spec import Spec

MEMORY = StateSettings(SHARDS)
ROCKS = StateSettings(SHARDS, "rocksdb", cache_entries=2)
TIMED: dict[str, Spec] = {
    "interval": JoinInterval(How.FULL, -3, 5),
    "window": JoinWindow(How.FULL, 6, 4),
    "backward": JoinAsof(How.LEFT),
    "nearest": JoinAsof(How.LEFT, Direction.NEAREST, 4),
    "table": JoinAsof(How.ANTI, is_broadcast=True, is_table=True),
}
UNTIMED: dict[str, Spec] = {
    "full": Join(How.FULL),
    "anti": Join(How.ANTI),
    "table": JoinTable(How.LEFT, waits=True),
    "whole table": JoinTable(How.LEFT, waits=True, is_broadcast=True),
}


def timed(time: int, value: Any = None, key: Any = "k") -> list[Any]:
    """Return a batch of one timed row."""
    return [(key, (time, time if value is None else value))]


def kept(bench: TaskHarness) -> list[Any]:
    """Return what the operator keeps for its keys."""
    table: Any = bench.operator
    return [entry for entries in table.batches() for entry in entries]


# Times


def test_pair_is_behind_if_either_row_says_so() -> None:
    """What was promised before the older row counts for the pair, in any order."""
    older = LateTimestamp(3, 9)

    for time in (later(older, 5), later(5, older)):
        assert (int(time), time.watermark) == (5, 9)  # type: ignore[attr-defined]
    assert type(later(older, 12)) is int


@pytest.mark.parametrize("spec", TIMED.values(), ids=TIMED)
def test_rocksdb_gives_what_memory_gives(spec: Spec) -> None:
    """Rows come back from disk, and are dropped there."""
    results = []
    for state in (None, MEMORY, ROCKS):
        bench = TaskHarness(spec, state)
        for number in range(60):
            key, time = number % 7, number + number * 5 % 4
            bench.give(timed(time, number, key), number * 3 % 2)
            if number % 10 == 9:
                bench.advance(number - 5)
            if state is not None and number % 20 == 19:
                bench.crash()
        bench.finish()
        results.append(made_of(bench.rows))

    assert results[0]
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.parametrize("spec", UNTIMED.values(), ids=UNTIMED)
def test_rocksdb_gives_what_memory_gives_without_time(spec: Spec) -> None:
    """Rows that wait for the end do so on disk."""
    results = []
    for state in (None, MEMORY, ROCKS):
        bench = TaskHarness(spec, state, is_timed=False)
        for number in range(60):
            side = LEFT if number % 7 == 3 else number * 3 % 5 % 2
            bench.give([(number % 7, number)], side)
            if state is not None and number % 20 == 19:
                bench.crash()
        bench.operator.on_input_end(RIGHT)
        bench.finish()
        results.append(made_of(bench.rows))

    assert results[0]
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.parametrize("name", ["interval", "window"])
def test_nothing_is_kept_once_time_has_passed(name: str) -> None:
    """State is bounded by the watermark, also for keys that never come again."""
    bench = TaskHarness(TIMED[name])
    for number in range(50):
        bench.give(timed(number, key=number), number % 2)

    bench.advance(100)

    assert kept(bench) == []
    assert bench.operator.due.first is None


@pytest.mark.parametrize("spec", TIMED.values(), ids=TIMED)
def test_late_left_row_is_put_aside_and_nothing_else(spec: Spec) -> None:
    """It is counted, and comes neither in a pair nor alone."""
    bench = TaskHarness(spec)
    bench.give(timed(100, key="other"), LEFT)
    bench.give(timed(100, key="other"), RIGHT)
    bench.advance(90)
    before = len(bench.rows)

    bench.give(timed(20, "late"), LEFT)
    bench.give([("k", (LateTimestamp(95, 120), "behind"))], LEFT)
    bench.advance(99)

    assert bench.late == [LateRow("k", "late", 20), LateRow("k", "behind", 95)]
    assert bench.operator.late_count == 2
    assert bench.rows[before:] == []


def test_time_that_was_reached_is_stored() -> None:
    """A row of a split that was idle is late after a crash as it was before."""
    bench = TaskHarness(JoinInterval(How.LEFT, 0, 5), MEMORY)
    bench.give(timed(100), LEFT)
    bench.advance(50)

    bench.crash()
    bench.give(timed(20), LEFT)

    assert bench.late == [LateRow("k", 20, 20)]


def test_row_on_the_bounds_of_an_interval_meets_and_one_outside_does_not() -> None:
    """Both bounds are included."""
    bench = TaskHarness(JoinInterval(How.INNER, -3, 5))
    bench.give(timed(-10), LEFT)

    for time in (-14, -13, -5, -4):
        bench.give(timed(time), RIGHT)

    assert plain(bench.rows) == [("k", (-10, (-10, -13))), ("k", (-5, (-10, -5)))]


def test_interval_of_origins_that_go_apart_equals_the_oracle() -> None:
    """One side far ahead of the other: its rows wait for the slower one."""
    fast, slow = Origin(LEFT, 2), Origin(RIGHT, 2)
    bench = TaskHarness(JoinInterval(How.FULL, -4, 4))
    for time in range(0, 200, 3):
        bench.give([fast.row("k", time, f"fast{time}")], LEFT)
    for time in range(0, 200, 5):
        bench.give([slow.row("k", time, f"slow{time}")], RIGHT)
        bench.advance(min(fast.promise, slow.promise))
    bench.finish()

    expected = interval_oracle(How.FULL, -4, 4, [fast.came, slow.came])
    assert made_of(plain(bench.rows)) == made_of(expected.rows)


def test_asof_join_of_rows_that_cannot_be_compared_does_not_depend_on_their_order() -> (
    None
):
    """Of two rows of the same time the one with the larger text is taken."""
    results = []
    for names in (["a", "b"], ["b", "a"]):
        bench = TaskHarness(JoinAsof(How.INNER))
        for name in names:
            bench.give(timed(5, {"name": name}), RIGHT)
        bench.give(timed(7, "left"), LEFT)
        bench.finish()
        results += bench.rows

    assert results == [("k", (7, ("left", {"name": "b"})))] * 2


def test_asof_join_keeps_one_right_row_of_the_past() -> None:
    """What a later one has replaced is dropped when no row can ask for it."""
    bench = TaskHarness(JoinAsof(How.INNER))
    for time in range(50):
        bench.give(timed(time), RIGHT)

    bench.advance(40)

    sides: Any = bench.operator._sides
    ((_, _, right),) = sides.items()
    assert [time for time, _ in right] == list(range(40, 50))


def test_none_takes_a_key_out_of_a_table_and_not_out_of_an_asof_join() -> None:
    """Tables know deletions; elsewhere None is a value like any other."""
    results = []
    for is_table in (True, False):
        bench = TaskHarness(JoinAsof(How.INNER, is_table=is_table))
        right: list[Any] = [("k", (1, "old")), ("k", (5, None))]
        bench.give(right, RIGHT)
        bench.give([*timed(3), *timed(7)], LEFT)
        bench.finish()
        results.append([value for _, (_, value) in bench.rows])

    assert results == [[(3, "old")], [(3, "old"), (7, None)]]


# The clock


def test_row_that_expires_comes_alone_unless_it_has_met_another() -> None:
    """Exactly once, and never after a pair."""
    bench = TaskHarness(Join(How.FULL, ttl_ms=100), MEMORY, is_timed=False)
    bench.give([("met", 1), ("alone", 2)], LEFT)
    bench.clock.advance("60ms")
    bench.give([("met", 3)], RIGHT)
    assert bench.rows == [("met", (1, 3))]
    bench.crash()

    bench.clock.advance("40ms")
    bench.tick()
    assert bench.rows[1:] == [("alone", (2, None))]
    bench.clock.advance("60ms")
    bench.tick()
    bench.finish()

    assert bench.rows[2:] == []
    assert kept(bench) == []


def test_expired_row_meets_nobody_though_nobody_looked_at_the_clock() -> None:
    """A batch that comes before the tick sees what the tick would leave."""
    bench = TaskHarness(Join(How.LEFT, ttl_ms=100), is_timed=False)
    bench.give([("k", 1)], LEFT)
    assert bench.operator.tick_at_ms == 100

    bench.clock.advance("100ms")
    bench.give([("k", 2)], RIGHT)

    assert bench.rows == [("k", (1, None))]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (How.SEMI, [("k", "soon"), ("k", "while")]),
        (How.ANTI, [("k", "after"), ("k", "early")]),
    ],
)
def test_right_row_counts_for_as_long_as_it_lives(
    how: How, expected: list[Any]
) -> None:
    """Left rows meet it within the time to live, before it came and after."""
    bench = TaskHarness(Join(how, ttl_ms=100), is_timed=False)
    for name, wait in [("early", "100ms"), ("soon", "50ms")]:
        bench.give([("k", name)], LEFT)
        bench.clock.advance(wait)
        bench.tick()
    bench.give([("k", "right")], RIGHT)
    bench.clock.advance("99ms")
    bench.give([("k", "while")], LEFT)
    bench.clock.advance("1ms")
    bench.tick()
    bench.give([("k", "after")], LEFT)
    bench.finish()

    assert sorted(bench.rows) == expected


def test_windows_of_the_clock_end_by_the_clock() -> None:
    """Rows lie where the clock stands when they come; the end of input ends all."""
    spec = JoinWindow(How.FULL, 100, 100, is_event_time=False)
    bench = TaskHarness(spec, MEMORY, is_timed=False)
    bench.give([("k", 1)], LEFT)
    bench.clock.advance("99ms")
    bench.give([("k", 2)], RIGHT)
    bench.tick()
    assert bench.rows == []
    bench.crash()

    bench.clock.advance("1ms")
    bench.give([("k", 3)], RIGHT)
    bench.tick()
    assert bench.rows == [("k", (1, 2))]
    bench.finish()

    assert bench.rows[1:] == [("k", (None, 3))]


def test_timed_inner_join_passes_times_on() -> None:
    """The larger one, which is never behind what was promised further on."""
    bench = TaskHarness(Join(How.INNER))
    bench.give(timed(5), LEFT)
    bench.give(timed(3), RIGHT)
    bench.advance(20)
    bench.give([("k", (LateTimestamp(9, 30), "behind"))], RIGHT)

    assert bench.rows[0] == ("k", (5, (5, 3)))
    time = bench.rows[1][1][0]
    assert (int(time), time.watermark) == (9, 30)


# Loops


@pytest.mark.parametrize(
    ("how", "first"),
    [(How.FULL, [("k", (1, None))]), (How.ANTI, [("k", 1)]), (How.INNER, [])],
)
def test_join_in_a_free_loop_says_nothing_twice(how: How, first: list[Any]) -> None:
    """Last words may be asked for again, and rows may still meet."""
    bench = TaskHarness(Join(how), MEMORY, is_timed=False)
    bench.give([("k", 1)], LEFT)
    rows = [row for batch in bench.operator.finish() for row in batch]
    bench.operator.reset_after_flush()
    bench.crash()

    assert rows == first
    assert [row for batch in bench.operator.finish() for row in batch] == []
    bench.operator.reset_after_flush()
    bench.give([("k", 2)], RIGHT)
    assert bench.rows == ([("k", (1, 2))] if how.makes_pairs else [])


def test_what_an_asof_join_forgets_in_a_free_loop_is_not_restored() -> None:
    """A right row from before the flush would be the partner of a later left row."""
    bench = TaskHarness(JoinAsof(How.LEFT, Direction.BACKWARD), MEMORY)
    bench.give(timed(5, "right"), RIGHT)
    bench.cut()
    assert [row for batch in bench.operator.finish() for row in batch] == []
    bench.operator.reset_after_flush()
    bench.crash()

    bench.give(timed(7, "left"), LEFT)
    bench.advance(10)

    assert plain(bench.rows) == [("k", (7, ("left", None)))]


def test_side_from_outside_a_loop_stays_for_all_rounds() -> None:
    """It came once, and meets the rows of every round."""
    bench = TaskHarness(Join(How.LEFT), MEMORY, is_timed=False)
    bench.give([("k", "outside")], LEFT)
    for number in range(3):
        bench.give([("k", number)], RIGHT)
        assert [row for batch in bench.operator.finish() for row in batch] == []
        bench.operator.reset(frozenset({LEFT}))
        bench.crash()

    assert bench.rows == [("k", ("outside", number)) for number in range(3)]
    alone = [row for batch in bench.operator.finish() for row in batch]
    assert alone == [("k", ("outside", None))]


@pytest.mark.parametrize("spec", [JoinInterval(How.INNER, 0, 1), Join(How.SEMI)])
def test_side_from_outside_a_loop_is_refused_where_its_rows_are_gone(
    spec: Spec,
) -> None:
    """Better an error in the first round than too few rows in the second."""
    bench = TaskHarness(spec)

    with pytest.raises(RuntimeError, match="comes from outside the loop"):
        bench.operator.reset(frozenset({LEFT}))


def test_table_from_outside_a_loop_is_read_once() -> None:
    """Left rows of later rounds need not wait."""
    bench = TaskHarness(JoinTable(How.INNER, waits=True), is_timed=False)
    bench.give([("k", "table")], RIGHT)
    bench.operator.on_input_end(RIGHT)
    for number in range(2):
        bench.give([("k", number)], LEFT)
        bench.operator.reset(frozenset({RIGHT}))

    assert bench.rows == [("k", (0, "table")), ("k", (1, "table"))]


# Tables in every task


@pytest.mark.parametrize("task_count", [1, 2, 3, 5])
def test_after_a_change_of_tasks_each_has_the_table_and_left_rows_come_once(
    task_count: int,
) -> None:
    """Versions that one task had forgotten come from another."""
    segments = []
    for task in range(2):
        sides = WholeSides(MemoryTable(SHARDS), task, 2)
        sides.open("ab")
        versions = [(1, "old"), (2, "new")]
        sides.put("a", [(4, f"waits{task}")], versions[task:])
        sides.put("b", [(4, "second")] if task else [], [(3, "b")])
        capture = sides.capture(Epoch(1), Epoch(0))
        segments += list(capture.segments("join", task))

    waiting: list[Any] = []
    for task in range(task_count):
        restored = WholeSides(MemoryTable(SHARDS), task, task_count)
        restored.restore(segments, (0, 1))
        restored.open("ab")
        assert restored.get("a")[RIGHT] == [(1, "old"), (2, "new")]
        assert restored.get("b")[RIGHT] == [(3, "b")]
        waiting += [*restored.get("a")[LEFT], *restored.get("b")[LEFT]]

    assert sorted(waiting) == [(4, "second"), (4, "waits0"), (4, "waits1")]
