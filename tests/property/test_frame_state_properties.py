"""The state of aggregates by key: in slots as grouped by Polars, and told by deltas.

Method: Hypothesis draws rows with nulls, NaN and the ends of every type's range, cuts them
into batches anywhere, and begins epochs in between.  Polars' answer for all rows at once
must be that of the table, in slots or not, changing midway or not; and a table that is
restored from the deltas of its epochs must answer the same.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.support.examples import examples

import millstream as ms
from millstream.columns import compiled_table as frame_native
from millstream.columns.compiled_table import StateTable
from millstream.columns.kernels import loading
from millstream.plan.frames import AggregateFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.columns.table import FrameAggregation

    Aggregates = dict[str, Callable[[pl.Expr], pl.Expr]]

pytestmark = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)


@pytest.fixture(autouse=True, scope="module")
def _small_hand_over() -> Iterator[None]:
    """Let a table change to slots over several batches, as a large one does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_native, "HANDED_MIN", 2)
        patch.setattr(frame_native, "HANDED_PER_ROW", 1)
        yield


NAN, INF = float("nan"), float("inf")
FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([NAN, INF, -INF, -0.0, 5e-324])


def _integers(bits: int, *, is_signed: bool = True) -> st.SearchStrategy[int]:
    low = -(2 ** (bits - 1)) if is_signed else 0
    high = low + 2**bits - 1
    return st.sampled_from([low, low + 1, 0, 1, high - 1, high]) | st.integers(
        low, high
    )


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64(): _integers(64),
    pl.Int32(): _integers(32),
    pl.Int8(): _integers(8),
    pl.UInt64(): _integers(64, is_signed=False),
    pl.UInt16(): _integers(16, is_signed=False),
    pl.Float64(): FLOATS,
    pl.Float32(): st.sampled_from([NAN, INF, -INF, -0.0, 1.5, -2.25, 3.0]),
    pl.Boolean(): st.booleans(),
    pl.Date(): st.dates(),
    pl.Time(): st.sampled_from([time(0), time(12, 30), time(23, 59, 59, 999_999)]),
    pl.Datetime("us"): st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
    pl.Datetime("ns", "Asia/Tokyo"): st.datetimes(datetime(1950, 1, 1)).filter(  # noqa: DTZ001
        lambda moment: moment.year < 2200
    ),
    pl.Duration("ms"): st.integers(-(10**12), 10**12).map(
        lambda n: timedelta(milliseconds=n)
    ),
}
KEYS: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int64(): st.sampled_from([0, 1, -(2**63), 2**63 - 1]),
    pl.String(): st.sampled_from(["", "a", "ä", "\N{GRINNING FACE}" * 4, "b" * 20]),
    pl.Float64(): st.sampled_from([0.0, -0.0, 1.5, NAN]),
    pl.Date(): st.sampled_from([date(2020, 1, 1), date(1969, 12, 31)]),
}
IN_SLOTS: Aggregates = {
    "sum": lambda x: x.sum(),
    "count": lambda x: x.count(),
    "len": lambda x: x.len(),
    "null_count": lambda x: x.null_count(),
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "mean": lambda x: x.mean(),
    "small_mean": lambda x: x.cast(pl.Int32, strict=False).mean(),
    "first": lambda x: x.first(),
    "last": lambda x: x.last(),
    "first_value": lambda x: x.first(ignore_nulls=True),
    "last_value": lambda x: x.last(ignore_nulls=True),
    "var": lambda x: x.cast(pl.Int8, strict=False).var(),
    "std": lambda x: x.cast(pl.Float32, strict=False).clip(-9, 9).std(ddof=0),
}
NOT_IN_SLOTS: Aggregates = {
    "n_unique": lambda x: x.n_unique(),
    "values": lambda x: x.implode(),
    "nan_max": lambda x: x.nan_max(),
    "text": lambda x: x.cast(pl.String).max(),
    "top": lambda x: x.top_k(2),
    "wide": lambda x: x.cast(pl.Int128, strict=False).sum(),
}


