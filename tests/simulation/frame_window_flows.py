"""Flows with windows on frames, for jobs that take snapshots; the oracle is that of rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
from tests.simulation import window_flows
from tests.simulation.flows import Case, same
from tests.simulation.window_flows import (
    COUNT,
    DISORDER,
    GAP,
    KEYS,
    SIZE,
    SLIDE,
    SMALL_DISORDER,
    key,
    moment,
    rows_of,
    spread,
)
from tests.support.windowing import naive_sessions, naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Rows

    from millstream.windows import Window

__all__ = [
    "FRAME_WINDOW_CASES",
    "LISTED",
    "SCHEMA",
    "Threes",
    "listed",
    "row",
    "triggered",
]

SCHEMA = {"key": pl.Int64, "at": pl.Int64}
LISTED = {
    "key": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "at": pl.List(pl.Int64),
}


def row(number: int) -> dict[str, int]:
    return {"key": key(number), "at": moment(number)}


def listed(window: Window, rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row: the key of the first, the bounds, and all timestamps."""
    start, end = (pl.lit(bound, pl.Int64) for bound in window)
    at = pl.col("at").implode()
    return rows.select(pl.col("key").first(), start=start, end=end, at=at)


def window_frames() -> Case:
    """Sliding windows that share panes, and sessions."""
    flow = ms.Flow("window frames")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    keyed = frame.event_time("at", out_of_order=4 * DISORDER).group_by("key")
    sliding = keyed.window(ms.windows.sliding(SIZE, SLIDE, offset=3))
    sliding.agg(n=pl.len()).collect(name="sliding")
    keyed.window(ms.windows.session(GAP)).agg(n=pl.len()).collect(name="sessions")
    arrived = rows_of(4 * DISORDER)
    found, _ = naive_windows(TimeWindows(SIZE, SLIDE, 3, "event"), 0, arrived)
    windows = [(k, b.start, b.end, len(r)) for (k, b), r in found.items()]
    visits, _ = naive_sessions(GAP, 0, arrived)
    sessions = [(k, b.start, b.end, len(r)) for k, b, r in visits]

    def check(rows: Rows) -> None:
        same(rows["sliding"], windows)
        same(rows["sessions"], sessions)

    return Case(flow, check)


def late_frames() -> Case:
    """Rows behind what their split had promised; there is one split."""
    flow = ms.Flow("late frames")
    numbers = flow.from_iterable([row(number) for number in range(COUNT)])
    timed = numbers.event_time(lambda row: row["at"], out_of_order=SMALL_DISORDER)
    frame = timed.to_frame(SCHEMA)
    counts = frame.group_by("key").window(ms.windows.tumbling(SLIDE)).agg(n=pl.len())
    counts.collect(name="counts")
    counts.late().collect(name="late rows")
    found, late = naive_windows(
        TimeWindows(SLIDE, SLIDE, 0, "event"), 0, rows_of(SMALL_DISORDER)
    )
    windows = [(k, b.start, b.end, len(r)) for (k, b), r in found.items()]

    def check(rows: Rows) -> None:
        same(rows["counts"], windows)
        assert len(rows["late rows"]) == len(late)

    return Case(flow, check)


def counted_frames() -> Case:
    """Windows by number in the order of time: by key, and over all."""
    flow = ms.Flow("counted frames")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    timed = frame.event_time("at", out_of_order=4 * DISORDER)
    threes = timed.group_by("key").window(ms.windows.count(3, exact=False))
    threes.agg(pl.col("at").sum()).collect(name="threes")
    timed.window(ms.windows.count(7)).agg(pl.col("at").implode()).collect(name="sevens")
    times = sorted(map(moment, range(COUNT)))
    sevens = [(times[i : i + 7],) for i in range(0, COUNT - COUNT % 7, 7)]
    sums = []
    for own in range(KEYS):
        mine = sorted(moment(i) for i in range(COUNT) if key(i) == own)
        sums += [(own, sum(mine[i : i + 3])) for i in range(0, len(mine), 3)]

    def check(rows: Rows) -> None:
        same(rows["threes"], sums)
        assert [(list(seven),) for (seven,) in rows["sevens"]] == sevens

    return Case(flow, check)


class Threes(window_flows.Threes):
    """The trigger of rows, by the rows of a frame."""


def triggered_frames() -> Case:
    """Call a trigger by event time, and one by the clock: every row is in one result."""
    flow = ms.Flow("triggered frames")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    timed = frame.event_time("at", out_of_order=4 * DISORDER).group_by("key")
    everything = ms.windows.global_window(Threes())
    lists = pl.col("at").implode()
    timed.window(everything).agg(lists).collect(name="by time")
    frame.group_by("key").window(everything).agg(lists).collect(name="by clock")
    frame.window(everything).agg(pl.len()).collect(name="all")
    expected = [(key(i), moment(i)) for i in range(COUNT)]
    results = triggered(expected)

    def check(rows: Rows) -> None:
        for name in ("by time", "by clock"):
            same([(own, at) for own, part in rows[name] for at in part], expected)
        same([(own, sorted(part)) for own, part in rows["by time"]], results)
        assert sum(n for (n,) in rows["all"]) == COUNT

    return Case(flow, check)


