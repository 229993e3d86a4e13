"""A stop behind an epoch: it is the last one, unless what was wanted of it failed."""

from __future__ import annotations

import pytest
from tests.support.epoch_cores import (
    INTERVAL,
    ONE,
    TIMEOUT,
    TWO,
    Driver,
    barrier,
    opened,
    waiting,
)

from millstream.protocol.barrier import Order
from millstream.protocol.ids import Epoch
from millstream.protocol.snapshot_events import (
    Committed,
    Concluded,
    Inject,
    Interrupted,
    Resume,
    Settled,
    StopFailed,
    Stopped,
    StopRequested,
    Stored,
)


def stopped() -> Driver:
    driver = waiting()
    driver.tell(StopRequested())
    driver.seal(1, ONE, TWO)
    driver.tell(Stored(1), Committed(1))
    return driver


def test_job_is_stopped_when_the_epoch_is_committed() -> None:
    """Everything stands still behind it and shows what it held back; it is the last."""
    driver = waiting()

    assert driver.tell(StopRequested()) == [Inject(barrier(1, Order.PAUSE, Order.ROLL))]
    driver.seal(1, ONE, TWO)
    commands = driver.tell(Stored(1), Committed(1))

    assert commands[-1] == Stopped(Epoch(1))
    assert driver.at(10**9) == []


def test_stop_waits_for_an_epoch_that_is_open() -> None:
    """Tasks that have cut it do not stand still behind it."""
    driver = opened()
    driver.tell(StopRequested())
    driver.seal(1, ONE, TWO)

    commands = driver.tell(Stored(1), Committed(1))

    assert commands[-1] == Inject(barrier(2, Order.PAUSE, Order.ROLL, since=1))


def test_no_epoch_is_opened_after_a_recovery_behind_the_last_one() -> None:
    """Somebody copies it: a newer one would be committed after the savepoint."""
    driver = stopped()

    assert driver.tell(Interrupted()) == [Settled(Epoch(1))]
    driver.generation = 2

    assert driver.start(now_ns=10**9) == []
    assert driver.at(2 * 10**9) == []
    assert driver.tell(StopFailed()) == [Inject(barrier(2, since=1))]


def test_stop_is_tried_again_after_a_recovery_or_a_late_epoch() -> None:
    """It was asked for once, and nobody asks again."""
    driver = waiting()
    driver.tell(StopRequested(), Interrupted())
    driver.generation = 2

    assert driver.start() == [Inject(barrier(2, Order.PAUSE, Order.ROLL))]
    driver.at(TIMEOUT + 1)
    assert driver.at(TIMEOUT + INTERVAL) == [
        Inject(barrier(3, Order.PAUSE, Order.ROLL))
    ]


@pytest.mark.parametrize("is_early", [True, False], ids=["before", "behind"])
def test_job_goes_on_if_the_stop_failed(*, is_early: bool) -> None:
    """Whether the epoch is complete or not; the next one is like all others."""
    driver = waiting() if is_early else stopped()

    commands = driver.tell(StopFailed())

    assert commands == ([] if is_early else [Resume(Epoch(1))])
    opened_next = driver.at(10**6)
    expected = barrier(1) if is_early else barrier(2, since=1)
    assert opened_next == [Inject(expected)]


def test_job_that_ends_before_it_can_be_stopped_is_complete() -> None:
    """Its last epoch is as good."""
    driver = waiting()
    driver.tell(StopRequested())
    driver.end(ONE)
    driver.end(TWO)

    commands = driver.tell(Stored(1), Committed(1))

    assert commands[-1] == Concluded(Epoch(1))
