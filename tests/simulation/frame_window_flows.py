"""Flows with windows on frames, for jobs that take snapshots; the oracle is that of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from tests.simulation.flows import Case, same
from tests.simulation.window_flows import (
    COUNT,
    DISORDER,
    GAP,
    SIZE,
    SLIDE,
    SMALL_DISORDER,
    key,
    moment,
    rows_of,
    spread,
)
from tests.windowing import naive_sessions, naive_windows

import millstream as ms
from millstream.plan.windows import TimeWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Rows

__all__ = ["FRAME_WINDOW_CASES"]

SCHEMA = {"key": pl.Int64, "at": pl.Int64}


def row(number: int) -> dict[str, int]:
    return {"key": key(number), "at": moment(number)}


def window_frames() -> Case:
    """Sliding windows that share panes, and sessions."""
    flow = ms.Flow("window frames")
    frame = flow.from_parallel(spread).map(row).to_frame(SCHEMA)
    keyed = frame.event_time("at", disorder=4 * DISORDER).group_by("key")
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
    timed = numbers.event_time(lambda row: row["at"], disorder=SMALL_DISORDER)
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


FRAME_WINDOW_CASES: tuple[Callable[[], Case], ...] = (window_frames, late_frames)
