"""JobCore, arrow by arrow of the diagram in its module."""

from __future__ import annotations

import pytest
from tests.support.job_cores import (
    ONE,
    REPORT,
    SECOND_NS,
    STRANGER,
    TWO,
    Driver,
    committing,
    connecting,
    gathering,
    registered,
    running,
    stopping,
    to_both,
)

from millstream.protocol.job import Phase
from millstream.protocol.job_events import (
    BeginGeneration,
    CancelRequested,
    Committed,
    GivenUp,
    LinkBroke,
    Outcome,
    OutcomeKind,
    SendMessage,
    WorkerExited,
    WorkerFailed,
    WorkerFinished,
    WorkerHeard,
    WorkerLost,
    WorkerReady,
)
from millstream.protocol.messages import Deploy, Release, Start, Stop

# The arrows of success.


def test_all_registered_leads_to_connecting() -> None:
    """The last one to come sets the deployment off, with everybody's address."""
    driver = gathering()
    assert driver.tell(registered(ONE)) == []
    assert driver.phase() is Phase.REGISTERING

    commands = driver.tell(registered(TWO))

    members = ((ONE, "host-1", 7001), (TWO, "host-2", 7002))
    assert commands == to_both(Deploy(1, members, (ONE, TWO), (0, 0)))
    assert driver.phase() is Phase.CONNECTING


def test_all_ready_leads_to_running() -> None:
    """Nobody reads a source before everybody is connected."""
    driver = connecting()
    assert driver.tell(WorkerReady(ONE)) == []

    assert driver.tell(WorkerReady(TWO)) == [*to_both(Start(1)), BeginGeneration(1)]
    assert driver.phase() is Phase.RUNNING


def test_all_finished_leads_to_committing() -> None:
    """Output is committed when the last task of the last worker has ended."""
    driver = running()
    assert driver.tell(WorkerFinished(ONE)) == []

    assert driver.tell(WorkerFinished(TWO)) == []
    assert driver.phase() is Phase.COMMITTING
    assert driver.core.outcome is None


def test_committed_leads_to_stopping_with_success() -> None:
    """Workers are released; the job is not over before they have left."""
    driver = committing()

    assert driver.tell(Committed()) == to_both(Release())
    assert driver.phase() is Phase.STOPPING
    assert driver.outcome == Outcome(OutcomeKind.SUCCEEDED)


def test_everybody_gone_leads_to_ended() -> None:
    """A lost connection and an ended process both count as gone."""
    driver = stopping()
    assert driver.tell(WorkerLost(ONE, "closed")) == []

    assert driver.tell(WorkerExited(TWO, "exit 0")) == []
    assert driver.phase() is Phase.ENDED


def test_grace_over_leads_to_ended() -> None:
    """A worker that does not leave keeps nobody waiting."""
    driver = stopping()
    assert driver.at(4.9) == []
    assert driver.phase() is Phase.STOPPING

    assert driver.at(5) == []
    assert driver.phase() is Phase.ENDED


def test_ended_job_is_deaf() -> None:
    """Whatever still arrives changes nothing."""
    driver = stopping()
    driver.at(5)

    assert driver.tell(registered(STRANGER), CancelRequested("x", 0), Committed()) == []
    assert driver.outcome.kind is OutcomeKind.SUCCEEDED


# The arrows of failure.


@pytest.mark.parametrize("start", [gathering, connecting, running])
def test_cancellation_stops_the_job_in_every_phase(
    start: object,
) -> None:
    """Those who are there are told; those who come later are sent away."""
    assert callable(start)
    driver: Driver = start()

    commands = driver.tell(CancelRequested("enough", 0))

    assert driver.phase() is Phase.STOPPING
    assert driver.outcome == Outcome(
        OutcomeKind.CANCELLED, "JobCancelledError", "enough"
    )
    assert set(commands) <= set(to_both(Stop("enough")))


def test_worker_that_registers_after_the_end_was_decided_is_sent_away() -> None:
    """Spark may start a task long after the job was cancelled."""
    driver = gathering()
    driver.tell(CancelRequested("enough", 0))

    assert driver.tell(registered(ONE)) == [SendMessage(ONE, Stop("enough"))]


def test_failure_report_stops_the_job_with_the_report() -> None:
    """The driver rebuilds the user's exception from it."""
    driver = running()

    assert driver.tell(WorkerFailed(ONE, REPORT)) == to_both(Stop("map raised"))
    assert driver.outcome == Outcome(
        OutcomeKind.FAILED, "OperatorError", "map raised", REPORT
    )


def test_first_outcome_counts() -> None:
    """The losses that follow a failure do not hide it."""
    driver = running()
    driver.tell(WorkerFailed(ONE, REPORT))

    driver.tell(WorkerLost(ONE, "reset"), CancelRequested("x", 0), Committed())

    assert driver.outcome.error == "OperatorError"


def test_failed_commit_fails_the_job() -> None:
    """Every task ended, and yet nothing is visible."""
    driver = committing()

    failed = driver.tell(GivenUp("disk full", "OperationalError"))

    assert failed == to_both(Stop("disk full"))
    assert driver.outcome.error == "OperationalError"