def triggered(rows: list[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    """Return three rows of a key in order, or those of a hundred milliseconds."""
    made: list[tuple[int, list[int]]] = []
    for own in {name for name, _ in rows}:
        part: list[int] = []
        for at in sorted(at for name, at in rows if name == own):
            if part and at // 100 > part[0] // 100:
                made.append((own, part))
                part = []
            part = [*part, at]
            if len(part) == 3:
                made.append((own, part))
                part = []
        made += [(own, part)] if part else []
    return made


def frames_by_the_clock() -> Case:
    """Windows and sessions of processing time: every row is in one of them."""
    flow = ms.Flow("frames by the clock")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    keyed = frame.group_by("key")
    tumbling = ms.windows.tumbling("20ms", time="processing")
    keyed.window(tumbling).agg(n=pl.len()).collect(name="counts")
    halves = ms.windows.sliding("20ms", "10ms", time="processing")
    frame.window(halves).agg(n=pl.len()).collect(name="twice")
    pauses = ms.windows.session("5ms", time="processing")
    keyed.window(pauses).agg(pl.col("at").implode()).collect(name="lists")

    def check(rows: Rows) -> None:
        counts: Counter[int] = Counter()
        for own, start, end, n in rows["counts"]:
            counts[own] += n
            assert (start % 20, end - start) == (0, 20)
        assert counts == Counter(map(key, range(COUNT)))
        assert sum(n for *_, n in rows["twice"]) == 2 * COUNT
        found = [(own, at) for own, _, _, part in rows["lists"] for at in part]
        same(found, [(key(i), moment(i)) for i in range(COUNT)])

    return Case(flow, check)


def promised_frames() -> Case:
    """Rows are late by what every tenth one of their split has promised."""
    flow = ms.Flow("promised frames")
    numbers = pl.DataFrame([row(number) for number in range(COUNT)], schema=SCHEMA)
    frame = flow.from_frame(numbers)
    promise = pl.when(pl.col("at") % 10 == 0).then("at")
    counts = frame.event_time("at", watermark=promise).group_by("key")
    windows = counts.window(ms.windows.tumbling(SLIDE)).agg(n=pl.len())
    windows.collect(name="counts")
    windows.late().collect(name="late rows")
    right: Counter[tuple[int, int]] = Counter()
    late, promised = [], -(10**9)
    for number in range(COUNT):
        at = moment(number)
        end = at // SLIDE * SLIDE + SLIDE
        if end - 1 <= promised:
            late.append((key(number), at))
        else:
            right[key(number), end] += 1
        promised = max(promised, at) if at % 10 == 0 else promised
    assert late, "there are late rows"

    def check(rows: Rows) -> None:
        expected = [(own, end - SLIDE, end, n) for (own, end), n in right.items()]
        same(rows["counts"], expected)
        same(rows["late rows"], late)

    return Case(flow, check)


def mapped_frames() -> Case:
    """Call a function with the rows of windows: by key, by number, by the clock."""
    flow = ms.Flow("mapped frames")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    timed = frame.event_time("at", out_of_order=4 * DISORDER)
    sliding = timed.group_by("key").window(ms.windows.sliding(SIZE, SLIDE, offset=3))
    sliding.map_window(listed, schema=LISTED).collect(name="sliding")
    sevens = timed.window(ms.windows.count(7))
    sevens.map_window(listed, schema=LISTED).collect(name="sevens")
    clock = frame.group_by("key").window(ms.windows.tumbling("20ms", time="processing"))
    clock.map_window(lambda _, rows: rows, schema=SCHEMA).collect(name="clock")
    arrived = rows_of(4 * DISORDER)
    found, _ = naive_windows(TimeWindows(SIZE, SLIDE, 3, "event"), 0, arrived)
    windows = [(k, *b, sorted(r.time for r in rows)) for (k, b), rows in found.items()]
    times = sorted(map(moment, range(COUNT)))
    numbers = range(0, COUNT - COUNT % 7, 7)
    expected = [(i, i + 7, times[i : i + 7]) for i in numbers]

    def check(rows: Rows) -> None:
        same([(*place, list(at)) for *place, at in rows["sliding"]], windows)
        sevens = [(start, end, list(at)) for _, start, end, at in rows["sevens"]]
        assert sevens == expected
        same(rows["clock"], [(key(i), moment(i)) for i in range(COUNT)])

    return Case(flow, check)


FRAME_WINDOW_CASES: tuple[Callable[[], Case], ...] = (
    window_frames,
    late_frames,
    counted_frames,
    triggered_frames,
    frames_by_the_clock,
    promised_frames,
    mapped_frames,
)
