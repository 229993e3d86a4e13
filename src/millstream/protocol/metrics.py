"""What a task tells of its work: one form from the task to whoever asks the job.

A task fills a `TaskMetrics` in when its worker reports, the message `Progress` carries it
field by field in the order below, and `Job.metrics` hands it out.  Whoever wants to know
more of tasks adds a field here, where it is measured (`runtime.meters`), and to the table
in docs/reference/metrics.md.

*Counters* are work done: they begin at 0 with every generation of a task, and are added up
over generations, so that they never fall.  All other fields are *gauges*: they say how the
task stood when it was looked at, and nothing of a task that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__all__ = ["COUNTERS", "OutputMetrics", "RoundMetrics", "TaskMetrics"]

_COUNTER = {"is_counter": True}


def _counter() -> int:
    made: int = field(default=0, metadata=_COUNTER)
    return made


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """How far an iteration has come.

    Attributes
    ----------
    round
        The round under way; 0 before the first and after the last.
    done
        Rounds done so far, in all runs of an iteration inside another.
    history
        What was decided by after the last rounds, oldest first: numbers, or the name of
        the type of what is no number.
    """

    round: int
    done: int
    history: tuple[float | str, ...]


@dataclass(frozen=True, slots=True)
class OutputMetrics:
    """How the channels of a task to one stage stand, added up over its readers.

    Attributes
    ----------
    stage
        The stage that reads them.
    rows_waiting
        Rows that were put in and have not left: for a batch to fill up, or for credit.
    batches_used, batches_max
        Credit in use on the same worker, and what there is of it.
    bytes_used, bytes_max
        Credit in use between workers, and what there is of it; the last batch may overdraw.
    """

    stage: int
    rows_waiting: int = 0
    batches_used: int = 0
    batches_max: int = 0
    bytes_used: int = 0
    bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """What one task has done so far, and how it stands.

    Attributes
    ----------
    stage, task
        Which task it is: the stage, and its index there.
    rows_in, rows_out
        Rows that its operators took, and that left them.
    bytes_in, bytes_out
        Bytes of the batches that came from other workers, and went to them; batches on
        the same worker are passed on as they are.
    busy_ns, blocked_ns
        How long it worked, and how long it could not because its output was blocked.
    late_rows, ahead_rows
        Rows too late for their window or partners, and timestamps too far ahead to count.
    batches_waiting, rows_waiting
        What has come and was not taken; rows on disk are not counted.
    outputs
        Its channels, by the stage that reads them.
    has_time
        Whether it has event time.
    watermark
        How far event time has come; None before the first watermark.
    splits
        How far it has come in each open split, of the slowest ones, where splits are known.
    state_entries
        Entries of its tables by key.
    state_bytes
        What its last snapshot wrote: the state that had changed since the one before.
    rounds
        How far an iteration has come that it decides over.
    """

    stage: int
    task: int
    rows_in: int = _counter()
    rows_out: int = _counter()
    bytes_in: int = _counter()
    bytes_out: int = _counter()
    busy_ns: int = _counter()
    blocked_ns: int = _counter()
    late_rows: int = _counter()
    ahead_rows: int = _counter()
    batches_waiting: int = 0
    rows_waiting: int = 0
    outputs: tuple[OutputMetrics, ...] = ()
    has_time: bool = False
    watermark: int | None = None
    splits: tuple[tuple[str, int], ...] = ()
    state_entries: int = 0
    state_bytes: int = 0
    rounds: RoundMetrics | None = None

    @property
    def busy_s(self) -> float:
        """How long it worked, in seconds."""
        return self.busy_ns / 1e9

    @property
    def blocked_s(self) -> float:
        """How long its output was blocked, in seconds."""
        return self.blocked_ns / 1e9

    def counted(self) -> TaskMetrics:
        """Return its counters alone: what stays of a task that is gone."""
        return self._with(TaskMetrics(self.stage, self.task), self._counts())

    def after(self, past: TaskMetrics) -> TaskMetrics:
        """Return it with the work of an earlier generation added.

        Examples
        --------
        >>> past, now = TaskMetrics(0, 1, rows_in=5), TaskMetrics(0, 1, rows_in=3)
        >>> now.after(past).rows_in
        8
        """
        assert (self.stage, self.task) == (past.stage, past.task), f"{past} is another"
        before = past._counts()
        return self._with(self, {n: v + before[n] for n, v in self._counts().items()})

    def not_below(self, before: TaskMetrics) -> TaskMetrics:
        """Return it with no counter lower than it was told before."""
        assert (self.stage, self.task) == (before.stage, before.task), (
            f"{before} is another"
        )
        known = before._counts()
        counts = {n: max(v, known[n]) for n, v in self._counts().items()}
        return self._with(self, counts)

    @staticmethod
    def _with(metrics: TaskMetrics, counts: dict[str, Any]) -> TaskMetrics:
        assert counts.keys() == set(COUNTERS), f"{counts} are not all counters"
        return replace(metrics, **counts)

    def _counts(self) -> dict[str, int]:
        counts = {name: getattr(self, name) for name in COUNTERS}
        assert min(counts.values()) >= 0, f"less than nothing was counted: {counts}"
        return counts


COUNTERS = tuple(f.name for f in fields(TaskMetrics) if "is_counter" in f.metadata)
"""The fields that are added up over generations and never fall."""
