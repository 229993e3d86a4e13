"""How long a task has waited for its readers."""

from __future__ import annotations

from millstream.runtime.occupancy import Occupancy


def test_waits_add_up_and_the_present_one_counts() -> None:
    """Whoever asks while it waits does not see less than afterwards."""
    occupancy = Occupancy()
    for begin, end in ((10, 15), (20, 27)):
        occupancy.block(begin)
        occupancy.block(begin + 1)
        occupancy.unblock(end)
    occupancy.block(30)

    assert occupancy.is_blocked
    assert occupancy.blocked_ns(33) == 5 + 7 + 3
    assert occupancy.blocked_ns(29) == 5 + 7, "it began after the look at the clock"


def test_who_does_not_wait_can_stop_waiting() -> None:
    """Every turn that goes on says so."""
    occupancy = Occupancy()

    occupancy.unblock(9)

    assert not occupancy.is_blocked
    assert occupancy.blocked_ns(10) == 0
