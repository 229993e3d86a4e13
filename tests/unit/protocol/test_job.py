"""JobCore, arrow by arrow of the diagram in its module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.protocol.ids import PeerId
from millstream.protocol.job import (
    CancelRequested,
    Command,
    CommitFailed,
    CommitOutput,
    Committed,
    EndJob,
    EpochCompleted,
    Event,
    Interrupt,
    JobCore,
    LinkBroke,
    Outcome,
    OutcomeKind,
    PauseReached,
    Phase,
    RequestPause,
    SendMessage,
    Settled,
    StartWorker,
    TimePassed,
    WorkerExited,
    WorkerFailed,
    WorkerFinished,
    WorkerHeard,
    WorkerLost,
    WorkerReady,
    WorkerRegistered,
)
from millstream.protocol.messages import Deploy, Failed, Release, Start, Stop

SECOND_NS = 1_000_000_000
ONE, TWO, STRANGER = PeerId(1), PeerId(2), PeerId(9)


class Driver:
    """A job of two workers that is checked after every event."""

    def __init__(self, restarts_max: int | None = None) -> None:
        self.core = JobCore(
            [ONE, TWO],
            now_ns=0,
            launch_ns=10 * SECOND_NS,
            lease_ns=6 * SECOND_NS,
            grace_ns=5 * SECOND_NS,
            restarts_max=restarts_max,
        )

    def tell(self, *events: Event) -> list[Command]:
        """Return the commands that follow from the events."""
        commands = []
        for event in events:
            commands += self.core.handle(event)
            self.core.validate()
        return commands

    def at(self, seconds: float) -> list[Command]:
        return self.tell(TimePassed(round(seconds * SECOND_NS)))

    def phase(self) -> Phase:
        return self.core.phase

    @property
    def outcome(self) -> Outcome:
        assert self.core.outcome is not None
        return self.core.outcome


def gathering() -> Driver:
    return Driver()


def connecting() -> Driver:
    driver = Driver()
    driver.tell(registered(ONE), registered(TWO))
    return driver


def running() -> Driver:
    driver = connecting()
    driver.tell(WorkerReady(ONE), WorkerReady(TWO))
    return driver


def committing() -> Driver:
    driver = running()
    driver.tell(WorkerFinished(ONE), WorkerFinished(TWO))
    return driver


def stopping() -> Driver:
    driver = committing()
    driver.tell(Committed())
    return driver


def registered(worker: PeerId, now_ns: int = 0) -> WorkerRegistered:
    return WorkerRegistered(worker, f"host-{worker}", 7000 + worker, now_ns)


def to_both(message: Stop | Release | Start | Deploy) -> list[Command]:
    return [SendMessage(ONE, message), SendMessage(TWO, message)]


REPORT = Failed(ONE, 1, "OperatorError", "map raised", "map", "", "", "", b"")


# The arrows of success.


def test_all_registered_leads_to_connecting() -> None:
    """The last one to come sets the deployment off, with everybody's address."""
    driver = gathering()
    assert driver.tell(registered(ONE)) == []
    assert driver.phase() is Phase.GATHERING

    commands = driver.tell(registered(TWO))

    members = ((ONE, "host-1", 7001), (TWO, "host-2", 7002))
    assert commands == to_both(Deploy(1, members, (ONE, TWO), (0, 0)))
    assert driver.phase() is Phase.CONNECTING


def test_all_ready_leads_to_running() -> None:
    """Nobody reads a source before everybody is connected."""
    driver = connecting()
    assert driver.tell(WorkerReady(ONE)) == []

    assert driver.tell(WorkerReady(TWO)) == to_both(Start(1))
    assert driver.phase() is Phase.RUNNING


def test_all_finished_leads_to_committing() -> None:
    """Output is committed when the last task of the last worker has ended."""
    driver = running()
    assert driver.tell(WorkerFinished(ONE)) == []

    assert driver.tell(WorkerFinished(TWO)) == [CommitOutput()]
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

    assert driver.tell(WorkerExited(TWO, "exit 0")) == [EndJob(driver.outcome)]
    assert driver.phase() is Phase.ENDED


def test_grace_over_leads_to_ended() -> None:
    """A worker that does not leave keeps nobody waiting."""
    driver = stopping()
    assert driver.at(4.9) == []

    assert driver.at(5) == [EndJob(driver.outcome)]


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

    assert driver.tell(CommitFailed("disk full")) == to_both(Stop("disk full"))
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
    assert driver.phase() is Phase.GATHERING


