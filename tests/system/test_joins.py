"""Joins in whole flows: any width, any backend, from any snapshot, and in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.simulation.join_flows import (
    DISORDER,
    JOIN_CASES,
    KEYS,
    came,
    readings,
    timed,
    untimed,
)
from tests.support.examples import mostly_slow
from tests.support.joining import asof_oracle, made_of, window_oracle
from tests.support.resizing import run_at_two_widths

import millstream as ms
from millstream.plan.joins import Direction, How
from millstream.testing import Pause, ScriptedSource, manual_time, simulate
from millstream.windows import sliding, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.flows import Case


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("make", JOIN_CASES, ids=lambda make: make.__name__)
def test_join_is_the_same_at_any_width(make: Callable[[], Case], workers: int) -> None:
    """Who is quick decides nothing, not even who is late."""
    case = make()
    simulate(case.flow, seeds=2, workers=workers, faults="none", check=case.check)


def slowly(side: str) -> ScriptedSource:
    """Return a source that pauses after every other row."""
    rows = readings(side)
    script: list[Any] = []
    for place in range(0, len(rows), 2):
        script += [*rows[place : place + 2], Pause(), Pause()]
    return ScriptedSource(script)


@pytest.mark.parametrize("backend", mostly_slow("memory", "rocksdb"))
@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_joins_go_on_from_a_savepoint_at_another_width(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """Rows that wait move with their keys; every new task has the whole table."""
    flow = ms.Flow("moving")
    left, right = (
        flow.read(slowly(side), name=side)
        .event_time(lambda row: row[1], out_of_order=DISORDER)
        .map(lambda row: (row[0], row[2]))
        for side in ("left", "right")
    )
    keyed = [each.key_by(lambda row: row[0]) for each in (left, right)]
    windows = keyed[0].window_join(keyed[1], sliding(40, 15, offset=-5))
    table = left.join_broadcast(keyed[1], lambda row: row[0], how="left")
    found: list[ms.ResultHandle[Any]] = [
        windows.drop_key().collect(),
        table.collect(),
    ]
    run_at_two_widths(flow, widths, tmp_path, state_backend=backend)

    spans = [(start, start + 40) for start in range(-305, 600, 15)]
    expected = (
        window_oracle(How.INNER, spans, came()),
        asof_oracle(How.LEFT, Direction.BACKWARD, None, came()),
    )
    for handle, oracle in zip(found, expected, strict=True):
        names = [tuple(side and side[1] for side in pair) for pair in handle.result()]
        assert made_of(names) == made_of([pair for _, (_, pair) in oracle.rows])


def test_late_rows_of_both_sides_can_be_read() -> None:
    """With their keys and times; there is no row that is lost without a trace."""
    flow = ms.Flow("late")
    window = tumbling(20)
    joined = timed(flow, "left").window_join(timed(flow, "right"), window)
    pairs, late = joined.collect(), joined.late().collect()
    flow.run(on="local", workers=3)

    spans = [(start, start + 20) for start in range(-200, 600, 20)]
    expected = window_oracle(How.INNER, spans, came())
    assert sorted(row.value for row in late.result()) == sorted(expected.late)
    found = [pair for _, pair in pairs.result()]
    assert made_of(found) == made_of([pair for _, (_, pair) in expected.rows])
    times = {
        name: (key, time) for s in ("left", "right") for key, time, name in readings(s)
    }
    assert all((r.key, r.timestamp) == times[r.value] for r in late.result())


def test_joins_follow_each_other_in_time() -> None:
    """What one join makes is on time for the next one and for windows behind it."""
    flow = ms.Flow("chained")
    orders = flow.from_iterable([("a", 10), ("b", 20), ("c", 30)], name="orders")
    paid = flow.from_iterable([("a", 12), ("c", 90)], name="paid")
    sent = flow.from_iterable([("a", 40), ("b", 41)], name="sent")
    by_key = [
        each.event_time(lambda row: row[1]).key_by(lambda row: row[0])
        for each in (orders, paid, sent)
    ]
    both = by_key[0].interval_join(by_key[1], 0, 5, how="left")
    all_three = both.interval_join(by_key[2], 0, 30, how="left")
    counts = all_three.window(tumbling(1000)).count().collect()
    rows = all_three.collect()
    flow.run(on="local", workers=2)

    assert sorted(rows.result(), key=str) == [
        ("a", ((("a", 10), ("a", 12)), ("a", 40))),
        ("b", ((("b", 20), None), ("b", 41))),
        ("c", ((("c", 30), None), None)),
    ]
    assert sorted(counts.result()) == [("a", 1), ("b", 1), ("c", 1)]


def test_stream_can_be_joined_with_itself() -> None:
    """Both sides are then the same rows."""
    flow = ms.Flow("itself")
    rows = flow.from_iterable(range(6)).key_by(lambda i: i % 3)
    pairs = rows.join(rows).collect()
    flow.run(on="local", workers=2)

    expected = [(k, (i, j)) for k in range(3) for i in (k, k + 3) for j in (k, k + 3)]
    assert sorted(pairs.result()) == sorted(expected)


def test_table_that_has_always_been_there_keeps_the_time_of_the_stream() -> None:
    """A constant timestamp holds time back until the table is there."""
    flow = ms.Flow("always")
    names = flow.from_iterable([(k, f"name{k}") for k in range(KEYS)], name="names")
    table = names.event_time(lambda _: -(10**9)).key_by(lambda row: row[0])
    joined = timed(flow, "left").join_table(table.map(lambda row: row[1]))
    in_order = joined.drop_key().in_time_order().collect()
    flow.run(on="local", workers=3)

    on_time = [row for row in came()[0] if row.time > row.promise]
    expected = [(row.value, f"name{row.key}") for row in on_time]
    assert made_of(in_order.result()) == made_of(expected)


def test_time_of_one_side_alone_is_dropped() -> None:
    """A regular join does not care, and its result has no time either."""
    flow = ms.Flow("half-timed")
    joined = timed(flow, "left").join(untimed(flow, "right"), how="semi")
    rows = joined.collect()
    flow.run(on="local", workers=2)

    keys = {key for key, _, _ in readings("right")}
    expected = [(key, name) for key, _, name in readings("left") if key in keys]
    assert sorted(rows.result()) == sorted(expected)


def test_rows_expire_by_a_clock_that_is_set_by_hand() -> None:
    """The left row waits an hour for a partner, and then comes alone."""
    flow = ms.Flow("expiring")
    script = [("a", 1), *(Pause(),) * 5, ("b", 2), ("a", 3)]
    left = flow.read(ScriptedSource(script), name="left").key_by(lambda row: row[0])
    right = flow.from_iterable([("b", 4)], name="right").key_by(lambda row: row[0])
    joined = left.join(right, how="left", ttl="1h").collect()
    with manual_time():
        flow.run(source_idle_ms=45 * 60_000)

    assert sorted(joined.result(), key=str) == [
        ("a", (("a", 1), None)),
        ("a", (("a", 3), None)),
        ("b", (("b", 2), None)),
    ]
