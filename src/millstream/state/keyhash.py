"""The hash that decides in which shard a key lives, the same in every process.

Three promises hold together:

- *stable*: the hash of a key depends on nothing but the key and `KEY_HASH_VERSION`;
  not on the process, its hash seed, the Python version or the machine;
- *consistent with* ``==``: keys that Python calls equal (``1 == 1.0``, a named tuple
  and a tuple, one instant in two time zones) hash equal, as a dict of state needs; a
  class that says itself what is equal must also say by what (`OWN_KEY`);
- *even*: keys in sequence spread over shards and over ranges of shards.

Nothing here knows which worker owns a shard.  A change of any hash is a new
`KEY_HASH_VERSION`, because state that is already stored lies by the old one.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import singledispatch
from itertools import repeat
from typing import TYPE_CHECKING, cast
from uuid import UUID
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from millstream.values import Key

__all__ = [
    "KEY_HASH_VERSION",
    "OWN_KEY",
    "check_keys",
    "key_hash",
    "shard_of",
    "shards_of",
]

OWN_KEY = "__millstream_key__"
"""The method of a class with an equality of its own that returns what keys are equal by."""

KEY_HASH_VERSION = 1
"""Recorded with stored state; state of another version must be hashed anew."""

_MASK = 0xFFFF_FFFF
_GOLDEN = 0x9E37_79B1  # 2**32 over the golden ratio, made odd
_EULER = 0xB7E1_5163  # the fraction of e, made odd

# The start value of the checksum tells b"x" from "x" and a date from its ordinal.
# Far from small numbers, so that None and "" do not share the shard of one of them.
_TEXT = 0x4D53_0001
_BYTES = 0x4D53_0002
_TUPLE = 0x4D53_0003
_SET = 0x4D53_0004
_DATE = 0x4D53_0005
_NAIVE = 0x4D53_0006
_AWARE = 0x4D53_0007
_NAIVE_TIME = 0x4D53_0008
_AWARE_TIME = 0x4D53_0009
_DELTA = 0x4D53_000A
_UUID = 0x4D53_000B
_ENUM = 0x4D53_000C
_RECORD = 0x4D53_000D
_NONE = 0x4D53_000E
_NAN = 0x4D53_000F
_NANO = 0x4D53_0010
_NAT = 0x4D53_0011

_MICROSECOND = timedelta(microseconds=1)

# Numbers are hashed by hash(): Python documents its formula, it is the same in all
# processes, and it is the one function that agrees between int, float, Decimal,
# Fraction and complex.  (The hash of str and bytes is salted per process, so it is
# never used here.)  The formula depends on one modulus, which 32-bit builds change.
assert sys.hash_info.modulus == 2**61 - 1, "key hashes need a 64-bit Python"


def key_hash(key: object) -> int:
    """Return the 32-bit hash of a key.

    Examples
    --------
    >>> key_hash("mill") == key_hash("stream")
    False
    >>> key_hash((1, "a")) == key_hash((1.0, "a"))
    True
    >>> key_hash(["a"])
    Traceback (most recent call last):
    ...
    TypeError: a list cannot be a key; use ...
    """
    kind = type(key)
    if kind is str:
        folded = _of_text(key)  # type: ignore[arg-type]
    elif kind is int:
        number = hash(key)
        folded = (number ^ (number >> 32) * _GOLDEN) & _MASK
    elif kind is tuple:
        folded = _of_tuple(key)  # type: ignore[arg-type]
    else:
        folded = _HASHES[kind](key)
    mixed = ((folded ^ folded >> 16) * _GOLDEN) & _MASK
    mixed = ((mixed ^ mixed >> 15) * _EULER) & _MASK
    return mixed ^ mixed >> 16


def check_keys(keys: list[Key]) -> None:
    """Refuse the first one that cannot be a key.

    `operators.failure` finds out which one it was by ``keys_iterator``.
    """
    keys_iterator = iter(keys)
    for key in keys_iterator:
        key_hash(key)
        hash(key)


def shard_of(key: object, shard_count: int) -> int:
    """Return the shard of a key; each shard is one range of key hashes.

    Examples
    --------
    >>> 0 <= shard_of("mill", 1024) < 1024
    True
    """
    return key_hash(key) * shard_count >> 32


def shards_of(keys: list[Key], shard_count: int) -> npt.NDArray[np.int64]:
    """Return the shard of every key; for many of one type far quicker than one by one.

    Examples
    --------
    >>> shards_of(["a", "b"], 1024).tolist() == [shard_of(k, 1024) for k in "ab"]
    True
    """
    import numpy as np  # noqa: PLC0415 - a flow of rows needs it for this only

    folded = _folded_alike(keys)
    if folded is None:
        hashes = np.fromiter(map(key_hash, keys), np.int64, len(keys))
        return hashes * shard_count >> 32
    mixed = (folded ^ folded >> 16) * _GOLDEN & _MASK
    mixed = (mixed ^ mixed >> 15) * _EULER & _MASK
    return (mixed ^ mixed >> 16) * shard_count >> 32


def _folded_alike(keys: list[Key]) -> npt.NDArray[np.int64] | None:
    """Return what `_folded` gives if all are texts or all are whole numbers."""
    import numpy as np  # noqa: PLC0415 - as above

    kinds = set(map(type, keys))
    try:
        if kinds == {str}:
            sums = map(crc32, map(str.encode, cast("list[str]", keys)), repeat(_TEXT))
            return np.fromiter(sums, np.int64, len(keys))
        if kinds == {int}:
            numbers = np.fromiter(map(hash, keys), np.int64, len(keys))
            return (numbers ^ (numbers >> 32) * _GOLDEN) & _MASK
    except UnicodeEncodeError:
        pass
    return None


def _hash_of(kind: type) -> Callable[[Key], int]:
    """Return what gives 32 bits of a key of a type, not yet mixed.

    A type is looked at once: subclasses go with the type they equal, and one with an
    equality of its own must say what its keys are equal by.
    """
    if hasattr(kind, OWN_KEY):
        return _of_own
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.generic):
        return _of_numpy_scalar
    package = kind.__module__.partition(".")[0]
    if package == "pandas" and kind.__name__ in _OF_PANDAS:
        return _OF_PANDAS[kind.__name__]
    base = next((each for each in kind.__mro__ if each in _folded.registry), object)
    if base is object and dataclasses.is_dataclass(kind):
        is_own, of_kind = not _has_made_eq(kind), _of_record
    else:
        is_own, of_kind = not _is_equal_as(kind, base), _folded.dispatch(kind)
    return _refuse_own if is_own else of_kind


class _Hashes(dict[type, "Callable[[Key], int]"]):
    """Remembers how keys of every type seen are hashed."""

    def __missing__(self, kind: type) -> Callable[[Key], int]:
        made = self[kind] = _hash_of(kind)
        return made


_HASHES = _Hashes()


def _is_equal_as(kind: type, base: type) -> bool:
    """Whether a type inherits what its values are equal to, and their hash."""
    return base is object or (
        kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
    )


def _has_made_eq(kind: type) -> bool:
    """Whether `__eq__` is the one that `dataclass` makes of the fields."""
    fields = [
        (f.name, object, dataclasses.field(compare=f.compare))
        for f in dataclasses.fields(kind)
    ]
    made: type = dataclasses.make_dataclass("made", fields, frozen=True)
    own = getattr(kind.__eq__, "__code__", made.__eq__.__code__)
    return (own.co_code, own.co_names) == (
        made.__eq__.__code__.co_code,
        made.__eq__.__code__.co_names,
    )


def _of_own(key: Key) -> int:
    if isinstance(key, type):
        raise _refusal(key)
    value = getattr(key, OWN_KEY)()
    return _HASHES[type(value)](value)


def _refuse_own(key: object) -> int:
    raise _refusal(
        key,
        f"it has an __eq__ or __hash__ of its own, so define {OWN_KEY}() to return "
        "the plain value that equal keys have in common",
    )


def _of_record(key: Any) -> int:
    parameters = key.__dataclass_params__
    if parameters.frozen and parameters.eq:
        values = (getattr(key, f.name) for f in dataclasses.fields(key) if f.compare)
        return _of_parts((type(key).__qualname__, *values), _RECORD)
    raise _refusal(key, "declare the dataclass with frozen=True")


@singledispatch
def _folded(key: object) -> int:
    """Return 32 bits, not yet mixed."""
    raise _refusal(key)


@_folded.register
def _of_int(key: int) -> int:
    return _of_number(int.__hash__(key))


@_folded.register
def _of_float(key: float) -> int:
    return _NAN if key != key else _of_number(float.__hash__(key))  # noqa: PLR0124


@_folded.register
def _of_complex(key: complex) -> int:
    return _NAN if key != key else _of_number(complex.__hash__(key))  # noqa: PLR0124


@_folded.register
def _of_decimal(key: Decimal) -> int:
    return _NAN if key.is_nan() else _of_number(Decimal.__hash__(key))


@_folded.register
def _of_fraction(key: Fraction) -> int:
    return _of_number(Fraction.__hash__(key))


@_folded.register
def _of_text(key: str) -> int:
    try:
        return crc32(str.encode(key), _TEXT)
    except UnicodeEncodeError:  # a lone surrogate, as os.fsdecode makes them
        return crc32(str.encode(key, "utf-8", "surrogatepass"), _TEXT)


@_folded.register
def _of_bytes(key: bytes) -> int:
    return crc32(key, _BYTES)


@_folded.register
def _of_tuple(key: tuple) -> int:  # type: ignore[type-arg]  # dispatch takes the bare class
    return crc32(struct.pack(f">{len(key)}I", *map(key_hash, key)), _TUPLE)


@_folded.register
def _of_frozenset(key: frozenset) -> int:  # type: ignore[type-arg]  # as above
    hashes = sorted(map(key_hash, key))
    return crc32(struct.pack(f">{len(hashes)}I", *hashes), _SET)


@_folded.register
def _of_none(_: None) -> int:
    return _NONE


@_folded.register
def _of_date(key: date) -> int:
    return _of_parts((key.toordinal(),), _DATE)


@_folded.register
def _of_datetime(key: datetime) -> int:
    # Equality within one zone ignores `fold`, so the hash must ignore it too.
    wall = key.replace(fold=0)
    offset = wall.utcoffset()
    since = (wall.replace(tzinfo=None) - datetime.min) // _MICROSECOND  # noqa: DTZ901
    if offset is None:
        return _of_parts((since,), _NAIVE)
    return _of_parts((since - offset // _MICROSECOND,), _AWARE)


@_folded.register
def _of_time(key: time) -> int:
    offset = key.replace(fold=0).utcoffset()
    seconds = key.hour * 3600 + key.minute * 60 + key.second
    if offset is None:
        return _of_parts((seconds, key.microsecond), _NAIVE_TIME)
    seconds -= offset.days * 86_400 + offset.seconds
    return _of_parts((seconds, key.microsecond), _AWARE_TIME)


@_folded.register
def _of_timedelta(key: timedelta) -> int:
    return _of_parts((key // _MICROSECOND,), _DELTA)


@_folded.register
def _of_uuid(key: UUID) -> int:
    return crc32(key.bytes, _UUID)


@_folded.register
def _of_enum(key: Enum) -> int:
    # The unnamed combinations of a Flag have only their value.
    member = key.value if isinstance(key, Flag) else key.name
    return _of_parts((type(key).__qualname__, member), _ENUM)


def _of_number(number: int) -> int:
    return (number ^ (number >> 32) * _GOLDEN) & _MASK


def _of_parts(parts: Iterable[object], tag: int) -> int:
    hashes = [key_hash(part) for part in parts]
    return crc32(struct.pack(f">{len(hashes)}I", *hashes), tag)


def _of_numpy_scalar(key: object) -> int:
    item = key.item()  # type: ignore[attr-defined]  # numpy need not be installed
    # Equal datetime64 of different units give unequal items; longdouble gives itself.
    if key.dtype.kind in "biufcSU" and type(item) is not type(key):  # type: ignore[attr-defined]
        return _HASHES[type(item)](item)
    raise _refusal(key, "convert it to a Python value with .item()")


def _of_timestamp(key: pd.Timestamp) -> int:
    # Equal to a datetime if that can say it, which knows no nanoseconds.
    folded = _of_datetime(key.to_pydatetime(warn=False))
    return _of_parts((folded, key.nanosecond), _NANO) if key.nanosecond else folded


def _of_pandas_delta(key: pd.Timedelta) -> int:
    folded = _of_timedelta(key.to_pytimedelta())
    return _of_parts((folded, key.nanoseconds), _NANO) if key.nanoseconds else folded


def _of_nat(_: object) -> int:
    return _NAT


_OF_PANDAS = {
    "Timestamp": _of_timestamp,
    "Timedelta": _of_pandas_delta,
    "NaTType": _of_nat,
}


def _refusal(key: object, fix: str = "") -> TypeError:
    advice = fix or (
        "use None, a number, str, bytes, date, time, UUID, an Enum member, a frozen "
        "dataclass, or a tuple or frozenset of these"
    )
    name = type(key).__qualname__
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    msg = f"{article} {name} cannot be a key; {advice}"
    return TypeError(msg)
