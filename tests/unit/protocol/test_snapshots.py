"""SnapshotCore, arrow by arrow of the diagram in its module."""

from __future__ import annotations

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
from millstream.protocol.snapshot_events import (
    Announce,
    Commit,
    CommitFailed,
    Committed,
    Concluded,
    GiveUp,
    Inject,
    PauseRequested,
    SnapshotRequested,
    Started,
    Store,
    Stored,
    StoreFailed,
    TimePassed,
)
from millstream.protocol.snapshots import Phase, SnapshotCore

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

    assert driver.tell(Stored(1)) == [
        Announce(Epoch(1), has_moved=True),
        Commit(Epoch(1)),
    ]
    assert driver.core.complete_epoch == 1
    assert driver.phase() is Phase.COMMITTING


def test_epoch_tells_whether_sources_have_read_on() -> None:
    """A split that waits has not; where nothing is left to read, nobody waits for it."""
    driver = waiting()
    idle, over = ("read", "a", 7, False), ("read", "a", 9, True)
    other = ("read", "b", 1, False)
    steps = [(idle, True), (idle, False), (idle, False), (other, True), (other, False)]
    steps += [(over, True), (over, True)]

    for epoch, (offset, has_moved) in enumerate(steps, start=1):
        announced = driver.complete(epoch, offset)
        assert announced[0] == Announce(Epoch(epoch), has_moved), (epoch, offset)


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


def test_snapshot_that_somebody_wants_is_wanted_until_one_is_complete() -> None:
    """A savepoint copies one in which sinks hold nothing back, and no other."""
    driver = waiting()
    driver.tell(SnapshotRequested())

    driver.seal(1, ONE, problem="disk full")
    again = Inject(barrier(2, Order.ROLL))
    assert driver.at(INTERVAL) == [again]
    driver.seal(2, ONE, TWO)
    driver.tell(Stored(2), Committed(2))
    assert driver.at(3 * INTERVAL) == [Inject(barrier(3, since=2))]


def test_snapshot_that_somebody_wants_is_taken_at_once() -> None:
    """Once, however often it was asked for before it began, and with what sinks hold."""
    driver = waiting()

    wanted = Inject(barrier(1, Order.ROLL))
    assert driver.tell(SnapshotRequested(), SnapshotRequested()) == [wanted]
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1))

    again = Inject(barrier(2, Order.ROLL, since=1))
    assert driver.tell(Committed(1)) == [again]
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
    """Its final flush belongs to the epoch."""
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
    assert driver.abandoned() == []
    assert driver.at(INTERVAL + TIMEOUT + 1) == []

    late = "epoch 1 is abandoned: tasks 1.0 did not seal it within 5e-08 s"
    assert driver.abandoned() == [late]
    assert driver.phase() is Phase.WAITING


def test_epoch_after_one_that_took_too_long_has_twice_the_time() -> None:
    """A timeout that is too short for a job does not keep it from ever being stored."""
    driver = opened()
    given_up_at = INTERVAL + TIMEOUT + 1
    driver.at(given_up_at)
    opened_at = given_up_at + INTERVAL
    driver.at(opened_at)

    assert driver.at(opened_at + 2 * TIMEOUT) == []
    assert len(driver.abandoned()) == 1
    driver.at(opened_at + 2 * TIMEOUT + 1)
    assert len(driver.abandoned()) == 2


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

    assert driver.seal(1, ONE, problem="disk full") == []

    assert driver.abandoned() == ["epoch 1 is abandoned: disk full"]
    assert driver.phase() is Phase.WAITING


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

    assert driver.tell(StoreFailed(1, "disk full")) == []
    assert driver.abandoned() == ["epoch 1 is abandoned: disk full"]
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
