"""Flows whose loops join a side that still comes when all of their own input is there.

Snapshots are taken while it comes.  A loop that had begun its first round by then would keep
them waiting for the side, and the side would wait for them.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from tests.simulation.flows import Case, same

import millstream as ms

COUNT = 6
"""Rows that go round."""
LATE_COUNT = 60
"""Rows of a side: with every epoch comes as much of it as of the input."""
ROUNDS = 3
START = [(k, 0) for k in range(COUNT)]

Row = tuple[int, int]


def late(flow: ms.Flow, name: str) -> ms.Stream[int]:
    """Read a long side, on all workers."""
    return flow.from_iterable(range(LATE_COUNT), name=name).shuffle()


def values_of(rows: ms.Stream[int]) -> ms.KeyedStream[int, int]:
    """Return the value of every key, which is one more than the key."""
    return rows.key_by(lambda k: k).map(lambda k: k + 1)


def keyed(rows: ms.Stream[Row]) -> ms.KeyedStream[int, int]:
    """Return values by their keys."""
    return rows.key_by(lambda row: row[0]).map(lambda row: row[1])


def whole(pair: tuple[Row, int]) -> Row:
    """Add what a table that every task has all of says."""
    (key, value), more = pair
    return key, value + more


def times(count: int) -> list[Row]:
    """Return the rows to which the values of their keys were added so often."""
    return [(k, count * (k + 1)) for k in range(COUNT)]


def late_sides() -> Case:
    """Join two late sides in every round, by key and in a table by key."""
    flow = ms.Flow("late-sides")
    one, other = values_of(late(flow, "one")), values_of(late(flow, "other"))

    def step(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        return keyed(rows).join(one).map(sum).join_table(other).map(sum).unkey()

    start = flow.from_iterable(START).shuffle()
    start.iterate(step, max_rounds=ROUNDS).for_each(print, name="rows")
    return Case(flow, lambda rows: same(rows["rows"], times(2 * ROUNDS)))


def late_inner() -> Case:
    """Join a late side in the rounds of a loop that is inside another one."""
    flow = ms.Flow("late-inner")
    side = values_of(late(flow, "side"))

    def inner(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        return rows.shuffle().join_broadcast(side, lambda row: row[0]).map(whole)

    def outer(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        return rows.iterate(inner, max_rounds=2)

    start = flow.from_iterable(START).shuffle()
    start.iterate(outer, max_rounds=ROUNDS).for_each(print, name="rows")
    return Case(flow, lambda rows: same(rows["rows"], times(2 * ROUNDS)))


def late_kinds() -> Case:
    """Join in a cycle what a loop made of a late side, and in a delta iteration no row."""
    flow = ms.Flow("late-kinds")
    side = late(flow, "side")
    made = values_of(side.iterate(lambda rows: rows.map(lambda k: k), max_rounds=2))
    nobody = values_of(side.filter(lambda k: k < 0))

    def add(rows: ms.Stream[int], state: ms.RoundState[int]) -> ms.Stream[int]:
        met = rows.key_by(lambda k: (k + state.value) % LATE_COUNT).join(made)
        return met.drop_key().map(sum)

    flow.from_iterable(range(COUNT)).shuffle().cycle(
        0, add, lambda state, rows: (state + sum(rows)) % 1000, max_rounds=ROUNDS
    ).for_each(print, name="state")

    def tell(better: ms.KeyedStream[int, int]) -> ms.KeyedStream[int, int]:
        alone = better.filter(lambda left: left > 0).join(nobody, how="left")
        return alone.map(lambda pair: pair[0] - 1)

    start = flow.from_iterable(range(COUNT), name="left").key_by(lambda k: k)
    start.delta_iterate(
        lambda known, new: new if known is None or new < known else None, tell
    ).for_each(print, name="down")

    def check(rows: Any) -> None:
        same(rows["state"], [last_state()])
        same(rows["down"], [(k, 0) for k in range(COUNT)])

    return Case(flow, check)


def last_state() -> int:
    """Return what the rows make of the state, round after round."""
    state = 0
    for _ in range(ROUNDS):
        rows = [k + (k + state) % LATE_COUNT + 1 for k in range(COUNT)]
        state = (state + sum(rows)) % 1000
    return state


def late_frame_sides() -> Case:
    """Join two late frames in every round, one by key and one that every task has."""
    flow = ms.Flow("late-frame-sides")
    schema = {"k": pl.Int64, "v": pl.Int64}

    def frame(name: str, count: int, value: int | None) -> ms.Frame:
        rows = flow.from_iterable(range(count), name=name)
        made = rows.map(lambda k: {"k": k, "v": k + 1 if value is None else value})
        return made.to_frame(schema)

    one, other = frame("one", LATE_COUNT, None), frame("other", LATE_COUNT, None)

    def step(rows: ms.Frame) -> ms.Frame:
        added = pl.col("v") + pl.col("v_right")
        met = rows.keyed_join(one, "k").select("k", v=added)
        return met.join(other, "k").select("k", v=added)

    rows = frame("start", COUNT, 0).iterate(step, max_rounds=ROUNDS).to_rows()
    rows.map(lambda row: (row["k"], row["v"])).for_each(print, name="rows")
    return Case(flow, lambda rows: same(rows["rows"], times(2 * ROUNDS)))


def has_all(row: Row) -> bool:
    """Whether the value of its key was added as often as there would be rounds."""
    key, value = row
    return value >= ROUNDS * (key + 1)


def late_free() -> Case:
    """Join a late side in a loop without rounds, which is cut wherever it stands."""
    flow = ms.Flow("late-free")
    side = values_of(late(flow, "side"))

    def lap(rows: Any) -> tuple[Any, Any]:
        met = keyed(rows).join(side).map(sum).unkey()
        return met.filter(lambda row: not has_all(row)), met.filter(has_all)

    start = flow.from_iterable(START).shuffle()
    start.loop(lap).for_each(print, name="rows")
    return Case(flow, lambda rows: same(rows["rows"], times(ROUNDS)))


LATE_SIDE_CASES = (late_sides, late_inner, late_kinds, late_frame_sides, late_free)
