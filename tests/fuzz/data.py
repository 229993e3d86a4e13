"""Awkward input: few keys or many, one key with nearly all rows, nulls, NaN, extremes.

Data is made from a few numbers, so that a program stays small; it is written in full.
"""

from __future__ import annotations

from math import nan
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from tests.fuzz.verbs import Record

__all__ = ["FRAME_KEYS", "FRAME_SCHEMA", "KEYS", "SIZES", "frame_of", "records_of"]

FRAME_SCHEMA = {"k": pl.String, "v": pl.Int64, "t": pl.Int64}
SIZES = (0, 1, 2, 12, 40, 40, 80, 80)
KEYS: dict[str, tuple[Any, ...]] = {
    "one": ("a",),
    "few": (0, 1, 2),
    "skewed": (*["hot"] * 30, "cold", "", "ä", "a\u0308", "\U0001f980"),
    "many": tuple(range(-20, 20)),
    "odd": (None, 7, -(2**70), 1.5, "", (1, "x"), b"\x00"),
    "nan": (nan, 3, 4),
}
FRAME_KEYS: dict[str, tuple[str | None, ...]] = {
    "one": ("a",),
    "few": ("a", "b", "c"),
    "skewed": (*["hot"] * 30, "cold", "", "ä", "a\u0308", "\U0001f980"),
    "null": (None, "a", "b"),
}
_VALUES = (*range(-3, 9), 10**6, -(10**6))
_LARGE = (*_VALUES, 2**70, -(2**63))
_TIMES = range(-50, 200)


def records_of(size: int, keys: str, salt: int) -> list[Record]:
    """Return so many records; more of them are out of order, the larger the salt."""
    rng = Random(salt)
    values = _LARGE if salt % 3 == 2 else _VALUES
    records = [
        (rng.choice(KEYS[keys]), rng.choice(values), time)
        for time in _times(rng, size, salt)
    ]
    return records + records[: size // 8]


def frame_of(size: int, keys: str, salt: int) -> pl.DataFrame:
    """Return a frame of so many rows."""
    rng = Random(salt)
    values = (*_VALUES, None) if salt % 3 == 2 else _VALUES
    rows = [
        (rng.choice(FRAME_KEYS[keys]), rng.choice(values), time)
        for time in _times(rng, size, salt)
    ]
    return pl.DataFrame(rows, FRAME_SCHEMA, orient="row")


def _times(rng: Random, size: int, salt: int) -> list[int]:
    times = sorted(rng.choice(_TIMES) for _ in range(size))
    for _ in range(salt % 4 * size // 4):
        one, other = rng.randrange(size), rng.randrange(size)
        times[one], times[other] = times[other], times[one]
    return times
