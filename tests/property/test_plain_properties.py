"""Values that are stored come back with exactly the types that they had."""

from __future__ import annotations

import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from importlib import import_module
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.base import Split
from millstream.connectors.text import TextSource
from millstream.runtime.stored_splits import (
    STORED_BY_FIELD,
    decoded_splits,
    encoded_splits,
)
from millstream.state.nan import NAN
from millstream.state.plain import PlainCodec
from millstream.state.row_codec import (
    DELETED,
    decode_rows,
    encode_rows,
    segments_by_shard,
)

Point = namedtuple("Point", "x y")  # noqa: PYI024 - what users have


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
ODD = st.sampled_from(
    [
        Color.RED,
        Text("text"),
        Point(1, 2),
        NAN,
        DELETED,
        bytearray(b"x"),
        {1, 2},
        frozenset({1}),
        1 << 70,
        1j,
        OrderedDict(a=1),
        datetime(2030, 1, 2, tzinfo=UTC),
        msgpack.ExtType(1, b"\x90"),
        msgpack.Timestamp(1),
        Part("a", (1, 2)),
        Split,
    ]
)
KEYS = SCALARS | ODD.filter(lambda value: type(value).__hash__ is not None)
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
    return type(value), repr(value)


@given(VALUES)
def test_value_comes_back_with_its_types(value: Any) -> None:
    """A list is no tuple, an enum no number, and no subclass its base."""
    codec = PlainCodec()
    assert shape(codec.decode(codec.encode(value))) == shape(value)


@given(st.lists(st.tuples(KEYS, SCALARS | ODD)))
def test_rows_come_back_with_their_types(rows: list[tuple[Any, Any]]) -> None:
    """Also where some of them are plain and others are not."""
    keys, values = [k for k, _ in rows], [v for _, v in rows]
    payload = encode_rows(keys, values)
    assert shape(decode_rows(payload)) == shape(rows)
    segments = segments_by_shard("sum", 0, ((0, row) for row in rows))
    found = [row for each in segments for row in decode_rows(each.payload)]
    assert shape(found) == shape(rows)


@given(st.lists(st.tuples(st.text(), st.floats() | st.none())))
def test_plain_rows_are_not_pickled(rows: list[tuple[str, Any]]) -> None:
    """Reading them runs nothing."""
    payload = encode_rows([k for k, _ in rows], [v for _, v in rows])
    with pytest.raises((pickle.UnpicklingError, EOFError, KeyError, ValueError)):
        pickle.loads(payload)


def test_plain_value_is_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it runs nothing."""
    monkeypatch.setattr(pickle, "dumps", None)
    codec = PlainCodec()
    value = {"a": [1, 2.5, None, True, "b", b"c", (1, ("d",))], 7: {}}
    assert codec.decode(codec.encode(value)) == value


def test_object_that_lies_in_a_value_twice_stays_one() -> None:
    """As it does in a pickle."""
    shared: list[int] = [1]
    codec = PlainCodec()
    first, second = codec.decode(codec.encode((shared, shared)))
    assert first is second


def test_value_that_holds_itself_is_stored() -> None:
    """As it is in a pickle."""
    loop: list[Any] = []
    loop.append(loop)
    codec = PlainCodec()
    found = codec.decode(codec.encode(loop))
    assert found[0] is found


def test_deep_value_is_stored() -> None:
    """Pickle takes what msgpack gives up on, however deep it is."""
    value: Any = 1
    for _ in range(400):
        value = [value, 2]
    codec = PlainCodec()
    assert codec.decode(codec.encode(value)) == value


def test_record_that_is_not_listed_is_refused() -> None:
    """A name in a file does not say what is imported."""
    evil = msgpack.packb(msgpack.ExtType(3, msgpack.packb(["os.system", "true"])))
    with pytest.raises(ValueError, match=r"'os.system' is no record"):
        PlainCodec(["millstream.connectors.base.Split"]).decode(evil)


@pytest.mark.parametrize("name", STORED_BY_FIELD)
def test_stored_class_is_where_its_name_says(name: str) -> None:
    """Snapshots name it; one that was moved could not be read."""
    module, _, kind = name.rpartition(".")
    found = getattr(import_module(module), kind)
    assert f"{found.__module__}.{found.__qualname__}" == name


def test_splits_of_our_own_sources_are_not_pickled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state directory of such a job holds no pickle but of rows."""
    (tmp_path / "a.txt").write_text("a\nb\n")
    splits = {"in": tuple(TextSource(tmp_path / "a.txt").splits(2))}
    monkeypatch.setattr(pickle, "dumps", None)
    assert decoded_splits(encoded_splits(splits)) == splits


def test_splits_of_somebody_else_come_back() -> None:
    """Whatever they hold, and whatever class they are."""
    splits = {"in": (Split("a", Part("a", (1, 2))), NamedSplit("b", [1])), "none": ()}
    found = decoded_splits(encoded_splits(splits))
    assert found == splits
    assert type(found["in"][1]) is NamedSplit


class NamedSplit(Split):
    """A split of a source that says more."""
