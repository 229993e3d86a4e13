"""How many examples Hypothesis tries, by what a test costs and how long a run may take.

The profile says how thorough a run is: `dev` is for ``make check``, `test` for
``make test`` and `ci` for ``.ci/run``.  A test that costs more than most takes a share.
"""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["examples", "load_profile"]

_PROFILES = {"dev": 50, "test": 100, "ci": 200}


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
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def examples(share: float) -> settings:
    """Return settings with so much of what the profile asks for."""
    return settings(max_examples=round(share * settings().max_examples))
