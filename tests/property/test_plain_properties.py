"""Values that are stored come back with exactly the types that they had."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import wraps
from pathlib import Path
from pickletools import genops
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.base import Split
from millstream.connectors.text import TextSource
from millstream.errors import OperatorError, UsageError
from millstream.plan.aggregate import MISSING
from millstream.plan.time import LateRow, LateTimestamp
from millstream.plan.windows import Window
from millstream.state.nan import NAN
from millstream.state.plain import (
    COLUMNS,
    OBJECTS,
    PLAIN,
    decode,
    decode_lists,
    encode,
    encode_lists,
    form_of,
)
from millstream.state.row_codec import (
    DELETED,
    decode_rows,
    encode_rows,
    segments_by_shard,
)

Point = namedtuple("Point", "x y")  # noqa: PYI024 - what users have


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_plain(value: Any) -> bool:
    return not any(value is each for each in OBJECT_ODD)


class Color(IntEnum):
    """A number that is more than one."""

    RED = 1


class Text(str):
    """A text that is more than one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Part:
    """What a source of somebody else may have for a split."""

    path: str
    rows: tuple[int, int]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
PLAIN_ODD = [
    NAN,
    DELETED,
    MISSING,
    LateTimestamp(3, 4),
    Window(1, 2),
    LateRow("key", [1], 7),
    Split("part", (1, 2)),
    bytearray(b"x"),
    {1, 2},
    frozenset({1}),
    1 << 70,
    -(1 << 63) - 1,
    1j,
    OrderedDict(a=1),
    Counter("aab"),
    deque([1, 2], 3),
    defaultdict(list, {"a": [1]}),
    range(3),
    date(2030, 1, 2),
    datetime(2030, 1, 2),  # noqa: DTZ001 - a naive one stays one
    datetime(2030, 1, 2, tzinfo=UTC),
    datetime(2030, 1, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    time(1, 2, 3, 4, timezone(timedelta(hours=-3), "there")),
    timedelta(-1, 2, 3),
    Decimal("1.50"),
    Decimal("-sNaN"),
    Fraction(1, 3),
    UUID(int=7),
    np.float64(2.5),
    np.bool_(1),
    np.array([[1, 2], [3, 4]], "<i4"),
    np.array([[1.0, 2.0], [3.0, 4.0]], order="F"),
    np.array(["a", "bc"]),
    np.str_(""),
    np.bytes_(b""),
    UsageError("what to do"),
    OperatorError("raised", operator="map"),
]
OBJECT_ODD = [
    Color.RED,
    Text("text"),
    Point(1, 2),
    Part("a", (1, 2)),
    Path("a"),
    msgpack.ExtType(1, b"\x90"),
    msgpack.Timestamp(1),
    np.array([None]),
    np.array([[1, 2], [3, 4]]).view(np.matrix),
    ValueError("x"),
]
ODD = st.sampled_from([*PLAIN_ODD, *OBJECT_ODD])
KEYS = SCALARS | ODD.filter(is_hashable)
VALUES = st.recursive(
    SCALARS | ODD,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """Return a value such that equal means of the same types, too, also of NaN."""
    if type(value) in {list, tuple}:
        return type(value), [shape(each) for each in value]
    if type(value) is dict:
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.flags.fnc, value.tolist()
    return type(value), repr(value)


@given(VALUES)
def test_value_comes_back_with_its_types(value: Any) -> None:
    """A list is no tuple, an enum no number, and no subclass its base."""
    assert shape(decode(encode(value))) == shape(value)


@given(st.lists(VALUES), st.lists(VALUES))
def test_lists_come_back_as_lists(first: list[Any], second: list[Any]) -> None:
    """Whatever is in them, and though all tuples among them are arrays of msgpack."""
    assert shape(decode_lists(encode_lists(first))) == shape([first])
    assert shape(decode_lists(encode_lists(first, second))) == shape([first, second])


@given(st.lists(st.tuples(KEYS, SCALARS | ODD)))
def test_rows_come_back_with_their_types(rows: list[tuple[Any, Any]]) -> None:
    """Also where some of them are plain and others are not."""
    keys, values = [k for k, _ in rows], [v for _, v in rows]
    payload = encode_rows(keys, values)
    assert shape(decode_rows(payload)) == shape(rows)
    segments = segments_by_shard("sum", 0, ((0, row) for row in rows))
    found = [row for each in segments for row in decode_rows(each.payload)]
    assert shape(found) == shape(rows)


PLAIN_VALUES = st.recursive(
    SCALARS | st.sampled_from(PLAIN_ODD).map(deepcopy),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS.filter(is_plain), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(PLAIN_VALUES))
def test_values_without_objects_of_users_are_not_pickled(values: list[Any]) -> None:
    """Of whatever shape, and whatever is mixed in them."""
    data = encode_lists(values)
    assert form_of(data) == COLUMNS
    assert b"millstream." not in data


@pytest.mark.parametrize("value", PLAIN_ODD, ids=repr)
def test_value_of_a_type_in_the_table_names_no_path(value: Any) -> None:
    """So it is read whatever module the type is in by then, and runs nothing else."""
    assert form_of(encode([1, (value,)])) == COLUMNS
    data = encode([value, [0, value]])  # an object twice, if it is one that can change
    assert form_of(data) in {COLUMNS, PLAIN}
    assert b"millstream." not in data
    if form_of(data) == PLAIN:
        operations = [operation.name for operation, _, _ in genops(data[1:])]
        assert operations.count("STACK_GLOBAL") <= 1
        assert "GLOBAL" not in operations


@pytest.mark.parametrize("value", OBJECT_ODD, ids=repr)
def test_value_of_another_class_is_told_apart(value: Any) -> None:
    """Reading it runs what that class needs."""
    assert form_of(encode({"a": [value]})) == OBJECTS


def test_object_that_lies_in_a_value_twice_stays_one() -> None:
    """As it does in a pickle."""
    shared: list[int] = [1]
    first, second = decode(encode((shared, shared)))
    assert first is second


def test_function_that_calls_itself_like_a_builtin_is_none() -> None:
    """`functools.wraps` gives it the name; pickle refuses it, as it could not be found."""
    imposter: Any = wraps(list)(lambda: [0])
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        encode(defaultdict(imposter))


def test_frame_with_objects_is_refused() -> None:
    """What Arrow has of them are addresses of this process."""
    frame = pl.DataFrame({"o": pl.Series([{1, 2}], dtype=pl.Object)})
    with pytest.raises(pl.exceptions.ComputeError, match="Object"):
        encode(frame)


def test_tuple_that_many_values_share_is_stored_once() -> None:
    """As a default that ten thousand keys have."""
    shared = ((1,) * 32,) * 32
    assert len(encode([shared] * 10_000)) < 100_000
    assert decode(encode([shared] * 100)) == [shared] * 100


def test_value_that_holds_itself_is_stored() -> None:
    """As it is in a pickle."""
    loop: list[Any] = []
    loop.append(loop)
    found = decode(encode(loop))
    assert found[0] is found


def test_tuple_that_lies_in_a_tuple_over_and_over_is_stored() -> None:
    """It is two to the power of fifty parts to whoever looks at all of them."""
    narrow: Any = ()
    wide: Any = ()
    for _ in range(50):
        narrow, wide = (narrow, narrow), (*[wide] * 40,)
    assert len(encode([narrow, narrow])) < 1_000_000
    assert len(encode([wide, wide])) < 2_000_000


def test_deep_value_is_stored() -> None:
    """Pickle takes what is not taken apart, however deep it is."""
    value: Any = 1
    for _ in range(400):
        value = [value, 2]
    assert decode(encode(value)) == value


def test_splits_of_our_own_sources_are_not_pickled(tmp_path: Any) -> None:
    """A state directory of such a job holds no pickle but of objects of users."""
    (tmp_path / "a.txt").write_text("a\nb\n")
    splits = {"in": tuple(TextSource(tmp_path / "a.txt").splits(2))}
    data = encode(splits)
    assert form_of(data) == COLUMNS
    assert decode(data) == splits


def test_splits_of_somebody_else_come_back() -> None:
    """Whatever they hold, and whatever class they are."""
    splits = {"in": (Split("a", Part("a", (1, 2))), NamedSplit("b", [1])), "none": ()}
    found = decode(encode(splits))
    assert found == splits
    assert type(found["in"][1]) is NamedSplit


class NamedSplit(Split):
    """A split of a source that says more."""
