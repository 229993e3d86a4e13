"""SnapshotCore, arrow by arrow of the diagram in its module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended, Sealed
from millstream.protocol.snapshots import (
    Abandoned,
    Announce,
    Command,
    Commit,
    CommitFailed,
    Committed,
    Concluded,
    Event,
    GiveUp,
    Inject,
    Interrupted,
    Paused,
    PauseRequested,
    Phase,
    Resume,
    Settled,
    SnapshotCore,
    SnapshotRequested,
    Started,
    Store,
    Stored,
    StoreFailed,
    TaskEnded,
    TaskId,
    TaskSealed,
    TimePassed,
)

INTERVAL, TIMEOUT, RETRY = 100, 50, 10
ONE, TWO = (0, 0), (1, 0)


class Driver:
    """The snapshots of a job of two tasks, checked after every event."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        interval_ns: int | None = INTERVAL,
        is_synchronous: bool = False,
    ) -> None:
        self.generation = 1
        self.core = SnapshotCore(
            epoch=Epoch(epoch),
            last_used=epoch,
            interval_ns=interval_ns,
            timeout_ns=TIMEOUT,
            retry_ns=RETRY,
            is_synchronous=is_synchronous,
        )

    def tell(self, *events: Event) -> list[Command]:
        """Return the commands that follow from the events."""
        commands = []
        for event in events:
            commands += self.core.handle(event)
            self.core.validate()
        return commands

    def start(self, *ended: TaskId, now_ns: int = 0) -> list[Command]:
        tasks = frozenset({ONE, TWO})
        return self.tell(Started(self.generation, tasks, frozenset(ended), now_ns))

    def at(self, now_ns: int) -> list[Command]:
        return self.tell(TimePassed(now_ns))

    def seal(self, epoch: int, *tasks: TaskId, problem: str = "") -> list[Command]:
        return self.tell(*(TaskSealed(self.sealed(epoch, t, problem)) for t in tasks))

    def sealed(self, epoch: int, task: TaskId, problem: str = "") -> Sealed:
        row = (("write", f"{epoch} of {task}".encode()),)
        return Sealed(1, self.generation, epoch, *task, None, (), row, 0, problem)

    def end(self, task: TaskId, epoch: int = 0) -> list[Command]:
        return self.tell(TaskEnded(self.ended(task, epoch)))

    def ended(self, task: TaskId, epoch: int = 0) -> Ended:
        row = (("write", f"end of {task}".encode()),)
        return Ended(1, self.generation, epoch, *task, (), row)

    def phase(self) -> Phase:
        return self.core.phase


def waiting() -> Driver:
    driver = Driver()
    driver.start()
    return driver


def opened() -> Driver:
    driver = waiting()
    driver.at(INTERVAL)
    return driver


def storing() -> Driver:
    driver = opened()
    driver.seal(1, ONE, TWO)
    return driver


def committing() -> Driver:
    driver = storing()
    driver.tell(Stored(1))
    return driver


def barrier(epoch: int, *orders: Order, since: int = 0) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(since), (Order.SNAPSHOT, *orders))


# Success.


def test_epoch_is_announced_when_it_is_due() -> None:
    """Not before the interval is over."""
    driver = waiting()

    assert driver.at(INTERVAL - 1) == []
    assert driver.at(INTERVAL) == [Inject(barrier(1))]
    assert driver.phase() is Phase.OPEN


def test_epoch_is_stored_when_every_task_has_sealed_it() -> None:
    """With everything that they said."""
    driver = opened()
    assert driver.seal(1, ONE) == []

    (store,) = driver.seal(1, TWO)

    sealed = (driver.sealed(1, ONE), driver.sealed(1, TWO))
    assert store == Store(Epoch(1), Epoch(0), sealed, (), frozenset())
    assert driver.phase() is Phase.STORING


def test_stored_epoch_is_complete_and_committed() -> None:
    """Workers learn of it before the sinks have made it visible."""
    driver = storing()

    assert driver.tell(Stored(1)) == [Announce(Epoch(1)), Commit(Epoch(1))]
    assert driver.core.complete_epoch == 1
    assert driver.phase() is Phase.COMMITTING


def test_next_epoch_waits_for_the_commit_and_builds_on_the_last() -> None:
    """So only the newest manifest can have transactions that are not committed."""
    driver = committing()
    assert driver.at(10 * INTERVAL) == []

    assert driver.tell(Committed(1)) == [Inject(barrier(2, since=1))]


