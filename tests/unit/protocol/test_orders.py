"""What a worker takes from its coordinator, and what it does not believe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.errors import RemoteProtocolError
from millstream.protocol.ids import PeerId
from millstream.protocol.messages import (
    Compact,
    CompleteEpoch,
    Deploy,
    Heartbeat,
    Message,
    OpenEpoch,
    Ready,
    Resume,
    Start,
    Stop,
)
from millstream.protocol.orders import Orders

DEPLOY = Deploy(3, ((1, "a", 7), (2, "b", 7)), (1, 2), (1, 4))
ORDERS = ("snapshot",)


def deployed(*messages: Message) -> Orders:
    """Return the orders of a worker that has generation 3, from epoch 4 on."""
    orders = Orders(PeerId(1), task_count=2, stages=[0, 1], has_store=True)
    for message in (DEPLOY, *messages):
        assert orders.take(message)
        orders.validate()
    return orders


def test_orders_of_a_generation_are_taken_in_their_order() -> None:
    """An epoch that was abandoned is resumed, and the next builds on the same one."""
    orders = deployed()

    for message in (
        Start(3),
        OpenEpoch(3, (6, 4, ORDERS)),
        Resume(3, 6),
        OpenEpoch(3, (7, 4, ORDERS)),
        CompleteEpoch(3, 7),
        Compact(3, (1, 7), (0, 1)),
        OpenEpoch(3, (8, 7, ORDERS)),
        CompleteEpoch(3, 9),
        Heartbeat(0),
        replace(DEPLOY, generation=5),
        Stop("enough"),
    ):
        assert orders.take(message), message
        orders.validate()


def test_what_is_for_an_older_generation_came_too_late() -> None:
    """That is nobody's mistake, whatever it says."""
    orders = deployed()

    assert not orders.take(Start(2))
    assert not orders.take(CompleteEpoch(1, -5))


def test_worker_without_tasks_hears_of_the_epochs_of_others() -> None:
    """A spare comes in the middle of a generation, and waits for the next."""
    orders = Orders(PeerId(3), task_count=2, stages=[0], has_store=True)

    assert not orders.take(OpenEpoch(9, (6, 4, ORDERS)))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Start(4), "generation 4 has not been deployed, only 3"),
        (Start(0), "there is no generation 0"),
        (Heartbeat(7), "it calls itself peer 7"),
        (OpenEpoch(3, (4, 0, ORDERS)), "epoch 4 cannot be opened after 4"),
        (OpenEpoch(3, (6, 5, ORDERS)), "cannot build on epoch 5, the last complete"),
        (OpenEpoch(3, (6, 4, ("dance",))), "an order that this version does not know"),
        (CompleteEpoch(3, 4), "epoch 4 cannot be complete after 4"),
        (Resume(3, 0), "nobody pauses at epoch 0"),
        (Compact(3, (-1, 4), (0,)), "no snapshot is epoch 4 of claim -1"),
        (Compact(3, (1, 4), (9,)), r"no stages \{9\} to merge"),
        (Ready(1, 3), "a coordinator does not say this"),
        (DEPLOY, "generation 3 does not follow 3"),
    ],
)
def test_nonsense_is_not_believed(message: Message, reason: str) -> None:
    """The reason says what cannot be, for whoever looks for the bug."""
    with pytest.raises(RemoteProtocolError, match=reason):
        deployed().take(message)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"members": ()}, "cannot be the members"),
        ({"members": ((1, "a", 7), (1, "b", 7))}, "cannot be the members"),
        ({"members": ((0, "a", 7), (1, "b", 7))}, "cannot be the members"),
        ({"members": ((2, "a", 7), (4, "b", 7))}, "worker 1 is not among"),
        ({"members": ((1, "a", 7), (2, "b", 65_536))}, "cannot have port 65536"),
        ({"placement": (1,)}, "1 of 2 task indexes are placed"),
        ({"placement": (1, 5)}, r"placed on \{5\}, who are no members"),
        ({"snapshot": (0, -1)}, "no snapshot is epoch -1"),
    ],
)
def test_deployment_that_does_not_fit_together(
    change: dict[str, Any], reason: str
) -> None:
    """Nothing is thrown away for it: the tasks that are here go on to exist."""
    orders = deployed()

    with pytest.raises(RemoteProtocolError, match=reason):
        orders.take(replace(DEPLOY, generation=4, **change))

    assert orders.take(Start(3))


def test_snapshot_is_no_use_to_a_job_without_a_store() -> None:
    """It would be an assertion in the middle of making tasks."""
    orders = Orders(PeerId(1), task_count=2, stages=[0], has_store=False)

    with pytest.raises(RemoteProtocolError, match="no snapshot is epoch 4"):
        orders.take(DEPLOY)


def test_pause_at_an_epoch_that_was_not_announced_is_over_too() -> None:
    """Where no source has to hear of an epoch, it is opened without a word."""
    orders = Orders(PeerId(1), task_count=1, stages=[0], has_store=True)
    assert orders.take(Deploy(3, ((1, "host", 7),), (1,), (1, 8)))

    assert orders.take(Resume(3, 9))
    assert orders.take(OpenEpoch(3, (10, 8, ORDERS)))