@dataclass(frozen=True)
class Case:
    """A frame in batches, its keys, and aggregates that Polars can do on it."""

    frame: pl.DataFrame
    batches: list[pl.DataFrame]
    keys: tuple[str, ...]
    exprs: tuple[pl.Expr, ...]

    def aggregation(self, *others: Any) -> FrameAggregation:
        flow = ms.Flow("state")
        flow.from_frame(self.frame).group_by(*self.keys).agg(*self.exprs, *others)
        spec = flow.plan.nodes[-1].spec
        assert isinstance(spec, AggregateFrame)
        aggregation: FrameAggregation = spec.aggregation
        return aggregation

    def check(self, actual: pl.DataFrame | None) -> None:
        expected = self.frame.group_by(self.keys).agg(self.exprs)
        assert actual is not None
        _same(actual, expected, self.keys)


@st.composite
def cases(draw: st.DrawFn, aggregates: Aggregates = IN_SLOTS) -> Case:
    kind = draw(st.sampled_from(list(VALUES)))
    keys = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    names = tuple(f"k{i}" for i in range(len(keys)))
    height = draw(st.integers(1, 30))
    strategies = [*(KEYS[key] for key in keys), VALUES[kind]]
    frame = pl.DataFrame(
        [
            pl.Series(name, draw(_column(strategy, height)), dtype=dtype)
            for name, strategy, dtype in zip(
                (*names, "value"), strategies, (*keys, kind), strict=True
            )
        ]
    )
    cuts = draw(st.lists(st.integers(0, height), max_size=5).map(sorted))
    bounds = [0, *cuts, height]
    batches = [
        frame.slice(bounds[i], bounds[i + 1] - bounds[i])
        for i in range(len(bounds) - 1)
    ]
    chosen = draw(st.lists(st.sampled_from(list(aggregates)), min_size=1, unique=True))
    exprs = [aggregates[name](pl.col("value")).alias(name) for name in chosen]
    possible = tuple(expr for expr in exprs if _can(expr, frame))
    return Case(frame, batches, names, possible or (pl.len(),))


def _column(
    values: st.SearchStrategy[Any], height: int
) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, min_size=height, max_size=height)


def _can(expr: pl.Expr, frame: pl.DataFrame) -> bool:
    """Whether Polars can do it and its result does not depend on the order of sums."""
    kind, name = frame.schema["value"], expr.meta.output_name()
    if name == "sum" and isinstance(kind, pl.Date | pl.Datetime | pl.Time):
        return False
    if name == "mean" and kind in (pl.Int64, pl.UInt64):
        return False
    try:
        frame.group_by("k0").agg(expr)
    except pl.exceptions.PolarsError:
        return False
    return True


def _same(actual: pl.DataFrame, expected: pl.DataFrame, keys: tuple[str, ...]) -> None:
    top = pl.selectors.matches("^top$").list.sort()  # in any order, as Polars says
    actual, expected = (
        frame.with_columns(top).sort(keys) for frame in (actual, expected)
    )
    # Polars cuts the mean of dates, a float, to whole microseconds; ours is exact.
    moments = cs.datetime().dt.round("1ms")
    actual, expected = (frame.with_columns(moments) for frame in (actual, expected))
    assert_frame_equal(actual, expected, rel_tol=1e-6, abs_tol=1e-6)


@examples(1.5)
@given(case=cases())
def test_slots_give_what_polars_gives(case: Case) -> None:
    """Rows in any batches, to the ends of the range of every type of 64 bits."""
    table = StateTable(case.aggregation(), engine="native")
    for batch in case.batches:
        table.add_rows(batch)

    assert table.has_slots
    case.check(table.finished())


