"""Event time that goes round loops: what leaves is on time, and the late rows are the same.

Method: rows go round some laps, each to any task, and are counted by time behind the loop.
That must be what it is without a loop, however the flow is run.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.support.examples import mostly_slow
from tests.support.resizing import run_at_two_widths
from tests.system.test_event_time import (
    DISORDER,
    QUICK,
    SIZE,
    BoundedScripts,
    collected,
    collected_frames,
    expected,
    splits_of,
    survives_crashes,
    timed_rows,
    windowed,
)

import millstream as ms
from millstream.testing import Pause, manual_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def laps(rows: ms.Stream[Any]) -> tuple[ms.Stream[Any], ms.Stream[Any]]:
    """Let pairs of anything and a number go round that often, and leave without it."""
    moved = rows.shuffle()
    on = moved.filter(lambda pair: pair[1] > 0)
    return (
        on.map(lambda pair: (pair[0], pair[1] - 1)),
        moved.filter(lambda pair: pair[1] == 0).map(lambda pair: pair[0]),
    )


def looped(flow: ms.Flow, scripts: list[list[Any]], **timing: Any) -> ms.Stream[int]:
    """Return times that have gone round a loop, some of them not at all."""
    rows = timed_rows(flow, scripts, **timing)
    return rows.map(lambda time: (time, time % 4)).loop(laps)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_going_round_makes_nobody_late_at_any_width(workers: int) -> None:
    """Windows behind the loop have the rows, and lack the late ones, as without it."""
    splits = splits_of(1)
    flow = ms.Flow("widths")
    found = collected(windowed(looped(flow, splits)))
    flow.run(on="local", workers=workers, **QUICK)

    assert found() == expected(splits)


@pytest.mark.parametrize("widths", mostly_slow((1, 3), (3, 2)))
def test_time_goes_on_in_a_loop_at_another_width(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """What was under way at the savepoint holds time back when it comes round again."""
    splits = splits_of(3, count=5, rows=200)
    scripts = [[s for t in times for s in (t, Pause(), Pause())] for times in splits]
    flow = ms.Flow("moved")
    found = collected(windowed(looped(flow, scripts)))
    run_at_two_widths(flow, widths, tmp_path, idle_ms=20)

    assert found() == expected(splits)


@pytest.mark.slow
def test_the_same_rows_are_late_behind_a_loop_after_any_crash() -> None:
    """Lateness travels with the row, round the loop and through snapshots."""
    splits = splits_of(2)
    flow = ms.Flow("crashes")
    survives_crashes(flow, windowed(looped(flow, splits)), splits)


def endless(rank: int, size: int) -> Iterator[int]:
    """Deal all numbers out to the tasks of a source."""
    return count(rank, size)


@pytest.mark.parametrize("workers", [1, 2])
def test_time_passes_in_a_loop_that_never_ends(workers: int) -> None:
    """Windows behind it are over while the input goes on; each has all of its rows."""
    flow = ms.Flow("endless")
    rows = flow.from_parallel(endless).event_time(lambda i: i)
    counts = rows.map(lambda i: (i, i % 4)).loop(laps).window(ms.windows.tumbling(10))
    first = counts.count().limit(3).collect()
    flow.run(on="local", workers=workers, source_batch_rows=50)

    assert first.result() == [10, 10, 10]


def test_quiet_split_before_a_loop_does_not_hold_it_back_for_ever() -> None:
    """That an input is idle goes through the loop."""
    a_while = [Pause(), Pause()]
    quiet = [*a_while * 50, 1_000]
    busy = [step for i in range(40) for step in (i, *a_while)]
    seen: list[int] = []
    flow = ms.Flow("quiet")
    rows = looped(flow, [busy, quiet], idle_after="10s").inspect(seen.append)
    is_quiet = windowed(rows).map(lambda _: 1_000 in seen).drop_key().collect()
    with manual_time():
        flow.run(workers=1, source_idle_ms=1_000, watermark_every_ms=0.001)

    assert not all(is_quiet.result())


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_frames_go_round_with_their_time(workers: int) -> None:
    """The hidden columns come round as well; windows and late rows are those of rows."""
    splits = splits_of(4)
    flow = ms.Flow("frames")
    rows = timed_rows(flow, splits).map(lambda time: {"at": time, "laps": time % 4})
    frame = rows.to_frame({"at": pl.Int64, "laps": pl.Int64})

    def body(rows: ms.Frame) -> tuple[ms.Frame, ms.Frame]:
        on = rows.filter(pl.col("laps") > 0)
        return on.with_columns(pl.col("laps") - 1), rows.filter(pl.col("laps") == 0)

    found = collected_frames(frame.loop(body).window(ms.windows.tumbling(SIZE)))
    flow.run(on="local", workers=workers, **QUICK)

    assert found() == expected(splits)


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
def test_rounds_know_the_times_of_their_rows(workers: int) -> None:
    """Windows in a round are over with it; late rows are late in every round."""
    splits = splits_of(5)
    flow = ms.Flow("rounds")
    times = flow.read(BoundedScripts(*splits))
    timed = times.event_time(lambda time: time, out_of_order=DISORDER)

    def body(rows: ms.Stream[Any]) -> ms.Stream[Any]:
        pairs = rows.map(lambda row: row if isinstance(row, tuple) else (row, 1))
        keyed = pairs.key_by(lambda pair: pair[0] // SIZE)
        return keyed.window(ms.windows.tumbling(SIZE)).reduce(added).drop_key()

    counts = timed.iterate(body, max_rounds=2).window(ms.windows.tumbling(SIZE))
    ends = counts.with_window().collect().collect()
    flow.run(on="local", workers=workers, **QUICK)

    right, _ = expected(splits)
    found = {window.end: rows[0][1] for window, rows in ends.result()}
    assert found == right


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return a pair of the first time and both numbers."""
    return one[0], one[1] + other[1]


