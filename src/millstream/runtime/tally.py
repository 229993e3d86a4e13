"""What the tasks of all workers have done, in all generations.

A worker counts what its present tasks do and begins at 0 when they are made anew.  Here all of
it is added up: counters are work done, with what was done again after a recovery, and never
fall.  What tasks did between the last report of their worker and their end is not known.

Nothing here knows what is counted by whom; `launch.job` gives the numbers names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Progress, RoundProgress

__all__ = ["Counters", "Tally"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What the tasks of one stage have done."""

    rows_in: int = 0
    rows_out: int = 0
    busy_ns: int = 0
    blocked_ns: int = 0
    late_rows: int = 0
    ahead_rows: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.busy_ns + other.busy_ns,
            self.blocked_ns + other.blocked_ns,
            self.late_rows + other.late_rows,
            self.ahead_rows + other.ahead_rows,
        )


ByStage = dict[int, Counters]


@dataclass(frozen=True, slots=True)
class _Known:
    """All that was told so far; replaced as a whole, because others read it meanwhile."""

    past: ByStage = field(default_factory=dict)
    latest: dict[PeerId, Progress] = field(default_factory=dict)


class Tally:
    """Adds up the reports of all workers; may be read by any thread.

    Examples
    --------
    >>> from millstream.protocol.messages import Progress
    >>> tally = Tally()
    >>> for generation, rows in ((1, 5), (1, 8), (2, 3)):
    ...     tally.take(1, Progress(1, generation, ((0, rows, 0, 0, 0),)))
    >>> tally.totals()[0].rows_in
    11
    """

    def __init__(self) -> None:
        self._known = _Known()
        #: How far iterations have come, by the stage that decides over them.
        self.rounds: dict[int, RoundProgress] = {}

    def take(self, worker: PeerId, report: Progress) -> None:
        """Take up the newest report of a worker."""
        past, latest = self._known.past, self._known.latest
        before = latest.get(worker)
        if before is not None and before.generation < report.generation:
            past = _added(past, [before])
        self._known = _Known(past, latest | {worker: report})
        for entry in report.rounds:
            stage, _, done, _ = entry
            # After a recovery it does rounds again that it had told of.
            if stage not in self.rounds or done >= self.rounds[stage][2]:
                self.rounds = self.rounds | {stage: entry}

    def forget_others(self, members: Collection[PeerId]) -> None:
        """Keep of workers that are gone only what they have done."""
        latest = self._known.latest
        gone = [report for worker, report in latest.items() if worker not in members]
        if gone:
            kept = {w: report for w, report in latest.items() if w in members}
            self._known = _Known(_added(self._known.past, gone), kept)

    def totals(self) -> ByStage:
        """Return what was done in every stage."""
        known = self._known
        return _added(known.past, known.latest.values())

    def watermarks(self, members: Iterable[PeerId]) -> dict[int, int]:
        """Return how far event time has come in every stage that has it."""
        latest = self._known.latest
        found: dict[int, int] = {}
        for worker in members:
            for stage, _, _, time in latest[worker].times if worker in latest else ():
                found[stage] = min(time, found.get(stage, time))
        return found


def _added(past: ByStage, reports: Iterable[Progress]) -> ByStage:
    totals = dict(past)
    for report in reports:
        for stage, *work in report.stages:
            totals[stage] = totals.get(stage, Counters()) + Counters(*work)
        for stage, late, ahead, _ in report.times:
            times = Counters(late_rows=late, ahead_rows=ahead)
            totals[stage] = totals.get(stage, Counters()) + times
    return totals
