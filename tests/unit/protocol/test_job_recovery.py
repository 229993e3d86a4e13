"""JobCore with snapshots: what it does about losses, links and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.job_cores import (
    ONE,
    REPORT,
    SECOND_NS,
    TWO,
    Driver,
    registered,
)

from millstream.protocol.ids import PeerId
from millstream.protocol.job import Phase
from millstream.protocol.job_events import (
    BeginGeneration,
    Command,
    Committed,
    EpochCompleted,
    GivenUp,
    Interrupt,
    LinkBroke,
    Outcome,
    OutcomeKind,
    PauseReached,
    RequestPause,
    SendMessage,
    Settled,
    StartWorker,
    WorkerExited,
    WorkerFailed,
    WorkerFinished,
    WorkerHeard,
    WorkerLost,
    WorkerReady,
)
from millstream.protocol.messages import Deploy, Start, Stop
from millstream.protocol.restarts import CALM_EPOCHS, CALM_NS, LOSSES_MAX

# The arrows of recovery.


THREE, FOUR = PeerId(3), PeerId(4)
EARLIER, LATER = (1, 4), (1, 5)


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
    assert driver.phase() is Phase.RESOLVING_EPOCH
    assert driver.core.outcome is None


def test_settled_job_is_deployed_on_those_who_are_left() -> None:
    """From the snapshot that it goes back to, in a generation of its own."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset by peer"))

    commands = driver.tell(Settled(LATER))

    deploy = Deploy(2, ((ONE, "host-1", 7001),), (ONE, ONE), LATER)
    assert deploys(commands) == [(ONE, deploy)]
    started = [SendMessage(ONE, Start(2)), BeginGeneration(2)]
    assert driver.tell(WorkerReady(ONE)) == started
    assert driver.phase() is Phase.RUNNING


def test_job_without_anybody_left_waits_for_a_replacement() -> None:
    """And goes on from the same snapshot when it has come."""
    driver = keeping()
    driver.tell(WorkerLost(ONE, "reset"), WorkerLost(TWO, "reset"))
    driver.tell(Settled(LATER))
    assert driver.phase() is Phase.REGISTERING

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


def test_broken_link_to_a_spare_that_is_lost_interrupts_nobody() -> None:
    """Its replacement is on the way; nobody is left to suspect."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset by peer"), Settled(LATER), WorkerReady(ONE))
    driver.tell(registered(THREE), LinkBroke(ONE, THREE, "reset by peer", 0))
    driver.tell(WorkerLost(THREE, "reset by peer"))

    driver.tell(WorkerHeard(ONE, 2 * SECOND_NS))

    assert driver.at(2) == []
    assert driver.phase() is Phase.RUNNING


def test_worker_that_registers_after_its_process_ended_is_replaced_once() -> None:
    """The launcher may see the end of a process before its first message is read."""
    driver = Driver(restarts_max=2)
    driver.tell(WorkerExited(TWO, "killed by signal 9"))

    commands = driver.tell(registered(TWO), WorkerLost(TWO, "reset by peer"))

    assert commands == [SendMessage(TWO, Stop("this worker is not expected"))]


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


def test_epochs_with_progress_make_a_job_forget_failures() -> None:
    """A job that gets on may go back as often as it must."""
    driver = keeping(restarts_max=1)
    for generation in (1, 2, 3):
        failure = replace(REPORT, generation=generation)
        assert driver.tell(WorkerFailed(ONE, failure)) == [Interrupt("map raised")]
        driver.tell(Settled(LATER), WorkerReady(ONE), WorkerReady(TWO))
        driver.tell(*[EpochCompleted(has_moved=True)] * CALM_EPOCHS)


@pytest.mark.parametrize(
    "epochs",
    [
        [EpochCompleted(has_moved=True)] * (CALM_EPOCHS - 1),
        [EpochCompleted(has_moved=False)] * 100,
    ],
    ids=["too few", "without progress"],
)
def test_epochs_in_front_of_a_record_that_always_fails_forget_nothing(
    epochs: list[EpochCompleted],
) -> None:
    """Snapshots may well complete before it comes again; it is not passed by that."""
    driver = keeping(restarts_max=1)
    for generation in (1, 2):
        assert driver.core.outcome is None
        failure = replace(REPORT, generation=generation)
        driver.tell(WorkerFailed(ONE, failure))
        driver.tell(Settled(LATER), WorkerReady(ONE), WorkerReady(TWO), *epochs)

    assert driver.outcome.error == "OperatorError"


def test_calm_time_makes_an_idle_job_forget_failures() -> None:
    """Sources that have nothing to read make no progress, for days perhaps."""
    driver = keeping(restarts_max=1)
    for generation in (1, 2, 3):
        began_s = (generation - 1) * CALM_NS / SECOND_NS
        driver.core.handle(WorkerHeard(ONE, int(began_s) * SECOND_NS))
        driver.core.handle(WorkerHeard(TWO, int(began_s) * SECOND_NS))
        driver.at(began_s)
        driver.tell(EpochCompleted(has_moved=False))
        failure = replace(REPORT, generation=generation)
        assert driver.tell(WorkerFailed(ONE, failure)) == [Interrupt("map raised")]
        driver.tell(Settled(LATER), WorkerReady(ONE), WorkerReady(TWO))


def test_failure_that_a_recovery_would_repeat_ends_the_job() -> None:
    """A snapshot that does not fit."""
    driver = keeping()

    driver.tell(WorkerFailed(ONE, replace(REPORT, kind="SnapshotError")))

    assert driver.outcome.error == "SnapshotError"


DAMAGE = replace(REPORT, kind="SnapshotDamagedError", text="a file is missing")


def test_worker_that_finds_the_snapshot_damaged_makes_the_job_go_further_back() -> None:
    """And nobody is replaced for it."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER))

    damage = replace(DAMAGE, generation=2)
    assert driver.tell(WorkerFailed(ONE, damage)) == [
        Interrupt("a file is missing", is_damaged=True)
    ]
    assert driver.tell(WorkerFailed(ONE, damage)) == [], "the second one to say so"

    ((worker, deploy),) = deploys(driver.tell(Settled(EARLIER)))
    assert (worker, deploy.snapshot) == (ONE, EARLIER)


