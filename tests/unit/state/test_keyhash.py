"""key_hash: pinned values, equal keys of different types, what may be a key."""

from __future__ import annotations

import enum
import pickle
from collections import Counter, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from millstream.state.keyhash import KEY_HASH_VERSION, key_hash, shard_of


class EndOfSummer(tzinfo):
    """A zone in which every hour comes twice, as one does in autumn."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1 if moment is not None and moment.fold else 2)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "autumn"


AUTUMN = EndOfSummer()
EAST = timezone(timedelta(hours=5, minutes=30))
Point = namedtuple("Point", "x y")  # noqa: PYI024


class Name(str):
    """A subclass with nothing of its own."""

    __slots__ = ()


class Color(enum.Enum):
    """Members that equal nothing else."""

    RED = 1
    GREEN = 2


class Shape(enum.Enum):
    """Another class with a member of the same name."""

    RED = 1


class Level(enum.IntEnum):
    """Members that equal numbers."""

    LOW = 1


class Word(enum.StrEnum):
    """Members that equal text."""

    HELLO = "hello"


class Access(enum.Flag):
    """Members that combine."""

    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Place:
    """Compares two of its three fields."""

    city: str
    number: int
    note: str = field(default="", compare=False)


@dataclass
class Loose:
    """Can change, so it cannot be a key."""

    city: str


@dataclass(frozen=True)
class Mail:
    """Says itself which addresses are the same."""

    address: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mail) and self.address.lower() == other.address.lower()

    def __hash__(self) -> int:
        return hash(self.address.lower())


class KnownMail(Mail):
    """Says by what, too."""

    def __millstream_key__(self) -> str:
        return self.address.lower()


class AnyCase(str):
    """Text that equals text in other letters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Rough(tuple[float, ...]):
    """A tuple of numbers that are about the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rough) and round(self[0]) == round(other[0])

    def __hash__(self) -> int:
        return hash(round(self[0]))


class Flat(enum.Enum):
    """Members that all are equal."""

    ONE = 1
    TWO = 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flat)

    def __hash__(self) -> int:
        return 1


GOLDEN: list[tuple[Any, int]] = [
    (None, 0x8E05ECEA),
    ("", 0xD7E7BF05),
    ("mill", 0x5E87C293),
    ("Müller", 0xCEB4CC25),
    (b"mill", 0x4696D951),
    (0, 0x00000000),
    (-1, 0x5F63BA2B),
    (2**100, 0x5AE4DB84),
    (1.5, 0x2F7D4EC1),
    (Decimal("0.1"), 0x9C945E1F),
    (("mill", 7), 0x54C95F85),
    (frozenset({"a", "b"}), 0x290D025C),
    (date(2024, 2, 29), 0x81BFB641),
    (datetime(2024, 2, 29, 12, tzinfo=UTC), 0xD35FC9CD),
    (time(23, 59), 0x97D7F982),
    (timedelta(seconds=1), 0xF81E80F7),
    (UUID(int=1), 0xEDB6F95F),
    (Color.RED, 0x8F8879FF),
    (Place("a", 1), 0x4F1E4A10),
    (float("nan"), 0x550187AE),
]


@pytest.mark.parametrize(
    ("key", "expected"), GOLDEN, ids=[f"{expected:08x}" for _, expected in GOLDEN]
)
def test_hashes_never_change(key: Any, expected: int) -> None:
    """Stored state lies by these; a change needs a new KEY_HASH_VERSION."""
    assert KEY_HASH_VERSION == 1
    assert key_hash(key) == expected


@pytest.mark.parametrize(
    "keys",
    [
        (1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), 1 + 0j, Level.LOW),
        (0.0, -0.0, 0, False, np.float32(0), np.int8(0), np.bool_(0)),
        (2**100, Decimal(2**100), float(2**100), Fraction(2**100)),
        (0.5, Fraction(1, 2), Decimal("0.5"), np.float64(0.5), np.float32(0.5)),
        (float("inf"), Decimal("Infinity")),
        ("hello", Name("hello"), Word.HELLO, np.str_("hello")),
        (b"x", np.bytes_(b"x")),
        ((1, "a"), (1.0, Name("a")), Point(True, "a")),  # noqa: FBT003
        (frozenset([1, "a"]), frozenset(["a", 1.0])),
        (
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 17, 30, tzinfo=EAST),
        ),
        (
            datetime(2024, 1, 1, tzinfo=AUTUMN),
            datetime(2024, 1, 1, fold=1, tzinfo=AUTUMN),
        ),
        (datetime.min.replace(tzinfo=EAST), datetime(1, 1, 1, tzinfo=EAST)),
        (time(12, tzinfo=UTC), time(17, 30, tzinfo=EAST)),
        (timedelta(days=1), timedelta(hours=24)),
        (Place("a", 1, "x"), Place("a", 1, "y")),
    ],
)
def test_equal_keys_of_any_type_hash_equal(keys: tuple[Any, ...]) -> None:
    """A dict finds them under each other, so they must live in one shard."""
    assert all(key == keys[0] for key in keys)
    assert len({key_hash(key) for key in keys}) == 1


def test_nan_has_one_hash() -> None:
    """NaN equals nothing, but its rows must at least meet in one place."""
    nans = [
        float("nan"),
        float("nan"),
        Decimal("nan"),
        Decimal("snan"),
        np.float32("nan"),
    ]

    assert len({key_hash(nan) for nan in nans}) == 1


def test_keys_that_look_alike_hash_apart() -> None:
    """A type tag keeps what is written the same but is not equal apart."""
    keys = [
        *("", b"", (), frozenset(), None, 0, "0", b"0", ("0",), (0,), ((0,),)),
        *("ab", ("a", "b"), ("b", "a"), ("ab",), frozenset("ab")),
        *(date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
        *(time(1), time(1, tzinfo=UTC), timedelta(hours=1), timedelta(hours=-1)),
        *(UUID(int=1), UUID(int=2), UUID(int=1).bytes, str(UUID(int=1))),
        *(Color.RED, Color.GREEN, Shape.RED, "RED", ("Color", "RED")),
        *(Access.READ, Access.WRITE, Access.READ | Access.WRITE),
        *(Place("a", 1), Place("a", 2), ("a", 1), ("Place", "a", 1)),
    ]

    assert len({key_hash(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ([1], "a list cannot be a key; use None, a number, str"),
        ({"a": 1}, "a dict cannot be a key"),
        (("a", {1}), "a set cannot be a key"),
        (object(), "an object cannot be a key"),
        (bytearray(b"x"), "a bytearray cannot be a key"),
        (Loose("a"), "a Loose cannot be a key; declare the dataclass with frozen=True"),
        (Place, "a type cannot be a key"),
        (np.array(1), "a ndarray cannot be a key"),
        (np.datetime64("2024-01-01"), r"a datetime64 cannot be a key; .*\.item\(\)"),
        (np.longdouble(1), "a longdouble cannot be a key"),
        (Mail("a"), "a Mail cannot be a key; it has an __eq__ or __hash__ of its own"),
        (AnyCase("a"), "AnyCase cannot be a key; .* define __millstream_key__"),
        (("a", Rough((1.0,))), "a Rough cannot be a key; it has an __eq__"),
        (Flat.ONE, "a Flat cannot be a key; it has an __eq__"),
        (KnownMail, "a type cannot be a key"),
    ],
)
def test_what_may_not_be_a_key_is_named(key: Any, message: str) -> None:
    """The error names the type, inside a tuple too, and says what may be a key."""
    with pytest.raises(TypeError, match=message):
        key_hash(key)


def test_class_with_an_equality_of_its_own_says_by_what() -> None:
    """Whatever it returns is hashed, so it may equal plain values as well."""
    keys = (KnownMail("Ann"), KnownMail("aNN"), "ann")

    assert len({key_hash(key) for key in keys}) == 1
    assert key_hash(KnownMail("bob")) != key_hash(keys[0])


def test_times_of_pandas_are_keys() -> None:
    """Equal to those of Python where they say the same; nanoseconds and NaT are told apart."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    fine = pd.Timestamp(noon) + pd.Timedelta(7, "ns")
    day = pd.Timedelta(days=1)

    assert key_hash(pd.Timestamp(noon)) == key_hash(noon)
    assert key_hash(pd.Timestamp(noon).tz_convert("Asia/Tokyo")) == key_hash(noon)
    assert key_hash(fine) == key_hash(fine.tz_convert("Asia/Tokyo")) != key_hash(noon)
    assert key_hash(day) == key_hash(timedelta(days=1))
    assert key_hash(day + pd.Timedelta(7, "ns")) != key_hash(day)
    assert key_hash(pd.NaT) == key_hash(pickle.loads(pickle.dumps(pd.NaT)))


