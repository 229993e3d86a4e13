"""What happens to a job when one thing goes wrong at one moment.

Method: run a small flow to a phase, let the fault happen, run to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.flows import fail_on_77
from tests.simulation.harness import (
    LEASE_NS,
    MS,
    cluster_of,
    ending,
    reach,
    reach_worker,
    strike,
)

import millstream as ms
from millstream.errors import OperatorError
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.job import Phase
from millstream.runtime.worker import WorkerPhase
from millstream.simulation.checkers import sink_rows
from millstream.simulation.options import FaultKind
from millstream.testing import Pause, Raise, ScriptedSource

if TYPE_CHECKING:
    from millstream.simulation.cluster import Cluster

SUMS = [(key, sum(range(key, 300, 7))) for key in range(7)]


def sums() -> ms.Flow:
    flow = ms.Flow("sums")
    numbers = flow.from_parallel(lambda rank, size: range(rank, 300, size))
    totals = numbers.group_by(lambda i: i % 7).sum()
    totals.for_each(print, name="totals")
    return flow


def slow(flow: ms.Flow) -> Cluster:
    """Return a cluster that needs many turns for the flow."""
    return cluster_of(flow, source_batch_rows=4, slice_batches=1, combine_keys_max=1)


def commits(cluster: Cluster) -> list[int]:
    return [sink.commit_count for sink in cluster.sinks.values()]


def test_without_faults_a_job_succeeds_and_commits_once() -> None:
    """The scenario that all others are compared with."""
    cluster = slow(sums())

    assert ending(cluster) == "succeeded"
    assert sorted(sink_rows(cluster)["totals"]) == SUMS
    assert commits(cluster) == [1]


def test_worker_killed_before_it_registers_fails_the_launch() -> None:
    """The launcher knows that the process is gone; nobody waits for the timeout."""
    cluster = cluster_of(sums())
    strike(cluster, FaultKind.CRASH, 2)

    assert ending(cluster).startswith("LaunchError: a worker could not start: it was")
    assert cluster.clock.now_ns < 20_000 * MS
    assert commits(cluster) == [0]


def test_worker_that_vanishes_unseen_ends_the_launch_at_its_deadline() -> None:
    """Nobody tells, so the launch timeout must."""
    cluster = cluster_of(sums(), is_exit_reported=False)
    strike(cluster, FaultKind.CRASH, 2)

    assert ending(cluster).startswith("LaunchError: only 2 of 3 workers registered")


def test_crash_while_workers_connect_ends_the_job() -> None:
    """The others may see a refused connection first; the loss is the better reason."""
    cluster = cluster_of(sums())
    reach(cluster, Phase.CONNECTING)
    strike(cluster, FaultKind.CRASH, 3)

    assert "was lost: " in ending(cluster)
    assert commits(cluster) == [0]


def test_crash_while_running_ends_the_job_without_a_commit() -> None:
    """There are no snapshots to go on from."""
    cluster = slow(sums())
    reach(cluster, Phase.RUNNING)
    strike(cluster, FaultKind.CRASH, 2)

    assert ending(cluster).startswith("WorkerLostError: worker ")
    assert commits(cluster) == [0]


def test_crash_of_a_finished_worker_ends_a_job_that_others_still_work_on() -> None:
    """Its results may be complete, but its output is not committed yet."""
    cluster = slow(sums())
    peer = reach_worker(cluster, WorkerPhase.FINISHED)
    assert cluster.coordinator.phase is Phase.RUNNING
    still_working = next(
        other
        for other, worker in cluster.workers.items()
        if worker.phase is WorkerPhase.RUNNING
    )
    strike(cluster, FaultKind.FREEZE, still_working, duration_ns=LEASE_NS // 2)
    strike(cluster, FaultKind.CRASH, peer)

    assert ending(cluster).startswith("WorkerLostError: ")
    assert commits(cluster) == [0]


def test_crash_after_the_commit_changes_nothing() -> None:
    """The job has its outcome; a late death only saves a good-bye."""
    cluster = slow(sums())
    reach(cluster, Phase.STOPPING)
    strike(cluster, FaultKind.CRASH, 1)

    assert ending(cluster) == "succeeded"
    assert commits(cluster) == [1]


def test_partition_shorter_than_the_lease_only_costs_time() -> None:
    """TCP sends again what was held up."""
    cluster = slow(sums())
    reach(cluster, Phase.RUNNING)
    strike(cluster, FaultKind.PARTITION, 2, duration_ns=LEASE_NS // 2)

    assert ending(cluster) == "succeeded"
    assert sorted(sink_rows(cluster)["totals"]) == SUMS
    assert cluster.clock.now_ns > LEASE_NS // 2


def test_partition_longer_than_the_lease_is_a_loss() -> None:
    """Both sides give up on each other, and the far side leaves by itself."""
    cluster = slow(sums())
    reach(cluster, Phase.RUNNING)
    cut_off = cluster.workers[list(cluster.workers)[1]]
    strike(cluster, FaultKind.PARTITION, 2, duration_ns=3 * LEASE_NS)

    assert "it was silent for 6." in ending(cluster)
    assert cut_off.reason.startswith("the coordinator was silent for 6.")


def test_workers_leave_a_coordinator_that_has_gone_silent() -> None:
    """A driver that hangs must not hold the cluster's slots."""
    flow = ms.Flow("waiting")
    flow.read(ScriptedSource([Pause()] * 10_000)).collect()
    cluster = cluster_of(flow, source_idle_ms=20)
    reach(cluster, Phase.RUNNING)
    workers = list(cluster.workers.values())
    strike(cluster, FaultKind.FREEZE, COORDINATOR, duration_ns=3 * LEASE_NS)
    cluster.run_until(lambda: not cluster.workers)

    assert cluster.clock.now_ns < 2 * LEASE_NS
    assert all(w.reason.startswith("the coordinator was silent") for w in workers)
    assert ending(cluster).startswith("WorkerLostError: ")


