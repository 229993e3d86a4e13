"""A function of the rows of every window of a frame: what it gets, and what it may return."""

from __future__ import annotations

import re
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest
from tests.simulation.frame_window_flows import LISTED, SCHEMA, Threes, listed, row
from tests.simulation.window_flows import (
    COUNT,
    DISORDER,
    GAP,
    KEYS,
    LATENESS,
    SIZE,
    SLIDE,
    SMALL_DISORDER,
    key,
    moment,
    rows_of,
)
from tests.support.examples import mostly_slow
from tests.support.resizing import run_at_two_widths
from tests.support.windowing import naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows
from millstream.testing import Pause, ScriptedSource, manual_time
from millstream.windows import Action, Trigger, TriggerContext, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.plan.windows import AnyWindow

    Function = Callable[[Window, pl.DataFrame], Any]

WINDOWS: dict[str, AnyWindow] = {
    "tumbling": ms.windows.tumbling(SLIDE),
    "sliding": ms.windows.sliding(SIZE, SLIDE, offset=3),
    "two panes a slide": ms.windows.sliding(SIZE, SLIDE + 1),
    "with gaps": ms.windows.sliding(SLIDE, SIZE),
    "session": ms.windows.session(GAP),
    "count": ms.windows.count(4),
    "sliding count": ms.windows.count(5, 3, exact=False),
    "trigger": ms.windows.global_window(Threes()),
}


def listed_all(window: Window, rows: pl.DataFrame) -> pl.DataFrame:
    """Return bounds and timestamps where rows have no common key."""
    return listed(window, rows.with_columns(pl.lit(0, pl.Int64).alias("key")))


def listed_rows(window: Window, values: list[dict[str, int]]) -> tuple[Any, ...]:
    """Return the same of rows that are no frame."""
    return (*window, [value["at"] for value in values])


def mapped_frame(
    rows: ms.Stream[Any], window: AnyWindow, lateness: int = 0, *, has_keys: bool
) -> ms.WindowFrame:
    """Return what a frame makes of the windows of rows."""
    frame = rows.to_frame(SCHEMA)
    grouped = frame.group_by("key") if has_keys else frame
    cut = grouped.window(window, allowed_lateness=lateness)
    return cut.map_window(listed if has_keys else listed_all, schema=LISTED)


def mapped_stream(
    rows: ms.Stream[Any], window: AnyWindow, lateness: int = 0, *, has_keys: bool
) -> ms.Stream[Any]:
    """Return what a stream makes of them."""
    if not has_keys:
        whole = rows.window(window, allowed_lateness=lateness)
        return whole.map_window(listed_rows).map(lambda made: (0, *made))
    keyed = rows.key_by(itemgetter("key")).window(window, allowed_lateness=lateness)
    pairs = keyed.map_window(listed_rows).unkey()
    return pairs.map(lambda pair: (pair[0], *pair[1]))


def timed_rows(flow: ms.Flow, out_of_order: int) -> ms.Stream[Any]:
    """Return all rows, out of order, from one split."""
    numbers = flow.from_iterable([row(number) for number in range(COUNT)])
    return numbers.event_time(itemgetter("at"), out_of_order=out_of_order)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("has_keys", [True, False], ids=["by key", "whole"])
def test_frames_call_with_the_windows_and_rows_that_streams_call_with(
    workers: int, *, has_keys: bool
) -> None:
    """All kinds of windows in event time, every row in the order of its timestamp."""
    flow = ms.Flow("both")
    timed = timed_rows(flow, DISORDER)
    handles = {
        name: (
            mapped_frame(timed, window, has_keys=has_keys).collect(),
            mapped_stream(timed, window, has_keys=has_keys).collect(),
        )
        for name, window in WINDOWS.items()
    }
    flow.run(on="local", workers=workers)

    for name, (mapped, expected) in handles.items():
        right = sorted(expected.result())
        assert sorted(mapped.result().rows()) == right, name
        assert right, "there is something to compare"


