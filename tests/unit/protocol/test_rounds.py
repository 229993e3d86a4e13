"""The decider of rounds whose body needs sides from outside."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.rounds import (
    Decider,
    Decision,
    EpochPassedOn,
    Head,
    HeadReady,
    HeadUnread,
    LoopUnread,
    RoundsSoFar,
)

BARRIER = Barrier(Epoch(7), Epoch(6))
FIRST = Decision(1, is_over=False, value=0)


def waiting(rounds_max: int = 3) -> Decider:
    """Return a decider of two heads whose sides are open."""
    judge = lambda value, _: (value + 1, False)  # noqa: E731 - one line
    return Decider(2, rounds_max, 0, judge, has_open_sides=True)


def told(decider: Decider, *heads: int) -> list[Any]:
    """Let heads be ready; return what all of them are told."""
    made = [each for head in heads for each in decider.hear(HeadReady(head, 0))]
    decider.validate()
    return made


def test_first_round_begins_when_heads_are_ready_and_sides_have_ended() -> None:
    """Whichever of the two is last."""
    early, late = waiting(), waiting()

    assert told(early, 0, 1) == []
    assert early.end_sides() == [FIRST]
    assert late.end_sides() == []
    assert told(late, 0, 1) == [FIRST]


def test_epochs_pass_at_once_while_a_side_is_open() -> None:
    """Nobody is in a round, however long the side is."""
    decider = waiting()
    told(decider, 0, 1)

    assert decider.announce(BARRIER) == [EpochPassedOn(BARRIER)]
    decider.end_sides()
    assert decider.announce(BARRIER) == []


def test_no_side_is_waited_for_where_there_is_no_round() -> None:
    """It may be endless, and nobody would see what it is joined with."""
    unread = waiting()
    told(unread, 0, 1)

    assert told(waiting(rounds_max=0), 0, 1) == [Decision(1, is_over=True, value=0)]
    assert unread.note_unread(HeadUnread(0)) == []
    assert unread.note_unread(HeadUnread(1)) == [
        LoopUnread(),
        Decision(1, is_over=True, value=0),
    ]


@pytest.mark.parametrize("is_over", [False, True])
def test_round_is_repeated_when_a_side_that_is_new_has_ended(is_over: bool) -> None:  # noqa: FBT001 - a parameter
    """The flow was changed in the middle of an iteration; epochs pass meanwhile."""
    decider = waiting()
    decider.last = Decision(4, is_over=is_over, value=3)
    decider.round, decider.value = 0 if is_over else 4, 3

    assert decider.repeat() == ([decider.last] if is_over else [])
    assert decider.announce(BARRIER) == [EpochPassedOn(BARRIER)]
    assert decider.end_sides() == ([] if is_over else [decider.last])


def test_every_epoch_passes_in_front_of_the_next_decision() -> None:
    """One that was given up in a long round is aligned elsewhere, and waited for."""
    decider = waiting()
    told(decider, 0, 1)
    decider.end_sides()
    later = Barrier(Epoch(8), Epoch(6))

    assert decider.announce(BARRIER) == decider.announce(later) == []
    passed = decider.end_round([])
    assert passed[:2] == [EpochPassedOn(BARRIER), EpochPassedOn(later)]
    assert passed[2] == Decision(2, is_over=False, value=1)
    decider.validate()


def test_fewer_rounds_than_were_done_before_end_with_the_one_under_way() -> None:
    """The flow was changed in the middle of an iteration."""
    decider = waiting(rounds_max=3)
    decider.last = Decision(5, is_over=False, value=4)
    decider.round, decider.value = 5, 4
    decider.end_sides()

    assert decider.end_round([]) == [Decision(6, is_over=True, value=5)]


@pytest.mark.parametrize("ready", [HeadReady(2, 0), HeadReady(-1, 0), HeadReady(0, 1)])
def test_no_head_is_ahead_of_the_decider_or_unknown_to_it(ready: HeadReady) -> None:
    """What a head of another job says would be decided by."""
    with pytest.raises(RemoteProtocolError, match=r"no head|is ahead"):
        waiting().hear(ready)


def test_a_head_hears_every_decision() -> None:
    """Without the rows of a round it would go on with those of the round before."""
    head = Head(does_return=True)
    head.end_input()
    with pytest.raises(RemoteProtocolError, match="decision 2 came after decision 0"):
        head.decide(Decision(2, is_over=False))


def test_a_number_that_is_no_float_is_told_by_its_type() -> None:
    """What a round came to is shown to people, and ends no job."""
    rounds = RoundsSoFar()
    rounds.note(10**400, 5)
    assert rounds.history == ["int"]
