"""Members that say what decodes and makes no sense: to the coordinator, and to workers.

Whatever a member says, nobody's `step` raises, and the job comes to its end: with an
outcome, or with an error of ours that says what happened.  A member that was given up for
the first thing it said has changed nothing, so that a job with snapshots gives the right
rows all the same.  What is plausible is believed: whoever is in a job may forge rows.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.liars import ROWS, Lie, Theatre, lies

from millstream.errors import MillstreamError

SUMS = sorted((k, sum(n for n in range(ROWS) if n % 5 == k)) for k in range(5))


def end_of(theatre: Theatre, told: list[Lie]) -> MillstreamError | None:
    """Return how the job ends: with rows that can be read, or with an error."""
    assert theatre.play(told), "\n".join(theatre.coordinator.story.lines())
    error = theatre.coordinator.error()
    if error is None:
        try:
            theatre.rows()
        except MillstreamError as unreadable:
            return unreadable
    return error


@pytest.mark.parametrize("keeps", [False, True])
def test_honest_job_gives_its_rows_and_gives_nobody_up(keeps: bool) -> None:  # noqa: FBT001
    """Without a lie nothing of what follows happens."""
    theatre = Theatre(keeps=keeps)

    assert end_of(theatre, []) is None

    assert theatre.rows() == SUMS
    assert theatre.coordinator.given_up == {}
    assert not any("given up" in line for line in theatre.coordinator.story.lines())


@examples(2)
@given(st.booleans(), st.lists(lies(), max_size=6))
def test_nothing_that_members_say_ends_anybodys_process(
    keeps: bool,  # noqa: FBT001
    told: list[Lie],
) -> None:
    """The job ends in order, or fails with one sentence; it neither raises nor hangs."""
    error = end_of(Theatre(keeps=keeps), told)

    assert error is None or isinstance(error, MillstreamError)


@examples(2)
@given(lies())
def test_member_that_is_given_up_at_once_has_changed_nothing(lie: Lie) -> None:
    """Its loss is a loss like any other: the job goes back, and its rows are right."""
    theatre = Theatre(keeps=True)

    error = end_of(theatre, [lie])

    told = theatre.coordinator.given_up
    if told and lie.source in told:
        name = type(lie.packet.body).__name__
        assert told[lie.source].startswith(f"it sent {name}, which makes no sense: ")
        assert error is None
        assert theatre.rows() == SUMS