LATE: dict[str, AnyWindow] = {
    "tumbling": ms.windows.tumbling(SLIDE),
    "session": ms.windows.session(2),
    "count": ms.windows.count(4),
    "trigger": ms.windows.global_window(Threes()),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", LATE)
def test_late_rows_are_those_of_streams(name: str, workers: int) -> None:
    """Who is late for a window is not in what the function gets."""
    flow = ms.Flow("late")
    timed = timed_rows(flow, 0)
    mapped = mapped_frame(timed, LATE[name], has_keys=True)
    keyed = timed.key_by(itemgetter("key")).window(LATE[name]).map_window(listed_rows)
    found, late = mapped.collect(), mapped.late().collect()
    expected, left_out = keyed.unkey().collect(), keyed.late().collect()
    flow.run(on="local", workers=workers)

    right = sorted((own, *made) for own, made in expected.result())
    assert sorted(found.result().rows()) == right
    told = sorted((value["key"], value["at"]) for _, value, _ in left_out.result())
    assert sorted(late.result().rows()) == told
    assert told, "there are late rows"


def test_windows_that_change_are_mapped_again() -> None:
    """With `allowed_lateness` the last call has all rows; earlier ones had fewer."""
    flow = ms.Flow("again")
    steps = [step for i in range(COUNT) for step in (row(i), Pause(), Pause())]
    rows = flow.read(ScriptedSource(steps))
    timed = rows.event_time(itemgetter("at"), out_of_order=SMALL_DISORDER)
    window = ms.windows.tumbling(SLIDE)
    mapped = mapped_frame(timed, window, LATENESS, has_keys=False).collect()
    expected = mapped_stream(timed, window, LATENESS, has_keys=False).collect()
    one = ms.fixed(1)
    with manual_time():
        flow.run(workers=1, source_idle_ms=60, buffer=one, frame_buffer=one)

    made = mapped.result().rows()
    last = {tuple(place): ats for *place, ats in made}
    assert last == {tuple(place): ats for *place, ats in expected.result()}
    assert len(made) > len(last), "some were called for twice"


@pytest.mark.parametrize("backend", mostly_slow("memory", "rocksdb"))
@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_rows_of_windows_that_are_not_over_move_with_their_keys(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """From a savepoint at another width, every call has the rows that it would have had."""
    flow = ms.Flow("moving")
    steps = [step for i in range(COUNT) for step in (row(i), Pause(), Pause())]
    rows = flow.read(ScriptedSource(steps))
    timed = rows.event_time(itemgetter("at"), out_of_order=DISORDER)
    sliding = WINDOWS["sliding"]
    mapped = mapped_frame(timed, sliding, has_keys=True).collect()
    counted = mapped_frame(timed, WINDOWS["sliding count"], has_keys=True).collect()
    run_at_two_widths(flow, widths, tmp_path, idle_ms=30, state_backend=backend)

    found, _ = naive_windows(TimeWindows(SIZE, SLIDE, 3, "event"), 0, rows_of(DISORDER))
    assert sorted(mapped.result().rows()) == sorted(
        (own, *bounds, sorted(row.time for row in members))
        for (own, bounds), members in found.items()
    )
    expected = []
    for own in range(KEYS):
        times = sorted(moment(i) for i in range(COUNT) if key(i) == own)
        for start in range(0, len(times), 3):
            inside = times[start : start + 5]
            expected.append((own, start, start + len(inside), inside))
    assert sorted(counted.result().rows()) == expected


class Fours(Trigger):
    """Four rows, kept or forgotten."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def on_row(self, value: Any, context: TriggerContext) -> Action:
        return self._action if context.count % 4 == 0 else Action.CONTINUE


UNTIMED: dict[str, AnyWindow] = {
    "count": ms.windows.count(3, 2),
    "not full": ms.windows.count(10, 7, exact=False),
    "with gaps": ms.windows.count(2, 5),
    "purged": ms.windows.global_window(Fours(Action.FIRE | Action.PURGE)),
    "kept": ms.windows.global_window(Fours(Action.FIRE)),
}


@pytest.mark.parametrize("name", UNTIMED)
def test_rows_without_time_come_in_their_order(name: str) -> None:
    """Windows by number and triggers, on a frame that has no event time."""
    flow = ms.Flow("untimed")
    numbers = flow.from_iterable([row(number) for number in range(COUNT)])
    handles = [
        (
            mapped_frame(numbers, UNTIMED[name], has_keys=has_keys).collect(),
            mapped_stream(numbers, UNTIMED[name], has_keys=has_keys).collect(),
        )
        for has_keys in (True, False)
    ]
    with manual_time():
        flow.run(workers=1)

    for mapped, expected in handles:
        right = sorted(expected.result())
        assert sorted(mapped.result().rows()) == right
        assert len(right) > 3, "there is something to compare"


def test_function_gets_all_columns_and_computed_keys_of_a_new_name() -> None:
    """A key that shadows a column leaves the column as it is; bounds may be columns."""
    names = pl.Schema({"window_start": pl.String, "rows": pl.Int64, "at": pl.Int64})
    flow = ms.Flow("columns")
    data = [("a", 1, 3), ("a", 2, 1), ("B", 4, 2)]
    frame = flow.from_frame(pl.DataFrame(data, schema=names, orient="row"))
    timed = frame.event_time("at", out_of_order=10)
    window = ms.windows.tumbling(10)

    def same(bounds: Window, rows: pl.DataFrame) -> pl.DataFrame:
        assert bounds == Window(0, 10)
        return rows.reverse()

    plain = timed.group_by("window_start", "rows").window(window)
    shadowing = timed.group_by(pl.col("window_start").str.len_chars()).window(window)
    parity = pl.col("rows") % 2
    computed = timed.group_by(window_end=parity).window(window)
    handles = [
        plain.map_window(same, schema=names).collect(),
        shadowing.map_window(same, schema=names).collect(),
        computed.map_window(same, schema={**names, "window_end": pl.Int64}).collect(),
    ]
    flow.run(on="local", workers=2)

    assert sorted(handles[0].result().rows()) == sorted(data)
    assert handles[1].result().rows() == [("a", 1, 3), ("B", 4, 2), ("a", 2, 1)]
    assert sorted(handles[2].result().rows()) == [
        ("B", 4, 2, 0),
        ("a", 1, 3, 1),
        ("a", 2, 1, 0),
    ]


def test_any_number_of_rows_may_follow_from_a_window() -> None:
    """None, one or several; each has the time of its window, so that windows may follow."""
    flow = ms.Flow("many")
    moments = [datetime(2026, 1, 1, 0, 0, second) for second in (1, 4, 12, 25, 31)]  # noqa: DTZ001
    frame = flow.from_frame(pl.DataFrame({"at": moments, "x": [0, 2, 1, 0, 3]}))
    timed = frame.event_time("at")

    def repeated(window: Window, rows: pl.DataFrame) -> pl.DataFrame:
        assert window.end - window.start == 10_000
        return rows.select(pl.col("x").repeat_by("x").explode(empty_as_null=False))

    schema = {"x": pl.Int64}
    many = timed.window(ms.windows.tumbling("10s")).map_window(repeated, schema=schema)
    halves = many.window(ms.windows.tumbling("20s"))
    handles = many.collect(), halves.agg(n=pl.len()).sort("window_start").collect()
    flow.run(on="local", workers=2)

    assert sorted(handles[0].result()["x"].to_list()) == [1, 2, 2, 3, 3, 3]
    starts = [datetime(2026, 1, 1, 0, 0, second) for second in (0, 20)]  # noqa: DTZ001
    assert handles[1].result()["window_start"].to_list() == starts
    assert handles[1].result()["n"].to_list() == [3, 3]


def test_windows_by_the_clock_leave_rows_without_time() -> None:
    """What follows them has no timestamps."""
    flow = ms.Flow("clock")
    timed = flow.from_frame(pl.DataFrame({"key": [1], "at": [7]})).event_time("at")
    cut = timed.window(ms.windows.tumbling("1s", time="processing"))
    mapped = cut.map_window(listed, schema=LISTED)

    with pytest.raises(ms.UsageError, match="have no timestamps"):
        mapped.window(ms.windows.tumbling(10))
    with pytest.raises(ms.UsageError, match="only windows of event time"):
        mapped.late()
    handle = mapped.collect()
    with manual_time():
        flow.run(workers=2)
    assert handle.result().rows() == [(1, 0, 1000, [7])]


def test_explain_says_which_windows_a_function_is_for() -> None:
    """Rows are not combined before they move, as they would not become fewer."""
    flow = ms.Flow("explained")
    timed = flow.from_frame(pl.DataFrame({"key": [1], "at": [7]})).event_time("at")
    visits = timed.group_by("key").window(ms.windows.tumbling("1s"))
    visits.map_window(listed, schema=LISTED, name="visits").collect()

    assert "visits.rows (tumbling(1s)) -> visits" in flow.explain()
    assert "combine" not in flow.explain()


PLACE = "for Window(start=0, end=10) of key {'key': 5}"
MISTAKES: dict[str, tuple[Function, str]] = {
    "no frame": (
        lambda _window, rows: rows["at"],
        f"the function of 'visits' returned Series {PLACE}, and must return a Polars",
    ),
    "other columns": (
        lambda _window, rows: rows.select("key"),
        f"{{'key': Int64}} {PLACE}, but {{'key': Int64, 'at': Int64}} were announced;",
    ),
    "other types": (
        lambda _window, rows: rows.cast({"at": pl.String}),
        f"returned columns {{'key': Int64, 'at': String}} {PLACE}, but",
    ),
    "raises": (
        lambda window, rows: rows.head(1 // window.start),
        "value {'key': 5, 'window_start': 0, 'window_end': 10, 'rows': [{'key': 5, 'at'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_function_that_fails_names_operator_window_and_key(name: str) -> None:
    """Whether it raises or returns what was not announced."""
    function, message = MISTAKES[name]
    flow = ms.Flow("mistaken")
    timed = flow.from_frame(pl.DataFrame({"key": [5], "at": [7]})).event_time("at")
    visits = timed.group_by("key").window(ms.windows.tumbling(10))
    visits.map_window(function, schema=SCHEMA, name="visits").collect()

    with pytest.raises(ms.OperatorError, match=re.escape(message)) as raised:
        flow.run(on="local", workers=1)
    assert str(raised.value).startswith("map_window 'visits' at test_frame_map_window")


def test_mistake_without_keys_names_the_window_alone() -> None:
    """Nobody wrote the key that holds a whole frame together."""
    flow = ms.Flow("whole")
    frame = flow.from_frame(pl.DataFrame({"x": [1, 2]}))
    pairs = frame.window(ms.windows.count(2))
    pairs.map_window(lambda _window, _rows: None, schema={"x": pl.Int64}).collect()  # type: ignore[arg-type, return-value]

    with pytest.raises(
        ms.OperatorError, match=r"NoneType for Window\(start=0, end=2\), and must"
    ):
        flow.run(on="local", workers=1)


def test_window_that_makes_the_function_raise_can_be_set_aside() -> None:
    """The letter has the key, the bounds and the rows; other windows go on."""
    flow = ms.Flow("letters")
    rows = pl.DataFrame({"key": [5, 5, 6], "at": [7, 3, 12]})
    timed = flow.from_frame(rows).event_time("at", out_of_order=10)
    visits = timed.group_by("key").window(ms.windows.tumbling(10))
    mapped = visits.map_window(
        lambda window, rows: rows.head(10 // window.start), schema=SCHEMA
    ).collect()
    letters = flow.dead_letters(5).collect()
    flow.run(on="local", workers=2)

    assert mapped.result().rows() == [(6, 12)]
    (letter,) = letters.result()
    assert letter.operator == "map_window"
    assert letter.record == {
        "key": 5,
        "window_start": 0,
        "window_end": 10,
        "rows": [{"key": 5, "at": 3}, {"key": 5, "at": 7}],
    }


def largest(best: int, values: Iterable[int]) -> int:
    """Return the largest number so far."""
    return max(best, *values)


@pytest.mark.parametrize("workers", [1, 3])
def test_frames_have_a_word_for_every_verb_of_windows_of_streams(workers: int) -> None:
    """An aggregate in Python where order does not count, else lists or a function."""
    flow = ms.Flow("words")
    timed, at = timed_rows(flow, DISORDER), pl.col("at")
    window = ms.windows.sliding(SIZE, SLIDE)
    keyed = timed.key_by(itemgetter("key")).map(itemgetter("at"))
    streams = keyed.window(window).with_window()
    frames = timed.to_frame(SCHEMA).group_by("key").window(window)
    latest = ms.frame_aggregate(
        "at", init=int, update=largest, merge=max, finish=int, dtype=pl.Int64
    )

    def joined(bounds: Window, rows: pl.DataFrame) -> pl.DataFrame:
        text = "".join(map(str, rows["at"]))
        return listed(bounds, rows).with_columns(at=pl.lit(text))

    pairs = [
        (streams.fold(0, max), frames.agg(latest)),
        (streams.collect(), frames.agg(at.implode())),
        (
            streams.fold("", lambda text, at: f"{text}{at}"),
            frames.map_window(joined, schema={**LISTED, "at": pl.String}),
        ),
    ]
    handles = [(s.unkey().collect(), f.collect()) for s, f in pairs]
    flow.run(on="local", workers=workers)

    for stream, frame in handles:
        expected = [(own, *bounds, value) for own, (bounds, value) in stream.result()]
        assert sorted(frame.result().rows()) == sorted(expected)
