"""Columns of slots: folding batches, growing without moving, refusing foreign slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.columns.kernels import loading
from millstream.columns.kernels.scatter import VALUE, Extreme, Held, Moments, SlotColumn

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.skipif(
    not loading.is_installed(), reason="Numba is not installed"
)

SLOTS = np.array([2, 0, 2, 1, 2])
FLAGS = [False, True]


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    """Return the compiled kernels."""
    module = loading.chosen("scatter", "native")
    assert module is not None
    return module


def _reserved(*columns: SlotColumn, count: int = 3) -> None:
    for column in columns:
        column.reserve(count)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_values_are_added_to_their_slots(kernels: ModuleType, dtype: type[Any]) -> None:
    """Entries begin as zero."""
    sums, counts = SlotColumn(kernels, dtype), SlotColumn(kernels, np.int64)
    _reserved(sums, counts)

    sums.add(SLOTS, np.array([5, 3, -1, 4, 2], dtype=dtype))
    counts.count(SLOTS)

    assert sums.head(3).tolist() == [3, 4, 6]
    assert counts.head(3).tolist() == [1, 1, 3]


def test_sums_of_integers_wrap_around(kernels: ModuleType) -> None:
    """As those of Polars do."""
    sums = SlotColumn(kernels, np.int64)
    _reserved(sums)

    sums.add(np.array([0, 0]), np.array([2**63 - 1, 1]))

    assert sums.head(1).tolist() == [-(2**63)]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize(("is_least", "kept"), [(True, [3, 4, -1]), (False, [3, 4, 5])])
def test_the_extreme_value_is_kept(
    kernels: ModuleType, *, dtype: type[Any], is_least: bool, kept: list[int]
) -> None:
    """The first value of a slot always is, whatever zeros its entry began with."""
    column = Extreme(kernels, dtype, is_least=is_least)
    _reserved(column.values, column.marks)

    column.fold(SLOTS, np.array([5, 3, -1, 4, 2], dtype=dtype))

    assert column.values.head(3).tolist() == kept
    assert column.marks.head(3).tolist() == [VALUE] * 3


@pytest.mark.parametrize("is_least", FLAGS)
def test_a_nan_yields_to_any_number(kernels: ModuleType, *, is_least: bool) -> None:
    """Least and greatest are those of the numbers, as in Polars."""
    column = Extreme(kernels, np.float64, is_least=is_least)
    _reserved(column.values, column.marks)

    column.fold(np.array([0, 0, 1, 1, 2]), np.array([np.nan, 3, 1, np.nan, np.nan]))

    assert str(column.values.head(3).tolist()) == "[3.0, 1.0, nan]"


@pytest.mark.parametrize(
    ("is_first", "skips_nulls", "kept"),
    [
        (True, True, [2, 4, None]),
        (True, False, [None, 4, None]),
        (False, True, [3, 4, None]),
        (False, False, [3, None, None]),
    ],
)
def test_the_first_or_last_value_is_kept(
    kernels: ModuleType, *, is_first: bool, skips_nulls: bool, kept: list[int | None]
) -> None:
    """A null is a value or is none, as one likes."""
    column = Held(kernels, np.int64, is_first=is_first, skips_nulls=skips_nulls)
    _reserved(column.values, column.marks)
    nulls = np.array([True, False, False, False, True, True])

    for half in (slice(0, 2), slice(2, 6)):
        slots, values = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 4, 5, 6])
        column.fold(slots[half], values[half], nulls[half])

    entries = zip(column.values.head(3), column.marks.head(3), strict=True)
    assert [int(v) if mark == VALUE else None for v, mark in entries] == kept


def test_moments_are_those_of_all_numbers(kernels: ModuleType) -> None:
    """Merged one by one and as a whole; a row that counts nothing changes nothing."""
    numbers = np.random.default_rng(1).normal(1e6, 1, 100)
    ones, zeros = np.ones(60, dtype=np.int64), np.zeros(60)
    moments = Moments(kernels)
    columns = (moments.counts, moments.totals, moments.squares)
    _reserved(*columns)
    rest = numbers[60:]

    moments.fold(np.zeros(60, dtype=np.int64), ones, numbers[:60], zeros)
    whole = np.array([0.0, rest.sum()]), np.array([0.0, rest.var() * 40])
    moments.fold(np.array([0, 0]), np.array([0, 40]), *whole)

    found = [column.head(1)[0] for column in columns]
    expected = [100, numbers.sum(), numbers.var() * 100]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint32, np.uint8])
def test_entries_are_taken_and_put_by_slot(
    kernels: ModuleType, dtype: type[Any]
) -> None:
    """Across chunks, in any order."""
    column = SlotColumn(kernels, dtype)
    _reserved(column, count=200_000)

    column.put(np.array([199_999, 5, 65_536]), 7)
    column.put(np.array([5]), 9)

    assert column.take(np.array([65_536, 5, 0, 199_999])).tolist() == [7, 9, 0, 7]
    assert column.above(7).tolist() == [5]
    assert column.above(0).tolist() == [5, 65_536, 199_999]
    assert column.head(6).tolist() == [0, 0, 0, 0, 0, 9]


def test_a_column_grows_without_moving_an_entry(kernels: ModuleType) -> None:
    """So no batch pays for all slots."""
    column = SlotColumn(kernels, np.int64)
    _reserved(column)
    before = column.chunks

    for count in (70_000, 1_000_000, 10_000_000):
        column.reserve(count)
        assert column.capacity >= count
        assert column.chunks[: before.size].tolist() == before.tolist()
        before = column.chunks


def test_slots_outside_the_column_are_refused(kernels: ModuleType) -> None:
    """Compiled code would write into somebody else's memory."""
    column = SlotColumn(kernels, np.int64)
    _reserved(column)
    for slots in ([column.capacity], [-1]):
        with pytest.raises(IndexError, match="the column has 65536 entries"):
            column.count(np.array(slots))
    with pytest.raises(ValueError, match="2 slots came with 1 values"):
        column.add(np.array([0, 1]), np.zeros(1, dtype=np.int64))
