"""Windows on frames in whole flows: any width, any backend, from any snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest
from tests.simulation.frame_window_flows import (
    FRAME_WINDOW_CASES,
    LISTED,
    SCHEMA,
    Threes,
    listed,
    row,
)
from tests.simulation.window_flows import COUNT, DISORDER, SIZE, SLIDE, key, rows_of
from tests.support.examples import mostly_slow
from tests.support.resizing import run_at_two_widths
from tests.support.windowing import naive_sessions, naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows
from millstream.testing import Pause, ScriptedSource, manual_time, simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.flows import Case

    from millstream.plan.windows import AnyWindow


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("make", FRAME_WINDOW_CASES, ids=lambda make: make.__name__)
def test_windows_on_frames_are_the_same_at_any_width(
    make: Callable[[], Case], workers: int
) -> None:
    """Who is quick decides nothing, not even who is late."""
    case = make()
    simulate(case.flow, seeds=2, workers=workers, faults="none", check=case.check)


def slowly() -> list[Any]:
    """Return the rows with pauses between them, while epochs pass."""
    return [s for i in range(COUNT) for s in (row(i), Pause(), Pause())]


@pytest.mark.parametrize("backend", mostly_slow("memory", "rocksdb"))
@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_windows_on_frames_go_on_from_a_savepoint_at_another_width(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """Panes, sessions, pieces and rows that wait move with their keys."""
    flow = ms.Flow("moving frames")
    frame = flow.read(ScriptedSource(slowly())).to_frame(SCHEMA)
    timed = frame.event_time("at", out_of_order=2 * DISORDER)
    keyed, by_clock = timed.group_by("key"), frame.group_by("key")
    count = pl.len().alias("n")
    handles = [
        keyed.window(window).agg(count).collect()
        for window in (
            ms.windows.sliding(SIZE, SLIDE),
            ms.windows.session(15),
            ms.windows.count(3, exact=False),
            ms.windows.global_window(Threes()),
        )
    ]
    handles += [
        by_clock.window(window).agg(count).collect()
        for window in (
            ms.windows.tumbling("30ms", time="processing"),
            ms.windows.session("30ms", time="processing"),
            ms.windows.global_window(Threes()),
        )
    ]
    run_at_two_widths(flow, widths, tmp_path, idle_ms=30, state_backend=backend)

    arrived = rows_of(2 * DISORDER)
    found, _ = naive_windows(TimeWindows(SIZE, SLIDE, 0, "event"), 0, arrived)
    assert sorted(handles[0].result().rows()) == sorted(
        (own, *bounds, len(rows)) for (own, bounds), rows in found.items()
    )
    assert sorted(handles[1].result().rows()) == sorted(
        (own, *bounds, len(rows))
        for own, bounds, rows in naive_sessions(15, 0, arrived)[0]
    )
    for handle in handles[2:]:
        totals: Counter[int] = Counter()
        for own, *_, n in handle.result().rows():
            totals[own] += n
        assert totals == Counter(map(key, range(COUNT)))


CLOCK_WINDOWS: dict[str, AnyWindow] = {
    "tumbling": ms.windows.tumbling("50ms", time="processing"),
    "sliding": ms.windows.sliding("50ms", "20ms", time="processing"),
    "with gaps": ms.windows.sliding("20ms", "50ms", time="processing"),
    "session": ms.windows.session("5ms", time="processing"),
    "trigger": ms.windows.global_window(Threes()),
}


@pytest.mark.parametrize("has_keys", [True, False], ids=["by key", "whole"])
@pytest.mark.parametrize("name", CLOCK_WINDOWS)
def test_frames_have_the_windows_of_rows_by_a_clock_set_by_hand(
    name: str, *, has_keys: bool
) -> None:
    """The same rows at the same times are in the same windows."""
    window = CLOCK_WINDOWS[name]
    steps = [(row(i), *[Pause()] * (i % 5)) for i in range(COUNT)]
    source = ScriptedSource([step for group in steps for step in group])
    flow = ms.Flow("clock")
    rows = flow.read(source)
    frame, lists = rows.to_frame(SCHEMA), pl.col("at").implode()
    cut = (frame.group_by("key") if has_keys else frame).window(window)
    made = cut.agg(lists).collect()
    mapped = cut.map_window(listed, schema=LISTED).collect()
    keyed: Any = rows.key_by(lambda r: r["key"]) if has_keys else rows
    expected = keyed.map(lambda r: r["at"]).window(window).with_window().collect()
    found = (expected.unkey() if has_keys else expected).collect()
    one = ms.fixed(1)
    with manual_time():
        flow.run(workers=1, source_idle_ms=3, buffer=one, frame_buffer=one)

    has_bounds = name != "trigger"
    pairs = found.result() if has_keys else [(None, pair) for pair in found.result()]
    right = [
        (*((own,) if has_keys else ()), *(bounds if has_bounds else ()), values)
        for own, (bounds, values) in pairs
    ]
    assert sorted(made.result().rows()) == sorted(right)
    assert len(right) > 3, "there is something to compare"
    called = [(*bounds, values) for _, (bounds, values) in pairs]
    assert sorted(made[1:] for made in mapped.result().rows()) == sorted(called)


def test_rows_that_missed_their_turn_are_late_for_count_windows_and_triggers() -> None:
    """Elements are taken in the order of time; those that come after their turn are reported."""
    flow = ms.Flow("late")
    events = pl.DataFrame({"at": [1, 5, 9, 2, 10]})
    timed = flow.from_frame(events).event_time("at", out_of_order=4)
    pairs = timed.window(ms.windows.count(2)).agg(pl.col("at").implode())
    threes = timed.window(ms.windows.global_window(Threes())).agg(
        pl.col("at").implode()
    )
    handles = [pairs.collect(), threes.collect()]
    late = [pairs.late().collect(), threes.late().collect()]
    flow.run(on="local", workers=2)

    assert handles[0].result().rows() == [([1, 5],), ([9, 10],)]
    assert handles[1].result().rows() == [([1, 5, 9],), ([10],)]
    assert [handle.result().rows() for handle in late] == [[(2,)], [(2,)]]


def test_windows_by_the_clock_drop_event_time_and_say_when() -> None:
    """What follows them has no timestamps."""
    flow = ms.Flow("mixed")
    timed = flow.from_frame(pl.DataFrame({"at": [1, 2]})).event_time("at")
    window = ms.windows.tumbling("1s", time="processing")
    counts = timed.window(window).agg(n=pl.len())

    with pytest.raises(ms.UsageError, match="have no timestamps"):
        counts.window(ms.windows.tumbling(10))
    handle = counts.collect()
    with manual_time():
        flow.run(workers=2)
    assert handle.result().rows() == [(0, 1000, 2)]
    assert "agg (tumbling(1s, processing time))" in flow.explain()


def test_trigger_that_fails_names_the_row_as_its_user_knows_it() -> None:
    """Without columns that the engine has added."""

    class Picky(ms.windows.Trigger):
        def on_row(
            self, value: Any, context: ms.windows.TriggerContext
        ) -> ms.windows.Action:
            return ms.windows.Action(1 // (3 - value["x"]) * context.count * 0)

    flow = ms.Flow("picky")
    timed = flow.from_frame(pl.DataFrame({"x": [1, 2, 3, 4]})).event_time("x")
    timed.window(ms.windows.global_window(Picky())).agg(pl.len()).collect()

    with pytest.raises(ms.OperatorError, match=r"value \{'x': 3\}"):
        flow.run(on="local", workers=1)
