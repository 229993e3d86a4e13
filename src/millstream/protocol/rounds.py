"""Rounds: when the heads of an iteration replay, and who decides how often.

An iteration has a *head* on every worker, which holds what the next round begins with, and
one *decider*.  This module is both, as decisions.  It does not know what rows are, how they
reach the body and come back, or what the user's functions do.

Theory of operation
-------------------
::

    COLLECTING --input ended--> WAITING --go on--> REPLAYING --all given--> RETURNING
        ^                        |   ^                                          |
        |                      over  +-------------all returned-----------------+
        +----------------------- GIVING

Heads tell the decider when they are ready, with their part of what it decides by; when all
are, it answers all of them with a `Decision`: one more round, or over.  So a round costs one
message from and one to every head, and no row of a round exists before every row of the one
before is gone: operators of the body need no numbers on rows to know theirs.

Of an iteration inside another one, `input ended` is the end of the outer round.  It is told
`over` once per outer round, and collects again.  Decisions are numbered through all of them.

A *free loop* has no rounds.  Its heads obey decisions all the same: to look at what goes
round, and that it is over (`millstream.protocol.termination`).  Its decider is a `LoopDecider` too.

Unread loops
------------
What follows a loop may need no more of it.  A head tells the decider when nobody reads what
leaves on its worker.  When no head has readers, the decider tells all of them, so that they
read no more input; as soon as they are ready, or the round that is under way has ended, the
loop is over.  Deciding so at once would let heads end on both sides of a cut: they are ready
only behind the barriers that they have sent.

Sides
-----
The body may need rows from outside the loop, all of them in every round.  A round that had
begun before such a *side* has ended could not end, and no epoch could pass: its barrier on
the side would wait for that of the body, which waits for the end of the round, which waits
for the side.  So the decider lets no round begin while a side is open.  It hears the end of
a side behind every barrier that came on it, and aligns these with those of the heads; hence
all of them are in the body before the rows of the first round.

Epochs
------
A cut in the middle of a round would have to keep which half of every stage was where, and
could not be restored on another number of workers.  So the decider passes an epoch on only
between rounds: at once while heads collect or wait for the first decision, or for a side
that was not there before a recovery, else in front of its next one.  Heads whose input is
over learn of epochs from nobody else, hence they all cut at the same place; while they read
channels, barriers come there.  Epochs that were given up in a long round are passed on as
well: who reads the loop and something else aligns them all.

After a recovery the decider repeats its last decision, which is ignored where it is known.  So
nothing in flight needs to be stored.

Places
------
At a cut all heads have carried out the same decision, whatever else they were about: that is
all that is stored of where a head stands, and any number of heads can go on from it.

- A round was over, and the next one had not begun.  All of them were waiting; the decider
  had decided already, and tells it again.
- No round of the iteration had begun.  Some heads may have been waiting and others not,
  because the input of one had ended and that of another had not.  Among other heads the rest
  of the input is dealt out anew, so each of them waits for the end of its own input, which
  comes once more where it had come.

Invariants (see the `validate` of each)
---------------------------------------
1. A head is at most one decision behind the decider, and never ahead; decisions to go on
   and to end are told apart by what a head does.
2. Heads replay only what a decision asked for, once, and only when no side is open.
3. No epoch is passed on between a decision to go on and the readiness of all heads; none is
   held back while no round is under way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from numbers import Real
from typing import TYPE_CHECKING

from millstream.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.barrier import Barrier
    from millstream.values import Value

__all__ = [
    "Decider",
    "Decision",
    "EpochPassedOn",
    "Head",
    "HeadPhase",
    "HeadReady",
    "HeadUnread",
    "LoopDecider",
    "LoopUnread",
    "RoundsSoFar",
    "SidesEnded",
    "ToHeads",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the decider tells all heads.

    Attributes
    ----------
    number
        Goes up by one with every decision of the iteration.
    value
        The state of the rounds, as the next round or the result gets it.
    """

    number: int
    is_over: bool
    value: Value = None


