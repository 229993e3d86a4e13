"""The state of aggregates by key, by hand: epochs, deltas, and what is in their columns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import millstream as ms
from millstream.columns.compiled_table import HANDED_MIN, StateTable
from millstream.columns.kernels import loading
from millstream.errors import LocalProtocolError
from millstream.plan.frames import AggregateFrame

if TYPE_CHECKING:
    from millstream.columns.table import FrameAggregation

needs_numba = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)
both_engines = pytest.mark.parametrize(
    "engine", ["polars", pytest.param("native", marks=needs_numba)]
)
SCHEMA = {"k": pl.String, "x": pl.Int64}


def _rows(*rows: tuple[str | None, int | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _aggregation(*exprs: Any, keys: tuple[str, ...] = ("k",)) -> FrameAggregation:
    flow = ms.Flow("state")
    rows = _rows(("a", 1)).rename({"k": keys[0]})
    flow.from_frame(rows).group_by(*keys).agg(*exprs)
    spec = flow.plan.nodes[-1].spec
    assert isinstance(spec, AggregateFrame)
    aggregation: FrameAggregation = spec.aggregation
    return aggregation


SEVEN = (
    pl.col("x").sum().alias("sum"),
    pl.col("x").count().alias("count"),
    pl.col("x").min().alias("min"),
    pl.col("x").max().alias("max"),
    pl.col("x").mean().alias("mean"),
    pl.col("x").first().alias("first"),
    pl.col("x").last().alias("last"),
)


@both_engines
def test_a_delta_has_a_row_for_every_key_touched_since(engine: loading.Engine) -> None:
    """A touched key comes with all of its state, the others do not come."""
    table = StateTable(_aggregation(pl.col("x").sum()), engine=engine)
    table.add_rows(_rows(("a", 1), ("b", 2)))
    table.begin_epoch(2)
    table.add_rows(_rows(("b", 3), (None, 4)))
    table.begin_epoch(3)

    assert sorted(table.delta(0).rows(), key=str) == [("a", 1), ("b", 5), (None, 4)]
    assert sorted(table.delta(1).rows(), key=str) == [("b", 5), (None, 4)]
    assert table.delta(2).rows() == []


@both_engines
def test_applying_a_delta_replaces_what_its_keys_had(engine: loading.Engine) -> None:
    """It is not added: a replica gets the same key again and again."""
    aggregation = _aggregation(*SEVEN)
    table = StateTable(aggregation, engine=engine)
    replica = StateTable(aggregation, engine=engine)
    for value in (5, None, -7):
        table.add_rows(_rows(("a", value), ("b", 1)))
        replica.apply(table.delta(0))

    result = replica.finished()

    assert result is not None
    assert sorted(result.rows()) == [
        ("a", -2, 2, -7, 5, -1.0, 5, -7),
        ("b", 3, 3, 1, 1, 1.0, 1, 1),
    ]


@both_engines
def test_a_delta_is_no_view_of_living_state(engine: loading.Engine) -> None:
    """It is written in the background, while rows keep coming."""
    table = StateTable(_aggregation(*SEVEN), engine=engine)
    table.add_rows(_rows(("a", 1), ("a key longer than a view", 2)))
    deltas = [table.delta(0)]
    table.begin_epoch(1)
    table.add_rows(_rows(("a", 10)))
    deltas.append(table.delta(0))
    before = [delta.clone() for delta in deltas]

    table.add_rows(_rows(("a", 100), ("a key longer than a view", 200), ("b", 3)))

    for delta, copy in zip(deltas, before, strict=True):
        assert_frame_equal(delta, copy)
    assert deltas[0].height == deltas[1].height == len(["a", "long"])


@needs_numba
def test_common_aggregates_stay_in_slots() -> None:
    """Also variances, and beside each other."""
    exprs = (*SEVEN, pl.col("x").var().alias("var"), pl.len())
    table = StateTable(_aggregation(*exprs), engine="native")

    table.add_rows(_rows(("a", 1)))

    assert table.has_slots


@needs_numba
def test_counts_go_beyond_what_polars_returns_them_as() -> None:
    """A stream has no end; 32 bits are full after four billion rows."""
    table = StateTable(_aggregation(pl.len() / 2), engine="native")
    table.add_rows(_rows(("a", 1)))
    parts = table.merged()
    assert parts is not None
    name = parts.columns[1]

    table.add(parts.with_columns(pl.lit(2**40).alias(name)))
    more = table.merged()

    assert more is not None
    assert more[name].to_list() == [2**40 + 1]


@both_engines
def test_a_key_may_have_any_name(engine: loading.Engine) -> None:
    """Also that of the column of epochs."""
    table = StateTable(_aggregation(pl.len(), keys=("epoch",)), engine=engine)
    table.add_rows(_rows(("a", 1)).rename({"k": "epoch"}))

    assert table.delta(0)["epoch"].to_list() == ["a"]


def test_objects_of_users_are_marked_as_pickled() -> None:
    """Who reads such a column must know that nobody else wrote it."""
    own = ms.frame_aggregate(
        "x",
        init=list,
        update=lambda seen, values: seen + values.to_list(),
        merge=lambda one, other: one + other,
        finish=len,
        dtype=pl.Int64,
    )
    aggregation = _aggregation(own, pl.col("x").sum().alias("sum"))
    table = StateTable(aggregation)
    table.add_rows(_rows(("a", 1)))

    (pickled,) = aggregation.pickled
    assert pickled.endswith(".pickled")
    assert table.delta(0).schema[pickled] == pl.Binary


def test_epochs_go_up() -> None:
    """A barrier that comes twice is a mistake of the code around."""
    table = StateTable(_aggregation(pl.len()))
    table.begin_epoch(2)

    for epoch in (2, 1, 2**32):
        with pytest.raises(LocalProtocolError, match="epochs go up"):
            table.begin_epoch(epoch)


def test_an_empty_table_has_an_empty_delta() -> None:
    """Which changes nothing where it is applied."""
    table, other = (StateTable(_aggregation(pl.len())) for _ in range(2))

    other.apply(table.delta(0))
    other.restore([table.delta(0)])

    assert other.merged() is None


@needs_numba
def test_a_large_table_changes_to_slots_without_a_stall() -> None:
    """No batch waits for more than a bounded number of rows, and reads see them all."""
    known = 10 * HANDED_MIN
    table = StateTable(_aggregation(pl.col("x").sum()), engine="polars")
    table.add_rows(_numbered(known))
    loading.chosen("index", "native")
    loading.chosen("scatter", "native")
    table.prefer_slots()

    handed = [0]
    while handed[-1] < known:
        table.add_rows(_numbered(10))
        handed.append(table.merged_rows)

    steps = [after - before for before, after in pairwise(handed)]
    assert max(steps) <= HANDED_MIN
    assert len(steps) >= 10
    table.add_rows(_numbered(10))
    finished = table.finished()
    assert finished is not None
    touched = [1 + len(steps) + 1] * 10 + [1] * (known - 10)
    assert sorted(finished["x"].to_list()) == sorted(touched)


def _numbered(count: int) -> pl.DataFrame:
    keys = pl.int_range(count, eager=True).cast(pl.String)
    return pl.DataFrame({"k": keys, "x": 1}, schema=SCHEMA)