def test_worker_that_never_registered_is_ignored() -> None:
    """It knows the secret, but it is not one of ours."""
    driver = connecting()

    assert driver.core.handle(WorkerReady(STRANGER)) == []
    assert driver.phase() is Phase.CONNECTING


# The arrows of recovery.


THREE, FOUR = PeerId(3), PeerId(4)
LATER = (1, 5)


def keeping(restarts_max: int = 2) -> Driver:
    """Return a running job of two workers that takes snapshots."""
    driver = Driver(restarts_max)
    driver.tell(registered(ONE), registered(TWO), WorkerReady(ONE), WorkerReady(TWO))
    return driver


def deploys(commands: list[Command]) -> list[tuple[PeerId, Deploy]]:
    return [
        (c.worker, c.message)
        for c in commands
        if isinstance(c, SendMessage) and isinstance(c.message, Deploy)
    ]


def test_loss_interrupts_the_job_and_asks_for_a_replacement() -> None:
    """Under an id that nobody had before; the lost one is told to stay away."""
    driver = keeping()

    commands = driver.tell(WorkerLost(TWO, "reset by peer"))

    assert commands == [
        SendMessage(TWO, Stop("it was given up: reset by peer")),
        StartWorker(THREE),
        Interrupt("worker 1 was lost: reset by peer"),
    ]
    assert driver.phase() is Phase.SETTLING
    assert driver.core.outcome is None


def test_settled_job_is_deployed_on_those_who_are_left() -> None:
    """From the snapshot that it goes back to, in a generation of its own."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset by peer"))

    commands = driver.tell(Settled(LATER))

    deploy = Deploy(2, ((ONE, "host-1", 7001),), (ONE, ONE), LATER)
    assert deploys(commands) == [(ONE, deploy)]
    assert driver.tell(WorkerReady(ONE)) == [SendMessage(ONE, Start(2))]
    assert driver.phase() is Phase.RUNNING


def test_job_without_anybody_left_waits_for_a_replacement() -> None:
    """And goes on from the same snapshot when it has come."""
    driver = keeping()
    driver.tell(WorkerLost(ONE, "reset"), WorkerLost(TWO, "reset"))
    driver.tell(Settled(LATER))
    assert driver.phase() is Phase.GATHERING

    commands = driver.tell(registered(THREE))

    deploy = Deploy(2, ((THREE, "host-3", 7003),), (THREE, THREE), LATER)
    assert deploys(commands) == [(THREE, deploy)]


def test_replacement_that_comes_while_the_job_settles_is_taken_in_at_once() -> None:
    """No pause is needed for tasks that do not run."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"))

    assert driver.tell(registered(THREE)) == []
    (_, deploy), _ = deploys(driver.tell(Settled(LATER)))

    assert deploy.placement == (ONE, THREE)


def test_replacement_of_a_running_job_is_taken_in_at_a_pause() -> None:
    """Until then it is a spare; at the cut, tasks are placed anew."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER), WorkerReady(ONE))

    assert driver.tell(registered(THREE)) == [RequestPause()]
    (_, deploy), _ = deploys(driver.tell(PauseReached((1, 6))))

    assert (deploy.generation, deploy.snapshot) == (3, (1, 6))
    assert sorted(deploy.placement) == [ONE, THREE]
    assert driver.phase() is Phase.CONNECTING


def test_replacement_that_comes_while_others_connect_is_taken_in_after_that() -> None:
    """The pause is asked for as soon as everybody runs."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER))
    assert driver.tell(registered(THREE)) == []

    commands = driver.tell(WorkerReady(ONE))

    assert commands[-1] == RequestPause()


def test_loss_of_a_spare_interrupts_nobody() -> None:
    """It had no tasks; another one is asked for."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER), WorkerReady(ONE))
    driver.tell(registered(THREE))

    commands = driver.tell(WorkerLost(THREE, "reset"))

    assert commands == [
        SendMessage(THREE, Stop("it was given up: reset")),
        StartWorker(FOUR),
    ]
    assert driver.phase() is Phase.RUNNING


def test_replacement_that_cannot_start_is_replaced() -> None:
    """The job goes on with those it has."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER), WorkerReady(ONE))

    commands = driver.tell(WorkerExited(THREE, "no module named 'numpy'"))

    assert StartWorker(FOUR) in commands
    assert driver.phase() is Phase.RUNNING


def test_launcher_that_confirms_a_loss_is_no_second_loss() -> None:
    """One replacement for one worker."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"))

    assert driver.tell(WorkerExited(TWO, "killed by signal 9")) == []


def test_second_loss_while_the_job_settles_interrupts_nothing_new() -> None:
    """The generation is over already."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"))

    commands = driver.tell(WorkerLost(ONE, "reset"))

    assert not any(isinstance(command, Interrupt) for command in commands)
    assert driver.core.generation == 2