@dataclass(frozen=True, slots=True)
class EpochPassedOn:
    """An epoch, from the decider to the heads."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class HeadReady:
    """What a head tells the decider.

    Attributes
    ----------
    number
        Of the last decision that it has carried out.
    part
        Its part of what is decided by; None if it has nothing.
    """

    head: int
    number: int
    part: Value = None


@dataclass(frozen=True, slots=True)
class HeadUnread:
    """Nobody reads what leaves the loop on the worker of a head, from that head."""

    head: int


@dataclass(frozen=True, slots=True)
class LoopUnread:
    """Nobody reads what leaves the loop, from the decider to the heads."""


ToHeads = Decision | EpochPassedOn | LoopUnread
"""What a decider tells all heads."""


@dataclass(frozen=True, slots=True)
class SidesEnded:
    """Nothing more comes from outside into the rounds, to the decider."""


class HeadPhase(Enum):
    """Where a head stands."""

    COLLECTING = auto()
    WAITING = auto()
    REPLAYING = auto()
    RETURNING = auto()
    GIVING = auto()
    OVER = auto()


@dataclass(slots=True)
class Head:
    """The rounds of one head.

    Every method is an event.  Those that return a bool say whether the decider must be
    told that the head is ready.

    Attributes
    ----------
    does_return
        Whether what the body makes comes back to the head; else the decider gets it.
    is_nested
        Whether the input goes on after a result.
    is_free
        Whether it collects nothing, and the input goes on whatever is decided.
    begun
        Number of the last decision that an iteration was over; what is held is younger.
    """

    does_return: bool
    is_nested: bool = False
    is_free: bool = False
    phase: HeadPhase = HeadPhase.COLLECTING
    decided: int = 0
    begun: int = 0

    def validate(self) -> None:
        """Assert what holds of one head; called by every test."""
        phase = self.phase
        assert 0 <= self.begun <= self.decided, (
            f"decision {self.begun} ended an iteration, {self.decided} was the last"
        )
        is_round = phase in {HeadPhase.REPLAYING, HeadPhase.RETURNING}
        assert not is_round or self.decided > self.begun, (
            f"the head is {phase.name}, and no decision asked for a round"
        )
        assert self.does_return or phase is not HeadPhase.RETURNING, (
            "a round comes back to the head, which nothing comes back to"
        )
        is_between = phase is HeadPhase.COLLECTING and not self.is_free
        assert self.begun == self.decided or not (
            is_between or phase is HeadPhase.GIVING
        ), (
            f"the head is {phase.name} in round {self.decided} of those after {self.begun}"
        )

    def end_input(self) -> bool:
        """Note that all input of the iteration has come."""
        if self.phase is not HeadPhase.COLLECTING:
            # After a recovery the input ends a second time.
            return False
        assert self.is_free or self.decided == self.begun, (
            f"the input ended in round {self.decided} of those after {self.begun}"
        )
        self.phase = HeadPhase.WAITING
        return True

    def decide(self, decision: Decision) -> bool:
        """Carry out a decision, unless it is known; return whether it is new."""
        if decision.number <= self.decided:
            return False
        if self.phase not in {HeadPhase.WAITING, HeadPhase.COLLECTING}:
            msg = f"decision {decision.number} came while the head is {self.phase.name}"
            raise RemoteProtocolError(msg)
        if decision.number != self.decided + 1:
            msg = f"decision {decision.number} came after decision {self.decided}"
            raise RemoteProtocolError(msg)
        self.decided = decision.number
        self.phase = HeadPhase.GIVING if decision.is_over else HeadPhase.REPLAYING
        if decision.is_over:
            self.begun = decision.number
        assert self.begun <= self.decided, f"{self.begun} is ahead of {self.decided}"
        return True

    def replayed(self) -> bool:
        """Note that the body has everything of the round."""
        self._expect(HeadPhase.REPLAYING)
        assert self.decided > self.begun, f"no decision behind {self.begun} asks for it"
        self.phase = HeadPhase.RETURNING if self.does_return else HeadPhase.WAITING
        return False

    def returned(self) -> bool:
        """Note that everything of the round has come back."""
        if self.phase is HeadPhase.REPLAYING:
            msg = "a round came back before it was given to the body"
            raise RemoteProtocolError(msg)
        self._expect(HeadPhase.RETURNING)
        assert self.does_return, f"round {self.decided} came back, and nothing does"
        self.phase = HeadPhase.COLLECTING if self.is_free else HeadPhase.WAITING
        return True

    def given(self) -> None:
        """Note that the whole result has been given."""
        self._expect(HeadPhase.GIVING)
        assert self.decided == self.begun, f"decision {self.decided} did not end it"
        self.phase = HeadPhase.COLLECTING if self.is_nested else HeadPhase.OVER

    def resume(self, decided: int, begun: int) -> None:
        """Go on from where all heads were at a cut, however many there were."""
        assert 0 <= begun <= decided, f"no head was at decisions {begun} and {decided}"
        assert self.decided <= decided, f"{self.decided} is done, {decided} comes back"
        self.decided, self.begun = decided, begun
        is_between = decided > begun
        self.phase = HeadPhase.WAITING if is_between else HeadPhase.COLLECTING

    @property
    def may_cut(self) -> bool:
        """Whether no round is under way here."""
        is_done = self.is_nested and self.phase is HeadPhase.OVER
        return is_done or self.phase in {HeadPhase.COLLECTING, HeadPhase.WAITING}

    def _expect(self, phase: HeadPhase) -> None:
        if self.phase is not phase:
            msg = f"the head is {self.phase.name}, not {phase.name}"
            raise LocalProtocolError(msg)


@dataclass(slots=True)
class LoopDecider(ABC):
    """What the deciders of all loops do: they hear heads, and number decisions.

    Every method is an event and returns what all heads must be told, in order.
    """

    head_count: int
    last: Decision | None = field(default=None, init=False)
    _parts: dict[int, Value] = field(default_factory=dict, init=False)
    _unread: set[int] = field(default_factory=set, init=False)

    def validate(self) -> None:
        """Assert what holds of every decider; called by every test."""
        heads = range(self.head_count)
        strangers = (self._parts.keys() | self._unread) - set(heads)
        assert not strangers, f"heads {strangers} are none of {self.head_count}"
        assert self.last is None or self.last.number > 0, f"{self.last} is no decision"

    @property
    def number(self) -> int:
        """Number of the last decision."""
        return 0 if self.last is None else self.last.number

    @property
    def is_unread(self) -> bool:
        """Whether nobody reads what leaves the loop."""
        unread = len(self._unread)
        assert unread <= self.head_count, f"{unread} of {self.head_count} are unread"
        return unread == self.head_count

    @abstractmethod
    def announce(self, barrier: Barrier) -> list[ToHeads]:
        """Pass an epoch on to where the loop may be cut."""

    def hear(self, ready: HeadReady) -> list[ToHeads]:
        """Take what a head knows, perhaps once more; judge when all are known."""
        self._check_head(ready.head)
        if ready.number > self.number:
            msg = f"head {ready.head} is ahead: {ready.number} is not decided"
            raise RemoteProtocolError(msg)
        if ready.number < self.number:
            return []
        self._parts[ready.head] = ready.part
        return self._judge_known()

    def end_sides(self) -> list[ToHeads]:
        """Note that nothing more comes from outside; only rounds wait for that."""
        return []

    def note_unread(self, unread: HeadUnread) -> list[ToHeads]:
        """Take note of a head without readers; stop the input if it is the last."""
        self._check_head(unread.head)
        self._unread.add(unread.head)
        return [LoopUnread()] if self.is_unread else []

    @abstractmethod
    def repeat(self) -> list[ToHeads]:
        """Tell again what heads may not know, after a recovery."""

    def _check_head(self, head: int) -> None:
        if not 0 <= head < self.head_count:
            msg = f"there is no head {head} of {self.head_count}"
            raise RemoteProtocolError(msg)

    def _judge_known(self) -> list[ToHeads]:
        ready = len(self._parts)
        assert ready <= self.head_count, f"{ready} of {self.head_count} are ready"
        if ready < self.head_count:
            return []
        return self._judge_parts([self._parts[head] for head in sorted(self._parts)])

    @abstractmethod
    def _judge_parts(self, parts: list[Value]) -> list[ToHeads]:
        """Go by the parts of all heads, in the order of heads."""

    def _next_decision(self, value: Value, *, is_over: bool) -> Decision:
        """Make the next decision; heads say anew when they are ready after it."""
        self._parts.clear()
        self.last = Decision(self.number + 1, is_over, value)
        return self.last


@dataclass(slots=True)
class Decider(LoopDecider):
    """Decides after every round.

    Parameters
    ----------
    judge
        Called with the parts of all heads, in the order of heads, or with what else was
        handed to `end_round`; returns the state of the next round, and whether there
        need be no other.
    has_open_sides
        Whether something may still come from outside into the rounds.
    """

    rounds_max: int | None
    initial: Value
    judge: Callable[[Value, Value], tuple[Value, bool]]
    has_open_sides: bool = False
    #: Of the iteration that is under way; 0 while heads collect.
    round: int = 0
    value: Value = None
    _barriers: list[Barrier] = field(default_factory=list)

    def validate(self) -> None:
        """Assert invariants 2 and 3 of the module docstring; called by every test."""
        LoopDecider.validate(self)
        is_over = self.last is None or self.last.is_over
        assert is_over == (self.round == 0), f"round {self.round} follows {self.last}"
        assert self.round > 0 or not self._barriers, (
            f"{self._barriers} are held back, and no round is under way"
        )
        epochs = [barrier.epoch for barrier in self._barriers]
        assert sorted(set(epochs)) == epochs, f"epochs {epochs} do not increase"

    def announce(self, barrier: Barrier) -> list[ToHeads]:
        """Pass an epoch on, now or in front of the next decision."""
        if self.round == 0 or self.has_open_sides:
            return [EpochPassedOn(barrier)]
        assert not self._barriers or barrier.epoch > self._barriers[-1].epoch, (
            f"{barrier} comes after {self._barriers[-1]}"
        )
        self._barriers.append(barrier)
        return []

    def note_unread(self, unread: HeadUnread) -> list[ToHeads]:
        """Take note of a head without readers; only heads that collect have input."""
        told = LoopDecider.note_unread(self, unread)
        return told + self._judge_known() if self.round == 0 else []

    def end_sides(self) -> list[ToHeads]:
        """Note that all sides have ended; begin if only they were waited for."""
        self.has_open_sides = False
        return self._judge_known() if self.round == 0 else self.repeat()

    def end_round(self, results: Value) -> list[ToHeads]:
        """Judge a round."""
        assert self.round > 0, f"a round ended after {self.last}, and none was begun"
        assert self.last is not None, f"round {self.round} was begun by nobody"
        self.value, is_enough = self.judge(self.value, results)
        # Fewer may be asked for than had been done before a recovery.
        is_last = self.rounds_max is not None and self.round >= self.rounds_max
        if is_enough or self.is_unread or is_last:
            self.round = 0
            return self._decided(is_over=True)
        self.round += 1
        return self._decided(is_over=False)

    def repeat(self) -> list[ToHeads]:
        """Tell the last decision again, after a recovery."""
        is_over = self.last is None or self.last.is_over
        assert is_over == (self.round == 0), f"round {self.round}, is over: {is_over}"
        self._parts.clear()
        is_held = self.has_open_sides and self.round > 0
        return [] if self.last is None or is_held else [self.last]

    def _judge_parts(self, parts: list[Value]) -> list[ToHeads]:
        assert len(parts) == self.head_count, f"{len(parts)} of {self.head_count} heads"
        return self._begin() if self.round == 0 else self.end_round(parts)

    def _begin(self) -> list[ToHeads]:
        assert len(self._parts) == self.head_count, "not all heads are ready to begin"
        assert self.round == 0, f"round {self.round} is under way, and begins"
        is_over = self.is_unread or self.rounds_max == 0
        if self.has_open_sides and not is_over:
            return []
        self.value = self.initial
        self.round = 0 if is_over else 1
        return self._decided(is_over=is_over)

    def _decided(self, *, is_over: bool) -> list[ToHeads]:
        assert is_over == (self.round == 0), f"round {self.round}, is over: {is_over}"
        told: list[ToHeads] = [EpochPassedOn(barrier) for barrier in self._barriers]
        self._barriers.clear()
        return [*told, self._next_decision(self.value, is_over=is_over)]


@dataclass(slots=True)
class RoundsSoFar:
    """How far an iteration has come, for diagnostics only.

    Attributes
    ----------
    round
        The round that is under way; 0 if none is.
    done
        Rounds done, in all iterations of a nested one.
    history
        What was decided by after the last rounds, as numbers where it is numbers.
    """

    round: int = 0
    done: int = 0
    history: list[float | str] = field(default_factory=list)

    def validate(self) -> None:
        """Assert that no more is known than was done; called by every test."""
        assert self.round >= 0, f"round {self.round} is under way"
        assert len(self.history) <= self.done, (
            f"{len(self.history)} rounds are known, and {self.done} were done"
        )

    def note(self, value: Value, length_max: int) -> None:
        """Take note of what a round came to."""
        assert length_max > 0, f"{length_max} rounds are kept"
        self.done += 1
        self.history.append(_shown(value))
        del self.history[:-length_max]
        assert len(self.history) <= self.done, f"{self.done} rounds: {self.history}"


def _shown(value: object) -> float | str:
    """Return a number as it is, and of anything else what it is: it may be large."""
    if isinstance(value, Real):
        with suppress(OverflowError):
            return float(value)
    return type(value).__name__
