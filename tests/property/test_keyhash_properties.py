"""key_hash: equal keys hash equal, in this and in any other process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

import millstream
from millstream.state.keyhash import key_hash, shard_of, shards_of

NUMBERS = (
    st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.complex_numbers(allow_nan=False)
)
ZONES = st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))
SCALARS = (
    NUMBERS
    | st.none()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | ZONES)
    | st.times(timezones=st.none() | ZONES)
    | st.timedeltas()
    | st.uuids()
)
GROUPS = st.lists(SCALARS, max_size=4).map(tuple) | st.frozensets(SCALARS, max_size=4)
KEYS = SCALARS | GROUPS | st.lists(SCALARS | GROUPS, max_size=3).map(tuple)

PROGRAM = """
import ast, json, sys
from millstream.state.keyhash import key_hash
keys = ast.literal_eval(sys.stdin.read())
frozen = [frozenset(key) if type(key) is set else key for key in keys]
print(json.dumps([key_hash(key) for key in frozen]))
"""


@given(st.lists(SCALARS, min_size=2))
def test_equal_keys_hash_equal(keys: list[Any]) -> None:
    """Whenever Python calls two drawn keys equal, so does their hash."""
    first: dict[Any, Any] = {}
    for key in keys:
        assert key_hash(key) == key_hash(first.setdefault(key, key))


@given(st.integers(-(2**80), 2**80), st.integers(0, 6))
def test_a_number_hashes_equal_in_every_type_that_holds_it(
    numerator: int, power: int
) -> None:
    """Types that can hold the value exactly agree on it."""
    fraction = Fraction(numerator, 2**power)
    others = [float(fraction), complex(fraction), Decimal(float(fraction))]
    equal = [other for other in others if other == fraction]

    assert {key_hash(other) for other in equal} <= {key_hash(fraction)}


@given(st.datetimes(timezones=ZONES), ZONES)
def test_an_instant_hashes_equal_in_every_zone(moment: Any, zone: Any) -> None:
    """Rows of one instant meet, wherever they were written."""
    hypothesis.assume(1 < moment.year < 9999)

    assert key_hash(moment.astimezone(zone)) == key_hash(moment)


@given(KEYS, st.integers(1, 5000))
def test_every_key_has_a_shard(key: Any, shard_count: int) -> None:
    """The hash has 32 bits and the shard is one of those that exist."""
    assert 0 <= key_hash(key) < 2**32
    assert 0 <= shard_of(key, shard_count) < shard_count


@given(
    st.lists(KEYS) | st.lists(st.text()) | st.lists(st.integers()),
    st.integers(1, 5000),
)
def test_shards_of_many_keys_are_those_of_each(
    keys: list[Any], shard_count: int
) -> None:
    """Routers ask for one key at a time, snapshots for all at once."""
    expected = [shard_of(key, shard_count) for key in keys]

    assert shards_of(keys, shard_count).tolist() == expected


def test_another_process_with_another_hash_seed_agrees() -> None:
    """Two workers must send the rows of a key to the same place."""
    keys = ["a", "é\ud800", b"a", 7, -1, 2**70, 1.5, 1j, None, True, ("a", (b"b", 2))]
    sets = [frozenset(f"word {n}" for n in range(20)), frozenset("abc")]
    source = str(Path(millstream.__file__).parents[1])
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=repr([*keys, *map(set, sets)]),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(answer.stdout) == [key_hash(key) for key in (*keys, *sets)]