def test_launcher_knows_best_why_a_worker_is_lost() -> None:
    """The broken connection is held for a moment, until the exit is reported."""
    driver = running()

    assert driver.tell(WorkerLost(TWO, "reset by peer")) == []
    driver.tell(WorkerExited(TWO, "killed by signal 9"))

    assert driver.outcome.error == "WorkerLostError"
    assert "worker 1 was lost: killed by signal 9" in driver.outcome.reason


def test_loss_that_nobody_explains_fails_the_job_all_the_same() -> None:
    """With the reason that the connection gave."""
    driver = running()
    driver.tell(WorkerLost(TWO, "reset by peer"))

    assert driver.at(0.4) == []
    driver.at(0.6)

    assert driver.outcome.error == "WorkerLostError"
    assert "worker 1 was lost: reset by peer" in driver.outcome.reason


def test_silence_for_longer_than_the_lease_is_a_loss() -> None:
    """A sign of life begins the lease anew."""
    driver = running()
    driver.tell(WorkerHeard(ONE, 4 * SECOND_NS), WorkerHeard(TWO, 3 * SECOND_NS))
    assert driver.at(9) == []

    driver.at(9.5)

    assert driver.outcome.error == "WorkerLostError"
    assert "worker 1 was lost: it was silent for 6.5 s" in driver.outcome.reason


def test_broken_link_waits_for_a_better_explanation() -> None:
    """Mostly its far end is dead, and that arrives a moment later."""
    driver = running()
    driver.tell(LinkBroke(ONE, TWO, "reset by peer", 0))
    assert driver.at(0.9) == []

    driver.tell(WorkerExited(TWO, "out of memory"))

    assert driver.outcome.error == "WorkerLostError"
    assert "out of memory" in driver.outcome.reason


def test_broken_link_does_not_speak_for_a_worker_that_is_lost() -> None:
    """The launcher gets its time to say why, also where a link broke before."""
    driver = running()
    driver.tell(LinkBroke(ONE, TWO, "reset by peer", 0))
    driver.at(0.9)
    driver.tell(WorkerLost(TWO, "reset by peer"))

    assert driver.at(1.1) == []
    driver.tell(WorkerExited(TWO, "killed by signal 9"))

    assert "killed by signal 9" in driver.outcome.reason


def test_broken_link_between_two_living_workers_fails_the_job() -> None:
    """Both still speak to the coordinator, but not to each other."""
    driver = running()
    driver.tell(LinkBroke(ONE, TWO, "no route to host", 0))

    driver.at(1.1)

    assert driver.outcome.error == "TransportError"
    assert driver.outcome.reason == (
        "the connection from worker 0 to worker 1 broke: no route to host"
    )


def test_link_that_breaks_while_the_output_is_committed_is_nobodys_concern() -> None:
    """All rows have arrived."""
    driver = committing()
    driver.tell(LinkBroke(ONE, TWO, "reset", 0), WorkerLost(TWO, "reset"))

    driver.tell(Committed())

    assert driver.outcome.kind is OutcomeKind.SUCCEEDED


def test_late_workers_are_counted_in_the_launch_error() -> None:
    """The message says how many are missing and what to do."""
    driver = gathering()
    driver.tell(registered(ONE), WorkerHeard(ONE, 10 * SECOND_NS))

    driver.at(10.1)

    assert driver.outcome.error == "LaunchError"
    assert driver.outcome.reason == (
        "only 1 of 2 workers registered within 10 s; free 1 more task slots in Spark, "
        "ask for fewer workers, or raise the setting 'launch_timeout_ms'"
    )


def test_workers_that_cannot_reach_each_other_have_a_sentence_of_their_own() -> None:
    """Slots are not the problem then, the network is."""
    driver = connecting()
    for worker in (ONE, TWO):
        driver.tell(WorkerHeard(worker, 10 * SECOND_NS))
    driver.tell(WorkerReady(ONE))

    driver.at(10.1)

    assert driver.outcome.error == "LaunchError"
    assert driver.outcome.reason.startswith("only 1 of 2 workers reached all others")


def test_worker_that_exits_before_it_registered_is_a_launch_error() -> None:
    """Its process says why."""
    driver = gathering()

    driver.tell(WorkerExited(TWO, "No module named 'numpy'"))

    assert driver.outcome.error == "LaunchError"
    assert "a worker could not start: No module named 'numpy'" in driver.outcome.reason


def test_stranger_is_sent_away_and_does_not_count() -> None:
    """A worker of another incarnation has no part in this job."""
    driver = gathering()

    commands = driver.tell(registered(STRANGER))

    assert commands == [SendMessage(STRANGER, Stop("this worker is not expected"))]
    assert driver.phase() is Phase.REGISTERING


def test_worker_that_never_registered_is_ignored() -> None:
    """It knows the secret, but it is not one of ours."""
    driver = connecting()

    assert driver.core.handle(WorkerReady(STRANGER)) == []
    assert driver.phase() is Phase.CONNECTING