def test_a_lone_surrogate_can_be_in_a_key() -> None:
    """File names that are not UTF-8 have them."""
    assert key_hash("\ud800") != key_hash("\ud801")


@pytest.mark.parametrize("shard_count", [1, 7, 200])
def test_a_shard_is_a_range_of_hashes(shard_count: int) -> None:
    """Keys in the order of their hashes are in the order of their shards."""
    keys = sorted(range(5000), key=key_hash)
    shards = [shard_of(key, shard_count) for key in keys]

    assert shards == sorted(shards)
    assert set(shards) == set(range(shard_count))


@pytest.mark.parametrize(
    "keys",
    [
        range(50_000),
        range(-50_000, 0),
        range(0, 50_000 * 1024, 1024),
        [number << 32 for number in range(50_000)],
        [f"user-{number}" for number in range(50_000)],
        [number / 8 for number in range(50_000)],
        [(number // 100, "x", number % 100) for number in range(50_000)],
    ],
    ids=["sequence", "negative", "stride", "high-bits", "text", "float", "tuple"],
)
def test_regular_keys_spread_evenly_over_shards_and_owners(keys: Any) -> None:
    """As evenly as random ones: within five deviations of the mean."""
    shards = Counter(shard_of(key, 1024) for key in keys)
    ranges = [range(shard, shard + 1) for shard in range(1024)] + [
        range(owner * 1024 // owners, (owner + 1) * 1024 // owners)
        for owners in range(2, 17)
        for owner in range(owners)
    ]

    for owned in ranges:
        expected = len(keys) * len(owned) / 1024
        found = sum(shards[shard] for shard in owned)
        assert abs(found - expected) < 5 * expected**0.5, f"{owned}: {found}"
