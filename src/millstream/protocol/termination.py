"""Termination of a free loop, and how far event time has come in it.

A free loop has no rounds; what goes round does so at its own pace.  The one *decider* of the
loop finds out what is left in it with *probes*.  This module decides; it does not know what
rows are, or how they and the marks of probes travel.

Theory of operation
-------------------
A probe is a mark that every head sends into the body, behind all that it sent before.  When
it has come back on all channels, everything that was in front of it has left the loop, or
has come back and gone in again behind it.  So the head knows how much that was, and of which
time, and tells the decider in a `ProbeReport`.  A probe is no barrier: nothing waits for it,
and nothing is stored.

*Termination.*  When the input of all heads is over and two probes in a row found nothing, no
row is in flight; only what the operators of the loop would flush at its end is left.  They
flush it behind one more probe; if still nothing came back, the loop is over.

*Time.*  Watermarks cannot go round with the rows: a head would wait for the watermark that
comes back, which waits for the one that it has sent.  But all that is behind a probe is, or
was made of, input that came after it, which the input's watermark at its beginning bounds, or
something that came back before it did.  The least of both, over all heads, is the watermark
of the loop; it travels with the next probe.  Rows that an operator of the body holds back are
not in flight: they wait for time, or for the clock.

There is one probe at a time, and none where it could tell nothing new: the input is not over,
and its watermark is no further than that of the loop.

After a recovery all of this begins anew, as the input tells its watermark and its end again.

Invariants (see the `validate` of each)
---------------------------------------
1. The watermark of the loop never falls, and is never ahead of that of any input.
2. Nothing is decided before all heads have carried out the last decision.
3. A flush is asked for after two quiet probes, and no earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.protocol.rounds import EpochPassedOn, LoopDecider
from millstream.protocol.watermark import (
    BEGINNING,
    END_OF_TIME,
    EventTime,
    Watermark,
)

if TYPE_CHECKING:
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.rounds import ToHeads

__all__ = ["ProbeReport", "ProbeState", "TerminationDetector", "TerminationProbe"]

_QUIET_PROBES = 2
_NOTHING = Watermark(BEGINNING)


@dataclass(frozen=True, slots=True)
class TerminationProbe:
    """The next probe of a free loop.

    Attributes
    ----------
    watermark
        How far event time has come in the loop.
    quiet
        TerminationDetector before it, in a row, that found nothing after the end of the input.
    asks_flush
        Whether its operators flush what they would flush at its end.
    """

    watermark: Watermark = _NOTHING
    quiet: int = 0
    asks_flush: bool = False


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a head knows of its loop while no probe is under way.

    Attributes
    ----------
    returned
        How many rows came back to it before the last probe did.
    least
        The least timestamp of these; the beginning of time if they have none.
    before
        What its input had as its watermark when that probe began; None if it was over.
    now
        What its input has as its watermark now; None if it is over.
    """

    returned: int = 0
    least: int = END_OF_TIME
    before: Watermark | None = _NOTHING
    now: Watermark | None = _NOTHING


@dataclass(slots=True)
class ProbeState:
    """What one head finds out; every method but `part` is an event."""

    _last: ProbeReport = ProbeReport()
    _returned: int = 0
    _least: int = END_OF_TIME

    def validate(self) -> None:
        """Assert what holds of one head; called by every test."""
        assert self._returned >= 0, f"{self._returned} rows came back"
        assert BEGINNING <= self._least <= END_OF_TIME, f"{self._least} is no time"
        assert self._returned or self._least == END_OF_TIME, (
            f"no row came back, and the least of them is {self._least}"
        )

    def come_back(self, rows: int, least: int) -> None:
        """Note that rows came back, and go in again."""
        assert rows > 0, f"{rows} rows came back"
        self._returned += rows
        self._least = min(self._least, least)

    def begin(self, watermark: Watermark | None) -> None:
        """Note that a probe begins, and what the input has as its watermark."""
        self._last = ProbeReport(before=watermark)

    def end(self) -> None:
        """Note that the probe has come back on all channels."""
        assert self._returned or self._least == END_OF_TIME, (
            f"no row came back, and the least of them is {self._least}"
        )
        self._last = ProbeReport(self._returned, self._least, self._last.before)
        self._returned, self._least = 0, END_OF_TIME

    def part(self, watermark: Watermark | None) -> ProbeReport:
        """Return what the decider needs to know, while no probe is under way."""
        return replace(self._last, now=watermark)


