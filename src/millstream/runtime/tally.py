"""What the tasks of all workers have done, in all generations.

A worker counts what its present tasks do and begins at 0 when they are made anew.  Here all of
it is added up, task by task: counters are work done, with what was done again after a
recovery, and never fall.  What tasks did between the last report of their worker and their
end is not known.

Nothing here knows what is counted; `millstream.protocol.metrics` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Progress
    from millstream.protocol.metrics import RoundMetrics, TaskMetrics

__all__ = ["Tally"]

ByTask = dict[tuple[int, int], "TaskMetrics"]


@dataclass(frozen=True, slots=True)
class _Known:
    """All that was told so far; replaced as a whole, because others read it meanwhile."""

    past: ByTask = field(default_factory=dict)
    latest: dict[PeerId, Progress] = field(default_factory=dict)


class Tally:
    """Adds up the reports of all workers; may be read by any thread.

    Examples
    --------
    >>> from millstream.protocol.messages import Progress
    >>> from millstream.protocol.metrics import TaskMetrics
    >>> tally = Tally()
    >>> for generation, rows in ((1, 5), (1, 8), (2, 3)):
    ...     tally.take(1, Progress(1, generation, (TaskMetrics(0, 0, rows_in=rows),)))
    >>> tally.tasks()[0, 0].rows_in
    11
    """

    def __init__(self) -> None:
        self._known = _Known()
        #: How far iterations have come, by the stage that decides over them.
        self.rounds: dict[int, RoundMetrics] = {}

    def take(self, worker: PeerId, report: Progress) -> None:
        """Take up the newest report of a worker."""
        past, latest = self._known.past, self._known.latest
        before = latest.get(worker)
        if before is not None:
            if before.generation > report.generation:
                return
            if before.generation < report.generation:
                past = _counted(past, [before])
            else:
                report = _not_below(report, before)
        self._known = _Known(past, latest | {worker: report})
        for task in report.tasks:
            known, rounds = self.rounds.get(task.stage), task.rounds
            # After a recovery it does rounds again that it had told of.
            if rounds is not None and (known is None or rounds.done >= known.done):
                self.rounds = self.rounds | {task.stage: rounds}

    def forget_others(self, members: Collection[PeerId]) -> None:
        """Keep of workers that are gone only what they have done."""
        latest = self._known.latest
        gone = [report for worker, report in latest.items() if worker not in members]
        if gone:
            past = _counted(self._known.past, gone)
            self._known = _Known(past, _kept(latest, members))

    def tasks(self, members: Collection[PeerId] | None = None) -> ByTask:
        """Return what every task has done in all, and how it stood when last told.

        Of workers that are not among `members` only what they have done is known.
        """
        known = self._known
        latest = known.latest if members is None else _kept(known.latest, members)
        gone = [r for worker, r in known.latest.items() if worker not in latest]
        found = _counted(known.past, gone)
        for report in sorted(latest.values(), key=lambda report: report.generation):
            for task in report.tasks:
                own = (task.stage, task.task)
                found[own] = task.after(found[own]) if own in found else task
        return found

    def resident_bytes(self, worker: PeerId) -> int:
        """Return the memory of a worker's process when it was last told, or 0."""
        report = self._known.latest.get(worker)
        return 0 if report is None else report.resident_bytes


def _kept(
    latest: dict[PeerId, Progress], members: Collection[PeerId]
) -> dict[PeerId, Progress]:
    return {worker: report for worker, report in latest.items() if worker in members}


def _counted(past: ByTask, reports: Iterable[Progress]) -> ByTask:
    """Add the counters of reports that are not the latest any more."""
    totals = dict(past)
    for report in reports:
        for task in report.tasks:
            own, done = (task.stage, task.task), task.counted()
            totals[own] = done.after(totals[own]) if own in totals else done
    return totals


def _not_below(report: Progress, before: Progress) -> Progress:
    """Return a report of the same generation in which no counter has fallen."""
    known = {(task.stage, task.task): task for task in before.tasks}
    tasks = [
        task.not_below(known.pop(own)) if (own := (task.stage, task.task)) in known
        else task
        for task in report.tasks
    ]  # fmt: skip
    return replace(report, tasks=(*tasks, *known.values()))
