"""Flows that join two streams, each with what plain Python says about its rows.

Rows of both sides are out of order, some more than was promised.  There is one origin for
each side, so that who is late is the same at any number of workers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.flows import Case, same
from tests.support.joining import (
    Expected,
    Origin,
    asof_oracle,
    interval_oracle,
    table_oracle,
    window_oracle,
)

import millstream as ms
from millstream.plan.joins import LEFT, RIGHT, Direction, How
from millstream.windows import sliding

if TYPE_CHECKING:
    from tests.simulation.flows import Rows
    from tests.support.joining import Came

COUNT = 60
KEYS = 23
DISORDER = 9
LATE_EVERY = 11

Reading = tuple[int, int, str]
"""Key, time and name of a row."""


def readings(side: str) -> list[Reading]:
    """Return the rows of a side: in no order, and now and then far too late."""
    step, start = (3, 0) if side == "left" else (4, -20)
    rows = []
    for i in range(COUNT):
        behind = 70 if i % LATE_EVERY == LATE_EVERY - 1 else 0
        time = start + i * step + (i * 7) % DISORDER - behind
        rows.append((i * i % KEYS, time, f"{side}{i}"))
    return rows


def timed(flow: ms.Flow, side: str) -> ms.KeyedStream[int, str]:
    """Read a side with its times, by key."""
    rows = flow.from_iterable(readings(side), name=side)
    stamped = rows.event_time(lambda row: row[1], out_of_order=DISORDER)
    return stamped.key_by(lambda row: row[0]).map(lambda row: row[2])


def untimed(flow: ms.Flow, side: str) -> ms.KeyedStream[int, str]:
    """Read a side by key, without time."""
    rows = flow.from_iterable(readings(side), name=side)
    return rows.key_by(lambda row: row[0]).map(lambda row: row[2])


def came() -> list[list[Came]]:
    """Return the rows of both sides with what had been promised before them."""
    origins = [Origin(LEFT, DISORDER), Origin(RIGHT, DISORDER)]
    for origin, side in zip(origins, ("left", "right"), strict=True):
        for row in readings(side):
            origin.row(*row)
    return [origin.came for origin in origins]


def pairs(side: str) -> list[Any]:
    """Return pairs of key and value of a side."""
    return [(key, name) for key, _, name in readings(side)]


def finished(
    flow: ms.Flow, joined: ms.KeyedStream[int, Any], expected: Expected
) -> Case:
    """Write what a join gives, and collect it again by name."""
    joined.map(str).for_each(print, name="written")
    joined.collect(name="rows")
    rows = [(key, value) for key, (_, value) in expected.rows]

    def check(found: Rows) -> None:
        assert expected.late
        same(list(map(str, found["rows"])), list(map(str, rows)))
        same(found["written"], [(key, str(value)) for key, value in rows])

    return Case(flow, check)


def interval_joined() -> Case:
    """Rows of both sides with and without a partner, dropped by the watermark."""
    flow = ms.Flow("interval-joined")
    joined = timed(flow, "left").interval_join(
        timed(flow, "right"), -15, 10, how="full"
    )
    return finished(flow, joined, interval_oracle(How.FULL, -15, 10, came()))


def window_joined() -> Case:
    """Overlapping windows: at most cuts a row has left some of its windows."""
    flow = ms.Flow("window-joined")
    window = sliding(40, 15, offset=-5)
    joined = timed(flow, "left").window_join(timed(flow, "right"), window, how="left")
    starts = range(-5 - 15 * 20, 600, 15)
    windows = [(start, start + 40) for start in starts]
    return finished(flow, joined, window_oracle(How.LEFT, windows, came()))


def nearest_joined() -> Case:
    """Left rows wait for a right row that may be nearer."""
    flow = ms.Flow("nearest-joined")
    joined = timed(flow, "left").asof_join(
        timed(flow, "right"), direction="nearest", tolerance=40, how="left"
    )
    expected = asof_oracle(How.LEFT, Direction.NEAREST, 40, came())
    return finished(flow, joined, expected)


def versions_joined() -> Case:
    """Look at a table as it was at the time of the row, by key and in every task."""
    flow = ms.Flow("versions-joined")
    left, right = timed(flow, "left"), timed(flow, "right")
    rows = flow.from_iterable(readings("left"), name="again")
    stamped = rows.event_time(lambda row: row[1], out_of_order=DISORDER)
    spread = stamped.shuffle().join_broadcast(right, lambda row: row[0], how="left")
    spread.map(lambda pair: (pair[0][2], pair[1])).collect(name="spread")
    case = finished(
        flow,
        left.join_table(right, how="left"),
        asof_oracle(How.LEFT, Direction.BACKWARD, None, came()),
    )

    def check(found: Rows) -> None:
        assert case.check is not None
        case.check(found)
        same(list(map(str, found["spread"])), [str(pair) for _, pair in found["rows"]])

    return Case(flow, check)


def tables_joined() -> Case:
    """Left rows wait for a table without time, by key and in every task."""
    flow = ms.Flow("tables-joined")
    left, right = untimed(flow, "left"), untimed(flow, "right")
    table = right.filter(lambda name: not name.endswith("3"))
    left.join_table(table, how="anti").collect(name="anti")
    plain = flow.from_iterable(pairs("left"), name="again").shuffle()
    spread = plain.join_broadcast(table, lambda row: row[0])
    spread.map(lambda pair: (pair[0][0], (pair[0][1], pair[1]))).collect(name="spread")
    rows = [(key, name) for key, name in pairs("right") if not name.endswith("3")]

    def check(found: Rows) -> None:
        same(found["anti"], table_oracle(How.ANTI, pairs("left"), rows))
        same(found["spread"], table_oracle(How.INNER, pairs("left"), rows))

    return Case(flow, check)


def all_joined() -> Case:
    """Everything with everything, and what is left over at the end."""
    flow = ms.Flow("all-joined")
    left, right = untimed(flow, "left"), untimed(flow, "right")
    few = right.filter(lambda name: name.endswith("1"))
    left.join(few, how="full").for_each(print, name="full")
    left.join(few, how="semi").collect(name="semi")
    sides = pairs("left"), [row for row in pairs("right") if row[1].endswith("1")]
    keys = {key for key, _ in sides[RIGHT]}
    both = [(k, (v, w)) for k, v in sides[LEFT] for j, w in sides[RIGHT] if j == k]
    alone = [(k, (v, None)) for k, v in sides[LEFT] if k not in keys]

    def check(found: Rows) -> None:
        assert alone
        same(list(map(str, found["full"])), list(map(str, [*both, *alone])))
        same(found["semi"], [row for row in sides[LEFT] if row[0] in keys])

    return Case(flow, check)


def clock_joined() -> Case:
    """Windows that are what the clock makes of them: every left row is in two."""
    flow = ms.Flow("clock-joined")
    left, right = untimed(flow, "left"), untimed(flow, "right")
    window = sliding("20ms", "10ms", time="processing")
    joined = left.window_join(right, window, how="left")
    joined.collect(name="joined")
    names = [name for _, name in pairs("left")]

    def check(found: Rows) -> None:
        rows = [pair for _, pair in found["joined"]]
        assert {name for name, _ in rows} == set(names)
        assert max(Counter(rows).values()) <= 2, "a window is told once"
        alone = Counter(name for name, other in rows if other is None)
        met = Counter(name for name, other in rows if other is not None)
        assert all(alone[name] + min(met[name], 2) >= 2 for name in names)

    return Case(flow, check)


JOIN_CASES = (
    interval_joined,
    window_joined,
    nearest_joined,
    versions_joined,
    tables_joined,
    all_joined,
    clock_joined,
)
