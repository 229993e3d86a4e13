"""The hash that decides in which shard a key lives, the same in every process.

Three promises hold together:

- *stable*: the hash of a key depends on nothing but the key and `KEY_HASH_VERSION`;
  not on the process, its hash seed, the Python version or the machine;
- *consistent with* ``==``: keys that Python calls equal (``1 == 1.0``, a named tuple
  and a tuple, one instant in two time zones) hash equal, as a dict of state needs;
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
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

__all__ = ["KEY_HASH_VERSION", "key_hash", "shard_of", "shards_of"]

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
        folded = _folded(key)
    mixed = ((folded ^ folded >> 16) * _GOLDEN) & _MASK
    mixed = ((mixed ^ mixed >> 15) * _EULER) & _MASK
    return mixed ^ mixed >> 16


def shard_of(key: object, shard_count: int) -> int:
    """Return the shard of a key; each shard is one range of key hashes.

    Examples
    --------
    >>> 0 <= shard_of("mill", 1024) < 1024
    True
    """
    return key_hash(key) * shard_count >> 32


def shards_of(keys: list[Any], shard_count: int) -> npt.NDArray[np.int64]:
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


def _folded_alike(keys: list[Any]) -> npt.NDArray[np.int64] | None:
    """Return what `_folded` gives if all are texts or all are whole numbers."""
    import numpy as np  # noqa: PLC0415 - as above

    kinds = set(map(type, keys))
    try:
        if kinds == {str}:
            sums = map(crc32, map(str.encode, keys), repeat(_TEXT))
            return np.fromiter(sums, np.int64, len(keys))
        if kinds == {int}:
            numbers = np.fromiter(map(hash, keys), np.int64, len(keys))
            return (numbers ^ (numbers >> 32) * _GOLDEN) & _MASK
    except UnicodeEncodeError:
        pass
    return None


@singledispatch
def _folded(key: object) -> int:
    """Return 32 bits, not yet mixed; subclasses go with the type they equal."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.generic):
        return _of_numpy_scalar(key)
    parameters = getattr(key, "__dataclass_params__", None)
    if dataclasses.is_dataclass(key) and parameters and not isinstance(key, type):
        if parameters.frozen and parameters.eq:
            values = (
                getattr(key, f.name) for f in dataclasses.fields(key) if f.compare
            )
            return _of_parts((type(key).__qualname__, *values), _RECORD)
        raise _refusal(key, "declare the dataclass with frozen=True")
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
    if key.dtype.kind in "biufc" and type(item) is not type(key):  # type: ignore[attr-defined]
        return _folded(item)
    raise _refusal(key, "convert it to a Python value with .item()")


def _refusal(key: object, fix: str = "") -> TypeError:
    advice = fix or (
        "use None, a number, str, bytes, date, time, UUID, an Enum member, a frozen "
        "dataclass, or a tuple or frozenset of these"
    )
    msg = f"a {type(key).__qualname__} cannot be a key; {advice}"
    return TypeError(msg)
