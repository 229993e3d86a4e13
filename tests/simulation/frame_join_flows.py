"""Flows that join two frames, each with what plain Python says about its rows.

The rows are those of `join_flows`: out of order, some more than was promised, with one
origin for each side.  Batches are small, so that much of the joins lies between epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from tests.simulation.flows import Case, same
from tests.simulation.join_flows import DISORDER, came, pairs, readings
from tests.support.joining import Expected, asof_oracle, interval_oracle, window_oracle

import millstream as ms
from millstream.api.frame_joined import JoinedFrame
from millstream.plan.joins import LEFT, RIGHT, Direction, How
from millstream.windows import sliding, tumbling

if TYPE_CHECKING:
    from tests.simulation.flows import Rows

SCHEMA = {"key": pl.Int64, "at": pl.Int64, "name": pl.String}


def timed(flow: ms.Flow, side: str) -> ms.Frame:
    """Read a side with its times."""
    rows = flow.from_iterable(readings(side), name=side)
    stamped = rows.event_time(lambda row: row[1], out_of_order=DISORDER)
    dicts = stamped.map(lambda row: dict(zip(SCHEMA, row, strict=True)))
    return dicts.to_frame(SCHEMA).drop("at")


def untimed(flow: ms.Flow, side: str) -> ms.Frame:
    """Read a side without time."""
    rows = flow.from_iterable(readings(side), name=side)
    dicts = rows.map(lambda row: dict(zip(SCHEMA, row, strict=True)))
    return dicts.to_frame(SCHEMA).drop("at")


def finished(flow: ms.Flow, joined: ms.Frame, expected: Expected) -> Case:
    """Write what a join of timed frames gives, and what came too late for it."""
    names = ["key", "name", "name_right"][: len(joined.schema)]
    rows = joined.to_rows().map(lambda row: str([row[name] for name in names]))
    rows.for_each(print, name="written")
    assert isinstance(joined, JoinedFrame)
    for side in ("left", "right"):
        late = joined.late(side, name=f"late-{side}").to_rows()
        late.map(lambda row: row["name"]).collect(name=side + " late")
    wanted = [
        str([key, *(value if isinstance(value, tuple) else (value,))])
        for key, (_, value) in expected.rows
    ]

    def check(found: Rows) -> None:
        assert expected.late
        same(found["written"], wanted)
        same(found["left late"] + found["right late"], expected.late)

    return Case(flow, check)


def interval_joined_frames() -> Case:
    """Rows of both sides with and without a partner, dropped by the watermark."""
    flow = ms.Flow("interval-joined-frames")
    joined = timed(flow, "left").interval_join(
        timed(flow, "right"), -15, 10, on="key", how="full"
    )
    return finished(flow, joined, interval_oracle(How.FULL, -15, 10, came()))


def semi_joined_frames() -> Case:
    """Left rows come out once, with the first of their partners."""
    flow = ms.Flow("semi-joined-frames")
    joined = timed(flow, "left").interval_join(
        timed(flow, "right"), -15, 40, on="key", how="semi"
    )
    return finished(flow, joined, interval_oracle(How.SEMI, -15, 40, came()))


def window_joined_frames() -> Case:
    """Overlapping windows: at most cuts a row has left some of its windows."""
    flow = ms.Flow("window-joined-frames")
    window = sliding(40, 15, offset=-5)
    joined = timed(flow, "left").window_join(
        timed(flow, "right"), window, on="key", how="left"
    )
    starts = range(-5 - 15 * 20, 600, 15)
    windows = [(start, start + 40) for start in starts]
    return finished(flow, joined, window_oracle(How.LEFT, windows, came()))


def nearest_joined_frames() -> Case:
    """Left rows wait for a right row that may be nearer."""
    flow = ms.Flow("nearest-joined-frames")
    joined = timed(flow, "left").asof_join(
        timed(flow, "right"), on="key", direction="nearest", tolerance=40, how="left"
    )
    expected = asof_oracle(How.LEFT, Direction.NEAREST, 40, came())
    return finished(flow, joined, expected)


def last_joined_frames() -> Case:
    """Right rows stay until a later one has taken their place."""
    flow = ms.Flow("last-joined-frames")
    joined = timed(flow, "left").asof_join(timed(flow, "right"), on="key", how="left")
    expected = asof_oracle(How.LEFT, Direction.BACKWARD, None, came())
    return finished(flow, joined, expected)


def all_joined_frames() -> Case:
    """Everything with everything, and what is left over at the end."""
    flow = ms.Flow("all-joined-frames")
    left, right = untimed(flow, "left"), untimed(flow, "right")
    few = right.filter(pl.col("name").str.ends_with("1"))
    full = left.keyed_join(few, "key", how="full").to_rows()
    full.map(lambda row: str(list(row.values()))).for_each(print, name="full")
    semi = left.keyed_join(few, "key", how="semi").to_rows()
    semi.map(lambda row: (row["key"], row["name"])).collect(name="semi")
    sides = pairs("left"), [row for row in pairs("right") if row[1].endswith("1")]
    keys = {key for key, _ in sides[RIGHT]}
    both: list[Any] = [
        [k, v, w] for k, v in sides[LEFT] for j, w in sides[RIGHT] if j == k
    ]
    alone = [[k, v, None] for k, v in sides[LEFT] if k not in keys]

    def check(found: Rows) -> None:
        assert alone
        same(found["full"], list(map(str, [*both, *alone])))
        same(found["semi"], [row for row in sides[LEFT] if row[0] in keys])

    return Case(flow, check)


def clock_joined_frames() -> Case:
    """Windows that are what the clock makes of them: every left row is in one."""
    flow = ms.Flow("clock-joined-frames")
    left, right = untimed(flow, "left"), untimed(flow, "right")
    window = tumbling("20ms", time="processing")
    joined = left.window_join(right, window, on="key", how="left").to_rows()
    joined.map(lambda row: (row["name"], row["name_right"])).collect(name="joined")
    names = {name for _, name in pairs("left")}

    def check(found: Rows) -> None:
        rows = found["joined"]
        alone = {name for name, other in rows if other is None}
        met = {name for name, other in rows if other is not None}
        assert len(set(rows)) == len(rows)
        assert alone | met == names
        assert not alone & met

    return Case(flow, check)


FRAME_JOIN_CASES = (
    clock_joined_frames,
    interval_joined_frames,
    semi_joined_frames,
    window_joined_frames,
    nearest_joined_frames,
    last_joined_frames,
    all_joined_frames,
)
