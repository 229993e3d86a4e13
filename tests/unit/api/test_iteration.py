"""Iterations and loops at their edges: nothing to do, too much to do, and mistakes.

What they compute for any rows is in ``tests/property/test_iteration_properties.py``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.launch.job import Job
    from millstream.protocol.metrics import RoundMetrics

    Numbers = ms.Stream[int]

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])
ON = pytest.mark.parametrize(
    "on", ["local", pytest.param("processes", marks=pytest.mark.slow)]
)


def doubled(rows: Numbers) -> Numbers:
    return rows.map(lambda i: i * 2)


def unchanged(rows: Numbers) -> Numbers:
    return rows


def dropped(rows: Numbers) -> Numbers:
    return rows.filter(lambda _: False)


def added(one: int, other: int) -> int:
    return one + other


def boom(*_: object) -> Any:
    msg = "no luck"
    raise ValueError(msg)


def rounds_of(job: Job) -> RoundMetrics:
    (rounds,) = [stage.rounds for stage in job.metrics() if stage.rounds is not None]
    return rounds


# Edges


@WORKERS
@pytest.mark.parametrize("rows", [[], [5]], ids=["no rows", "one row"])
@pytest.mark.parametrize("max_rounds", [0, 1, 3])
def test_few_rows_go_round_like_many(
    rows: list[int], max_rounds: int, workers: int
) -> None:
    """Also where most workers have nothing, and where there is no round at all."""
    flow = ms.Flow("few")
    found = flow.from_iterable(rows).iterate(doubled, max_rounds=max_rounds).collect()

    flow.run(on="local", workers=workers)

    assert found.result() == [i * 2**max_rounds for i in rows]


@WORKERS
def test_a_body_that_drops_everything_ends_the_iteration(workers: int) -> None:
    """Without rows no round can change anything, whatever `until` says."""
    flow = ms.Flow("dropped")
    rows = flow.from_iterable(range(10)).iterate(
        dropped, reduce=added, until=lambda _: False
    )
    found = rows.collect()

    job = flow.run(on="local", workers=workers)

    assert found.result() == []
    assert rounds_of(job).done == 1


@WORKERS
def test_a_condition_that_is_true_at_once_is_asked_after_the_first_round(
    workers: int,
) -> None:
    """It judges what a round made, so there is one."""
    flow = ms.Flow("at-once")
    rows = flow.from_iterable([1, 2, 3]).iterate(
        doubled, reduce=added, until=lambda _: True, max_rounds=9
    )
    found = rows.collect()

    job = flow.run(on="local", workers=workers)

    assert sorted(found.result()) == [2, 4, 6]
    assert rounds_of(job).history == (12.0,)


@WORKERS
def test_a_body_may_return_what_it_got(workers: int) -> None:
    """The rows then only go round."""
    flow = ms.Flow("identity")
    found = flow.from_iterable(range(20)).iterate(unchanged, max_rounds=4).collect()

    flow.run(on="local", workers=workers)

    assert sorted(found.result()) == list(range(20))


def test_a_cycle_without_rounds_gives_its_first_state() -> None:
    """And calls neither the body nor `update`."""
    flow = ms.Flow("no-rounds")
    found = (
        flow.from_iterable([1])
        .cycle(7, lambda rows, _: rows.map(boom), update=boom, max_rounds=0)
        .collect()
    )

    flow.run(on="local", workers=2)

    assert found.result() == [7]


def test_update_is_called_where_a_round_made_nothing() -> None:
    """A model may change all the same, such as by giving up."""
    flow = ms.Flow("nothing")
    found = (
        flow.from_iterable(range(5))
        .cycle(
            0,
            lambda rows, _: dropped(rows),
            update=lambda state, rows: state + len(rows) + 1,
            max_rounds=3,
        )
        .collect()
    )

    flow.run(on="local", workers=2)

    assert found.result() == [3]


def test_a_flow_with_iterations_can_run_twice() -> None:
    """The second run begins with the first state, not with the last one."""
    flow = ms.Flow("twice")
    found = (
        flow.from_iterable([1, 2])
        .cycle(
            1,
            lambda rows, state: rows.map(lambda i: i * state.value),
            update=lambda state, rows: state + sum(rows),
            max_rounds=3,
        )
        .collect()
    )

    flow.run(on="local", workers=2)
    first = found.result()
    flow.run(on="local")

    assert first == found.result() == [64]


# Kinds of state and rows


def test_the_state_of_a_cycle_may_be_an_array() -> None:
    """Compared by a function of its own, since arrays have no one truth."""
    flow = ms.Flow("array")
    points = np.array([[0.0, 1.0], [2.0, 3.0], [10.0, 11.0]])
    found = (
        flow.from_iterable(list(points))
        .cycle(
            np.zeros(2),
            lambda rows, middle: rows.map(lambda point: point - middle.value),
            update=lambda middle, rows: middle + np.mean(rows, axis=0),
            until=lambda middle: bool(np.allclose(middle, points.mean(axis=0))),
            max_rounds=10,
            show=lambda middle: float(middle.sum()),
        )
        .collect()
    )

    job = flow.run(on="local", workers=2)

    np.testing.assert_allclose(found.result()[0], points.mean(axis=0))
    assert rounds_of(job).history == pytest.approx((9.0,))


@WORKERS
def test_rows_and_frames_give_the_same(workers: int) -> None:
    """`iterate`, `cycle` and `delta_iterate`, side by side in one flow."""
    flow = ms.Flow("both")
    start = list(range(1, 8))
    rows = flow.from_iterable(start)
    frame = flow.from_frame(pl.DataFrame({"k": [i % 3 for i in start], "x": start}))

    by_row = rows.iterate(doubled, reduce=added, until=lambda n: n > 99).collect()
    by_frame = frame.iterate(
        lambda some: some.with_columns(pl.col("x") * 2),
        reduce=lambda some: some.select(pl.col("x").sum()),
        until=lambda total: total["x"][0] > 99,
    ).collect()
    state_by_row = rows.cycle(
        0, lambda some, _: some, lambda n, made: n + sum(made), max_rounds=3
    ).collect()
    state_by_frame = frame.cycle(
        0, lambda some, _: some, lambda n, made: n + int(made["x"].sum()), max_rounds=3
    ).collect()
    least_by_row = (
        rows.key_by(lambda i: i % 3)
        .delta_iterate(
            lambda known, new: new if known is None or new < known else None,
            lambda new: new.map(lambda i: max(i - 2, 0)),
        )
        .collect()
    )
    less = pl.max_horizontal(pl.col("x") - 2, 0)
    least_by_frame = frame.delta_iterate(
        "k", pl.col("x").min(), lambda new: new.with_columns(x=less)
    ).collect()

    flow.run(on="local", workers=workers)

    assert sorted(by_row.result()) == sorted(by_frame.result()["x"])
    assert state_by_row.result() == state_by_frame.result() == [84]
    expected = [(0, 0), (1, 0), (2, 0)]
    assert sorted(least_by_row.result()) == expected
    assert sorted(least_by_frame.result().rows()) == expected


def test_columns_of_a_solution_stay_in_order() -> None:
    """Keys need not come first, neither in the body nor in the result."""
    flow = ms.Flow("order")
    start = flow.from_frame(pl.DataFrame({"km": [3, 1], "place": ["a", "a"]}))
    seen = start.delta_iterate(
        "place",
        pl.col("km").min(),
        lambda new: new.map_batches(lambda rows: rows).select("place", "km"),
    ).collect()

    flow.run(on="local", workers=2)

    assert seen.result().rows(named=True) == [{"km": 1, "place": "a"}]
    assert seen.result().columns == ["km", "place"]


# Several of them, and what follows


@WORKERS
def test_iterations_may_follow_one_another(workers: int) -> None:
    """The second begins when the first is over."""
    flow = ms.Flow("sequence")
    found = (
        flow.from_iterable([1, 2, 3])
        .iterate(doubled, max_rounds=2)
        .iterate(lambda rows: rows.map(lambda i: i + 1), max_rounds=3)
        .cycle(0, lambda rows, _: rows, lambda n, rows: n + sum(rows), max_rounds=2)
        .collect()
    )

    flow.run(on="local", workers=workers)

    assert found.result() == [2 * sum(4 * i + 3 for i in [1, 2, 3])]


def test_the_result_of_an_iteration_may_be_written(tmp_path: Path) -> None:
    """All workers write what they hold; nothing of former rounds is there."""
    flow = ms.Flow("written")
    rows = flow.from_iterable(range(50)).iterate(doubled, max_rounds=3)
    rows.map(str).write_text(tmp_path / "out")

    flow.run(on="local", workers=2)

    files = sorted((tmp_path / "out").glob("*.txt"))
    lines = [int(line) for file in files for line in file.read_text().split()]
    assert sorted(lines) == [i * 8 for i in range(50)]


@WORKERS
def test_dead_letters_come_out_of_a_round(workers: int) -> None:
    """In whichever round a function raises, the rows beside go on."""

    def next_number(i: int) -> int:
        return boom() if i == 5 else i + 1

    flow = ms.Flow("letters")
    rows = flow.from_iterable(range(10)).iterate(
        lambda rows: rows.map(next_number), max_rounds=3
    )
    found = rows.collect()
    letters = flow.dead_letters(max_dead_letters=3).collect()

    flow.run(on="local", workers=workers)

    assert sorted(found.result()) == [3, 4, 5, 9, 10, 11, 12]
    assert [letter.record for letter in letters.result()] == [5, 5, 5]


def test_dead_letters_come_out_of_a_free_loop() -> None:
    """What made a function raise goes round no more."""

    def lower(i: int) -> int:
        return boom() if i == 2 else i - 1

    def body(rows: Numbers) -> tuple[Numbers, Numbers]:
        less = rows.map(lower)
        return less.filter(lambda i: i > 0), less.filter(lambda i: i <= 0)

    flow = ms.Flow("letters")
    out = flow.from_iterable([1, 4, 6]).loop(body).collect()
    letters = flow.dead_letters(max_dead_letters=3).collect()

    flow.run(on="local", workers=2)

    assert out.result() == [0]
    assert [letter.record for letter in letters.result()] == [2, 2]


# What people see


@pytest.mark.parametrize("number", [int, float, np.int64, np.float32])
def test_metrics_of_a_finished_job_have_its_rounds(number: type[Any]) -> None:
    """How many there were, and what each was decided by; none is under way."""
    flow = ms.Flow("metrics")
    rows = flow.from_iterable([number(1), number(2)])
    rows.iterate(doubled, reduce=added, max_rounds=3).collect()

    rounds = rounds_of(flow.run(on="local", workers=2))

    assert (rounds.round, rounds.done, rounds.history) == (0, 3, (6.0, 12.0, 24.0))


def test_metrics_show_what_show_makes_of_a_state() -> None:
    """A state that is no number is shown as its type otherwise."""

    def history(show: Callable[[dict[str, int]], float] | None) -> tuple[Any, ...]:
        flow = ms.Flow("shown")
        flow.from_iterable([1, 2]).cycle(
            {"total": 0},
            lambda rows, _: rows,
            lambda state, rows: {"total": state["total"] + sum(rows)},
            max_rounds=2,
            show=show,
        ).collect()
        return rounds_of(flow.run(on="local")).history

    assert history(None) == ("dict", "dict")
    assert history(lambda state: state["total"]) == (3.0, 6.0)


# Mistakes that only a run can find


def until_raises(flow: ms.Flow) -> None:
    flow.from_iterable([1]).iterate(doubled, reduce=added, until=boom).collect()


def until_of_a_state_raises(flow: ms.Flow) -> None:
    flow.from_iterable([1]).cycle(
        0, lambda rows, _: rows, lambda state, _: state, until=boom
    ).collect()


def update_raises(flow: ms.Flow) -> None:
    flow.from_iterable([1]).cycle(
        0, lambda rows, _: rows, update=boom, max_rounds=2
    ).collect()


def reduce_raises(flow: ms.Flow) -> None:
    flow.from_iterable(range(9)).iterate(doubled, reduce=boom, max_rounds=2).collect()


def reduce_of_a_frame_raises(flow: ms.Flow) -> None:
    flow.from_frame(pl.DataFrame({"x": [1]})).iterate(
        lambda rows: rows, reduce=boom, max_rounds=2
    ).collect()


def improve_raises(flow: ms.Flow) -> None:
    keyed = flow.from_iterable([1]).key_by(abs)
    keyed.delta_iterate(boom, lambda new: new).collect()


def show_raises(flow: ms.Flow) -> None:
    flow.from_iterable([1]).iterate(
        doubled, reduce=added, show=boom, max_rounds=2
    ).collect()


@ON
@pytest.mark.parametrize(
    ("build", "verb"),
    [
        (until_raises, "iterate"),
        (until_of_a_state_raises, "cycle"),
        (update_raises, "cycle"),
        (reduce_raises, "iterate"),
        (reduce_of_a_frame_raises, "iterate"),
        (improve_raises, "delta_iterate"),
        (show_raises, "iterate"),
    ],
)
def test_a_function_that_raises_is_named_with_its_line(
    build: Callable[[ms.Flow], None], verb: str, on: Literal["local", "processes"]
) -> None:
    """The operator, where it was written, what was raised, and where."""
    flow = ms.Flow("raises")
    build(flow)

    with pytest.raises(ms.OperatorError) as raised:
        flow.run(on=on, workers=2)

    error = raised.value
    text = str(error)
    assert text.startswith(f"{verb} at test_iteration.py:")
    assert "raised ValueError: no luck; " in text
    assert text.endswith(": raise ValueError(msg)")
    assert "\n" not in text
    assert error.operator == verb
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda flow: flow.from_iterable([1]).cycle(
                0, lambda rows, _: rows, lambda *_: None, max_rounds=2
            ),
            "update returned None; it must return the state of the next round",
        ),
        (
            lambda flow: flow.from_frame(pl.DataFrame({"x": [1.5]})).iterate(
                lambda rows: rows, reduce=lambda rows: rows["x"].max(), max_rounds=2
            ),
            r"reduce must return a data frame, such as .*, but returned 1\.5",
        ),
        (
            lambda flow: flow.from_frame(pl.DataFrame({"x": [1.5]})).cycle(
                0,
                lambda rows, _: rows.map_batches(
                    lambda batch: batch.select(y="x"), schema={"x": pl.Float64}
                ),
                lambda state, _: state,
                max_rounds=2,
            ),
            r"returned columns {'y': Float64}, but {'x': Float64} were announced",
        ),
    ],
    ids=["update returns nothing", "reduce returns a number", "other columns"],
)
def test_a_function_that_returns_something_else_is_told_what_to_return(
    build: Callable[[ms.Flow], Any], sentence: str
) -> None:
    """And not found out about rounds later, in another function."""
    flow = ms.Flow("returns")
    build(flow).collect()

    with pytest.raises(ms.OperatorError, match=sentence):
        flow.run(on="local", workers=2)


@pytest.mark.slow
def test_a_state_that_cannot_travel_names_the_cycle() -> None:
    """The first one is checked before; a later one only `update` knows."""
    flow = ms.Flow("lock")
    flow.from_iterable([1]).cycle(
        None, lambda rows, _: rows, lambda *_: threading.Lock(), max_rounds=2
    ).collect()

    with pytest.raises(ms.OperatorError, match=r"cycle at .* cannot pickle") as raised:
        flow.run(on="processes", workers=2)

    assert raised.value.operator == "cycle"


def test_an_error_in_the_body_of_an_iteration_is_the_user_s_own() -> None:
    """It is Python that runs the body, while the flow is built."""
    flow = ms.Flow("body")

    with pytest.raises(ValueError, match="no luck"):
        flow.from_iterable([1]).iterate(boom, max_rounds=2)


EMPTY_ROUNDS: dict[str, Callable[[ms.Frame], ms.Frame]] = {
    "the body leaves all out": lambda rows: rows.filter(pl.col("v") > 10),
    "the body computes": lambda rows: rows.filter(pl.lit(value=False)).select(v="v"),
    "the body maps": lambda rows: rows.filter(pl.col("v") > 10).map_batches(
        lambda batch: batch, schema={"v": pl.Int64}
    ),
}


@pytest.mark.parametrize("name", EMPTY_ROUNDS)
@pytest.mark.parametrize("values", [[], [1, 2]], ids=str)
def test_update_gets_the_columns_also_of_a_round_without_rows(
    name: str, values: list[int]
) -> None:
    """It may well add up a column that has nothing in it."""
    flow = ms.Flow("empty")
    rows = flow.from_frame(pl.DataFrame({"v": values}, schema={"v": pl.Int64}))
    nothing: list[Any] = []
    seen = rows.cycle(
        nothing,
        lambda given, _: EMPTY_ROUNDS[name](given),
        update=lambda seen, made: [*seen, (dict(made.schema), made["v"].sum())],
        max_rounds=2,
    ).collect()
    flow.run(on="local", workers=2)

    assert seen.result() == [[({"v": pl.Int64}, 0)] * 2]