def test_worker_frozen_beyond_its_lease_leaves_when_it_wakes() -> None:
    """The job has long ended without it: it finds nobody and goes."""
    cluster = slow(sums())
    reach(cluster, Phase.RUNNING)
    strike(cluster, FaultKind.FREEZE, 1, duration_ns=5 * LEASE_NS)
    cluster.run_until(lambda: cluster.coordinator.is_over)
    assert list(cluster.workers) == [1]

    assert ending(cluster).startswith("WorkerLostError: ")
    assert cluster.clock.now_ns > 5 * LEASE_NS


def test_reset_between_two_workers_names_both() -> None:
    """Both are alive, so after a moment the connection itself is to blame."""
    cluster = slow(sums())
    reach(cluster, Phase.RUNNING)
    strike(cluster, FaultKind.RESET, 1, 2)

    text = ending(cluster)
    assert text.startswith("TransportError: the connection from worker ")
    assert text.endswith("broke: connection reset by peer")


def test_cancel_while_workers_connect() -> None:
    """A job can be cancelled before anything has run."""
    cluster = cluster_of(sums())
    reach(cluster, Phase.CONNECTING)
    strike(cluster, FaultKind.CANCEL)

    assert ending(cluster) == "JobCancelledError: cancelled by the simulation"
    assert commits(cluster) == [0]


def test_worker_is_dialed_before_its_own_orders_have_come() -> None:
    """Regression: such a connection was forgotten, and the job never began."""
    cluster = cluster_of(sums())
    reach(cluster, Phase.CONNECTING)
    strike(cluster, FaultKind.CLOG, 3, COORDINATOR, duration_ns=500 * MS)

    assert ending(cluster) == "succeeded"


def test_worker_that_cannot_reach_the_coordinator_dials_again() -> None:
    """A listener that is crowded, or a path that is clogged, is no reason to leave."""
    cluster = cluster_of(sums())
    strike(cluster, FaultKind.CLOG, 2, COORDINATOR, duration_ns=3 * LEASE_NS)

    assert ending(cluster) == "succeeded"
    assert sorted(sink_rows(cluster)["totals"]) == SUMS


def test_worker_that_cannot_reach_another_dials_again() -> None:
    """Until the lease, as for everything that may just be slow."""
    cluster = cluster_of(sums())
    strike(cluster, FaultKind.CLOG, 1, 2, duration_ns=LEASE_NS * 3 // 4)

    assert ending(cluster) == "succeeded"
    assert sorted(sink_rows(cluster)["totals"]) == SUMS


def test_worker_whose_coordinator_never_answers_leaves_in_the_end() -> None:
    """It would hold its slot for ever."""
    cluster = cluster_of(sums())
    strike(cluster, FaultKind.CLOG, 2, COORDINATOR, duration_ns=1_000_000 * MS)

    assert ending(cluster).startswith("LaunchError")


def test_blocked_worker_with_an_idle_source_does_not_spin() -> None:
    """Regression: the source's wish to be asked again made the worker run in circles."""
    flow = ms.Flow("trickle")
    script = [step for number in range(50) for step in (number, Pause())]
    rows = flow.read(ScriptedSource(script)).repartition_by(lambda _: 1)
    rows.collect()
    policy = ms.adaptive(1024, "1ms")
    cluster = cluster_of(flow, workers=2, channel_credit_bytes=1, buffer=policy)
    reach_worker(cluster, WorkerPhase.RUNNING)
    source, other = cluster.workers.values()
    assert source._placement == (source.id, other.id)
    strike(cluster, FaultKind.FREEZE, other.id, duration_ns=LEASE_NS // 2)
    frozen_ns = cluster.clock.now_ns
    cluster.run_until(lambda: cluster.clock.now_ns > frozen_ns + LEASE_NS // 4)

    assert source.wait_s() > 0
    assert ending(cluster) == "succeeded"


def test_user_error_names_operator_and_record() -> None:
    """What a user needs to find the row is in the exception."""
    flow = ms.Flow("fragile")
    numbers = flow.from_iterable(range(300)).map(fail_on_77, name="fragile")
    numbers.collect()
    cluster = slow(flow)

    assert ending(cluster).startswith("OperatorError: ")
    error = cluster.coordinator.error()
    assert isinstance(error, OperatorError)
    assert error.operator == "fragile"
    assert error.position.startswith("record ")
    assert isinstance(error.__cause__, ValueError)


def test_source_that_raises_ends_the_job_with_its_own_error() -> None:
    """The rows before it were read; the operator to blame is the source."""
    flow = ms.Flow("broken-source")
    flow.read(ScriptedSource([1, 2, Raise(OSError("gone"))]), name="tap").collect()
    cluster = cluster_of(flow)

    assert ending(cluster).startswith("OperatorError: read 'tap'")
    error = cluster.coordinator.error()
    assert isinstance(error, OperatorError)
    assert isinstance(error.__cause__, OSError)
