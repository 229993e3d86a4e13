"""Virtual time goes forward when told, and never back."""

from __future__ import annotations

import pytest

from millstream.simulation.clock import SkewedClock, VirtualClock


def test_jump_into_the_past_changes_nothing() -> None:
    """The next event may be overdue already."""
    clock = VirtualClock()
    clock.advance(10)
    clock.jump(4)

    assert clock.monotonic_ns() == 10


def test_advance_refuses_to_go_back() -> None:
    """A monotonic clock has one direction."""
    with pytest.raises(AssertionError, match="never goes back"):
        VirtualClock().advance(-1)


def test_skewed_clock_keeps_its_distance() -> None:
    """Machines start at different times and then run alike."""
    base = VirtualClock()
    clock = SkewedClock(base, 1_000)
    base.advance(5)

    assert clock.monotonic_ns() == 1_005
