"""KeyIndex: both engines, and a change between them, agree with a dict.

Method.  A frame of random types is cut into batches at random places, so that every
batch is a slice with an offset into the same buffers; a dict gives the expected slots.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.columns.index import KeyIndex
from millstream.columns.kernels import loading

needs_numba = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)

TEXTS = (
    st.text(max_size=20)
    | st.text(alphabet="a\0é", min_size=10, max_size=15)
    | st.integers(0, 40).map(lambda length: "a" * length)
    | st.integers(0, 9).map(lambda last: f"the same beginning and {last}")
)
INSTANTS = st.datetimes(
    min_value=datetime(1800, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.String(): TEXTS,
    pl.Binary(): TEXTS.map(str.encode) | st.binary(max_size=30),
    pl.Int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pl.UInt64(): st.integers(0, 2**64 - 1) | st.integers(0, 3),
    pl.Int16(): st.integers(-(2**15), 2**15 - 1),
    pl.Boolean(): st.booleans(),
    pl.Float64(): st.floats() | st.sampled_from([0.0, -0.0, float("nan")]),
    pl.Float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    pl.Date(): st.dates(),
    pl.Datetime("us", "Europe/Rome"): INSTANTS,
    pl.Categorical(): TEXTS,
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """Draw a frame of one to three columns with few distinct values in each."""
    rows = draw(st.integers(0, 60))
    columns = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        dtype = draw(st.sampled_from(list(VALUES)))
        pool = draw(st.lists(VALUES[dtype] | st.none(), min_size=1, max_size=20))
        picks = st.lists(st.sampled_from(pool), min_size=rows, max_size=rows)
        columns.append(pl.Series(name, draw(picks), dtype=dtype, strict=False))
    return pl.DataFrame(columns)


@st.composite
def batches(draw: st.DrawFn) -> list[pl.DataFrame]:
    """Cut a frame anywhere, also into empty batches."""
    frame = draw(frames())
    cuts = draw(st.lists(st.integers(0, frame.height), max_size=5).map(sorted))
    ends = [*cuts, frame.height]
    return [
        frame.slice(start, end - start)
        for start, end in zip([0, *cuts], ends, strict=True)
    ]


def identity(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make every NaN equal to itself, and zero unsigned."""
    return tuple(
        ("nan" if math.isnan(value) else value + 0.0) if type(value) is float else value
        for value in row
    )


def expected_slots(cut: list[pl.DataFrame], known: dict[Any, int]) -> list[list[int]]:
    return [
        [known.setdefault(identity(row), len(known)) for row in batch.rows()]
        for batch in cut
    ]


def check(index: KeyIndex, cut: list[pl.DataFrame], known: dict[Any, int]) -> None:
    found = [index.slots(batch).tolist() for batch in cut]
    assert found == expected_slots(cut, known)
    keys = index.keys()
    assert keys.schema == cut[0].schema
    assert [str(identity(row)) for row in keys.rows()] == [str(key) for key in known]
    assert len(index) == len(known)
    some = np.arange(len(known) - 1, -1, -2)
    assert keys[some].equals(index.keys(some))


@given(batches())
def test_the_polars_engine_agrees_with_a_dict(cut: list[pl.DataFrame]) -> None:
    """The slow way is the reference of the fast one."""
    check(KeyIndex(dict(cut[0].schema), engine="polars"), cut, {})


@needs_numba
@given(batches())
def test_the_native_engine_agrees_with_a_dict(cut: list[pl.DataFrame]) -> None:
    """Whatever the types, the nulls and the places where batches are cut."""
    check(KeyIndex(dict(cut[0].schema), engine="native"), cut, {})


@needs_numba
@given(batches(), st.integers(0, 6))
def test_engines_may_change_between_any_two_batches(
    cut: list[pl.DataFrame], change: int
) -> None:
    """Nobody can tell from the slots when it happened."""
    loading.chosen("index", "native")
    index = KeyIndex(dict(cut[0].schema), engine="polars")
    known: dict[Any, int] = {}
    found = [index.slots(batch).tolist() for batch in cut[:change]]
    assert found == expected_slots(cut[:change], known)
    index.prefer_native()
    check(index, cut[change:] or cut, known)
    assert index.is_native


@needs_numba
@given(st.lists(st.integers(0, 2**63 - 1).map(lambda n: n << 32 & 2**63 - 1)))
def test_numbers_that_differ_in_high_bits_only_are_told_apart(
    values: list[int],
) -> None:
    """A weak hash would put them all into one place; a wrong one would join them."""
    frame = pl.DataFrame({"a": values}, schema={"a": pl.Int64()})
    check(KeyIndex({"a": pl.Int64()}, engine="native"), [frame, frame], {})
