"""How many examples, seeds and steps are tried, by how long a run may take.

The profile says how thorough a run is: `dev` is for ``make check``, `test` for
``make test`` and `ci` for ``.ci/run``, which has an hour and leaves nothing out.  A test
that costs more than most takes a share of the examples.  What `make test` leaves out
rotates with the date, so that every day looks somewhere else.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "examples",
    "few_flows",
    "few_seeds",
    "fresh_seeds",
    "is_exhaustive",
    "load_profile",
    "mostly_slow",
    "some_of",
]

_PROFILES = {"dev": 10, "test": 30, "ci": 150}
"""So many examples of a test that costs as much as most."""

_FIRST_FRESH_SEED = 10_000_000
"""Those before belong to `.ci/run` and to ``make soak``."""
_SEEDS_A_DAY = 10_000


def load_profile() -> None:
    """Let ``HYPOTHESIS_PROFILE`` decide for this run."""
    for name, count in _PROFILES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize=name == "ci",
            print_blob=name == "ci",
        )
    settings.load_profile(_profile())
    _today()


def is_exhaustive() -> bool:
    """Whether the run leaves nothing out."""
    return _profile() == "ci"


def fresh_seeds(seconds: float) -> Iterator[int]:
    """Give seeds that another day does not try, until so many seconds have passed."""
    deadline = time.monotonic() + seconds
    first = _FIRST_FRESH_SEED + _SEEDS_A_DAY * _today()
    for seed in range(first, first + _SEEDS_A_DAY):
        yield seed
        if time.monotonic() > deadline:
            return


def few_seeds(count: int) -> range:
    """Return that many seeds; ``make check`` has one in three of them, others tomorrow."""
    seeds = range(count)
    return seeds[_today() % min(3, count) :: 3] if _profile() == "dev" else seeds


def few_flows(flows: Sequence[Any]) -> Sequence[Any]:
    """Return the flows; ``make check`` has one in three of them, others tomorrow."""
    return flows[_today() % 3 :: 3] if _profile() == "dev" else flows


def mostly_slow(*values: Any, fast: int = 1) -> list[Any]:
    """Return values for a test of which only the first are for ``make check``."""
    late = (pytest.param(value, marks=pytest.mark.slow) for value in values[fast:])
    return [*values[:fast], *late]


def some_of(steps: range, stride: int) -> range:
    """Return every so many steps, others tomorrow, or all in an exhaustive run."""
    return steps if is_exhaustive() else steps[_today() % stride :: stride]


def examples(share: float) -> settings:
    """Return settings with so much of what the profile asks for."""
    return settings(max_examples=max(3, round(share * settings().max_examples)))


def _today() -> int:
    """Return the day of the run, the same in all of its processes."""
    day = str(datetime.now(UTC).toordinal())
    return int(os.environ.setdefault("MILLSTREAM_TESTS_DAY", day))


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "dev")
