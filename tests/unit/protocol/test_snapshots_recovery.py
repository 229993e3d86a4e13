"""SnapshotCore: what it does about pauses and recoveries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.epoch_cores import (
    INTERVAL,
    ONE,
    RETRY,
    TIMEOUT,
    TWO,
    Driver,
    barrier,
    committing,
    opened,
    storing,
    waiting,
)

from millstream.protocol.barrier import Order
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended
from millstream.protocol.snapshot_events import (
    Commit,
    CommitFailed,
    Committed,
    Concluded,
    FallBack,
    FellBack,
    Inject,
    Interrupted,
    Paused,
    PauseRequested,
    Resume,
    Settled,
    Store,
    Stored,
    StoreFailed,
    TaskEnded,
    TaskSealed,
)
from millstream.protocol.snapshots import Phase, SnapshotCore

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


def test_tasks_of_the_next_generation_do_not_stand_still() -> None:
    """Nobody is told to go on after a pause of tasks that are gone."""
    driver = waiting()
    driver.tell(PauseRequested())
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1), Committed(1))
    driver.generation = 2

    driver.start(ONE, TWO, now_ns=1)

    assert Resume(Epoch(2)) not in driver.tell(StoreFailed(2, "full"))


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

    assert commands == [Resume(Epoch(1))]


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
    driver = opened()

    assert driver.tell(Interrupted()) == [Settled(Epoch(0))]
    assert driver.abandoned() == ["epoch 1 is abandoned: the job recovers"]


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


@pytest.mark.parametrize("whole", [0, 1])
def test_damaged_epoch_is_taken_back_and_the_next_builds_on_the_older_one(
    whole: int,
) -> None:
    """Its number is spent; a delta since it would build on files that are no more."""
    driver = committing()
    driver.tell(Interrupted(), Committed(1))

    assert driver.tell(Interrupted(is_damaged=True)) == [FallBack()]
    assert driver.phase() is Phase.SEARCHING
    assert driver.at(10 * INTERVAL) == []
    assert driver.tell(FellBack(whole)) == [Settled(Epoch(whole))]

    driver.generation = 3
    driver.start(now_ns=10 * INTERVAL)
    assert driver.at(11 * INTERVAL) == [Inject(barrier(2, since=whole))]


def test_epoch_of_a_pause_may_be_damaged() -> None:
    """The tasks that were placed anew are the first to read it."""
    driver = waiting()
    driver.tell(PauseRequested())
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1), Committed(1))

    assert driver.tell(Interrupted(is_damaged=True)) == [FallBack()]


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