def test_frames_keep_their_time_from_round_to_round() -> None:
    """A reduction of a round does not see the hidden columns."""
    flow = ms.Flow("frame rounds")
    frame = flow.from_frame(pl.DataFrame({"at": range(40), "n": [1] * 40}))
    timed = frame.event_time("at", out_of_order=50)

    def most(rows: pl.DataFrame) -> pl.DataFrame:
        assert rows.columns == ["at", "n"]
        return rows.select(pl.col("n").max())

    doubled = timed.iterate(
        lambda rows: rows.with_columns(pl.col("n") * 2),
        reduce=most,
        until=lambda rows: rows["n"][0] >= 8,
        max_rounds=9,
    )
    sums = doubled.window(ms.windows.tumbling(SIZE)).agg(pl.col("n").sum()).collect()
    flow.run(on="local", workers=2)

    assert sums.result()["n"].to_list() == [80] * 4


def test_rows_that_come_round_behind_the_final_flush_are_put_in_order() -> None:
    """Time begins anew behind a flush that was not the last one."""
    flow = ms.Flow("ordered")

    def body(rows: ms.Stream[Any]) -> tuple[ms.Stream[Any], ms.Stream[Any]]:
        timed = rows.event_time(lambda pair: pair[0], out_of_order="2ms")
        ordered = timed.in_time_order().drop_time()
        on = ordered.filter(lambda pair: pair[1] > 0)
        return on.map(lambda pair: (pair[0] + 10, pair[1] - 1)), ordered

    out = flow.from_iterable([(5, 2), (3, 2)]).loop(body).collect()
    flow.run(on="local")

    assert out.result() == [(3, 2), (5, 2), (13, 1), (15, 1), (23, 0), (25, 0)]


def test_time_can_be_dropped_before_a_loop() -> None:
    """What goes round then may lose it, too."""
    flow = ms.Flow("dropped")
    timed = flow.from_iterable([1, 2]).event_time(lambda i: i)
    frame = flow.from_frame(pl.DataFrame({"at": [3]})).event_time("at").drop_time()
    out = timed.drop_time().loop(lambda rows: (rows.filter(lambda i: i < 0), rows))

    rows = out.collect()
    frames = frame.collect()
    flow.run(on="local", workers=2)

    assert sorted(rows.result()) == [1, 2]
    assert frames.result().columns == ["at"]
    with pytest.raises(ms.UsageError, match=r"have no timestamps; call\s+\.event_time"):
        out.window(ms.windows.tumbling(SIZE))