def test_snapshot_that_nobody_restores_is_not_looked_for() -> None:
    """A worker that runs has restored its own; the epochs go on from there."""
    driver = keeping()

    assert driver.tell(WorkerFailed(ONE, DAMAGE)) == [Interrupt("a file is missing")]


def test_worker_that_breaks_the_protocol_to_itself_goes_back() -> None:
    """Another one may have made it do so."""
    driver = keeping()

    broken = replace(REPORT, kind="RemoteProtocolError", text="epoch 6 came after 9")
    assert driver.tell(WorkerFailed(ONE, broken)) == [Interrupt("epoch 6 came after 9")]


def test_snapshots_that_stay_damaged_end_the_job() -> None:
    """A worker and the driver may see different files; nobody goes round for ever."""
    driver = keeping(restarts_max=2)
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER))
    for generation in (2, 3):
        damage = replace(DAMAGE, generation=generation)
        driver.tell(WorkerFailed(ONE, damage), Settled(LATER))
    assert driver.phase() is Phase.CONNECTING

    driver.tell(WorkerFailed(ONE, replace(DAMAGE, generation=4)))

    assert driver.outcome.error == "SnapshotDamagedError"


def test_job_that_cannot_go_further_back_ends_with_the_reason() -> None:
    """No snapshot is whole, or its output can be seen already."""
    driver = keeping()
    driver.tell(WorkerLost(TWO, "reset"), Settled(LATER))
    driver.tell(WorkerFailed(ONE, replace(DAMAGE, generation=2)))

    driver.tell(GivenUp("none of the 3 snapshots can be used", "SnapshotError"))

    assert driver.outcome.error == "SnapshotError"
    assert driver.outcome.reason == "none of the 3 snapshots can be used"


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


def test_links_that_keep_breaking_end_the_job() -> None:
    """A worker that makes no sense to another one may do so in every generation."""
    driver = keeping()
    for turn in range(LOSSES_MAX + 1):
        driver.tell(LinkBroke(ONE, TWO, "it sent BATCH", 2 * turn * SECOND_NS))
        driver.at(2 * turn + 1.5)
        assert (driver.core.outcome is None) == (turn < LOSSES_MAX)
        driver.tell(Settled(LATER), WorkerReady(ONE), WorkerReady(TWO))
        driver.tell(WorkerHeard(ONE, 2 * turn * SECOND_NS))
        driver.tell(WorkerHeard(TWO, 2 * turn * SECOND_NS))

    assert driver.outcome.error == "TransportError"
    assert driver.outcome.reason == (
        "the connection from worker 0 to worker 1 broke: it sent BATCH, after 20 others "
        "without 5 snapshots in a row between"
    )


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
    assert driver.phase() is Phase.RESOLVING_EPOCH


@pytest.mark.parametrize("has_registered", [False, True])
def test_worker_that_dies_before_the_job_has_begun_is_replaced(
    has_registered: bool,  # noqa: FBT001 - parameter of the test
) -> None:
    """The job begins when all are there; who died is not waited for."""
    driver = Driver(restarts_max=2)
    if has_registered:
        driver.tell(registered(ONE))

    commands = driver.tell(WorkerExited(ONE, "out of memory"))

    assert StartWorker(PeerId(3)) in commands
    assert driver.tell(registered(TWO)) == []
    deployed = driver.tell(registered(PeerId(3)))
    assert {c.worker for c in deployed if isinstance(c, SendMessage)} == {2, 3}
    assert driver.phase() is Phase.CONNECTING
    assert driver.core.generation == 1


def test_worker_that_never_starts_uses_up_the_restarts() -> None:
    """What fails each time, a missing module say, must not be tried for ever."""
    driver = Driver(restarts_max=2)
    for worker in (ONE, PeerId(3)):
        driver.tell(WorkerExited(worker, "no module"))
        assert driver.phase() is Phase.REGISTERING

    driver.tell(WorkerExited(PeerId(4), "no module"))

    assert driver.outcome.error == "LaunchError"
    assert driver.outcome.reason == (
        "a worker could not start: no module, the last of 3 tries"
    )


def test_each_place_has_its_own_tries() -> None:
    """A machine that takes many workers with it at once is one misfortune."""
    driver = Driver(restarts_max=1)
    driver.tell(WorkerExited(ONE, "host down"), WorkerExited(TWO, "host down"))

    driver.tell(registered(PeerId(3)), registered(PeerId(4)))

    assert driver.phase() is Phase.CONNECTING


def test_loss_while_the_output_is_committed_is_nobodys_concern() -> None:
    """All tasks have ended, and what they left is in the driver's hands."""
    driver = keeping()
    driver.tell(WorkerFinished(ONE), WorkerFinished(TWO))

    assert driver.tell(WorkerLost(TWO, "reset"), WorkerExited(ONE, "exit 0")) == []
    driver.tell(Committed())

    assert driver.outcome.kind is OutcomeKind.SUCCEEDED
