"""How many examples and seeds are tried, by what a test costs and how long a run may take.

The profile says how thorough a run is: `dev` is for ``make check``, `test` for
``make test`` and `ci` for ``.ci/run``, which has an hour.  A test that costs more than most
takes a share of the examples.
"""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["examples", "load_profile", "seed_count"]

_PROFILES = {"dev": 30, "test": 50, "ci": 150}
"""So many examples of a test that costs as much as most."""


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


def seed_count(count: int) -> int:
    """Return how many of so many seeds of the simulator a run tries."""
    return count if _profile() == "ci" else count // 4


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", "dev")


def examples(share: float) -> settings:
    """Return settings with so much of what the profile asks for."""
    return settings(max_examples=round(share * settings().max_examples))
