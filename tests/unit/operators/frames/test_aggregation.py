"""Aggregates of frames by hand: refusals, sketches, the user's own, and batches."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.support.making import operators

import millstream as ms
from millstream.api.frame_aggregates import (
    FrameAggregate,
    approx_n_unique,
    approx_quantile,
    frame_aggregate,
)
from millstream.columns.table import FrameAggregation, PartialTable
from millstream.config import Config, configured
from millstream.errors import UsageError
from millstream.plan.frames import AggregateFrame, CombineFrame

FRAME = pl.DataFrame(
    {"k": ["a", None, "a"], "x": [1, 2, 4], "s": ["u", "v", None]},
    schema={"k": pl.String, "x": pl.Int64, "s": pl.String},
)


def _aggregation(frame: pl.DataFrame, *exprs: Any) -> FrameAggregation:
    flow = ms.Flow("aggregation")
    flow.from_frame(frame).group_by("k").agg(*exprs)
    spec = flow.plan.nodes[-1].spec
    assert isinstance(spec, AggregateFrame)
    assert isinstance(spec.aggregation, FrameAggregation)
    return spec.aggregation


def _result(frame: pl.DataFrame, *exprs: Any, batch_rows: int = 2) -> pl.DataFrame:
    """Return the result of batches that were merged twice."""
    aggregation = _aggregation(frame, *exprs)
    first, second = PartialTable(aggregation), PartialTable(aggregation)
    for batch in frame.iter_slices(batch_rows):
        first.add_rows(batch)
    parts = first.merged()
    assert parts is not None
    for batch in parts.iter_slices(batch_rows):
        second.add(batch)
    result = second.finished()
    assert result is not None
    return result.sort("k")


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (pl.col("x").median(), "approx_quantile"),
        (pl.col("x").sort().first(), "looks at several rows"),
        (pl.col("x").cum_sum().last(), "looks at several rows"),
        (pl.col("x").rank(), "looks at several rows"),
        (pl.col("x").sum().over("k"), "looks at several rows"),
        ((pl.col("x") - pl.col("x").mean()).sum(), "looks at several rows"),
        (pl.col("x").sum().rank(), "do it after the aggregation"),
        (pl.struct(pl.all()).n_unique(), "name them one by one"),
        (pl.col("y").sum(), 'unable to find column "y"'),
        (pl.col("s").sum(), "not supported for dtype `str`"),
        (approx_quantile("y", 0.5), 'unable to find column "y"'),
        (approx_quantile("s", 0.5), "takes numbers, got String"),
        (approx_quantile(pl.col("x").cum_sum(), 0.5), "looks at several rows"),
    ],
)
def test_what_cannot_be_merged_fails_while_the_flow_is_built(
    expr: pl.Expr | FrameAggregate, words: str
) -> None:
    """With the place in the program."""
    with pytest.raises(UsageError, match=words) as refused:
        _aggregation(FRAME, expr)

    assert "`agg` at test_aggregation.py:" in str(refused.value)


def test_two_columns_of_one_name_are_refused() -> None:
    """Also where one of them is a key."""
    with pytest.raises(UsageError, match="two columns of the result are named 'x'"):
        _aggregation(FRAME, pl.col("x").sum(), pl.col("x").min())
    with pytest.raises(UsageError, match="'k'"):
        _aggregation(FRAME, pl.col("x").sum().alias("k"))


@pytest.mark.parametrize("keys", [(), ("y",), ("k", "k")])
def test_keys_must_be_different_columns(keys: tuple[str, ...]) -> None:
    """There must be one at least."""
    with pytest.raises(UsageError, match="one or more different columns"):
        ms.Flow("keys").from_frame(FRAME).group_by(*keys)


def test_variance_keeps_its_digits_far_from_zero() -> None:
    """The mean is a billion times the deviation."""
    values = [1e9 + i % 2 for i in range(1000)]
    frame = pl.DataFrame({"k": [1] * 1000, "x": values})

    result = _result(frame, pl.col("x").var(ddof=0), batch_rows=7)

    assert result["x"].to_list() == pytest.approx([0.25], rel=1e-6)


def test_approximate_count_is_near_the_exact_one() -> None:
    """From one value to far more than there are registers, within four deviations."""
    counts = [1, 100, 5_000, 60_000]
    keys = [key for key, count in enumerate(counts) for _ in range(count)]
    frame = pl.DataFrame({"k": keys, "x": range(len(keys))})

    result = _result(frame, approx_n_unique("x"), batch_rows=10_000)

    assert result["x"].to_list() == pytest.approx(counts, rel=0.065)


@pytest.mark.parametrize("quantile", [0.0, 0.1, 0.5, 0.99, 1.0])
def test_approximate_quantile_is_within_one_percent(quantile: float) -> None:
    """Of negative and positive numbers, tiny and huge, and of zero."""
    powers = [10.0**power for power in range(-300, 301, 7)]
    frame = pl.DataFrame({"x": [-p for p in powers] + [0.0, 0.0, *powers]})
    frame = frame.with_columns(k=1)

    result = _result(frame, approx_quantile("x", quantile), batch_rows=10)

    exact = frame["x"].quantile(quantile, interpolation="lower")
    assert result["x"][0] == pytest.approx(exact, rel=0.0101)


def test_approximate_quantile_knows_infinity_nan_and_null() -> None:
    """NaN is the greatest; where there are only nulls there is no quantile."""
    values = [float("inf"), float("-inf"), float("nan"), None]
    frame = pl.DataFrame({"k": [1, 2, 3, 4], "x": values})

    result = _result(frame, approx_quantile("x", 0.5))["x"].to_list()

    assert str(result) == "[inf, -inf, nan, None]"


@pytest.mark.parametrize("quantile", [-0.1, 1.1])
def test_a_quantile_is_between_zero_and_one(quantile: float) -> None:
    """Percentages are refused."""
    with pytest.raises(UsageError, match="from 0 to 1"):
        approx_quantile("x", quantile)


def test_an_aggregate_of_ones_own_is_merged_by_its_own_functions() -> None:
    """Any object that can be pickled may be the state; here, a set."""
    letters = frame_aggregate(
        "s",
        init=set,
        update=lambda seen, values: seen | set(values.drop_nulls()),
        merge=lambda one, other: one | other,
        finish=lambda seen: "".join(sorted(seen)) or None,
        dtype=pl.String,
    )
    frame = pl.DataFrame({"k": [1, 1, 2, 1], "s": ["b", "a", None, "b"]})

    result = _result(frame, letters.alias("letters"), pl.len(), batch_rows=1)

    assert result.rows() == [(1, "ab", 3), (2, None, 1)]


def test_a_key_may_come_several_times_in_one_batch_of_parts() -> None:
    """On the way, batches of several senders are put together."""
    aggregation = _aggregation(FRAME, pl.col("x").sum(), pl.col("s").n_unique())
    table = PartialTable(aggregation)
    table.add_rows(FRAME)
    parts = table.merged()
    assert parts is not None
    (operator,) = operators([AggregateFrame(aggregation, is_combined=True)])

    operator.process(pl.concat([parts, parts]))
    (result,) = operator.finish()

    rows = result.rows()
    assert sorted(rows, key=str) == [("a", 10, 2), (None, 4, 1)]


def test_combiner_sends_its_parts_when_it_is_full() -> None:
    """Its memory is bounded by a number of keys."""
    aggregation = _aggregation(FRAME, pl.col("x").sum())
    config = configured(Config(), {"combine_keys_max": 2})
    (operator,) = operators([CombineFrame(aggregation)], config)

    assert operator.process(FRAME[:1]) == []
    parts: Any = operator.process(FRAME)

    assert sorted(parts.rows(), key=str) == [("a", 6), (None, 2)]
    assert operator.flush() == []
    assert list(operator.finish()) == []


def test_combiner_sends_its_parts_before_a_cut() -> None:
    """And starts again from nothing."""
    (operator,) = operators([CombineFrame(_aggregation(FRAME, pl.len()))])
    operator.process(FRAME[:1])

    first: Any = operator.flush()
    operator.process(FRAME[2:])
    (second,) = operator.finish()

    assert first.rows() == [("a", 1)]
    assert second.rows() == [("a", 1)]


def test_result_comes_in_pieces() -> None:
    """A large result is never one message."""
    frame = pl.DataFrame({"k": range(100_000)})
    (operator,) = operators([AggregateFrame(_aggregation(frame, pl.len()))])
    operator.process(frame)

    heights = [len(piece) for piece in operator.finish()]

    assert heights == [65_536, 34_464]


def test_no_rows_make_no_keys() -> None:
    """An empty input is not one empty group; the schema is that of Polars."""
    flow = ms.Flow("empty")
    result = flow.from_frame(FRAME[:0]).group_by("k").agg(pl.col("x").mean()).collect()

    flow.run(on="local", workers=2)

    assert result.result().equals(FRAME[:0].group_by("k").agg(pl.col("x").mean()))


def test_two_aggregations_may_read_the_same_groups() -> None:
    """Rows then move as they are, and both see all of them."""
    flow = ms.Flow("twice")
    groups = flow.from_frame(FRAME).group_by("k")
    sums = groups.agg(pl.col("x").sum()).collect()
    counts = groups.agg(n=pl.col("s").n_unique()).collect()

    flow.run(on="local", workers=2)

    assert sorted(sums.result().rows(), key=str) == [("a", 5), (None, 2)]
    assert sorted(counts.result().rows(), key=str) == [("a", 2), (None, 1)]
