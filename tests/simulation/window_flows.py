"""Flows with windows, for jobs that take snapshots.

What windows of event time say depends on the rows alone, late ones included, as all rows of
`late_rows` and `updated_windows` come from one split.  Windows of processing time are what the
clocks of the workers make of them; there every row must be in one window.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.flows import Case, same
from tests.support.windowing import arrivals, naive_sessions, naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows

if TYPE_CHECKING:
    from tests.simulation.flows import Rows
    from tests.support.windowing import Arrival

COUNT = 72
KEYS = 11
SIZE, SLIDE = 30, 10
GAP = 20
DISORDER = 12
SMALL_DISORDER = 3
LATENESS = 15


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


def moment(number: int) -> int:
    """Return the timestamp of a row: out of order, some of them twice, some negative."""
    return number * 3 + (number * 7) % DISORDER - number % 2 - 40


def key(number: int) -> int:
    """Return the key of a row; some keys rest for long."""
    return number * number % KEYS


def rows_of(out_of_order: int) -> list[Arrival]:
    """Return the rows as they come from one split."""
    made = arrivals([(0, key(i), moment(i)) for i in range(COUNT)], out_of_order)
    return [arrival for arrival, _ in made]


def sliding_windows() -> Case:
    """Windows by key, windows over all behind them, and over all from the beginning."""
    flow = ms.Flow("sliding")
    timed = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)
    window = ms.windows.sliding(SIZE, SLIDE, offset=3)
    counts = timed.key_by(key).window(window).with_window().count()
    counts.for_each(print, name="counts")
    largest = counts.drop_key().window(ms.windows.tumbling(SLIDE, offset=3))
    largest.map_window(
        lambda bounds, rows: (bounds, max(count for _, count in rows))
    ).for_each(print, name="largest")
    timed.window(window).with_window().sum().for_each(print, name="sums")
    found, _ = naive_windows(
        TimeWindows(SIZE, SLIDE, 3, "event"), 0, rows_of(2 * DISORDER)
    )
    sums: Counter[Any] = Counter()
    for (_, bounds), members in found.items():
        sums[bounds] += sum(row.value[1] for row in members)
    expected = [(own, (bounds, len(rows))) for (own, bounds), rows in found.items()]
    most: dict[tuple[int, int], int] = {}
    for _, (bounds, count) in expected:
        last = (bounds.end - SLIDE, bounds.end)
        most[last] = max(most.get(last, 0), count)

    def check(rows: Rows) -> None:
        same(rows["counts"], expected)
        same(rows["largest"], list(most.items()))
        same(rows["sums"], list(sums.items()))

    return Case(flow, check)


def session_windows() -> Case:
    """Sessions by key, the values of each in the order of time."""
    flow = ms.Flow("sessions")
    timed = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)
    visits = timed.key_by(key).window(ms.windows.session(GAP))
    visits.map_window(
        lambda bounds, rows: (bounds, [moment(row) for row in rows])
    ).for_each(print, name="visits")
    found, _ = naive_sessions(GAP, 0, rows_of(2 * DISORDER))
    expected = [
        (own, (bounds, sorted(row.time for row in rows))) for own, bounds, rows in found
    ]
    return Case(flow, lambda rows: same(rows["visits"], expected))


def late_rows() -> Case:
    """Rows that are later than was promised: left out, and told."""
    flow = ms.Flow("late-rows")
    numbers = flow.from_iterable(range(COUNT))
    timed = numbers.event_time(moment, out_of_order=SMALL_DISORDER)
    counts = (
        timed.group_by(key).window(ms.windows.tumbling(SLIDE)).with_window().count()
    )
    counts.for_each(print, name="counts")
    counts.late().for_each(print, name="left-out")
    found, late = naive_windows(
        TimeWindows(SLIDE, SLIDE, 0, "event"), 0, rows_of(SMALL_DISORDER)
    )
    assert late, "there are late rows"

    def check(rows: Rows) -> None:
        expected = [(own, (bounds, len(r))) for (own, bounds), r in found.items()]
        same(rows["counts"], expected)
        same(rows["left-out"], [(row.key, row.value[1], row.time) for row in late])

    return Case(flow, check)


def updated_windows() -> Case:
    """Late rows change results that were given: the last one of a window is right."""
    flow = ms.Flow("updated")
    numbers = flow.from_iterable(range(COUNT))
    timed = numbers.event_time(moment, out_of_order=SMALL_DISORDER)
    windows = timed.group_by(key).window(
        ms.windows.sliding(SLIDE, SLIDE // 2), allowed_lateness=LATENESS
    )
    windows.with_window().collect().for_each(print, name="lists")
    found, _ = naive_windows(
        TimeWindows(SLIDE, SLIDE // 2, 0, "event"), LATENESS, rows_of(SMALL_DISORDER)
    )
    expected = {
        place: sorted(row.value[1] for row in rows) for place, rows in found.items()
    }

    def check(rows: Rows) -> None:
        last = {(own, bounds): sorted(r) for own, (bounds, r) in rows["lists"]}
        assert last == expected

    return Case(flow, check)


def counted_windows() -> Case:
    """Windows by number: by key in the order of the source, and over all in that of time."""
    flow = ms.Flow("counted-windows")
    keyed = flow.from_iterable(range(COUNT)).key_by(key)
    keyed.sliding_count_reduce(lambda x, y: x + y, 5, 2).for_each(print, name="sums")
    keyed.window(ms.windows.count(4, 3)).count().collect(name="counts")
    timed = flow.from_parallel(spread).event_time(moment, out_of_order=2 * DISORDER)
    timed.map(moment).window(ms.windows.count(7)).collect().for_each(
        print, name="sevens"
    )
    times = sorted(map(moment, range(COUNT)))

    def check(rows: Rows) -> None:
        sums, counts = [], []
        for own in range(KEYS):
            values = [i for i in range(COUNT) if key(i) == own]
            sums += [(own, sum(values[i : i + 5])) for i in range(0, len(values), 2)]
            counts += [(own, 4)] * max(0, (len(values) - 4) // 3 + 1)
        same(rows["sums"], sums)
        same(rows["counts"], counts)
        sevens = [times[i : i + 7] for i in range(0, COUNT - COUNT % 7, 7)]
        assert rows["sevens"] == sevens

    return Case(flow, check)


class Threes(ms.windows.Trigger):
    """Every third row, and whatever is there when a hundred milliseconds are over."""

    def on_row(
        self, value: Any, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        if context.count == 1:
            context.call_at(context.now // 100 * 100 + 99)
        if context.count == 3:
            return ms.windows.Action.FIRE | ms.windows.Action.PURGE
        return ms.windows.Action.CONTINUE

    def on_time(
        self, time: int, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        return ms.windows.Action.FIRE | ms.windows.Action.PURGE


def triggered_windows() -> Case:
    """Call a trigger by event time, and one by the clock: every row is in one result."""
    flow = ms.Flow("triggered")
    numbers = flow.from_parallel(spread)
    timed = numbers.event_time(moment, out_of_order=2 * DISORDER).key_by(key)
    timed.window(ms.windows.global_window(Threes())).collect().for_each(
        print, name="by-time"
    )
    numbers.key_by(key).window(ms.windows.global_window(Threes())).collect().for_each(
        print, name="by-clock"
    )
    everything = [(key(i), i) for i in range(COUNT)]

    def check(rows: Rows) -> None:
        for name in ("by-time", "by-clock"):
            same([(own, i) for own, part in rows[name] for i in part], everything)
        hundreds = [{moment(i) // 100 for i in part} for _, part in rows["by-time"]]
        assert all(len(hundred) == 1 for hundred in hundreds)

    return Case(flow, check)


def windows_by_the_clock() -> Case:
    """Windows and sessions of processing time: every row is in one of them."""
    flow = ms.Flow("by-the-clock")
    numbers = flow.from_parallel(spread)
    keyed = numbers.key_by(key)
    tumbling = ms.windows.tumbling("20ms", time="processing")
    keyed.window(tumbling).count().for_each(print, name="counts")
    halves = ms.windows.sliding("20ms", "10ms", time="processing")
    told = keyed.window(halves).with_window().count()
    told.for_each(print, name="halves")
    pauses = ms.windows.session("5ms", time="processing")
    keyed.window(pauses).collect().for_each(print, name="lists")

    def check(rows: Rows) -> None:
        counts: Counter[int] = Counter()
        for own, count in rows["counts"]:
            counts[own] += count
        assert counts == Counter(map(key, range(COUNT)))
        halves = [(own, window) for own, (window, _) in rows["halves"]]
        assert len(set(halves)) == len(halves), "every window of a key is told once"
        assert sum(count for _, (_, count) in rows["halves"]) == 2 * COUNT
        found = [(own, i) for own, part in rows["lists"] for i in part]
        same(found, [(key(i), i) for i in range(COUNT)])

    return Case(flow, check)


WINDOW_CASES = (
    sliding_windows,
    session_windows,
    late_rows,
    updated_windows,
    counted_windows,
    triggered_windows,
    windows_by_the_clock,
)
