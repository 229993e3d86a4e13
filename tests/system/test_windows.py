"""Windows in whole flows: any width, any backend, from any snapshot, and in a row."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.simulation.window_flows import (
    COUNT,
    DISORDER,
    SIZE,
    SLIDE,
    WINDOW_CASES,
    key,
    moment,
    rows_of,
)
from tests.support.examples import mostly_slow
from tests.support.resizing import run_at_two_widths
from tests.support.windowing import naive_sessions, naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows
from millstream.testing import Pause, ScriptedSource, manual_time, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.simulation.flows import Case


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("make", WINDOW_CASES, ids=lambda make: make.__name__)
def test_windows_are_the_same_at_any_width(
    make: Callable[[], Case], workers: int
) -> None:
    """Who is quick decides nothing, not even who is late."""
    case = make()
    simulate(case.flow, seeds=2, workers=workers, faults="none", check=case.check)


def slowly() -> Iterator[int]:
    """Return the numbers one by one, while epochs pass."""
    for number in range(COUNT):
        threading.Event().wait(0.01)
        yield number


@pytest.mark.parametrize("backend", mostly_slow("memory", "rocksdb"))
@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_windows_go_on_from_a_savepoint_at_another_width(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """Panes and sessions move with their keys, and time is not lost."""
    flow = ms.Flow("moving")
    timed = flow.from_iterable(slowly).event_time(moment, out_of_order=2 * DISORDER)
    keyed = timed.key_by(key)
    counts = keyed.window(ms.windows.sliding(SIZE, SLIDE)).with_window().count()
    visits = keyed.window(ms.windows.session(15)).map_window(
        lambda bounds, rows: (bounds, len(rows))
    )
    threes = keyed.window(ms.windows.count(3, exact=False)).count()
    handles = [stream.collect() for stream in (counts, visits, threes)]
    run_at_two_widths(flow, widths, tmp_path, state_backend=backend)

    arrived = rows_of(2 * DISORDER)
    found, _ = naive_windows(TimeWindows(SIZE, SLIDE, 0, "event"), 0, arrived)
    expected = [(own, (bounds, len(rows))) for (own, bounds), rows in found.items()]
    assert sorted(handles[0].result()) == sorted(expected)
    sessions = [
        (own, (bounds, len(r))) for own, bounds, r in naive_sessions(15, 0, arrived)[0]
    ]
    assert sorted(handles[1].result()) == sorted(sessions)
    totals: Counter[int] = Counter()
    for own, count in handles[2].result():
        totals[own] += count
    assert totals == Counter(map(key, range(COUNT)))


def test_late_rows_of_a_count_window_are_those_that_came_out_of_order() -> None:
    """Elements are taken in the order of time; those that missed their turn are reported."""
    flow = ms.Flow("late")
    timed = flow.from_iterable([1, 5, 9, 2, 10]).event_time(lambda i: i, out_of_order=4)
    pairs = timed.window(ms.windows.count(2)).collect()
    rows, late = pairs.collect(), pairs.late().collect()
    flow.run(on="local", workers=2)

    assert rows.result() == [[1, 5], [9, 10]]
    assert late.result() == [ms.LateRow(None, 2, 2)]


def test_windows_follow_each_other_in_time() -> None:
    """A result has the last time of its window, so the next window knows where it is."""
    flow = ms.Flow("chained")
    timed = flow.from_iterable(range(100)).event_time(lambda i: i)
    seconds = timed.key_by(lambda i: i % 3).window(ms.windows.tumbling(10)).sum()
    minutes = seconds.window(ms.windows.tumbling(50)).sum()
    overall = minutes.drop_key().window(ms.windows.tumbling(50)).sum().collect()
    flow.run(on="local", workers=3)

    assert overall.result() == [sum(range(50)), sum(range(50, 100))]


def test_processing_time_windows_end_by_a_clock_set_by_hand() -> None:
    """No test of them has to wait."""
    script = [1, 2, Pause(), 3]
    flow = ms.Flow("clock")
    rows = flow.read(ScriptedSource(script))
    sums = rows.sliding_p_time_reduce(lambda x, y: x + y, "100ms", "100ms").collect(sum)
    with manual_time() as clock:
        job = flow.start(on="local", workers=1)
        clock.advance("1s")
        job.wait()

    assert sums.result() == 6


def test_window_in_an_iteration_begins_anew_with_every_round() -> None:
    """Elements of one round are not counted in the next."""
    flow = ms.Flow("rounds")

    def body(rows: Any) -> Any:
        return rows.window(ms.windows.count(2)).sum()

    numbers = flow.from_iterable(range(8)).iterate(body, max_rounds=2).collect()
    flow.run(on="local", workers=2)

    assert sum(numbers.result()) == sum(range(8))
    assert len(numbers.result()) == 2


def test_record_that_a_window_cannot_take_becomes_a_dead_letter() -> None:
    """The others are counted as if it had not been there."""
    flow = ms.Flow("letters")
    rows: list[Any] = [1, 2, "x", 4]
    keyed = flow.from_iterable(rows).key_by(lambda _: "all")
    sums = keyed.window(ms.windows.count(3)).reduce(lambda x, y: x + y).collect()
    letters = flow.dead_letters(10).collect()
    flow.run(on="local", workers=2)

    assert sums.result() == [("all", 7)]
    assert [letter.record for letter in letters.result()] == [("all", "x")]


def test_late_row_of_a_batch_that_is_done_again_is_late_once() -> None:
    """What is done again for a dead letter was taken back, late rows included."""
    flow = ms.Flow("late-letters")
    rows: list[Any] = [(5, 1), (20, 1), (4, 1), (21, "x"), (22, 2)]
    timed = flow.from_iterable(rows).event_time(lambda row: row[0])
    numbers = timed.map(lambda row: row[1]).key_by(lambda _: "all")
    sums = numbers.window(ms.windows.tumbling(10)).sum()
    late, totals = sums.late().collect(), sums.drop_key().collect()
    letters = flow.dead_letters(10).collect()
    job = flow.run(on="local", workers=1)

    assert [(row.value, row.timestamp) for row in late.result()] == [(1, 4)]
    assert sum(s.time.late_rows for s in job.metrics() if s.time is not None) == 1
    assert totals.result() == [1, 3]
    assert [letter.record for letter in letters.result()] == [("all", "x")]


def test_combined_counts_do_not_wait_for_the_end() -> None:
    """What is held to be counted leaves when a buffer would."""
    flow = ms.Flow("prompt", buffer=ms.adaptive(1024, "1ms"))
    script = ["a", "a", Pause(), "b"]
    words = flow.read(ScriptedSource(script)).group_by(str)
    seen = words.window(ms.windows.count(2)).count().limit(1).collect()
    flow.run(on="local", workers=2, source_idle_ms=50)

    assert seen.result() == [("a", 2)]
    assert "combine" in flow.explain()