def test_interval_runs_from_one_announcement_to_the_next() -> None:
    """What an epoch takes does not come on top of it."""
    driver = committing()

    assert driver.at(INTERVAL + INTERVAL // 2) == []
    assert driver.tell(Committed(1)) == []
    assert driver.at(2 * INTERVAL - 1) == []
    assert driver.at(2 * INTERVAL) == [Inject(barrier(2, since=1))]


def test_snapshot_that_somebody_wants_is_taken_at_once() -> None:
    """And once, however often it was asked for before it began."""
    driver = waiting()

    assert driver.tell(SnapshotRequested(), SnapshotRequested()) == [Inject(barrier(1))]
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1))

    assert driver.tell(Committed(1)) == [Inject(barrier(2, since=1))]
    driver.seal(2, ONE, TWO)
    assert driver.tell(Stored(2), Committed(2))[2:] == []


def test_job_that_goes_on_counts_on() -> None:
    """Epochs never repeat a number, those that were given up included."""
    core = SnapshotCore(
        epoch=Epoch(5), last_used=8, interval_ns=1, timeout_ns=1, retry_ns=1
    )
    core.handle(Started(1, frozenset({ONE}), frozenset(), 0))

    assert core.handle(TimePassed(1)) == [Inject(barrier(9, since=5))]


# Ends.


def test_task_that_ended_before_the_epoch_is_not_waited_for() -> None:
    """Its last words belong to the epoch."""
    driver = opened()
    driver.seal(1, ONE)

    (store,) = driver.end(TWO)

    assert isinstance(store, Store)
    assert store.ended == (driver.ended(TWO),)
    assert store.ended_tasks == {TWO}


def test_end_after_the_cut_does_not_replace_the_seal() -> None:
    """The message of the end may come first; what was cut is still waited for."""
    driver = opened()
    driver.seal(1, ONE)

    assert driver.end(TWO, epoch=1) == []
    (store,) = driver.seal(1, TWO)

    assert isinstance(store, Store)
    assert store.ended == ()
    driver.tell(Stored(1), Committed(1))
    driver.at(10 * INTERVAL)
    (later,) = driver.seal(2, ONE)
    assert isinstance(later, Store)
    assert later.ended == (driver.ended(TWO, epoch=1),), "it is part of the next"


def test_last_epoch_needs_no_barrier() -> None:
    """When every task has ended there is nobody to cut, and the job concludes."""
    driver = waiting()
    assert driver.end(ONE) == []

    (store,) = driver.end(TWO)

    assert isinstance(store, Store)
    assert store.ended_tasks == {ONE, TWO}
    assert driver.tell(Stored(1), Committed(1))[-1] == Concluded(Epoch(1))
    assert driver.phase() is Phase.CONCLUDED


def test_job_without_snapshots_has_the_last_epoch_only() -> None:
    """Output is committed at the end, and never before."""
    driver = Driver(interval_ns=None)
    driver.start()
    assert driver.at(10**9) == []

    driver.end(ONE)
    (store,) = driver.end(TWO)

    assert isinstance(store, Store)
    assert driver.tell(Stored(1), Committed(1))[-1] == Concluded(Epoch(1))


def test_end_is_stored_once() -> None:
    """A later epoch knows that the task has ended, but has none of its transactions."""
    driver = opened()
    driver.end(TWO)
    driver.seal(1, ONE)
    driver.tell(Stored(1), Committed(1))
    driver.at(10 * INTERVAL)

    (store,) = driver.seal(2, ONE)

    assert isinstance(store, Store)
    assert store.ended == ()
    assert store.ended_tasks == {TWO}


# Epochs that are given up.


def test_epoch_that_takes_too_long_is_given_up() -> None:
    """The reason names who is late."""
    driver = opened()
    driver.seal(1, ONE)

    assert driver.at(INTERVAL + TIMEOUT) == []
    (abandoned,) = driver.at(INTERVAL + TIMEOUT + 1)

    assert abandoned == Abandoned(Epoch(1), "tasks 1.0 did not seal it within 5e-08 s")
    assert driver.phase() is Phase.WAITING


def test_what_was_sealed_for_an_abandoned_epoch_goes_into_the_next() -> None:
    """Late or not: a sink that sealed something will not seal it again."""
    driver = opened()
    driver.seal(1, ONE)
    driver.at(INTERVAL + TIMEOUT + 1)
    driver.at(10 * INTERVAL)
    driver.seal(1, TWO)

    driver.seal(2, ONE)
    (store,) = driver.seal(2, TWO)

    assert isinstance(store, Store)
    assert (store.epoch, store.since) == (2, 0)
    assert {(s.epoch, s.stage) for s in store.sealed} == {
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    }