@dataclass(slots=True)
class TerminationDetector(LoopDecider):
    """The decider of a free loop."""

    _probe: TerminationProbe = TerminationProbe()

    def validate(self) -> None:
        """Assert invariants 2 and 3 of the module docstring; called by every test."""
        LoopDecider.validate(self)
        probe = self._probe
        assert self.last is None or self.last.value is probe, (
            f"{probe} was not told, {self.last} was"
        )
        assert 0 <= probe.quiet <= _QUIET_PROBES + 1, f"{probe.quiet} quiet probes"
        assert probe.asks_flush == (probe.quiet >= _QUIET_PROBES), (
            f"a flush after {probe.quiet} quiet probes"
        )

    def announce(self, barrier: Barrier) -> list[ToHeads]:
        """Pass an epoch on at once: a free loop is cut anywhere."""
        return [EpochPassedOn(barrier)]

    def repeat(self) -> list[ToHeads]:
        """Tell nothing: after a recovery probing begins anew."""
        return []

    def _judge_parts(self, parts: list[ProbeReport]) -> list[ToHeads]:
        assert len(parts) == self.head_count, f"{len(parts)} of {self.head_count} heads"
        if any(part.now is not None for part in parts):
            return self._probe_for_time(parts)
        return self._probe_for_end(parts)

    def _probe_for_time(self, parts: list[ProbeReport]) -> list[ToHeads]:
        watermark = self._watermark(parts)
        wanted = _least([part.now for part in parts])
        if watermark == self._probe.watermark and wanted == watermark:
            return []
        return self._decided(TerminationProbe(watermark))

    def _probe_for_end(self, parts: list[ProbeReport]) -> list[ToHeads]:
        watermark = self._watermark(parts)
        was_probed = all(part.before is None for part in parts)
        is_quiet = was_probed and not any(part.returned for part in parts)
        if self.is_unread or (is_quiet and self._probe.asks_flush):
            return self._decided(TerminationProbe(watermark), is_over=True)
        quiet = self._probe.quiet + 1 if is_quiet else 0
        assert quiet <= _QUIET_PROBES, f"{quiet} probes were quiet, and none flushed"
        return self._decided(TerminationProbe(watermark, quiet, quiet >= _QUIET_PROBES))

    def _watermark(self, parts: list[ProbeReport]) -> Watermark:
        """Return what may be sent as a watermark behind the last probe."""
        told = self._probe.watermark
        if self.last is None:
            return told
        bound = _least([part.before for part in parts])
        returned = sum(part.returned for part in parts)
        if returned:
            least = min(part.least for part in parts)
            time = min(bound.time, max(least, BEGINNING + 1) - 1)
        else:
            # The end of time is for the last flush, when nothing is left.
            time = told.time if bound.time == END_OF_TIME else bound.time
        return Watermark(max(told.time, time), bound.is_idle and not returned)

    def _decided(
        self, probe: TerminationProbe, *, is_over: bool = False
    ) -> list[ToHeads]:
        told, watermark = self._probe.watermark, probe.watermark
        assert watermark.time >= told.time, f"time falls from {told} to {watermark}"
        is_due = probe.quiet >= _QUIET_PROBES
        assert probe.asks_flush == is_due, f"a flush after {probe.quiet} quiet probes"
        self._probe = probe
        return [self._next_decision(probe, is_over=is_over)]


def _least(watermarks: list[Watermark | None]) -> Watermark:
    """Return the watermark of several inputs; those that are over do not count."""
    assert watermarks, "a loop without heads has no watermark"
    known = {
        i: watermark for i, watermark in enumerate(watermarks) if watermark is not None
    }
    if not known:
        return Watermark(END_OF_TIME)
    time = EventTime(known)
    for head, watermark in known.items():
        time.note(head, watermark)
    return time.watermark
