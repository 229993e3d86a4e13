"""Flows that join a side from outside a loop in every round, with what plain Python says.

The side comes once.  Left rows of the first round may come before it, and later ones come
when the task that brought it has long ended.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.simulation.flows import Case, same

import millstream as ms

COUNT = 24
ROUNDS = 4
ROADS = [(v, (v * 5 + step) % COUNT) for v in range(0, COUNT, 2) for step in (1, 4)]
"""Only even places have roads, two each."""
HOW = ("inner", "left", "right", "full", "semi", "anti")
TABLE_HOW = ("inner", "left", "semi", "anti")

Place = tuple[int, int]
"""Where a walk is, and where it began or what it was told on the way."""


def spread(rank: int, size: int) -> range:
    """Deal the numbers out to the tasks of a source."""
    return range(rank, COUNT, size)


def numbers(flow: ms.Flow) -> ms.Stream[int]:
    """Read all numbers, on all workers."""
    return flow.from_iterable(range(COUNT)).shuffle()


def roads_by_start(flow: ms.Flow) -> ms.KeyedStream[int, int]:
    """Read where roads lead, by where they begin."""
    roads = flow.from_iterable(ROADS).key_by(lambda road: road[0])
    return roads.map(lambda road: road[1])


def joined(how: str, rows: list[Place], right: list[tuple[int, int]]) -> list[Any]:
    """Join pairs of key and value as the textbook does; results without keys."""
    by_key = defaultdict(list)
    for key, value in right:
        by_key[key].append(value)
    if how in ("semi", "anti"):
        return [value for key, value in rows if (key in by_key) == (how == "semi")]
    made: list[Any] = [(value, other) for key, value in rows for other in by_key[key]]
    if how in ("left", "full"):
        made += [(value, None) for key, value in rows if not by_key[key]]
    if how in ("right", "full"):
        left = {key for key, _ in rows}
        made += [(None, other) for key, other in right if key not in left]
    return made


def place_of(made: Any) -> Place:
    """Return where a walk goes on, from what a join said about it."""
    if not isinstance(made, tuple):
        return (made * 7 + 3) % COUNT, made
    began, road = made
    return (COUNT - 1 if road is None else road), (3 if began is None else began)


def walked(how: str, start: list[Place], right: list[tuple[int, int]]) -> list[Place]:
    """Walk as many steps as there are rounds; places where walks met count once."""
    rows = start
    for _ in range(ROUNDS):
        rows = sorted({place_of(made) for made in joined(how, rows, right)})
    return rows


START = [(v, v % 3) for v in range(0, COUNT, 3)]


def walks(flow: ms.Flow, how: Any) -> ms.Stream[Place]:
    """Join the roads by key in every round."""
    ends = roads_by_start(flow)
    start = numbers(flow).filter(lambda v: v % 3 == 0)

    def step(rows: ms.Stream[Place]) -> ms.Stream[Place]:
        keyed = rows.key_by(lambda place: place[0]).map(lambda place: place[1])
        return keyed.join(ends, how=how).drop_key().map(place_of).unique()

    return start.map(lambda v: (v, v % 3)).iterate(step, max_rounds=ROUNDS)


def last_roads() -> dict[int, int]:
    """Return a table of one road from every even place."""
    return {v: (v * 5 + 4) % COUNT for v in range(0, COUNT, 2)}


def looked_up(flow: ms.Flow, how: Any, *, is_broadcast: bool) -> ms.Stream[Place]:
    """Look the road of every place up in a table, in every round.

    Of a parallel source it is not known whether it ends; rounds wait for its end.
    """
    roads = flow.from_parallel(spread).filter(lambda v: v % 2 == 0).key_by(lambda v: v)
    ends = roads.map(lambda v: (v * 5 + 4) % COUNT)
    start = flow.from_parallel(spread).filter(lambda v: v % 3 == 0)

    def step(rows: ms.Stream[Place]) -> ms.Stream[Place]:
        if not is_broadcast:
            keyed = rows.key_by(lambda place: place[0]).map(lambda place: place[1])
            found = keyed.join_table(ends, how=how).drop_key()
        else:
            whole = rows.shuffle().join_broadcast(ends, lambda row: row[0], how=how)
            found = whole.map(_without_key)
        return found.map(place_of).unique()

    return start.map(lambda v: (v, v % 3)).iterate(step, max_rounds=ROUNDS)


def _without_key(made: Any) -> Any:
    left, right = made
    return (left[1], right) if isinstance(left, tuple) else right


def walking() -> Case:
    """Walk along roads; places without one, and roads nobody takes, come out alone."""
    flow = ms.Flow("walking")
    for how in ("full", "semi"):
        walks(flow, how).for_each(print, name=how)

    def check(rows: Any) -> None:
        for how in ("full", "semi"):
            same(rows[how], walked(how, START, ROADS))

    return Case(flow, check)


def looking_up() -> Case:
    """Walk along a table by key, and along one that every task has all of."""
    flow = ms.Flow("looking-up")
    looked_up(flow, "left", is_broadcast=False).for_each(print, name="keyed")
    looked_up(flow, "inner", is_broadcast=True).for_each(print, name="whole")
    table = list(last_roads().items())

    def check(rows: Any) -> None:
        same(rows["keyed"], walked("left", START, table))
        same(rows["whole"], walked("inner", START, table))

    return Case(flow, check)


def reaching() -> Case:
    """Join the roads in a delta iteration, and in a cycle."""
    flow = ms.Flow("reaching")
    ends = roads_by_start(flow)

    def tell(better: ms.KeyedStream[int, int]) -> ms.KeyedStream[int, int]:
        told = better.join(ends).drop_key().map(lambda pair: (pair[1], pair[0] + 1))
        return told.key_by(lambda pair: pair[0]).map(lambda pair: pair[1])

    start = numbers(flow).filter(lambda v: v == 2).key_by(lambda v: v)
    steps = start.map(lambda _: 0).delta_iterate(
        lambda known, new: new if known is None or new < known else None, tell
    )
    steps.for_each(print, name="steps")

    def add(rows: ms.Stream[int], state: ms.RoundState[int]) -> ms.Stream[int]:
        met = rows.key_by(lambda v: (v + state.value) % COUNT).join(ends, how="left")
        return met.drop_key().map(lambda pair: pair[0] + (pair[1] or 1))

    numbers(flow).cycle(
        1, add, lambda state, rows: (state + sum(rows)) % 1000, max_rounds=ROUNDS
    ).for_each(print, name="state")

    def check(rows: Any) -> None:
        same(rows["steps"], list(steps_from(2).items()))
        same(rows["state"], [last_state()])

    return Case(flow, check)


def steps_from(place: int) -> dict[int, int]:
    """Return how many roads lead from a place to every other one."""
    known, edge = {place: 0}, [place]
    while edge:
        nearest = {b for a, b in ROADS if a in edge and b not in known}
        known |= {v: max(known.values()) + 1 for v in nearest}
        edge = sorted(nearest)
    return known


def last_state() -> int:
    """Return what the rows make of the state, round after round."""
    state = 1
    for _ in range(ROUNDS):
        rows = [((v + state) % COUNT, v) for v in range(COUNT)]
        made = joined("left", rows, ROADS)
        state = (state + sum(v + (road or 1) for v, road in made)) % 1000
    return state


LOOP_JOIN_CASES = (walking, looking_up, reaching)