def test_epoch_that_a_task_could_not_store_is_given_up() -> None:
    """With the task's words."""
    driver = opened()

    commands = driver.seal(1, ONE, problem="disk full")

    assert commands == [Abandoned(Epoch(1), "disk full")]


def test_problem_with_an_epoch_that_was_given_up_is_no_news() -> None:
    """The present epoch is another one."""
    driver = opened()
    driver.at(INTERVAL + TIMEOUT + 1)
    driver.at(10 * INTERVAL)

    assert driver.seal(1, ONE, problem="disk full") == []
    assert driver.phase() is Phase.OPEN


def test_epoch_whose_manifest_cannot_be_written_is_given_up() -> None:
    """The next one has everything that it had."""
    driver = storing()

    assert driver.tell(StoreFailed(1, "disk full")) == [
        Abandoned(Epoch(1), "disk full")
    ]
    assert driver.core.complete_epoch == 0
    driver.at(10 * INTERVAL)
    (store,) = driver.seal(2, ONE, TWO)
    assert isinstance(store, Store)
    assert [s.epoch for s in store.sealed] == [1, 1, 2, 2]


def test_last_epoch_is_tried_again_after_a_while_not_at_once() -> None:
    """A full disk is not written to a thousand times a second."""
    driver = waiting()
    driver.end(ONE)
    driver.end(TWO)
    driver.at(5)
    driver.tell(StoreFailed(1, "disk full"))

    assert driver.at(5 + RETRY - 1) == []
    (store,) = driver.at(5 + RETRY)

    assert isinstance(store, Store)
    assert store.epoch == 2
    assert len(store.ended) == 2


def test_pause_that_failed_is_tried_again_after_a_while_not_at_once() -> None:
    """However much somebody wants it."""
    driver = waiting()
    driver.tell(PauseRequested())
    driver.seal(1, ONE, problem="disk full")

    assert driver.at(RETRY - 1) == []
    assert driver.at(RETRY) == [Inject(barrier(2, Order.PAUSE))]


# Commits.


def test_failed_commit_is_tried_again_after_a_while() -> None:
    """A sink may be away for a moment; the epoch stays complete."""
    driver = committing()

    assert driver.tell(CommitFailed(1, "no route to host")) == []
    assert driver.at(INTERVAL + RETRY - 1) == []
    assert driver.at(INTERVAL + RETRY) == [Commit(Epoch(1))]
    assert driver.at(10 * INTERVAL) == [], "one at a time"


def test_commit_that_never_works_is_given_up() -> None:
    """The job fails with the sink's words; the manifest keeps what is to be committed."""
    driver = committing()
    for number in range(4):
        driver.tell(CommitFailed(1, "no route to host"))
        assert driver.at((2 + number) * INTERVAL) == [Commit(Epoch(1))]

    (give_up,) = driver.tell(CommitFailed(1, "no route to host"))

    assert give_up == GiveUp("epoch 1 was not committed in 5 tries: no route to host")


# Pauses.


def test_pause_is_reached_when_its_epoch_is_committed() -> None:
    """Nothing runs until the next generation starts."""
    driver = waiting()

    assert driver.tell(PauseRequested()) == [Inject(barrier(1, Order.PAUSE))]
    driver.seal(1, ONE, TWO)
    commands = driver.tell(Stored(1), Committed(1))

    assert commands[-1] == Paused(Epoch(1))
    assert driver.phase() is Phase.PAUSED
    assert driver.at(10**9) == []
    driver.generation = 2
    driver.start(now_ns=10**9)
    assert driver.at(10**9 + INTERVAL) == [Inject(barrier(2, since=1))]


def test_pause_that_is_wanted_while_an_epoch_is_open_waits_for_the_next() -> None:
    """The barrier of the open one is on its way without the order."""
    driver = opened()
    driver.tell(PauseRequested())
    driver.seal(1, ONE, TWO)

    commands = driver.tell(Stored(1), Committed(1))

    assert commands[-1] == Inject(barrier(2, Order.PAUSE, since=1))


def test_abandoned_pause_lets_the_tasks_go_on() -> None:
    """They must not stand still behind an epoch that nobody waits for."""
    driver = waiting()
    driver.tell(PauseRequested())

    commands = driver.at(TIMEOUT + 1)

    assert commands[1:] == [Resume(Epoch(1))]


