"""A flow on a session that the user made, in the user's process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.spark.driving import SLOTS, eventually

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def remainders(
    name: str = "remainders",
) -> tuple[ms.Flow, ms.ResultHandle[list[tuple[int, int]]]]:
    """Return a flow with a shuffle, and its result."""
    flow = ms.Flow(name)
    counts = flow.from_iterable(range(100)).group_by(lambda i: i % 3).count()
    return flow, counts.collect()


COUNTS = [(0, 34), (1, 33), (2, 33)]
MADE_ONCE = 3


def test_a_flow_runs_on_the_users_session_and_leaves_it_running(
    spark: SparkSession,
) -> None:
    """A session that was given is not ours to stop."""
    flow, counts = remainders()

    job = flow.run(spark=spark, workers=2)

    assert sorted(counts.result()) == COUNTS
    assert len(set(job.worker_pids())) == 2
    assert spark.range(10).count() == 10


def test_the_active_session_is_found_and_every_slot_gets_a_worker(
    spark: SparkSession,
) -> None:
    """Nothing needs to be said twice: `flow.run()` finds the session of the program."""
    flow = ms.Flow("sizes")
    sizes = flow.from_parallel(lambda rank, size: [size]).collect()

    flow.run()

    assert sizes.result() == [SLOTS] * SLOTS
    assert spark.range(10).count() == 10


def test_the_session_is_found_from_another_thread(spark: SparkSession) -> None:
    """Spark's active session is one per thread; a flow in another thread shares it."""
    flow, counts = remainders()
    thread = threading.Thread(target=lambda: flow.run(workers=1))

    thread.start()
    thread.join()

    assert sorted(counts.result()) == COUNTS
    assert spark.range(10).count() == 10


def test_too_few_slots_are_refused_with_the_fix(spark: SparkSession) -> None:
    """Workers that wait for each other's slots would wait for ever."""
    flow, _ = remainders()

    with pytest.raises(
        ms.UsageError, match=r"5 workers need 5 task slots.*has 4; .*local\[5\]"
    ):
        flow.run(spark=spark, workers=5)


def test_another_master_than_that_of_the_session_is_refused(
    spark: SparkSession,
) -> None:
    """Spark would silently ignore it."""
    flow, _ = remainders()

    with pytest.raises(
        ms.UsageError, match=r"'local\[3\]' was asked for.*'local\[4\]'"
    ):
        flow.run(master="local[3]")


@pytest.fixture
def speculating(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session of the same context that says that it speculates."""
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    session.conf.set("spark.speculation", "true")
    yield session
    session.conf.unset("spark.speculation")


def test_speculation_is_refused(speculating: SparkSession) -> None:
    """A second copy of a worker would be a second owner of its state."""
    flow, _ = remainders()

    with pytest.raises(
        ms.UsageError, match=r"spark\.speculation is true.*set it to false"
    ):
        flow.run(spark=speculating, workers=1)


def test_what_is_not_a_session_is_refused() -> None:
    """`spark=` takes no master URL."""
    flow, _ = remainders()

    with pytest.raises(ms.UsageError, match=r"takes a SparkSession.*got 'local\[2\]'"):
        flow.run(spark="local[2]", workers=1)


def test_two_flows_run_at_the_same_time_on_one_session(spark: SparkSession) -> None:
    """Each has its own workers, port and job groups."""
    first, first_counts = remainders("first")
    second, second_counts = remainders("second")

    jobs = [flow.start(spark=spark, workers=2) for flow in (first, second)]
    for job in jobs:
        job.wait()

    assert sorted(first_counts.result()) == COUNTS
    assert sorted(second_counts.result()) == COUNTS


def test_twenty_jobs_leave_nothing_in_driver_and_reused_workers(
    spark: SparkSession,
) -> None:
    """Spark keeps the Python processes: what a job leaks there stays for the next.

    A few things are made only once, by whichever job needs them first.
    """

    def footprint(pids: list[int]) -> dict[int, tuple[int, int, int]]:
        processes = [psutil.Process(pid) for pid in pids]
        return {
            process.pid: (
                process.num_threads(),
                process.num_fds(),
                len(process.net_connections()),
            )
            for process in processes
        }

    def run(number: int) -> list[int]:
        flow, counts = remainders(f"job-{number}")
        pids = flow.run(spark=spark, workers=2).worker_pids()
        assert sorted(counts.result()) == COUNTS
        return pids

    known = {pid for number in range(4) for pid in run(number)}
    before = footprint([*known])
    threads_before, fds_before = threading.active_count(), psutil.Process().num_fds()
    for number in range(16):
        known |= set(run(number))

    def is_no_larger() -> bool:
        after = footprint([*before])
        return all(
            now <= then + MADE_ONCE
            for pid, counts in before.items()
            for now, then in zip(after[pid], counts, strict=True)
        )

    assert len(known) <= SLOTS
    eventually(is_no_larger)
    assert threading.active_count() <= threads_before
    eventually(lambda: psutil.Process().num_fds() <= fds_before)
    assert not list(spark.sparkContext.statusTracker().getActiveJobsIds())
    assert spark.range(10).count() == 10
