"""All verbs, from the modules that define them."""

from __future__ import annotations

from tests.fuzz import (
    frame_verbs,
    join_verbs,
    loop_verbs,
    row_verbs,
    sink_verbs,
    time_verbs,
)
from tests.fuzz.verbs import VERBS

__all__ = ["MODULES", "VERBS"]

MODULES = (row_verbs, time_verbs, join_verbs, loop_verbs, frame_verbs, sink_verbs)