@examples(0.6)
@given(case=cases(), data=st.data())
def test_slots_and_groups_hand_each_other_the_same_parts(
    case: Case, data: st.DataObject
) -> None:
    """Tables of both kinds send parts to one another, and one changes midway."""
    aggregation = case.aggregation()
    last = StateTable(aggregation, engine="polars")
    for batch in case.batches:
        engine: Any = data.draw(st.sampled_from(["polars", "native"]))
        table = StateTable(aggregation, engine=engine)
        table.add_rows(batch)
        parts = table.merged()
        if parts is not None:
            last.add(parts)
        if data.draw(st.booleans()):
            last.prefer_slots()

    case.check(last.finished())


SEEN = ms.frame_aggregate(
    "value",
    init=list,
    update=lambda seen, values: [*seen, *values.to_list()],
    merge=lambda one, other: one + other,
    finish=len,
    dtype=pl.Int64,
).alias("seen")


@examples(1.5)
@given(
    case=cases(IN_SLOTS) | cases(IN_SLOTS | NOT_IN_SLOTS),
    others=st.sampled_from(
        [(), (), (SEEN, ms.approx_n_unique("value").alias("sketch"))]
    ),
    data=st.data(),
)
def test_a_table_is_its_base_and_the_deltas_of_its_epochs(
    case: Case, others: tuple[Any, ...], data: st.DataObject
) -> None:
    """Whether tables change to slots before, between or never, and through a file."""
    aggregation = case.aggregation(*others)
    table = StateTable(aggregation, engine="polars")
    replica = StateTable(aggregation, engine="polars")
    told: list[pl.DataFrame] = []
    epoch, done = 1, 0
    for batch in case.batches:
        for any_table in (table, replica):
            if data.draw(st.booleans()):
                any_table.prefer_slots()
        table.add_rows(batch)
        if data.draw(st.booleans()):
            told.append(_stored(table.delta(done)))
            replica.apply(told[-1])
            done, epoch = epoch, epoch + data.draw(st.integers(1, 3))
            table.begin_epoch(epoch)
    told.append(_stored(table.delta(done)))
    replica.apply(told[-1])

    restored = StateTable(aggregation, engine=data.draw(st.sampled_from(ENGINES)))
    restored.restore(told)

    expected = table.merged()
    assert expected is not None
    for copy in (restored, replica):
        merged = copy.merged()
        assert merged is not None
        _same(_plain(merged), _plain(expected), case.keys)
    if not others:
        case.check(restored.finished())


ENGINES: list[loading.Engine] = ["native", "polars"]


def _stored(frame: pl.DataFrame) -> pl.DataFrame:
    """Return what is read of a frame that was written."""
    if frame.width == 0:
        return frame
    file = io.BytesIO()
    frame.write_ipc_stream(file)
    file.seek(0)
    return pl.read_ipc_stream(file)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort the items of long parts, whose order says nothing."""
    structs = [
        name
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct)
    ]
    return frame.with_columns(pl.col(structs).list.sort()) if structs else frame


@examples(0.6)
@given(case=cases(IN_SLOTS | NOT_IN_SLOTS), data=st.data())
def test_a_delta_names_the_keys_touched_since_and_no_others(
    case: Case, data: st.DataObject
) -> None:
    """Also where the table changes to slots after the rows have come."""
    table = StateTable(case.aggregation(), engine="polars")
    for number, batch in enumerate(case.batches):
        table.begin_epoch(number + 1)
        table.add_rows(batch)
        if data.draw(st.booleans()):
            table.prefer_slots()
    since = data.draw(st.integers(0, len(case.batches)))

    delta = table.delta(since)

    touched = pl.concat([case.frame.clear(), *case.batches[since:]]).select(case.keys)
    found = delta.select(case.keys) if delta.width else case.frame.select(case.keys)[:0]
    assert_frame_equal(
        found.sort(case.keys), touched.group_by(case.keys).agg().sort(case.keys)
    )
