"""How thoroughly Hypothesis searches: `dev` by default, `ci` in `.ci/run`."""

from __future__ import annotations

import os

from hypothesis import settings
from tests.launchers import launcher

__all__ = ["launcher"]

settings.register_profile("dev", max_examples=100, deadline=None)
settings.register_profile(
    "ci", max_examples=1_000, deadline=None, derandomize=True, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