def test_synchronous_snapshot_stops_everybody_until_it_is_committed() -> None:
    """The paper's baseline."""
    driver = Driver(is_synchronous=True)
    driver.start()

    assert driver.at(INTERVAL) == [Inject(barrier(1, Order.PAUSE))]
    driver.seal(1, ONE, TWO)
    assert driver.tell(Stored(1))[-1] == Commit(Epoch(1))

    assert driver.tell(Committed(1)) == [Resume(Epoch(1))]


# Recovery.


def test_interruption_gives_the_open_epoch_up() -> None:
    """And says at once where to go back to."""
    assert opened().tell(Interrupted()) == [
        Abandoned(Epoch(1), "the job recovers"),
        Settled(Epoch(0)),
    ]


@pytest.mark.parametrize("is_stored", [True, False])
def test_interruption_waits_for_a_manifest_that_is_being_written(
    is_stored: bool,  # noqa: FBT001 - a parameter
) -> None:
    """It will count or not; nobody may go back before that is clear."""
    driver = storing()
    assert driver.tell(Interrupted()) == []

    if is_stored:
        commands = driver.tell(Stored(1), Committed(1))
        assert commands[-1] == Settled(Epoch(1))
    else:
        commands = driver.tell(StoreFailed(1, "disk full"))
        assert commands[-1] == Settled(Epoch(0))
    assert driver.phase() is Phase.RESTING


def test_interruption_waits_for_the_commit() -> None:
    """Tries included: what is complete must be visible before it is built on."""
    driver = committing()
    assert driver.tell(Interrupted()) == []
    assert driver.tell(CommitFailed(1, "away")) == []

    assert driver.at(10 * INTERVAL) == [Commit(Epoch(1))]
    assert driver.tell(Committed(1)) == [Settled(Epoch(1))]


def test_end_that_was_stored_during_an_interruption_is_no_task_any_more() -> None:
    """The next generation says itself which tasks have ended."""
    driver = opened()
    driver.end(TWO)
    driver.seal(1, ONE)
    driver.tell(Interrupted())

    assert driver.tell(Stored(1), Committed(1))[-1] == Settled(Epoch(1))
    driver.generation = 2
    assert driver.start(TWO) == []


def test_older_generation_is_not_heard() -> None:
    """What it sealed is lost, and comes again."""
    driver = opened()
    old = driver.sealed(1, ONE)
    driver.tell(Interrupted())
    driver.generation = 2
    driver.start()
    driver.at(INTERVAL)

    driver.tell(
        TaskSealed(replace(old, epoch=2)), TaskEnded(Ended(1, 1, 0, 1, 0, (), ()))
    )

    assert driver.seal(2, TWO) == []
    (store,) = driver.seal(2, ONE)
    assert isinstance(store, Store)
    assert {s.generation for s in store.sealed} == {2}
    assert store.ended == ()


def test_interruption_of_a_pause_goes_back_to_its_epoch() -> None:
    """It is the last complete one."""
    driver = waiting()
    driver.tell(PauseRequested())
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1), Committed(1))

    assert driver.tell(Interrupted()) == [Settled(Epoch(1))]


def test_job_that_was_interrupted_after_its_last_epoch_concludes_again() -> None:
    """All its tasks begin as ended; one more epoch without anything is stored."""
    driver = waiting()
    driver.end(ONE)
    driver.end(TWO)
    driver.tell(Stored(1), Interrupted(), Committed(1))
    driver.generation = 2

    (store,) = driver.start(ONE, TWO)

    assert isinstance(store, Store)
    assert (store.sealed, store.ended) == ((), ())
    assert driver.tell(Stored(2), Committed(2))[-1] == Concluded(Epoch(2))


def test_first_snapshot_of_other_tasks_holds_everything() -> None:
    """What a delta would build on lies with tasks that are no more."""
    core = SnapshotCore(
        epoch=Epoch(5),
        last_used=5,
        interval_ns=INTERVAL,
        timeout_ns=TIMEOUT,
        retry_ns=RETRY,
        is_rebasing=True,
    )
    driver = Driver()
    driver.core = core
    driver.start()

    assert driver.at(INTERVAL) == [Inject(barrier(6, since=0))]
    driver.seal(6, ONE, problem="disk full")
    assert driver.at(2 * INTERVAL) == [Inject(barrier(7, since=0))]
    (store,) = driver.seal(7, ONE, TWO)
    assert isinstance(store, Store)
    assert store.since == 0
    driver.tell(Stored(7), Committed(7))

    assert driver.at(3 * INTERVAL) == [Inject(barrier(8, since=7))]
