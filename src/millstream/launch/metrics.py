"""What a job tells of its stages and workers, made of what its tasks have told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.stages import Stage
    from millstream.protocol.metrics import RoundMetrics, TaskMetrics

__all__ = ["StageMetrics", "TimeMetrics", "WorkerMetrics", "stage_metrics"]


@dataclass(frozen=True, slots=True)
class TimeMetrics:
    """How event time stands in one stage.

    Attributes
    ----------
    watermark
        Nothing of this time or earlier is expected by any task; None before the first.
    late_rows
        How many rows came too late for their window, or for their partners.
    ahead_rows
        How many timestamps were too far ahead of the clock to move time.
    """

    watermark: int | None
    late_rows: int
    ahead_rows: int


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """What the tasks of one stage have done so far, added up over workers.

    `rounds` is there for stages that decide over an iteration, `time` for those with
    event time.  `tasks` has what each task has told, in the order of their indexes.
    """

    stage: int
    name: str
    is_source: bool
    task_count: int
    rows_in: int
    rows_out: int
    busy_s: float
    blocked_s: float
    rounds: RoundMetrics | None = None
    time: TimeMetrics | None = None
    tasks: tuple[TaskMetrics, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerMetrics:
    """How one worker stands.

    Attributes
    ----------
    pid
        Number of its process.
    tasks
        The task indexes that it hosts, in every stage.
    resident_bytes
        Memory of its process when it was last told, 0 if it was not; on `local` all
        workers are in the process of the driver.
    """

    pid: int
    tasks: tuple[int, ...]
    resident_bytes: int


def stage_metrics(
    stage: Stage,
    tasks: Iterable[TaskMetrics],
    *,
    task_count: int,
    rounds: RoundMetrics | None,
) -> StageMetrics:
    """Add up what the tasks of a stage have told."""
    told = tuple(tasks)
    return StageMetrics(
        stage=stage.id,
        name=stage.name,
        is_source=stage.is_source,
        task_count=task_count,
        rows_in=sum(task.rows_in for task in told),
        rows_out=sum(task.rows_out for task in told),
        busy_s=sum(task.busy_ns for task in told) / 1e9,
        blocked_s=sum(task.blocked_ns for task in told) / 1e9,
        rounds=rounds,
        time=_time_metrics(told),
        tasks=told,
    )


def _time_metrics(tasks: tuple[TaskMetrics, ...]) -> TimeMetrics | None:
    """Return what is known of the event time of a stage, if it has one."""
    late = sum(task.late_rows for task in tasks)
    ahead = sum(task.ahead_rows for task in tasks)
    timed = [task.watermark for task in tasks if task.has_time]
    if not timed and not late and not ahead:
        return None
    known = [time for time in timed if time is not None]
    watermark = min(known) if timed and len(known) == len(timed) else None
    return TimeMetrics(watermark, late, ahead)
