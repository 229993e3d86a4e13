"""Joins of frames in whole flows: any width, from any snapshot, and in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.simulation.frame_join_flows import FRAME_JOIN_CASES, SCHEMA, timed, untimed
from tests.simulation.join_flows import DISORDER, came
from tests.support.examples import mostly_slow
from tests.support.joining import asof_oracle, window_oracle
from tests.support.resizing import run_at_two_widths
from tests.system.test_joins import slowly

import millstream as ms
from millstream.plan.joins import Direction, How
from millstream.testing import Pause, ScriptedSource, manual_time, simulate
from millstream.windows import sliding, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.flows import Case


@pytest.mark.parametrize("workers", mostly_slow(3, 1, 2, 7))
@pytest.mark.parametrize("make", FRAME_JOIN_CASES, ids=lambda make: make.__name__)
def test_join_of_frames_is_the_same_at_any_width(
    make: Callable[[], Case], workers: int
) -> None:
    """Who is quick decides nothing, not even who is late."""
    case = make()
    simulate(case.flow, seeds=2, workers=workers, faults="none", check=case.check)


@pytest.mark.parametrize("widths", mostly_slow((2, 3), (3, 1)))
def test_joins_of_frames_go_on_from_a_savepoint_at_another_width(
    widths: tuple[int, int], tmp_path: Path
) -> None:
    """Rows that wait move with their keys."""
    flow = ms.Flow("moving")
    left, right = (
        flow.read(slowly(side), name=side)
        .event_time(lambda row: row[1], out_of_order=DISORDER)
        .map(lambda row: dict(zip(SCHEMA, row, strict=True)))
        .to_frame(SCHEMA)
        for side in ("left", "right")
    )
    windows = left.window_join(right, sliding(40, 15, offset=-5), on="key")
    nearest = left.asof_join(
        right, on="key", direction="nearest", tolerance=40, how="left"
    )
    found = windows.collect(), nearest.collect()
    run_at_two_widths(flow, widths, tmp_path)

    starts = range(-5 - 15 * 20, 600, 15)
    bounds = [(start, start + 40) for start in starts]
    for rows, expected in (
        (found[0], window_oracle(How.INNER, bounds, came())),
        (found[1], asof_oracle(How.LEFT, Direction.NEAREST, 40, came())),
    ):
        names = rows.result().select("name", "name_right").rows()
        pairs = [value for _, (_, value) in expected.rows]
        assert sorted(map(str, names)) == sorted(map(str, pairs))


def test_result_of_a_join_is_cut_into_windows_by_the_larger_time() -> None:
    """A pair lies where the later of its rows does, and nothing is late."""
    flow = ms.Flow("counted-pairs")
    pairs = timed(flow, "left").interval_join(timed(flow, "right"), -9, 9, on="key")
    counts = pairs.group_by("key").window(tumbling(50)).agg(n=pl.len())
    found, late = counts.collect(), counts.late().collect()
    all_pairs = pairs.collect()
    flow.run(on="local", workers=2)
    assert found.result()["n"].sum() + late.result().height == all_pairs.result().height
    assert found.result()["n"].sum() > 0


def test_names_of_both_sides_are_kept_apart() -> None:
    """Keys have the name of the left side, other columns a suffix where they must."""
    flow = ms.Flow("names")
    left = flow.from_frame(pl.DataFrame({"x": [1, 2], "k": [7, 8]}))
    right = flow.from_frame(pl.DataFrame({"id": [7, 9], "k": [3, 4], "x": [5, 6]}))
    joined = left.keyed_join(right, left_on="k", right_on="id", how="full", suffix=".r")
    rows = joined.collect()
    flow.run(on="local")
    assert joined.schema == rows.result().schema
    assert rows.result().columns == ["x", "k", "k.r", "x.r"]
    expected = [(1, 7, 3, 5), (2, 8, None, None), (None, 9, 4, 6)]
    assert sorted(rows.result().rows(), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("nulls_equal", [False, True])
def test_null_equals_null_only_if_asked(*, nulls_equal: bool) -> None:
    """A row whose key is null is alone, unless the user says otherwise."""
    flow = ms.Flow("nulls")
    left = flow.from_frame(pl.DataFrame({"k": [None, 1], "x": [1, 2]}))
    right = flow.from_frame(pl.DataFrame({"k": [None, 1], "y": [3, 4]}))
    rows = left.keyed_join(right, "k", nulls_equal=nulls_equal).collect()
    flow.run(on="local", workers=2)
    expected: list[Any] = [(1, 2, 4)]
    expected += [(None, 1, 3)] if nulls_equal else []
    assert sorted(rows.result().rows(), key=str) == sorted(expected, key=str)


def test_join_of_frames_that_may_never_end_says_so() -> None:
    """What only grows is said while the flow is built, and in explain."""
    flow = ms.Flow("endless")
    endless = flow.from_iterable(lambda: iter(int, 1), name="zeros")
    zeros = endless.map(lambda i: {"k": i}).to_frame({"k": pl.Int64})
    with pytest.warns(ms.UnboundedStateWarning, match="`keyed_join` at"):
        joined = zeros.keyed_join(zeros, "k")
    joined.limit(1).collect()
    assert (
        "keyed_join (inner, keeps all rows, and they may never end)" in flow.explain()
    )


def test_outer_join_without_time_has_no_time() -> None:
    """Nobody knows when a row turns out to be alone."""
    flow = ms.Flow("untimed")
    left, right = timed(flow, "left"), untimed(flow, "right")
    inner = left.keyed_join(timed(flow, "again"), "key")
    assert flow.plan.nodes[-1].makes_times
    assert inner.schema.names() == ["key", "name", "name_right"]
    left.keyed_join(right, "key", how="left")
    assert not flow.plan.nodes[-1].makes_times


@pytest.mark.parametrize("workers", [1, 3])
def test_side_from_outside_a_loop_stays_for_all_rounds(workers: int) -> None:
    """Every round walks one step along edges that came once."""
    flow = ms.Flow("walks")
    edges = flow.from_frame(pl.DataFrame({"a": [0, 1, 2, 3], "b": [1, 2, 3, 0]}))
    places = flow.from_frame(pl.DataFrame({"a": [0, 2]}))

    def step(places: ms.Frame) -> ms.Frame:
        return places.keyed_join(edges, "a").select(pl.col("b").alias("a"))

    rows = places.iterate(step, max_rounds=3).collect()
    flow.run(on="local", workers=workers)
    assert sorted(rows.result()["a"]) == [1, 3]


def test_join_in_time_refuses_a_side_from_outside_a_loop() -> None:
    """Its rows would be dropped after the first round."""
    flow = ms.Flow("walks")
    edges = flow.from_frame(pl.DataFrame({"a": [0]})).event_time("a")
    places = flow.from_frame(pl.DataFrame({"a": [0]}))

    def step(places: ms.Frame) -> ms.Frame:
        return places.event_time("a").interval_join(edges, 0, 1, on="a")

    places.iterate(step, max_rounds=3).collect()
    with pytest.raises(ms.UsageError, match="time begins anew with every round"):
        flow.run(on="local")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_window_join_by_the_clock_pairs_what_comes_in_the_same_window(
    workers: int,
) -> None:
    """Two of the clock's windows: each right row meets the left one before the pause."""
    pause = [Pause(), Pause()]
    sides = [("a", 1), *pause, ("a", 2)], [("a", 10), *pause, ("b", 20)]
    flow = ms.Flow("clock")
    left, right = (
        flow.read(ScriptedSource(script), name=name)
        .map(lambda row: {"id": row[0], "n": row[1]})
        .to_frame({"id": pl.String, "n": pl.Int64})
        for name, script in zip(("left", "right"), sides, strict=True)
    )
    window = tumbling("1s", time="processing")
    joined = left.window_join(right, window, on="id", how="full")
    rows = joined.collect()
    with manual_time():
        flow.run(workers=workers, source_idle_ms=5_000)

    expected = [("a", 1, 10), ("a", 2, None), ("b", None, 20)]
    assert sorted(rows.result().rows(), key=str) == sorted(expected, key=str)
    with pytest.raises(ms.UsageError, match="have no timestamps"):
        joined.window(tumbling(10))
