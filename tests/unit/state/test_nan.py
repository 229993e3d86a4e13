"""All NaN in keys are one object, in every process and inside anything that can be a key."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from millstream.state.keyhash import key_hash
from millstream.state.nan import NAN, one_nan, rows_with_one_nan


class Point(NamedTuple):
    """A place."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sensor said."""

    sensor: str
    value: float


def nan() -> float:
    """Return a NaN that is no other one."""
    return float("nan")


class ByField(Reading):
    """Compared as dataclasses are from Python 3.13 on."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByField) and self.value == other.value

    __hash__ = Reading.__hash__


def test_record_that_is_not_equal_to_itself_is_refused() -> None:
    """Every row of it would be a key of its own, and stay for ever."""
    with pytest.raises(TypeError, match=r"not equal to itself, .* tuple of its"):
        one_nan(ByField("a", nan()))
    assert one_nan(ByField("a", 1.5)) == ByField("b", 1.5)


@pytest.mark.parametrize(
    "make",
    [
        nan,
        lambda: Decimal("nan"),
        lambda: np.float32("nan"),
        lambda: np.float64("nan"),
        lambda: complex("nan"),
        lambda: ("a", nan()),
        lambda: ("a", (1, np.float64("nan"))),
        lambda: Point(1.5, nan()),
        lambda: frozenset([nan(), 1]),
        pytest.param(
            lambda: Reading("a", nan()),
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 13), reason="it is not equal to itself"
            ),
        ),
    ],
)
def test_key_with_nan_is_found_again(make: Any) -> None:
    """In a dict, after pickling too, and in the shard of the key it came as."""
    key = one_nan(make())

    assert {key: 1}[one_nan(make())] == 1
    assert {key: 1}[pickle.loads(pickle.dumps(key))] == 1
    assert {key: 1}[copy.deepcopy(key)] == 1
    assert key_hash(key) == key_hash(make())
    assert type(key) is type(make()) or key is NAN


@pytest.mark.parametrize(
    "key",
    ["a", 1, 1.5, None, (1, 2.5), frozenset([1]), Reading("a", 1.5), pd.NaT, "nan"],
)
def test_key_without_nan_is_itself(key: Any) -> None:
    """Nothing is made anew that need not be."""
    assert one_nan(key) is key


def test_nan_is_a_float_like_any_other() -> None:
    """Results show it to users."""
    assert math.isnan(NAN)
    assert isinstance(NAN, float)
    assert (repr(NAN), str(NAN)) == ("nan", "nan")
    assert nan() != NAN


def test_rows_of_plain_keys_are_not_copied() -> None:
    """The hot path looks at types only."""
    rows = [("a", 1), (2, nan())]

    assert rows_with_one_nan(rows) is rows
