"""Verbs of frames against Polars: the same rows, at any number of workers.

Method: Hypothesis draws a schema and rows with nulls, NaN, extremes and repetitions, and
buffers of a few rows.  A verb is written once, for a lazy frame of Polars and for a frame
of a flow; both must make the same schema and the same rows, as multisets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.framing import KEYS, VALUES, canonical, cuts, frames
from tests.support.making import operators

import millstream as ms
from millstream.config import Config, configured
from millstream.plan.frames import JoinFrames, UniqueFrame
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = {"key": KEYS, "value": VALUES, "other": {pl.Int64(): st.integers(-3, 3)}}
HOW = ["inner", "left", "semi", "anti"]

ROW_WISE: dict[str, Callable[[Any], Any]] = {
    "select": lambda f: f.select("value", twice=pl.col("other") * 2),
    "with_columns": lambda f: f.with_columns(pl.col("value").is_null(), one=pl.lit(1)),
    "filter": lambda f: f.filter(
        pl.col("value") == pl.col("value"), pl.col("other") > 0
    ),
    "drop": lambda f: f.drop("value"),
    "rename": lambda f: f.rename({"value": "other", "other": "value"}),
    "cast": lambda f: f.cast({"other": pl.String}),
    "fill_null": lambda f: f.fill_null(7),
    "fill_null from a column": lambda f: f.select("other").fill_null(pl.lit(-1)),
    "drop_nulls": lambda f: f.drop_nulls(),
    "drop_nulls of some": lambda f: f.drop_nulls(["value"]),
    "unpivot": lambda f: f.with_columns(n=pl.col("other") + 1).unpivot(
        ["other", "n"], index="value", variable_name="what", value_name="x"
    ),
    "explode": lambda f: f.select("value", x=pl.concat_list("other", "other")).explode(
        "x"
    ),
    "chain": lambda f: f.filter(pl.col("other") > -2).drop_nulls("other").head(99),
}


@pytest.mark.parametrize("name", ROW_WISE)
@examples(0.15)
@given(
    frame=frames(COLUMNS),
    workers=st.sampled_from([1, 2, 3, 7]),
    buffer=st.integers(1, 9),
)
def test_row_wise_verb_makes_the_rows_of_polars(
    name: str, frame: pl.DataFrame, workers: int, buffer: int
) -> None:
    """Schema included, also of no rows at all."""
    flow = ms.Flow("verbs")
    made = ROW_WISE[name](flow.from_frame(frame))
    result = made.collect()
    flow.run(on="local", workers=workers, frame_buffer=ms.fixed(buffer))

    expected = ROW_WISE[name](frame.lazy()).collect()

    assert made.schema == expected.schema == result.result().schema
    assert canonical(result.result()) == canonical(expected)


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@examples(0.15)
@given(frame=frames(COLUMNS), buffer=st.integers(1, 9), subset=st.booleans())
def test_unique_keeps_one_row_of_every_key(
    workers: int, frame: pl.DataFrame, buffer: int, *, subset: bool
) -> None:
    """As many as Polars keeps, each of them one of the rows, with different keys."""
    keys = ["key"] if subset else frame.columns
    flow = ms.Flow("verbs")
    result = flow.from_frame(frame).unique("key" if subset else None).collect()
    flow.run(on="local", workers=workers, frame_buffer=ms.fixed(buffer))

    made = result.result()
    assert made.schema == frame.schema
    assert made.height == frame.unique(keys).height == made.unique(keys).height
    assert set(canonical(made)) <= set(canonical(frame))


@examples(0.6)
@given(data=st.data(), frame=frames(COLUMNS))
def test_unique_keeps_the_first_row_to_come(
    data: st.DataObject, frame: pl.DataFrame
) -> None:
    """However the rows are cut into batches, in one task."""
    (operator,) = operators([UniqueFrame(("key",))])
    pieces = [piece for piece in data.draw(cuts(frame)) if piece.height]
    kept: list[Any] = [operator.process(piece) for piece in pieces]

    made = pl.concat([frame.clear(), *kept])
    assert made.equals(frame.unique("key", keep="first", maintain_order=True))


@st.composite
def sides(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    kind = draw(st.sampled_from(list(KEYS)))
    keys = {"key": {kind: KEYS[kind]}, "more": {pl.Int8(): st.integers(0, 1)}}
    left = draw(frames({**keys, "value": VALUES, "left": {pl.Int8(): st.just(1)}}))
    right = draw(frames({**keys, "value": VALUES}, rows_max=60))
    return left, right


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@examples(0.15)
@given(
    frames=sides(),
    how=st.sampled_from(HOW),
    on=st.sampled_from([["key"], ["key", "more"]]),
    buffer=st.integers(1, 9),
    nulls_equal=st.booleans(),
    memory=st.sampled_from([1, 100, 10_000]),
)
def test_join_of_two_frames_makes_the_rows_of_polars(
    workers: int,
    frames: tuple[pl.DataFrame, pl.DataFrame],
    *,
    how: Any,
    on: list[str],
    buffer: int,
    memory: int,
    nulls_equal: bool,
) -> None:
    """Also where left rows wait on disk; a static right side makes the same rows."""
    left, right = frames
    flow = ms.Flow("verbs")
    begun, other = flow.from_frame(left), flow.from_frame(right)
    joined = begun.join(other, on, how=how, nulls_equal=nulls_equal)
    static = begun.join(right, on, how=how, nulls_equal=nulls_equal).collect()
    result = joined.collect()
    flow.run(
        on="local",
        workers=workers,
        frame_buffer=ms.fixed(buffer),
        join_left_memory_bytes=memory,
    )

    expected = left.join(right, on=on, how=how, nulls_equal=nulls_equal)

    assert joined.schema == expected.schema
    assert canonical(result.result()) == canonical(expected)
    assert canonical(static.result()) == canonical(expected)


@examples(1)
@given(data=st.data(), frames=sides(), how=st.sampled_from(HOW))
def test_join_keeps_the_order_of_the_left_side(
    data: st.DataObject, frames: tuple[pl.DataFrame, pl.DataFrame], how: str
) -> None:
    """Whatever the order in which the batches of both sides arrive."""
    left, right = frames
    numbered = left.with_row_index("place")
    spec = JoinFrames(("key",), ("key",), how, right.schema)
    memory = data.draw(st.sampled_from([1, 200, 10_000]))
    config = configured(Config(), {"join_left_memory_bytes": memory})
    (operator,) = operators([spec], config)
    waiting = data.draw(cuts(numbered))
    early = data.draw(st.integers(0, len(waiting)))
    made: list[Any] = [operator.process(piece, 0) for piece in waiting[:early]]
    for piece in data.draw(cuts(right)):
        operator.process(piece, 1)
    operator.on_input_end(1)
    made += [operator.process(piece, 0) for piece in waiting[early:]]
    made += operator.finish()
    operator.close()

    expected = numbered.join(right, on="key", how=how)  # type: ignore[arg-type]
    rows = pl.concat([expected.clear(), *(m for m in made if len(m))])
    assert rows["place"].is_sorted()
    assert canonical(rows) == canonical(expected)


GROUPED: dict[str, Callable[[Any], Any]] = {
    "computed": lambda f: f.group_by(pl.col("other").abs().alias("size")).agg(pl.len()),
    "of the same name": lambda f: f.group_by(pl.col("other").abs()).agg(
        pl.col("other").sum().alias("sum"), pl.col("value").count()
    ),
    "named": lambda f: f.group_by("key", is_odd=pl.col("other") % 2 == 1).agg(
        pl.col("other").max()
    ),
    "everything": lambda f: f.group_by(pl.lit(0).alias("all")).agg(pl.len()),
    "all columns": lambda f: f.group_by(pl.col("other") // 2).agg(pl.all().count()),
    "a list": lambda f: f.group_by(["key", "other"]).agg(pl.len()),
}


@pytest.mark.parametrize("name", GROUPED)
@examples(0.15)
@given(
    frame=frames(COLUMNS),
    workers=st.sampled_from([1, 2, 3, 7]),
    buffer=st.integers(1, 9),
)
def test_groups_of_an_expression_are_those_of_polars(
    name: str, frame: pl.DataFrame, workers: int, buffer: int
) -> None:
    """Aggregates mean the columns as they were before."""
    assume(
        frame.height > 0
    )  # of no rows Polars makes a group where the key is a literal
    flow = ms.Flow("verbs")
    made = GROUPED[name](flow.from_frame(frame))
    result = made.collect()
    flow.run(on="local", workers=workers, frame_buffer=ms.fixed(buffer))

    expected = GROUPED[name](frame.lazy()).collect()

    assert made.schema == expected.schema
    assert canonical(result.result()) == canonical(expected)


DATA = pl.DataFrame(
    {
        "key": [["a", "b", None, "ü"][i % 4] for i in range(120)],
        "other": [i * 7 % 11 - 5 for i in range(120)],
        "value": [i % 5 for i in range(120)],
    }
)


def totals(frame: ms.Frame) -> ms.Frame:
    """Return a frame with its own sums beside it: one source feeds both sides."""
    sums = frame.group_by("key").agg(pl.col("other").sum().alias("sum"))
    return frame.join(sums, "key", how="left")


SIMULATED: dict[str, Callable[[ms.Frame], ms.Frame]] = {
    "unique": lambda f: f.select("key").unique(),
    "computed key": lambda f: f.group_by(pl.col("other").abs()).agg(pl.len()),
    "join with its own sums": totals,
    "each other's right side": lambda f: totals(f.filter(pl.col("other") > 0)).union(
        totals(f.filter(pl.col("other") <= 0))
    ),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_verb_survives_the_simulator(name: str) -> None:
    """The same rows under delays, clogs and freezes, or a clear failure."""
    flow = ms.Flow("verbs")
    SIMULATED[name](flow.from_frame(DATA)).collect()

    assert simulate(flow, seeds=range(8), join_left_memory_bytes=64).is_clean
