"""Aggregates of frames by key against Polars: the same rows, however they are cut.

Method: Hypothesis draws a schema, rows with nulls, NaN and repetitions, and some
aggregates that Polars can do on that schema.  Polars' answer for all rows at once must be
that of a flow at several numbers of workers with tiny buffers, and that of a table of
parts that are cut, merged and merged again in any grouping.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.support.examples import examples

import millstream as ms
from millstream.columns.table import FrameAggregation, PartialTable
from millstream.plan.frames import AggregateFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.frame import Frame

INTEGERS = st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64(): INTEGERS,
    pl.Int8(): st.integers(-128, 127),
    pl.UInt32(): st.integers(0, 2**16),
    pl.Float64(): st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), -0.0, 1e6]),
    pl.Float32(): st.integers(-100, 100).map(float),
    pl.String(): st.text(max_size=3),
    pl.Boolean(): st.booleans(),
    pl.Date(): st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pl.Datetime("us"): st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
    pl.Duration("ms"): st.integers(0, 10**6).map(lambda n: timedelta(milliseconds=n)),
    pl.Decimal(20, 2): st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 100),
}
KEYS: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64(): st.integers(0, 3),
    pl.String(): st.sampled_from(["", "a", "ä", "b" * 20]),
    pl.Boolean(): st.booleans(),
    pl.Date(): st.sampled_from([date(2020, 1, 1), date(1969, 12, 31)]),
    pl.Float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
}
AGGREGATES: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "sum": lambda x: x.sum(),
    "count": lambda x: x.count(),
    "len": lambda x: x.len(),
    "null_count": lambda x: x.null_count(),
    "has_nulls": lambda x: x.has_nulls(),
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "nan_max": lambda x: x.nan_max(),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "std": lambda x: x.std(ddof=0),
    "any": lambda x: x.any(),
    "all": lambda x: x.all(ignore_nulls=False),
    "n_unique": lambda x: x.n_unique(),
    "without_nulls": lambda x: x.drop_nulls().n_unique(),
    "filtered_sum": lambda x: x.filter(pl.col("other") > 0).sum(),
    "filtered_count": lambda x: x.filter(pl.col("other") > 0).n_unique(),
    "computed": lambda x: (x.sum() / pl.len()).round(3),
    "chosen": lambda x: pl.when(x.count() > 1).then(x.max()).otherwise(x.min()),
    "several": lambda x: pl.struct(x.max(), x.count().alias("n"), pl.len()),
}
ORDERED: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "first": lambda x: x.first(),
    "last": lambda x: x.last(),
    "first_value": lambda x: x.first(ignore_nulls=True),
    "last_value": lambda x: x.drop_nulls().last(),
    "values": lambda x: x.implode(),
    "plain": lambda x: x,
    "some": lambda x: x.filter(pl.col("other") > 0),
}


@dataclass(frozen=True)
class Case:
    """A frame, its keys, and aggregates that Polars can do on it."""

    frame: pl.DataFrame
    keys: tuple[str, ...]
    exprs: tuple[pl.Expr, ...]

    def expected(self) -> pl.DataFrame:
        return self.frame.group_by(self.keys).agg(self.exprs)


@st.composite
def cases(
    draw: st.DrawFn, aggregates: dict[str, Callable[[pl.Expr], pl.Expr]] = AGGREGATES
) -> Case:
    kind = draw(st.sampled_from(list(VALUES)))
    keys = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    columns: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
        f"k{i}": (key, KEYS[key]) for i, key in enumerate(keys)
    }
    columns |= {"value": (kind, VALUES[kind]), "other": (pl.Int64(), INTEGERS)}
    height = draw(st.integers(0, 30))
    frame = pl.DataFrame(
        {
            name: draw(st.lists(st.none() | v, min_size=height, max_size=height))
            for name, (_, v) in columns.items()
        },
        schema={name: dtype for name, (dtype, _) in columns.items()},
    )
    chosen = st.sampled_from(list(aggregates))
    names = draw(st.lists(chosen, min_size=1, max_size=5, unique=True))
    exprs = [aggregates[name](pl.col("value")).alias(name) for name in names]
    possible = tuple(expr for expr in exprs if _can(expr, frame, "k0"))
    return Case(frame, tuple(f"k{i}" for i in range(len(keys))), possible)


def _can(expr: pl.Expr, frame: pl.DataFrame, key: str) -> bool:
    """Whether Polars can do it on this schema."""
    try:
        frame.group_by(key).agg(expr)
    except pl.exceptions.PolarsError:
        return False
    return True


def _flow(case: Case) -> tuple[ms.Flow, Frame]:
    flow = ms.Flow("aggregates")
    return flow, flow.from_frame(case.frame).group_by(*case.keys).agg(*case.exprs)


def _aggregation(flow: ms.Flow) -> FrameAggregation:
    spec = flow.plan.nodes[-1].spec
    assert isinstance(spec, AggregateFrame)
    found = spec.aggregation
    assert isinstance(found, FrameAggregation)
    return found


def _check(actual: pl.DataFrame, case: Case) -> None:
    expected = case.expected()
    assert_frame_equal(
        actual.sort(case.keys),
        expected.sort(case.keys),
        rel_tol=1e-6,
        abs_tol=1e-6,
        check_dtypes=True,
    )


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@examples(0.25)
@given(case=cases())
def test_flow_gives_what_polars_gives(workers: int, case: Case) -> None:
    """Any number of workers, with batches of three rows, makes the rows of Polars."""
    flow, frame = _flow(case)
    result = frame.collect()

    flow.run(on="local", workers=workers, frame_buffer=ms.fixed(3), combine_keys_max=2)

    _check(result.result(), case)


@examples(1.5)
@given(case=cases(AGGREGATES | ORDERED), data=st.data())
def test_parts_may_be_merged_in_any_grouping(case: Case, data: st.DataObject) -> None:
    """Rows cut anywhere, in order, through any tree of tables, make the rows of Polars."""
    flow, frame = _flow(case)
    aggregation = _aggregation(flow)
    last = PartialTable(aggregation)
    for piece in _cut(case.frame, data):
        table = PartialTable(aggregation, data.draw(st.sampled_from([1, 4, None])))
        for batch in _cut(piece, data):
            table.add_rows(batch)
        parts = table.merged()
        if parts is not None:
            last.add(parts)

    result = last.finished()

    _check(pl.DataFrame(schema=frame.schema) if result is None else result, case)


def _cut(frame: pl.DataFrame, data: st.DataObject) -> list[pl.DataFrame]:
    """Return pieces of any lengths, some of them empty."""
    places = st.lists(st.integers(0, frame.height), max_size=4).map(sorted)
    bounds = [0, *data.draw(places), frame.height]
    return [
        frame.slice(bounds[i], bounds[i + 1] - bounds[i])
        for i in range(len(bounds) - 1)
    ]


LISTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "top": lambda x: x.top_k(3),
    "low": lambda x: x.bottom_k(2),
    "values": lambda x: x.implode(),
}


@examples(0.5)
@given(case=cases(LISTS))
def test_lists_hold_the_values_that_polars_holds(case: Case) -> None:
    """Their order is that of arrival, or not defined."""
    flow, frame = _flow(case)
    result = frame.collect()

    flow.run(on="local", workers=2, frame_buffer=ms.fixed(3))

    lists = pl.selectors.list().list.sort()
    expected = case.expected().with_columns(lists)
    actual = result.result().with_columns(lists)
    assert_frame_equal(actual.sort(case.keys), expected.sort(case.keys))
