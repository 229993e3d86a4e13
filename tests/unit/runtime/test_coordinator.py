"""The coordinator's shell: what it tells workers, keeps for the user and raises."""

from __future__ import annotations

import pickle

import pytest
from tests.support.coordinator_harness import CoordinatorHarness, failed

from millstream.errors import (
    JobCancelledError,
    LaunchError,
    OperationalError,
    OperatorError,
    WorkerLostError,
)
from millstream.protocol.job import Phase
from millstream.protocol.job_events import OutcomeKind
from millstream.protocol.messages import (
    CompleteEpoch,
    Deploy,
    Emitted,
    Heartbeat,
    Progress,
    Register,
    Release,
    Start,
    Stop,
)
from millstream.protocol.metrics import TaskMetrics
from millstream.state.plain import encode, encode_lists


def test_workers_are_deployed_together_and_started_together() -> None:
    """Everybody knows everybody before the first row is read."""
    stand = CoordinatorHarness()
    stand.start()

    members = ((1, "host", 7), (2, "host", 7))
    deploy_all = Deploy(1, members, (1, 2), (0, 0))
    assert stand.inboxes() == [[deploy_all, Start(1)]] * 2
    assert stand.coordinator.phase is Phase.RUNNING
    assert stand.coordinator.pids == {1: 101, 2: 102}


def test_output_is_committed_once_all_have_finished() -> None:
    """Then workers are released, and the job is over when they are gone."""
    stand = CoordinatorHarness()
    stand.start()
    stand.inboxes()

    stand.finish(stand.ids[0])
    assert stand.committed == []
    stand.finish(stand.ids[1])
    stand.coordinator.step()

    sealed = (("own", 0, encode("a")), ("own", 1, encode("b")))
    assert stand.committed == [(1, sealed, True)]
    assert stand.inboxes() == [[CompleteEpoch(1, 1), Release()]] * 2
    assert not stand.is_over()
    stand.leave()
    assert stand.is_over()
    assert stand.coordinator.error() is None


def test_failed_commit_fails_the_job_with_the_sinks_words() -> None:
    """Rows that nobody can see are no success."""

    def commit() -> None:
        msg = "disk full"
        raise OSError(msg)

    stand = CoordinatorHarness(1, commit, snapshot_retry_ms=10)
    stand.start()
    stand.finish(stand.ids[0])
    for _ in range(4):
        assert stand.coordinator.error() is None
        stand.pass_time("10ms")
        stand.coordinator.step()

    error = stand.coordinator.error()
    assert isinstance(error, OperationalError)
    assert str(error) == (
        "epoch 1 was not committed in 5 tries: the output could not be committed: "
        "OSError: disk full"
    )


def test_user_error_is_rebuilt_with_the_original_as_its_cause() -> None:
    """`except ... as error: error.__cause__` is what the function raised."""
    stand = CoordinatorHarness()
    stand.start()
    stand.inboxes()

    stand.say(stand.ids[0], failed(pickle.dumps(ValueError("x", 1))))

    error = stand.coordinator.error()
    assert isinstance(error, OperatorError)
    assert (error.operator, error.location) == ("map", "job.py:3")
    assert (error.position, error.details) == ("record 7 of a.txt", "Traceback ...")
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__.args == ("x", 1)
    assert stand.inboxes() == [[Stop("map at job.py:3 raised ValueError: x")]] * 2


@pytest.mark.parametrize("cause", [b"\x80\x05cno_such_module\nX\n.", b"garbage"])
def test_cause_that_cannot_be_rebuilt_is_replaced_by_its_traceback(
    cause: bytes,
) -> None:
    """A class that only the workers can import must not hide the failure."""
    stand = CoordinatorHarness(1)
    stand.start()
    stand.say(stand.ids[0], failed(cause))

    error = stand.coordinator.error()
    assert isinstance(error, OperatorError)
    assert isinstance(error.__cause__, RuntimeError)
    assert str(error.__cause__) == "Traceback ..."


