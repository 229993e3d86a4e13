"""Heads that go on as more or fewer heads: every row still makes every round, once.

Method: splits are read by heads, heads and a decider are connected by queues, and each head
sends the barrier behind what it has said.  So does a side, whose rows the rounds need, until
it ends.  Hypothesis chooses whose turn it is, when epochs
are announced, and when everybody goes back to the last complete cut, with another number of
heads, among whom splits and rows are dealt out anew.  Rows count the rounds that they made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.rounds import (
    Decider,
    Decision,
    EpochPassedOn,
    Head,
    HeadPhase,
    HeadReady,
)

RESIZES_MAX = 3
EPOCHS_MAX = 12

SIDE = -1
"""Whose barriers the decider aligns with those of heads."""

Row = tuple[int, int]
"""Its number, and how many rounds it made."""


@dataclass
class Cut:
    """What is stored of an epoch."""

    splits: list[list[int]]
    heads: dict[int, tuple[tuple[int, int], list[Row]]] = field(default_factory=dict)
    phases: set[HeadPhase] = field(default_factory=set)
    decider: tuple[Any, ...] | None = None
    #: Rows of the side that have not come; None if it has ended.
    side: int | None = None


class Stand:
    """Heads and a decider, from the beginning or from a cut."""

    def __init__(
        self,
        count: int,
        rounds: int,
        splits: list[list[int]],
        side: int | None,
        *,
        does_return: bool,
    ) -> None:
        self.count, self.rounds, self.does_return = count, rounds, does_return
        self.splits = [list(split) for split in splits]
        self.heads = [Head(does_return) for _ in range(count)]
        self.rows: list[list[Row]] = [[] for _ in range(count)]
        judge = lambda value, _: (value + 1, False)  # noqa: E731 - one line
        self.decider = Decider(count, rounds, 0, judge, has_open_sides=True)
        self.to_heads: list[deque[Any]] = [deque() for _ in range(count)]
        self.to_decider: list[deque[Any]] = [deque() for _ in range(count)]
        self.blocked: set[int] = set()
        self.body: dict[int, list[Row]] = {}
        self.cuts: dict[int, Cut] = {}
        self.result: list[Row] = []
        self.side = side
        self.of_side: deque[int | None] = deque([] if side is not None else [None])
        #: Epochs that the side has not heard of, and those that came on it.
        self.unheard: deque[int] = deque()
        self.side_epochs: set[int] = set()
        self.aligned = {SIDE, *range(count)}

    def resume(self, cut: Cut) -> None:
        """Go on from a cut."""
        assert cut.decider is not None
        for index, (_, rows) in sorted(cut.heads.items()):
            self.rows[index % self.count] += rows
        (place,) = {place for place, _ in cut.heads.values()}
        for head in self.heads:
            head.resume(*place)
        self.decider.round, self.decider.value, self.decider.last = cut.decider
        assert self.decider.round == 0 or cut.side is None, "a round needs all of it"
        self._broadcast(self.decider.repeat())
        self.validate()

    def own_splits(self, index: int) -> list[list[int]]:
        return self.splits[index :: self.count]

    def moves(self) -> list[tuple[str, int]]:
        """Return what may happen next."""
        found = self._side_moves()
        for index, head in enumerate(self.heads):
            has_rows = any(self.own_splits(index))
            if head.phase is HeadPhase.COLLECTING:
                found.append(("read" if has_rows else "end", index))
            if head.phase in {HeadPhase.REPLAYING, HeadPhase.GIVING}:
                found.append(("give", index))
            elif self.to_heads[index] and head.may_cut:
                found.append(("tell", index))
            if self.to_decider[index] and index not in self.blocked:
                found.append(("hear", index))
        return [*found, ("body", 0)] if self._is_body_done() else found

    def _side_moves(self) -> list[tuple[str, int]]:
        found = [] if self.side is None else [("side", SIDE)]
        if self.side is not None and self.unheard:
            found.append(("inject", SIDE))
        if self.of_side and SIDE not in self.blocked:
            found.append(("hear side", SIDE))
        return found

    def _is_body_done(self) -> bool:
        """Whether a round can end; results of a cycle come behind the barriers of heads."""
        is_behind = self.blocked or any(self.to_decider)
        return len(self.body) == self.count and (self.does_return or not is_behind)

    def move(self, name: str, index: int) -> None:
        """Let something happen, and ask everybody whether that can be."""
        self._move(name, index)
        self.validate()

    def validate(self) -> None:
        self.decider.validate()
        for head in self.heads:
            head.validate()

    def _move(self, name: str, index: int) -> None:
        head = self.heads[index]
        match name:
            case "read":
                split = next(split for split in self.own_splits(index) if split)
                self.rows[index].append((split.pop(), 0))
            case "end":
                if head.end_input():
                    self.to_decider[index].append(HeadReady(index, head.decided))
            case "give":
                self._give(index)
            case "tell":
                self._tell(index, self.to_heads[index].popleft())
            case "hear":
                self._hear(index, self.to_decider[index].popleft())
            case "body":
                self._return()
            case "side":
                self._go_on_with_side()
            case "inject":
                epoch = self.unheard.popleft()
                self.of_side.append(epoch)
                self.side_epochs.add(epoch)
                self._cut_of(epoch).side = self.side
            case "hear side":
                self._hear_side(self.of_side.popleft())

    def _go_on_with_side(self) -> None:
        assert self.side is not None
        self.side = self.side - 1 if self.side else None
        if self.side is None:
            self.of_side.append(None)

    def _hear_side(self, epoch: int | None) -> None:
        if epoch is not None:
            self._align(SIDE, epoch)
            return
        self.aligned.remove(SIDE)
        if self.blocked:
            self._align(min(self.blocked), self.aligning)
        self._broadcast(self.decider.end_sides())

    def announce(self, epoch: int) -> None:
        self.unheard.append(epoch)
        barrier = Barrier(Epoch(epoch), Epoch(0))
        self._broadcast(self.decider.announce(barrier))
        self.validate()

    def _give(self, index: int) -> None:
        head = self.heads[index]
        if head.phase is HeadPhase.GIVING:
            self.result += self.rows[index]
            head.given()
            return
        assert all(index in self._cut_of(epoch).heads for epoch in self.side_epochs)
        assert SIDE not in self.aligned, "a round that would wait for the side"
        self.body[index], self.rows[index] = self.rows[index], []
        head.replayed()

    def _return(self) -> None:
        body, self.body = self.body, {}
        for index, rows in body.items():
            for number, made in rows:
                to = (number + made) % self.count if self.does_return else index
                self.rows[to].append((number, made + 1))
        if not self.does_return:
            self._broadcast(self.decider.end_round([]))
        for index, head in enumerate(self.heads):
            if self.does_return and head.returned():
                self.to_decider[index].append(HeadReady(index, head.decided))

    def _tell(self, index: int, message: Any) -> None:
        head = self.heads[index]
        if isinstance(message, Decision):
            head.decide(message)
            return
        assert isinstance(message, EpochPassedOn)
        epoch = message.barrier.epoch
        cut = self._cut_of(epoch)
        for place in range(index, len(self.splits), self.count):
            cut.splits[place] = list(self.splits[place])
        cut.heads[index] = ((head.decided, head.begun), list(self.rows[index]))
        cut.phases.add(head.phase)
        self.to_decider[index].append(epoch)

    def _hear(self, index: int, message: HeadReady | int) -> None:
        if isinstance(message, HeadReady):
            self._broadcast(self.decider.hear(message))
            return
        self._align(index, message)

    def _align(self, index: int, epoch: int) -> None:
        self.blocked.add(index)
        self.aligning = epoch
        if self.blocked == self.aligned:
            self.blocked.clear()
            decider = self.decider
            stored = decider.round, decider.value, decider.last
            self.cuts[epoch].decider = stored

    def _cut_of(self, epoch: int) -> Cut:
        splits = [list(split) for split in self.splits]
        return self.cuts.setdefault(epoch, Cut(splits))

    def _broadcast(self, messages: list[Any]) -> None:
        for queue in self.to_heads:
            queue.extend(messages)


def last_cut(stand: Stand) -> Cut | None:
    """Return the newest cut that is complete."""
    complete = [e for e, cut in stand.cuts.items() if cut.decider is not None]
    return stand.cuts[max(complete)] if complete else None


@examples(0.5)
@given(
    splits=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    rounds=st.integers(0, 3),
    count=st.integers(1, 4),
    side=st.none() | st.integers(0, 3),
    does_return=st.booleans(),
    data=st.data(),
)
def test_every_row_makes_every_round_at_any_number_of_heads(
    splits: list[int],
    rounds: int,
    count: int,
    side: int | None,
    *,
    does_return: bool,
    data: st.DataObject,
) -> None:
    """Whatever the former heads were about: some waited, some collected, or all waited.

    And whatever had come of the side: what it sent before a round is not behind that.
    """
    numbers = iter(range(sum(splits)))
    rows = [[next(numbers) for _ in range(size)] for size in splits]
    stand = Stand(count, rounds, rows, side, does_return=does_return)
    epoch = resizes = 0
    while moves := stand.moves():
        if epoch < EPOCHS_MAX and data.draw(st.integers(0, 2)) == 0:
            epoch += 1
            stand.announce(epoch)
        cut = last_cut(stand)
        if cut and resizes < RESIZES_MAX and data.draw(st.integers(0, 5)) == 0:
            resizes += 1
            event("-".join(sorted(phase.name for phase in cut.phases)))
            event("the side had ended" if cut.side is None else "the side was open")
            count = data.draw(st.integers(1, 4))
            side = cut.side
            stand = Stand(count, rounds, cut.splits, side, does_return=does_return)
            stand.resume(cut)
            continue
        stand.move(*data.draw(st.sampled_from(moves)))

    assert {head.phase for head in stand.heads} == {HeadPhase.OVER}
    assert sorted(stand.result) == [(number, rounds) for number in range(sum(splits))]
