"""A side from outside a loop is joined in every round: any join, width and snapshot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest
from tests.simulation.loop_join_flows import (
    HOW,
    LOOP_JOIN_CASES,
    ROADS,
    START,
    TABLE_HOW,
    last_roads,
    looked_up,
    walked,
    walks,
)
from tests.spark.driving import eventually
from tests.support.examples import mostly_slow
from tests.support.resizing import EPOCHS, run_at_two_widths

import millstream as ms
from millstream.testing import Pause, ScriptedSource, simulate
from millstream.windows import tumbling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.flows import Case

Row = tuple[int, int]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", HOW)
def test_join_in_rounds_is_that_of_plain_python(how: str, workers: int) -> None:
    """Rows without a partner come out in the round in which they had none."""
    flow = ms.Flow("walks")
    found = walks(flow, how).collect()
    flow.run(on="local", workers=workers)

    assert sorted(found.result()) == walked(how, START, ROADS)


@pytest.mark.parametrize("is_broadcast", [False, True])
@pytest.mark.parametrize("how", TABLE_HOW)
def test_table_in_rounds_is_that_of_plain_python(how: str, is_broadcast: bool) -> None:  # noqa: FBT001 - a parameter
    """Rows of the first round wait for the table; later ones find it."""
    flow = ms.Flow("tables")
    found = looked_up(flow, how, is_broadcast=is_broadcast).collect()
    flow.run(on="local", workers=2)

    expected = walked(how, START, list(last_roads().items()))
    assert sorted(found.result()) == expected


@pytest.mark.parametrize("make", LOOP_JOIN_CASES, ids=lambda make: make.__name__)
def test_rounds_with_a_side_are_the_same_at_any_speed(make: Callable[[], Case]) -> None:
    """Who is quick decides nothing: the side or the rows of the first round."""
    case = make()
    simulate(case.flow, seeds=4, workers=3, faults="none", check=case.check)


may_never_end = pytest.mark.filterwarnings(
    "ignore::millstream.errors.UnboundedStateWarning"
)
"""Of a scripted source it is not known that it ends."""


PAUSES = (Pause(),) * 6


def slow(rows: list[Any], pauses: tuple[Pause, ...] = PAUSES) -> ScriptedSource:
    """Return a source that pauses after every row, for long enough to be stopped."""
    return ScriptedSource([each for row in rows for each in (row, *pauses)])


def steps(
    flow: ms.Flow,
    side: list[Row],
    start: list[Row],
    kind: str,
    pauses: tuple[Pause, ...] = PAUSES,
) -> ms.ResultHandle[list[Row]]:
    """Add what a slow side says to the rows of every round."""
    table = flow.read(slow(side)).key_by(lambda row: row[0])
    values = table.map(lambda row: row[1])

    def body(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        if kind == "join_broadcast":
            found = rows.join_broadcast(values, lambda row: row[0], how="left")
            return found.map(lambda pair: (pair[0][0], pair[0][1] + (pair[1] or 1)))
        keyed = rows.key_by(lambda row: row[0]).map(lambda row: row[1])
        join = keyed.join if kind == "join" else keyed.join_table
        summed = join(values, how="left").map(lambda pair: pair[0] + (pair[1] or 1))
        return summed.unkey()

    return flow.read(slow(start, pauses)).iterate(body, max_rounds=3).collect()


KINDS = ("join", "join_table", "join_broadcast")


@may_never_end
@pytest.mark.parametrize(
    ("backend", "widths"),
    [
        ("memory", (2, 3)),
        pytest.param("memory", (3, 1), marks=pytest.mark.slow),
        pytest.param("rocksdb", (2, 1), marks=pytest.mark.slow),
    ],
)
def test_side_goes_on_from_a_savepoint_at_another_width(
    backend: Literal["memory", "rocksdb"], widths: tuple[int, int], tmp_path: Path
) -> None:
    """Half of the side has come, and rows of the first round wait for the rest."""
    flow = ms.Flow("moving")
    side, start = [(k, 10 * k) for k in range(12)], [(k, 1) for k in range(0, 15, 2)]
    found = [steps(flow, side, start, kind) for kind in KINDS]
    run_at_two_widths(flow, widths, tmp_path, state_backend=backend)

    expected = [(k, 1 + 3 * (10 * k if 0 < k < 12 else 1)) for k, _ in start]
    assert [sorted(each.result()) for each in found] == [expected] * 3


@may_never_end
@pytest.mark.parametrize("widths", mostly_slow((2, 2), (2, 3), (3, 1)))
def test_snapshots_go_on_while_only_a_side_still_comes(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """All rows that go round are there, and the job is stopped in the middle of the side."""
    flow = ms.Flow("late")
    side, start = [(k, 10 * k) for k in range(12)], [(k, 1) for k in range(0, 15, 2)]
    found = [steps(flow, side, start, kind, pauses=()) for kind in KINDS]
    run_at_two_widths(flow, widths, tmp_path)

    expected = [(k, 1 + 3 * (10 * k if 0 < k < 12 else 1)) for k, _ in start]
    assert [sorted(each.result()) for each in found] == [expected] * 3


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_side_may_get_its_key_inside_the_body(
    kind: str, workers: int, *, is_inside: bool
) -> None:
    """Whether a body takes the side with its key or gives it one, it is in every round."""
    flow = ms.Flow("inside")
    side = flow.from_iterable(range(0, 5, 2), name="side")
    table = None if is_inside else side.key_by(lambda x: x)

    def body(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        known = table or side.key_by(lambda x: x)
        if kind == "join_broadcast":
            found = rows.join_broadcast(known, lambda row: row[0])
        else:
            keyed = rows.key_by(lambda row: row[0])
            join = keyed.join if kind == "join" else keyed.join_table
            found = join(known).drop_key()
        return found.map(lambda pair: (pair[0][0], pair[0][1] + pair[1] + 1))

    start = [(x, x) for x in range(5)]
    rows = flow.from_iterable(start, name="rows").iterate(body, max_rounds=5).collect()
    flow.run(on="local", workers=workers)

    expected = start
    for _ in range(5):
        expected = [(x, y + x + 1) for x, y in expected if x in range(0, 5, 2)]
    assert sorted(rows.result()) == expected


@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_side_that_has_come_moves_with_later_rounds(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """Its source has long ended, and every new task has its part of the side."""
    gate, flow = tmp_path / "gate", ms.Flow("rounds")
    side = flow.from_iterable(range(12)).key_by(lambda i: i)

    def body(rows: ms.Stream[Row]) -> ms.Stream[Row]:
        keyed = rows.key_by(lambda row: row[0]).map(lambda row: row[1])
        added = keyed.join(side).map(sum).join_table(side).map(sum).unkey()
        whole = added.shuffle().join_broadcast(side, lambda row: row[0])
        return whole.map(lambda pair: (pair[0][0], pair[0][1] + pair[1]))

    rows = flow.from_iterable([(i, 0) for i in range(12)]).iterate(
        body, reduce=min, until=lambda _: gate.exists()
    )
    found = rows.collect()
    job = flow.start(
        on="local", workers=widths[0], state=tmp_path / "state", snapshot_every="20ms"
    )
    eventually(lambda: job.epoch >= EPOCHS)
    job.savepoint(tmp_path / "savepoint")
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()
    gate.touch()
    flow.run(on="local", workers=widths[1], resume_from=tmp_path / "savepoint")

    values = dict(found.result())
    assert values[1] > 0
    assert values == {i: i * values[1] for i in range(12)}
    assert values[1] % 3 == 0, "every join was in every round"


@may_never_end
@pytest.mark.parametrize("kind", KINDS)
def test_either_side_may_be_empty(kind: str) -> None:
    """No side: rows go round alone.  No rows: no round, and the job ends."""
    flow = ms.Flow("empty")
    no_side = steps(flow, [], [(1, 1)], kind)
    no_rows = steps(flow, [(1, 1)], [], kind)
    flow.run(on="local", workers=2, source_idle_ms=1)

    assert no_side.result() == [(1, 4)]
    assert no_rows.result() == []


def test_side_is_kept_for_the_rounds_of_an_inner_loop() -> None:
    """It came once, for the rounds of both."""
    flow = ms.Flow("nested")
    side = flow.from_iterable([("a", 1), ("b", 2)], name="side").key_by(lambda r: r[0])
    values = side.map(lambda row: row[1])

    def inner(rows: Any) -> Any:
        keyed = rows.key_by(lambda row: row[0]).map(lambda row: row[1])
        return keyed.join(values).map(sum).unkey()

    start = flow.from_iterable([("a", 1), ("b", 2)])
    found = start.iterate(lambda rows: rows.iterate(inner, max_rounds=2), max_rounds=3)
    rows = found.collect()
    flow.run(on="local", workers=2)

    assert sorted(rows.result()) == [("a", 7), ("b", 14)]


def _keyed(rows: Any) -> Any:
    return rows.key_by(lambda row: row)


def _of_the_outer_round(flow: ms.Flow) -> Any:
    def outer(rows: Any) -> Any:
        side = _keyed(rows)
        return rows.iterate(
            lambda inner: _keyed(inner).join(side).drop_key().map(sum), max_rounds=2
        )

    return flow.from_iterable([1]).iterate(outer, max_rounds=2)


def _frame_of_the_outer_round(flow: ms.Flow) -> Any:
    def outer(frame: ms.Frame) -> ms.Frame:
        side = frame.select("a", b=pl.col("a"))
        return frame.iterate(
            lambda inner: inner.join(side, "a").select("a"), max_rounds=2
        )

    frame = flow.from_frame(pl.DataFrame({"a": [1]}))
    return frame.iterate(outer, max_rounds=2).to_rows()


def _outside_on_the_left(flow: ms.Flow, how: Any) -> Any:
    side = _keyed(flow.from_iterable([1], name="side"))
    return flow.from_iterable([1]).iterate(
        lambda rows: side.join(_keyed(rows), how=how).drop_key(), max_rounds=2
    )


def _in_time(flow: ms.Flow) -> Any:
    side = _keyed(flow.from_iterable([1], name="side").event_time(lambda row: row))
    start = flow.from_iterable([1])
    return start.iterate(
        lambda rows: (
            _keyed(rows.event_time(lambda row: row))
            .window_join(side, tumbling(10))
            .drop_key()
        ),
        max_rounds=2,
    )


def _merged(flow: ms.Flow) -> Any:
    side = flow.from_iterable([1], name="side")
    return flow.from_iterable([1]).iterate(lambda rows: rows.merge(side), max_rounds=2)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_of_the_outer_round, "begins anew in each of its rounds; let this side come"),
        (_frame_of_the_outer_round, "begins anew in each of its rounds; let this side"),
        (
            partial(_outside_on_the_left, how="semi"),
            "how='semi' is done with left rows",
        ),
        (_in_time, "time begins anew with every round, so that its rows would be gone"),
        (_merged, "its rows would be in the first round only, so join it"),
    ],
)
def test_side_that_cannot_be_in_every_round_is_refused(
    make: Callable[[ms.Flow], Any], why: str
) -> None:
    """One sentence that says why and what to do, before anything runs."""
    flow = ms.Flow("refused")
    make(flow).collect()

    with pytest.raises(ms.UsageError, match=why):
        flow.run(on="local")


def test_left_side_may_be_the_one_from_outside() -> None:
    """Where pairs are made, both sides are alike."""
    flow = ms.Flow("left")
    found = _outside_on_the_left(flow, "left").map(str).collect()
    flow.run(on="local", workers=2)

    assert found.result() == ["(1, None)"]