def test_silent_worker_is_lost_after_a_lease() -> None:
    """A hung process looks connected; its silence gives it away."""
    stand = CoordinatorHarness(lease_ms=1_000)
    stand.start()
    for _ in range(3):
        stand.clock.advance("900ms")
        stand.say(stand.ids[0], Heartbeat(1))

    error = stand.coordinator.error()
    assert isinstance(error, WorkerLostError)
    assert "worker 1 was lost: it was silent for 1.8 s" in str(error)


def test_missing_worker_is_a_launch_error_that_says_how_many() -> None:
    """And what to do about it."""
    stand = CoordinatorHarness(launch_timeout_ms=2_000, lease_ms=60_000)
    stand.say(stand.ids[0], Register(1, "host", 7, 1))
    stand.pass_time("2001ms")

    error = stand.coordinator.error()
    assert isinstance(error, LaunchError)
    assert "only 1 of 2 workers registered within 2 s" in str(error)


def test_cancelled_job_stops_its_workers() -> None:
    """From any thread; the next step carries it out."""
    stand = CoordinatorHarness()
    stand.start()
    stand.inboxes()

    stand.coordinator.cancel("enough")
    assert stand.coordinator.outcome is None
    stand.coordinator.step()

    assert stand.inboxes() == [[Stop("enough")]] * 2
    assert isinstance(stand.coordinator.error(), JobCancelledError)


def test_job_ends_without_workers_that_never_leave() -> None:
    """After the grace period nobody waits for a hung process."""
    stand = CoordinatorHarness(stop_grace_ms=1_000)
    stand.start()
    stand.coordinator.cancel("enough")
    stand.coordinator.step()
    stand.pass_time("999ms")
    assert not stand.is_over()

    stand.pass_time("1ms")

    assert stand.is_over()


def test_exited_process_is_told_by_its_reason() -> None:
    """The launcher knows why a process is gone."""
    stand = CoordinatorHarness()
    stand.start()

    stand.coordinator.worker_exited(stand.ids[1], "killed by signal 9")
    stand.coordinator.step()

    error = stand.coordinator.error()
    assert isinstance(error, WorkerLostError)
    assert "worker 1 was lost: killed by signal 9" in str(error)


def test_results_are_in_the_order_of_tasks() -> None:
    """Whatever the order in which they arrive."""
    stand = CoordinatorHarness()
    stand.start()
    first, second = stand.ids
    own, other = stand.sinks()
    stand.say(second, Emitted(2, 1, own, 1, 0, encode_lists(["c"])))
    stand.say(first, Emitted(1, 1, own, 0, 0, encode_lists(["a"])))
    stand.say(first, Emitted(1, 1, own, 0, 0, encode_lists(["b"])))
    stand.say(first, Emitted(1, 1, other, 0, 0, encode_lists(["other sink"])))

    assert stand.coordinator.results.rows("own") == ["a", "b", "c"]


def test_coordinator_keeps_the_latest_progress_and_beats() -> None:
    """Workers hear from it in the rhythm that their leases need."""
    stand = CoordinatorHarness(1, heartbeat_ms=100)
    stand.start()
    stand.inboxes()
    first, latest = TaskMetrics(0, 0, rows_in=1), TaskMetrics(0, 0, rows_in=9)
    stand.say(stand.ids[0], Progress(1, 1, (first,)))
    stand.say(stand.ids[0], Progress(1, 1, (latest,)))
    stand.pass_time("100ms")

    assert stand.coordinator.tally.tasks() == {(0, 0): latest}
    assert stand.inboxes() == [[Heartbeat(0)]]


def test_job_ends_once_even_if_more_goes_wrong() -> None:
    """The first failure is the one that counts."""
    stand = CoordinatorHarness()
    stand.start()
    stand.say(stand.ids[0], failed())
    stand.coordinator.cancel("too late")
    stand.leave()

    outcome = stand.coordinator.outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.FAILED
