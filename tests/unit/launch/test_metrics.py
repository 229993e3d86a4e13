"""What a job tells of its stages is what its tasks have told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.launchers import REAL_LAUNCHERS

import millstream as ms
from millstream.config import Config
from millstream.launch.metrics import stage_metrics
from millstream.plan.stages import plan_stages
from millstream.protocol.metrics import TaskMetrics

if TYPE_CHECKING:
    from tests.support.launchers import Launcher

ROWS = 20_000
EVERYWHERE = pytest.mark.parametrize("launcher", REAL_LAUNCHERS, indirect=True)


def counted() -> ms.Flow:
    """Return a flow whose rows all move, and whose keys are few."""
    flow = ms.Flow("counted")
    numbers = flow.from_parallel(lambda rank, size: range(rank, ROWS, size))
    totals = numbers.key_by(lambda n: n % 100).scan(lambda total, n: total + n)
    totals.collect(name="rows")
    return flow


@EVERYWHERE
def test_numbers_of_tasks_add_up(launcher: Launcher) -> None:
    """What one stage sent is what the next one took, in rows and in bytes."""
    job = launcher.job(counted(), workers=2)

    source, scan, *_ = job.metrics()
    assert [task.task for task in source.tasks] == [0, 1]
    assert sum(task.rows_out for task in source.tasks) == source.rows_out == ROWS
    assert sum(task.rows_in for task in scan.tasks) == scan.rows_in == ROWS
    sent = sum(task.bytes_out for task in source.tasks)
    assert sent == sum(task.bytes_in for task in scan.tasks)
    assert sent > 0
    for task in (*source.tasks, *scan.tasks):
        assert 0 < task.rows_in < ROWS
        assert task.busy_s > 0
        assert (task.batches_waiting, task.rows_waiting) == (0, 0)
        assert task.outputs == ()


@EVERYWHERE
def test_memory_and_place_of_workers_are_told(launcher: Launcher) -> None:
    """Each has its task of every stage, and some memory."""
    job = launcher.job(counted(), workers=2)

    workers = job.worker_metrics()
    assert [worker.tasks for worker in workers] == [(0,), (1,)]
    assert [worker.pid for worker in workers] == job.worker_pids()
    assert all(worker.resident_bytes > 2**20 for worker in workers)


def test_watermark_is_that_of_the_slowest_task() -> None:
    """It is where event time stands, not work that was done."""
    stage = plan_stages(counted().plan, Config()).stages[0]
    tasks = [TaskMetrics(0, i, has_time=True, watermark=100 - i) for i in range(3)]
    waiting = TaskMetrics(0, 3, has_time=True)

    def time_of(*told: TaskMetrics) -> ms.TimeMetrics | None:
        return stage_metrics(stage, told, task_count=4, rounds=None).time

    assert time_of(*tasks) == ms.TimeMetrics(98, 0, 0)
    assert time_of(*tasks, waiting) == ms.TimeMetrics(None, 0, 0)
    assert time_of(TaskMetrics(0, 0)) is None
    assert time_of(TaskMetrics(0, 0, late_rows=2)) == ms.TimeMetrics(None, 2, 0)
