"""Workers that are killed while windows and joins of frames wait for their time.

Method: many operators read the same rows in one job.  Both workers are killed in turn, each
when a snapshot has rows of all operators; the results must be those of plain Python.  By
the clock these are determined for windows that are as wide as all time; of others every
row must be in as many as it should.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.faults.timed_killing import (
    COUNT,
    DISORDER,
    KEYS,
    SETTINGS,
    Slowly,
    arrivals,
    came,
    killed_in_turn,
    row,
)
from tests.simulation.frame_window_flows import SCHEMA, Threes, triggered
from tests.support.joining import asof_oracle, interval_oracle, window_oracle
from tests.support.windowing import naive_sessions, naive_windows
from tests.system.test_event_time import every_fourth

import millstream as ms
from millstream.plan.joins import Direction, How
from millstream.windows import count, global_window, session, sliding, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.timed_killing import Rule
    from tests.support.joining import Came, Expected

    from millstream.api.frame import WindowFrame
    from millstream.api.frame_joined import JoinedFrame
    from millstream.plan.windows import AnyWindow
    from millstream.windows import Window

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

SIZE, SLIDE, GAP, REACH = 40, 20, 21, 5
AGES = 10**15
"""A window that is over long after the test."""

Check = Callable[[], None]
"""What is certain about the results of some operators."""

ROWS = sorted(row(number) for number in range(COUNT))
AT = pl.col("at").implode()


def same(frame: ms.ResultHandle[pl.DataFrame], expected: list[Any]) -> None:
    assert expected, "there is something to compare"
    assert sorted(frame.result().rows(), key=str) == sorted(expected, key=str)


def with_late(
    made: WindowFrame, expected: list[Any], late: list[tuple[int, int]]
) -> Check:
    """Collect what windows give, and what was too late for them."""
    rows, late_rows = made.collect(), made.late().collect()

    def check() -> None:
        same(rows, expected)
        same(late_rows, late)

    return check


def panes(frame: ms.Frame) -> list[Check]:
    """Windows that overlap, also as a whole, and sessions."""
    keyed = frame.event_time("at", out_of_order=DISORDER).group_by("key")
    window = sliding(SIZE, SLIDE)
    found, late = naive_windows(window, 0, arrivals())
    visits, too_late = naive_sessions(GAP, 0, arrivals())

    def listed(bounds: Window, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(pl.lit([*bounds]).alias("bounds"), "key", "at")

    return [
        with_late(
            keyed.window(window).agg(n=pl.len()),
            [(key, *bounds, len(rows)) for (key, bounds), rows in found.items()],
            [(each.key, each.time) for each in late],
        ),
        with_late(
            keyed.window(session(GAP)).agg(n=pl.len()),
            [(key, *bounds, len(rows)) for key, bounds, rows in visits],
            [(each.key, each.time) for each in too_late],
        ),
        with_late(
            keyed.window(window).map_window(
                listed, schema={"bounds": pl.List(pl.Int64), **SCHEMA}
            ),
            [
                ([*bounds], key, each.time)
                for (key, bounds), rows in found.items()
                for each in rows
            ],
            [(each.key, each.time) for each in late],
        ),
    ]


def in_order(frame: ms.Frame) -> list[Check]:
    """Windows by number, and a trigger that counts and asks for times."""
    keyed = frame.event_time("at", out_of_order=DISORDER).group_by("key")
    on_time = [(a.key, a.time) for a in arrivals() if a.time > a.promised]
    late = [(a.key, a.time) for a in arrivals() if a.time <= a.promised]
    fours = []
    for key in sorted({key for key, _ in on_time}):
        times = sorted(time for own, time in on_time if own == key)
        fours += [(key, times[i : i + 4]) for i in range(0, len(times), 4)]
    return [
        with_late(keyed.window(count(4, exact=False)).agg(AT), fours, late),
        with_late(
            keyed.window(global_window(Threes())).agg(AT), [*triggered(on_time)], late
        ),
    ]


def by_fives() -> Rule:
    """Return the rule that `own_promises` has as an expression."""
    return lambda _row, time: time - 1 if time % 5 == 0 else None


def own_promises(frame: ms.Frame) -> list[Check]:
    """Watermarks of an expression, and of a function that remembers."""
    expression = pl.when(pl.col("at") % 5 == 0).then(pl.col("at") - 1)
    by_expression = frame.event_time("at", watermark=expression)
    by_function = frame.event_time("at", watermark=every_fourth)
    checks = []
    for timed, rule in ((by_expression, by_fives), (by_function, every_fourth)):
        found, late = naive_windows(tumbling(SLIDE), 0, arrivals(rule))
        made = timed.group_by("key").window(tumbling(SLIDE)).agg(AT.list.sort())
        checks.append(
            with_late(
                made,
                [
                    (key, *bounds, sorted(each.time for each in rows))
                    for (key, bounds), rows in found.items()
                ],
                [(each.key, each.time) for each in late],
            )
        )
    return checks


def sides_of(frame: ms.Frame) -> tuple[ms.Frame, ms.Frame]:
    """Return two sides, of which most rows are in both; the right ones are negative."""
    number = pl.col("at") + pl.col("key")
    right = frame.filter(number % 4 != 0).with_columns(-pl.col("at"))
    return frame.filter(number % 3 != 0), right


def came_to_sides() -> list[list[Came]]:
    """Return what `sides_of` gives as the oracles of joins see it."""
    left = [each for each in came() if (each.time + each.key) % 3 != 0]
    right = [each for each in came() if (each.time + each.key) % 4 != 0]
    return [left, [each._replace(value=-each.time) for each in right]]


def paired(joined: JoinedFrame, expected: Expected) -> Check:
    """Collect what a join gives, and what was too late for it."""
    rows = joined.select("key", "at", "at_right").collect()
    late = [joined.late(side).select("at").collect() for side in ("left", "right")]

    def check() -> None:
        same(rows, [(key, *pair) for key, (_, pair) in expected.rows])
        assert expected.late
        found = [time for side in late for time in side.result()["at"]]
        assert sorted(found) == sorted(expected.late)

    return check


def joins(frame: ms.Frame) -> list[Check]:
    """Join by window, by distance in time, and with the nearest one."""
    left, right = sides_of(frame.event_time("at", out_of_order=DISORDER))
    sides = came_to_sides()
    bounds = [(start, start + SIZE) for start in range(-200, 3 * COUNT, SLIDE)]
    return [
        paired(
            left.window_join(right, sliding(SIZE, SLIDE), on="key", how="full"),
            window_oracle(How.FULL, bounds, sides),
        ),
        paired(
            left.interval_join(right, -30, REACH, on="key", how="full"),
            interval_oracle(How.FULL, -30, REACH, sides),
        ),
        paired(
            left.asof_join(
                right, on="key", direction="nearest", tolerance=SIZE, how="left"
            ),
            asof_oracle(How.LEFT, Direction.NEAREST, SIZE, sides),
        ),
    ]


class Sevens(ms.windows.Trigger):
    """Every seventh row."""

    def on_row(
        self, value: Any, context: ms.windows.TriggerContext
    ) -> ms.windows.Action:
        is_full = context.count == 7
        fire = ms.windows.Action.FIRE | ms.windows.Action.PURGE
        return fire if is_full else ms.windows.Action.CONTINUE


def lists_of(frame: ms.Frame, window: AnyWindow) -> ms.ResultHandle[pl.DataFrame]:
    """Collect key and times of every window."""
    return frame.group_by("key").window(window).agg(AT).select("key", "at").collect()


def elements(lists: ms.ResultHandle[pl.DataFrame]) -> list[tuple[int, int]]:
    """Return the rows that are in the lists, as often as they are."""
    return sorted((key, at) for key, part in lists.result().rows() for at in part)


def short_windows(frame: ms.Frame) -> list[Check]:
    """Windows by the clock that are over all the time."""
    clock: dict[str, Any] = {"time": "processing"}
    once = [
        lists_of(frame, window)
        for window in (
            tumbling("150ms", **clock),
            session("20ms", **clock),
            global_window(Threes()),
        )
    ]
    thrice = lists_of(frame, sliding("150ms", "50ms", **clock))
    sevens = lists_of(frame, global_window(Sevens()))

    def check() -> None:
        assert [elements(lists) for lists in once] == [ROWS] * len(once)
        assert elements(thrice) == sorted(ROWS * 3)
        assert elements(sevens) == ROWS
        for lists in once:
            assert lists.result().height > 2 * KEYS, "some are over before the end"
        sizes = Counter((key, len(at)) for key, at in sevens.result().rows())
        counts = Counter(key for key, _ in ROWS)
        assert sizes == Counter({(k, 7): n // 7 for k, n in counts.items()}) + Counter(
            (k, n % 7) for k, n in counts.items() if n % 7
        )

    return [check]


def long_windows(frame: ms.Frame) -> list[Check]:
    """Windows by the clock that are over when the input is."""
    clock: dict[str, Any] = {"time": "processing"}
    by_key = [
        (key, sorted(at for own, at in ROWS if own == key)) for key in range(KEYS)
    ]
    windows = tumbling(AGES, **clock), session(AGES, **clock)
    once = [lists_of(frame, window) for window in windows]
    halves = sliding(AGES, AGES // 2, **clock)
    counts = frame.group_by("key").window(halves).agg(n=pl.len()).collect()

    def check() -> None:
        for lists in once:
            found = [(key, sorted(at)) for key, at in lists.result().rows()]
            assert sorted(found) == by_key
        same(
            counts,
            [
                (key, start, start + AGES, len(at))
                for key, at in by_key
                for start in (-AGES // 2, 0)
            ],
        )

    return [check]


def clock_joins(frame: ms.Frame) -> list[Check]:
    """Join by the clock: in one window of all time, and in many."""
    left, right = sides_of(frame)
    few = right.filter(pl.col("at") % 10 == 0, pl.col("key") > 2)
    ages = tumbling(AGES, time="processing")
    whole = left.window_join(few, ages, on="key", how="full").collect()
    brief = tumbling("100ms", time="processing")
    parts = left.window_join(right, brief, on="key", how="full").collect()
    lefts, rights = ([(c.key, c.value) for c in side] for side in came_to_sides())
    some = [(key, at) for key, at in rights if at % 10 == 0 and key > 2]
    pairs = [(key, at, of) for key, at in lefts for own, of in some if own == key]
    alone = [(key, at, None) for key, at in lefts if key <= 2]

    def check() -> None:
        same(whole, [*pairs, *alone])
        rows = parts.result().rows()
        assert len(set(rows)) == len(rows)
        for place, side in ((1, lefts), (2, rights)):
            lonely = [(row[0], row[place]) for row in rows if row[3 - place] is None]
            met = {(row[0], row[place]) for row in rows if None not in row}
            assert met, "there are pairs"
            assert sorted([*lonely, *met]) == sorted(side)

    return [check]


def survived(
    parts: list[Callable[[ms.Frame], list[Check]]], place: dict[str, Any], home: Path
) -> None:
    """Run operators on the rows, kill their workers, and look at the results."""
    hurry = home / "hurry"
    flow = ms.Flow("killed")
    frame = flow.read(Slowly(hurry)).to_frame(SCHEMA)
    checks = [check for part in parts for check in part(frame)]
    job = flow.start(**place, state=home / "state", **SETTINGS)

    killed_in_turn(job, hurry)

    for check in checks:
        check()


def test_frames_in_event_time_go_on_where_they_were_after_kills(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """Windows, pairs and late rows are those of plain Python."""
    survived([panes, in_order, own_promises, joins], place, tmp_path)


def test_frames_by_the_clock_go_on_where_they_were_after_kills(
    place: dict[str, Any], tmp_path: Path
) -> None:
    """Every row is where it belongs once, and windows of all time have all rows."""
    survived([short_windows, long_windows, clock_joins], place, tmp_path)
