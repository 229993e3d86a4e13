"""A clock for tests."""

from __future__ import annotations

from datetime import timedelta

from millstream.testing import ManualClock


def test_time_passes_only_when_told() -> None:
    """In words or as a timedelta."""
    clock = ManualClock(start_ns=7)
    assert clock.monotonic_ns() == 7
    clock.advance("1us")
    clock.advance(timedelta(microseconds=2))

    assert clock.monotonic_ns() == 3_007