def test_failure_of_a_user_function_goes_back_as_often_as_it_may() -> None:
    """The same failure once more ends the job, with its report."""
    driver = keeping(restarts_max=1)

    assert driver.tell(WorkerFailed(ONE, REPORT)) == [Interrupt("map raised")]
    driver.tell(Settled(LATER), WorkerReady(ONE), WorkerReady(TWO))
    again = replace(REPORT, generation=2)
    driver.tell(WorkerFailed(ONE, again))

    assert driver.outcome == Outcome(
        OutcomeKind.FAILED, "OperatorError", "map raised", again
    )


def test_complete_epoch_forgives_failures() -> None:
    """A job that gets on may go back as often as it must."""
    driver = keeping(restarts_max=1)
    for generation in (1, 2, 3):
        failure = replace(REPORT, generation=generation)
        assert driver.tell(WorkerFailed(ONE, failure)) == [Interrupt("map raised")]
        driver.tell(
            Settled(LATER), WorkerReady(ONE), WorkerReady(TWO), EpochCompleted()
        )


def test_failure_that_a_recovery_would_repeat_ends_the_job() -> None:
    """A peer that breaks the protocol, a snapshot that does not fit."""
    driver = keeping()

    driver.tell(WorkerFailed(ONE, replace(REPORT, kind="SnapshotError")))

    assert driver.outcome.error == "SnapshotError"


def test_failure_of_an_older_generation_is_no_news() -> None:
    """It failed before it was told to begin anew."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER), WorkerReady(ONE))

    assert driver.tell(WorkerFailed(ONE, REPORT)) == []
    assert driver.phase() is Phase.RUNNING


def test_broken_link_is_recovered_from() -> None:
    """Both ends live; they connect again in the next generation."""
    driver = keeping()
    driver.tell(LinkBroke(ONE, TWO, "reset by peer", 0))
    assert driver.at(0.9) == []

    (interrupt,) = driver.at(1.1)

    assert interrupt == Interrupt(
        "the connection from worker 0 to worker 1 broke: reset by peer"
    )
    assert driver.core.members == (ONE, TWO)


def test_worker_that_cannot_be_reached_again_is_given_up() -> None:
    """The link breaks while the others connect: its far end is to blame."""
    driver = keeping()
    driver.tell(LinkBroke(ONE, TWO, "no route to host", 0))
    driver.at(1.1)
    driver.tell(Settled(LATER), LinkBroke(ONE, TWO, "no route to host", SECOND_NS))

    commands = driver.at(2.2)

    assert StartWorker(THREE) in commands
    assert driver.core.members == (ONE,)


def test_worker_that_never_gets_ready_again_is_replaced() -> None:
    """The launch timeout goes for every generation."""
    driver = keeping()
    driver.tell(WorkerFailed(ONE, REPORT), Settled(LATER), WorkerReady(ONE))
    for worker in (ONE, TWO):
        driver.tell(WorkerHeard(worker, 10 * SECOND_NS))

    commands = driver.at(10.1)

    assert commands[0] == SendMessage(
        TWO, Stop("it was given up: it did not get ready in time")
    )
    assert StartWorker(THREE) in commands


def test_silent_worker_is_replaced() -> None:
    """If it wakes up, it finds that it was given up."""
    driver = keeping()
    driver.tell(WorkerHeard(ONE, 5 * SECOND_NS))

    commands = driver.at(6.5)

    assert (
        SendMessage(TWO, Stop("it was given up: it was silent for 6.5 s")) in commands
    )
    assert driver.phase() is Phase.SETTLING


def test_loss_before_the_job_has_begun_fails_it() -> None:
    """There is nothing to go back to; starting again is the user's decision."""
    driver = Driver(restarts_max=2)
    driver.tell(registered(ONE))

    driver.tell(WorkerExited(ONE, "out of memory"))

    assert driver.outcome.error == "WorkerLostError"
    assert driver.outcome.reason.endswith("before the job had begun; run it again")


def test_loss_while_the_output_is_committed_is_nobodys_concern() -> None:
    """All tasks have ended, and what they left is in the driver's hands."""
    driver = keeping()
    driver.tell(WorkerFinished(ONE), WorkerFinished(TWO))

    assert driver.tell(WorkerLost(TWO, "reset"), WorkerExited(ONE, "exit 0")) == []
    driver.tell(Committed())

    assert driver.outcome.kind is OutcomeKind.SUCCEEDED
