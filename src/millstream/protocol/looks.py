"""Looks: when a free loop is over, and how far event time has come in it.

A free loop has no rounds; what goes round does so at its own pace.  The one *decider* of the
loop finds out what is left in it by *looks*.  This module decides; it does not know what rows
are, or how they and the marks of looks travel.

Theory of operation
-------------------
A look is a mark that every head sends into the body, behind all that it sent before.  When
it has come back on all channels, everything that was in front of it has left the loop, or
has come back and gone in again behind it.  So the head knows how much that was, and of which
time, and tells the decider in a `LookPart`.  A look is no barrier: nothing waits for it, and
nothing is stored.

*The end.*  When the input of all heads is over and two looks in a row found nothing, nothing
is left but what the operators of the loop would say at its end.  They say it in one more
look; if still nothing came back, the loop is over.

*Time.*  Time cannot go round with the rows: a head would wait for the watermark that comes
back, which waits for the one that it has sent.  But all that is behind a look is, or was
made of, input that came after it, which the input's promise at its beginning bounds, or
something that came back before it did.  The least of both, over all heads, is what the
decider may promise in the name of the loop; it does so with the next look.  Rows that an
operator of the body holds back are not under way: they wait for time, or for the clock.

There is one look at a time, and none where it could tell nothing new: the input is not over,
and has promised no more than the loop has.

After a recovery all of this begins anew, as the input tells its promise and its end again.

Invariants
----------
1. What is told of time never falls, and is never more than what any input has promised.
2. Nothing is decided before all heads have carried out the last decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.protocol.rounds import EpochPassedOn, LoopDecider
from millstream.protocol.watermark import (
    BEGINNING,
    END_OF_TIME,
    EventTime,
    Watermark,
)

if TYPE_CHECKING:
    from millstream.protocol.barrier import Barrier

__all__ = ["Look", "LookPart", "LookingHead", "Looks"]

_QUIET_LOOKS = 2
_NOTHING = Watermark(BEGINNING)


@dataclass(frozen=True, slots=True)
class Look:
    """How a free loop is looked at next.

    Attributes
    ----------
    promise
        How far event time has come in the loop.
    quiet
        Looks before it, in a row, that found nothing after the end of the input.
    asks_last_words
        Whether its operators say what they would say at its end.
    """

    promise: Watermark = _NOTHING
    quiet: int = 0
    asks_last_words: bool = False


@dataclass(frozen=True, slots=True)
class LookPart:
    """What a head knows of its loop while no look is under way.

    Attributes
    ----------
    returned
        How many rows came back to it before the last look did.
    least
        The least timestamp of these; the beginning of time if they have none.
    before
        What its input had promised when that look began; None if it was over.
    now
        What its input promises now; None if it is over.
    """

    returned: int = 0
    least: int = END_OF_TIME
    before: Watermark | None = _NOTHING
    now: Watermark | None = _NOTHING


@dataclass(slots=True)
class LookingHead:
    """What one head finds out; every method but `part` is an event."""

    _last: LookPart = LookPart()
    _returned: int = 0
    _least: int = END_OF_TIME

    def come_back(self, rows: int, least: int) -> None:
        """Note that rows came back, and go in again."""
        self._returned += rows
        self._least = min(self._least, least)

    def begin(self, promise: Watermark | None) -> None:
        """Note that a look begins, and what the input has promised."""
        self._last = LookPart(before=promise)

    def end(self) -> None:
        """Note that the look has come back on all channels."""
        self._last = LookPart(self._returned, self._least, self._last.before)
        self._returned, self._least = 0, END_OF_TIME

    def part(self, promise: Watermark | None) -> LookPart:
        """Return what the decider needs to know, while no look is under way."""
        return replace(self._last, now=promise)


@dataclass(slots=True)
class Looks(LoopDecider):
    """The decider of a free loop."""

    _look: Look = Look()

    def announce(self, barrier: Barrier) -> list[Any]:
        """Pass an epoch on at once: a free loop is cut anywhere."""
        return [EpochPassedOn(barrier)]

    def repeat(self) -> list[Any]:
        """Tell nothing: after a recovery looking begins anew."""
        return []

    def _judge_parts(self, parts: list[LookPart]) -> list[Any]:
        if any(part.now is not None for part in parts):
            return self._look_for_time(parts)
        return self._look_for_end(parts)

    def _look_for_time(self, parts: list[LookPart]) -> list[Any]:
        promise = self._promise(parts)
        wanted = _least([part.now for part in parts])
        if promise == self._look.promise and wanted == promise:
            return []
        return self._decided(Look(promise))

    def _look_for_end(self, parts: list[LookPart]) -> list[Any]:
        promise = self._promise(parts)
        has_looked = all(part.before is None for part in parts)
        is_quiet = has_looked and not any(part.returned for part in parts)
        if self.is_unread or (is_quiet and self._look.asks_last_words):
            return self._decided(Look(promise), is_over=True)
        quiet = self._look.quiet + 1 if is_quiet else 0
        return self._decided(Look(promise, quiet, quiet >= _QUIET_LOOKS))

    def _promise(self, parts: list[LookPart]) -> Watermark:
        """Return what may be promised behind the last look."""
        told = self._look.promise
        if self.last is None:
            return told
        bound = _least([part.before for part in parts])
        returned = sum(part.returned for part in parts)
        if returned:
            least = min(part.least for part in parts)
            time = min(bound.time, max(least, BEGINNING + 1) - 1)
        else:
            # The end of time is for the last words, when nothing is left.
            time = told.time if bound.time == END_OF_TIME else bound.time
        return Watermark(max(told.time, time), bound.is_idle and not returned)

    def _decided(self, look: Look, *, is_over: bool = False) -> list[Any]:
        self._look = look
        return [self._next_decision(look, is_over=is_over)]


def _least(promises: list[Watermark | None]) -> Watermark:
    """Return the promise of several inputs; those that are over do not count."""
    known = {i: promise for i, promise in enumerate(promises) if promise is not None}
    if not known:
        return Watermark(END_OF_TIME)
    time = EventTime(known)
    for head, promise in known.items():
        time.note(head, promise)
    return time.promise
