"""Heads and their decider: whatever the order of messages, they go through the same rounds.

Method: a decider and some heads are connected by queues.  Hypothesis chooses whose turn it
is, when inputs end, when epochs are announced, and when everybody goes back to the last cut.
The model is the number of rounds that was asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.rounds import (
    Decider,
    Decision,
    EpochPassedOn,
    Head,
    HeadPhase,
    HeadReady,
    HeadUnread,
    LoopUnread,
)

OUTER_ROUNDS = 2
EPOCHS = 4


@dataclass
class Stand:
    """Heads and a decider, with everything that is on its way between them."""

    head_count: int
    rounds: int
    does_return: bool
    is_nested: bool
    epoch: int = 0
    replays: list[list[int]] = field(default_factory=list)
    results: list[list[int]] = field(default_factory=list)
    #: By epoch, the phase and the last decision of every head at its cut.
    cuts: dict[int, dict[int, tuple[HeadPhase, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heads = [
            Head(self.does_return, self.is_nested) for _ in range(self.head_count)
        ]
        self.decider = Decider(self.head_count, self.rounds, 0, self._judge)
        self.to_decider: deque[HeadReady | HeadUnread] = deque()
        self.to_heads: list[deque[Any]] = [deque() for _ in self.heads]
        self.inputs_left = [OUTER_ROUNDS if self.is_nested else 1 for _ in self.heads]
        self.replays = [[] for _ in self.heads]
        self.results = [[] for _ in self.heads]
        #: Rounds that the body has not finished with, by head.
        self.in_body = [0 for _ in self.heads]

    def _judge(self, value: int, _: Any) -> tuple[int, bool]:
        return value + 1, False

    def moves(self) -> list[tuple[str, int]]:
        """Return what may happen next."""
        found = [("hear", 0)] if self.to_decider else []
        for index, head in enumerate(self.heads):
            is_collecting = head.phase is HeadPhase.COLLECTING
            if is_collecting and self.inputs_left[index]:
                found.append(("end", index))
            if head.phase is HeadPhase.REPLAYING:
                found.append(("replay", index))
            if head.phase is HeadPhase.GIVING:
                found.append(("give", index))
            if self.to_heads[index] and head.may_cut:
                found.append(("tell", index))
        if all(self.in_body):
            found.append(("body", 0))
        return found

    def move(self, name: str, index: int) -> None:
        """Let something happen, and ask everybody whether that can be."""
        self._move(name, index)
        self.validate()

    def validate(self) -> None:
        self.decider.validate()
        for head in self.heads:
            head.validate()
            behind = self.decider.number - head.decided
            assert behind in {0, 1}, "at most one decision behind, and never ahead"

    def _move(self, name: str, index: int) -> None:
        head = self.heads[index]
        match name:
            case "hear":
                self._heard(self.to_decider.popleft())
            case "end":
                self.inputs_left[index] -= 1
                if head.end_input():
                    self._ready(index)
            case "replay":
                head.replayed()
                self.replays[index].append(head.decided)
                self.in_body[index] += 1
            case "give":
                head.given()
                self.results[index].append(head.decided)
            case "tell":
                self._told(index, self.to_heads[index].popleft())
            case "body":
                self._finish_body()

    def _heard(self, message: HeadReady | HeadUnread) -> None:
        if isinstance(message, HeadUnread):
            self._broadcast(self.decider.note_unread(message))
        else:
            self._broadcast(self.decider.hear(message))

    def announce(self) -> None:
        self.epoch += 1
        barrier = Barrier(Epoch(self.epoch), Epoch(self.epoch - 1))
        self._broadcast(self.decider.announce(barrier))
        self.validate()

    def _finish_body(self) -> None:
        self.in_body = [n - 1 for n in self.in_body]
        if self.does_return:
            for index, head in enumerate(self.heads):
                if head.returned():
                    self._ready(index)
        else:
            self._broadcast(self.decider.end_round([]))

    def _told(self, index: int, message: Any) -> None:
        head = self.heads[index]
        if isinstance(message, EpochPassedOn):
            cut = self.cuts.setdefault(message.barrier.epoch, {})
            cut[index] = (head.phase, head.decided)
        elif isinstance(message, LoopUnread):
            self.inputs_left[index] = 0
            if head.end_input():
                self._ready(index)
        else:
            assert isinstance(message, Decision)
            head.decide(message)

    def _ready(self, index: int) -> None:
        self.to_decider.append(HeadReady(index, self.heads[index].decided))

    def _broadcast(self, messages: list[Any]) -> None:
        for queue in self.to_heads:
            queue.extend(messages)


def stands() -> st.SearchStrategy[Stand]:
    return st.builds(
        Stand,
        head_count=st.integers(1, 3),
        rounds=st.integers(0, 3),
        does_return=st.booleans(),
        is_nested=st.booleans(),
    )


@given(stand=stands(), data=st.data())
def test_every_head_goes_through_the_same_rounds(
    stand: Stand, data: st.DataObject
) -> None:
    """As many as were asked for, in every iteration; each gives one result."""
    while moves := stand.moves():
        stand.move(*data.draw(st.sampled_from(moves)))

    iterations = OUTER_ROUNDS if stand.is_nested else 1
    for index in range(stand.head_count):
        assert len(stand.replays[index]) == iterations * stand.rounds
        assert len(stand.results[index]) == iterations
        assert stand.replays[index] == stand.replays[0]
        assert stand.results[index] == stand.results[0]
    event(f"{iterations * stand.rounds} rounds")


@given(stand=stands(), data=st.data())
def test_heads_cut_between_the_same_two_rounds(
    stand: Stand, data: st.DataObject
) -> None:
    """An epoch never divides a round: no row is in the body when any head cuts."""
    while moves := stand.moves():
        if stand.epoch < EPOCHS and data.draw(st.integers(0, 3)) == 1:
            stand.announce()
        stand.move(*data.draw(st.sampled_from(moves)))

    for cut in stand.cuts.values():
        assert len({decided for _, decided in cut.values()}) == 1
        phases = {phase for phase, _ in cut.values()}
        assert phases <= {HeadPhase.COLLECTING, HeadPhase.WAITING}
    event(f"{len(stand.cuts)} epochs")


@given(stand=stands(), data=st.data())
def test_repeating_what_is_known_changes_nothing(
    stand: Stand, data: st.DataObject
) -> None:
    """As after a recovery, where the decider tells its last decision again."""
    repeats = 3
    while moves := stand.moves():
        stand.move(*data.draw(st.sampled_from(moves)))
        if repeats and stand.decider.last is not None and data.draw(st.booleans()):
            repeats -= 1
            for queue in stand.to_heads:
                queue.append(stand.decider.last)

    iterations = OUTER_ROUNDS if stand.is_nested else 1
    for index in range(stand.head_count):
        assert len(stand.replays[index]) == iterations * stand.rounds
        assert len(stand.results[index]) == iterations


@given(
    stand=stands().filter(lambda stand: not stand.is_nested),
    may_end=st.sampled_from([True, False]),
    data=st.data(),
)
def test_a_loop_that_nobody_reads_is_over_for_all_heads_alike(
    stand: Stand,
    may_end: bool,  # noqa: FBT001 - drawn by name
    data: st.DataObject,
) -> None:
    """Also if input never ends; heads still cut between the same two rounds."""
    unread = data.draw(st.permutations(range(stand.head_count)))

    def moves() -> list[tuple[str, int]]:
        return [move for move in stand.moves() if may_end or move[0] != "end"]

    while unread or moves():
        if stand.epoch < EPOCHS and data.draw(st.integers(0, 3)) == 1:
            stand.announce()
        if unread and (not moves() or data.draw(st.booleans())):
            stand.to_decider.append(HeadUnread(unread.pop()))
        else:
            stand.move(*data.draw(st.sampled_from(moves())))

    assert {head.phase for head in stand.heads} == {HeadPhase.OVER}
    assert len({tuple(replays) for replays in stand.replays}) == 1
    assert len(stand.replays[0]) <= stand.rounds
    for cut in stand.cuts.values():
        assert len({decided for _, decided in cut.values()}) == 1
    event(f"{len(stand.replays[0])} of {stand.rounds} rounds")
