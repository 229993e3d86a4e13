"""Packets of other workers: to which channels they may go, and whom a worker gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.worker_harness import (
    FIRST,
    NO_CHANNEL,
    SECOND,
    WorkerHarness,
    counting_flow,
)

from millstream.ports import PeerLost
from millstream.protocol.barrier import Barrier, Hops, RoundEnd, Splits
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch, Generation
from millstream.protocol.messages import Deploy, LinkLost, Ready, Start
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.watermark import Watermark
from millstream.runtime.worker import WorkerPhase

if TYPE_CHECKING:
    from millstream.runtime.inprocess import LocalLink


def running() -> tuple[WorkerHarness, LocalLink]:
    """Return a worker that runs beside another one, and the link of that one."""
    stand = WorkerHarness(counting_flow(), workers=2)
    other = stand.hub.join(SECOND)
    stand.step()
    stand.deploy(SECOND)
    stand.step(2)
    stand.tell(Start(1))
    stand.step()
    other.poll(0)
    return stand, other


def channel_of(stand: WorkerHarness, *, writer: int) -> ChannelId:
    """Return a channel that the worker reads from a task on one of the two."""
    inputs = stand.worker._made.inputs.items()
    return next(id_ for id_, end in inputs if end.channel.source_index == writer)


def link_lost(stand: WorkerHarness) -> str:
    """Return why the worker has given its peer up."""
    (lost,) = [m for m in stand.step() if isinstance(m, LinkLost)]
    assert lost.peer == SECOND
    return lost.reason


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PacketKind.HOPS, Hops(1)),
        (PacketKind.ROUND, RoundEnd()),
        (PacketKind.WATERMARK, Watermark(1)),
        (PacketKind.SPLITS, Splits("a")),
    ],
)
def test_mark_that_a_channel_does_not_carry(kind: PacketKind, body: object) -> None:
    """Its task would not know what to do with it."""
    stand, other = running()
    channel = channel_of(stand, writer=1)

    other.send(FIRST, Packet(kind, Generation(1), channel, 0, body))

    assert link_lost(stand) == (
        f"it sent {kind.name}, which makes no sense: channel {channel} carries nothing "
        "of this kind"
    )
    assert PeerLost(FIRST, "it disconnected") in other.poll(0)


@pytest.mark.parametrize(
    "kind", [PacketKind.BATCH, PacketKind.END, PacketKind.CREDIT, PacketKind.CLOSE]
)
def test_channel_that_is_not_there(kind: PacketKind) -> None:
    """Nor does it help to name one between others."""
    stand, other = running()

    other.send(FIRST, Packet(kind, Generation(1), ChannelId(99), 0, []))

    assert "there is no channel 99 that it" in link_lost(stand)


def test_channel_that_another_task_writes() -> None:
    """It would be believed to be our own task."""
    stand, other = running()
    own = channel_of(stand, writer=0)

    other.send(FIRST, Packet(PacketKind.BATCH, Generation(1), own, 0, []))

    assert f"there is no channel {own} that it writes" in link_lost(stand)


def test_more_credit_than_was_taken() -> None:
    """A writer with boundless credit would bury its reader."""
    stand, other = running()
    channel = next(iter(stand.worker._made.carriers))

    packet = Packet(PacketKind.CREDIT, Generation(1), channel, 0, 2**40)
    other.send(FIRST, packet)

    assert f"{2**40} bytes of credit came back on channel {channel}" in link_lost(stand)


def test_barrier_behind_a_later_one() -> None:
    """Epochs count up on every channel."""
    stand, other = running()
    channel = channel_of(stand, writer=1)

    for sequence, epoch in enumerate((5, 4)):
        barrier = Barrier(Epoch(epoch), Epoch(0))
        packet = Packet(PacketKind.BARRIER, Generation(1), channel, sequence, barrier)
        other.send(FIRST, packet)

    assert "the barrier of epoch 4 arrived on channel" in link_lost(stand)


def test_generation_that_has_not_begun() -> None:
    """Nobody starts before this worker has said that it is ready."""
    stand, other = running()

    other.send(FIRST, Packet(PacketKind.END, Generation(2), ChannelId(0), 0))

    assert "generation 2 has not begun" in link_lost(stand)


def test_tasks_that_were_never_started_may_close_what_they_would_have_read() -> None:
    """The order to make them may be late here, and come behind the next one elsewhere."""
    stand, other = running()

    other.send(FIRST, Packet(PacketKind.CLOSE, Generation(2), ChannelId(0), 0))

    assert not [m for m in stand.step() if isinstance(m, LinkLost)]
    assert stand.worker.given_up == {}


def test_worker_that_gives_orders() -> None:
    """Only the coordinator does."""
    stand, other = running()

    other.send(
        FIRST, Packet(PacketKind.MESSAGE, Generation(1), NO_CHANNEL, 0, Start(1))
    )

    assert "it sent Start, which makes no sense" in link_lost(stand)


def test_loss_of_a_stranger_is_not_worth_telling() -> None:
    """The coordinator would ask who that is."""
    stand, _ = running()
    stranger = stand.hub.join(SECOND + 5)  # type: ignore[arg-type]
    stranger.connect(FIRST, ("", 0))
    stand.step()

    stranger.close()

    assert not [m for m in stand.step() if isinstance(m, LinkLost)]


def test_worker_leaves_a_coordinator_that_makes_no_sense() -> None:
    """Without one there is nothing to do; whoever started it sees it end."""
    stand, _ = running()

    stand.tell(Deploy(2, ((2, "", 0),), (2, 2), (0, 0)))
    stand.step()

    assert stand.has_left()
    assert stand.worker.reason.startswith(
        "lost the coordinator: it sent Deploy, which makes no sense: worker 1 is not"
    )
    assert list(stand.worker.given_up) == [COORDINATOR]


def test_peer_that_was_given_up_is_a_peer_again_in_the_next_generation() -> None:
    """It is the coordinator who says who is a member."""
    stand, other = running()
    other.send(FIRST, Packet(PacketKind.END, Generation(2), ChannelId(0), 0))
    stand.step()

    stand.deploy(SECOND, generation=2)

    assert Ready(1, 2) in stand.step(2)
    assert stand.worker.phase is WorkerPhase.WAITING
