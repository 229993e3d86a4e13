"""Aligner, arrow by arrow of the diagram in its module."""

from __future__ import annotations

import pytest

from millstream.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.align import (
    Aligner,
    BarrierArrived,
    BatchArrived,
    BlockChannel,
    ChannelEnded,
    Command,
    Cut,
    DeliverBatch,
    EpochAnnounced,
    Event,
    Phase,
    Seal,
    UnblockChannel,
)
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import ChannelId, Epoch

ONE, TWO, BACK, STRANGER = ChannelId(1), ChannelId(2), ChannelId(8), ChannelId(9)
OTHER = ChannelId(7)


def barrier(epoch: int) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(epoch - 1))


def sealed(epoch: int, *logged: tuple[ChannelId, str]) -> Seal:
    return Seal(Epoch(epoch), logged)


class Reader:
    """A task that is checked after every event."""

    def __init__(self, *forward: ChannelId, back: tuple[ChannelId, ...] = ()) -> None:
        self.aligner = Aligner(forward, back)

    def tell(self, *events: Event) -> list[Command]:
        """Return the commands that follow from the events."""
        commands = []
        for event in events:
            commands += self.aligner.handle(event)
            self.aligner.validate()
        return commands

    def phase(self) -> Phase:
        return self.aligner.phase


# Without loops.


def test_first_barrier_blocks_its_channel() -> None:
    """What comes behind it belongs to the next epoch; the other channel is read on."""
    reader = Reader(ONE, TWO)

    assert reader.tell(BarrierArrived(ONE, barrier(1))) == [BlockChannel(ONE)]

    assert reader.phase() is Phase.ALIGNING
    assert reader.tell(BatchArrived(TWO, "b")) == [DeliverBatch(TWO, "b")]


def test_last_barrier_cuts_and_unblocks() -> None:
    """Nothing is in flight, so the epoch is sealed in the same step."""
    reader = Reader(ONE, TWO)
    reader.tell(BarrierArrived(ONE, barrier(1)))

    assert reader.tell(BarrierArrived(TWO, barrier(1))) == [
        Cut(barrier(1)),
        UnblockChannel(ONE),
        UnblockChannel(TWO),
        sealed(1),
    ]
    assert reader.phase() is Phase.RUNNING


def test_epochs_follow_each_other() -> None:
    """Numbers may be left out: some are spent on epochs that never were."""
    reader = Reader(ONE)

    commands = reader.tell(BarrierArrived(ONE, barrier(1)))
    commands += reader.tell(BarrierArrived(ONE, barrier(4)))

    assert [c.barrier.epoch for c in commands if isinstance(c, Cut)] == [1, 4]


def test_ended_channel_counts_as_marked() -> None:
    """Its end may be what the others wait for."""
    reader = Reader(ONE, TWO)
    reader.tell(BarrierArrived(ONE, barrier(1)))

    assert reader.tell(ChannelEnded(TWO)) == [
        Cut(barrier(1)),
        UnblockChannel(ONE),
        sealed(1),
    ]


def test_channel_that_ended_before_is_not_waited_for() -> None:
    """One barrier is enough where one channel is left."""
    reader = Reader(ONE, TWO)
    reader.tell(ChannelEnded(TWO))

    commands = reader.tell(BarrierArrived(ONE, barrier(1)))

    assert commands == [Cut(barrier(1)), UnblockChannel(ONE), sealed(1)]


def test_source_cuts_when_the_epoch_is_announced() -> None:
    """Nobody sends it a barrier."""
    assert Reader().tell(EpochAnnounced(barrier(1))) == [Cut(barrier(1)), sealed(1)]


def test_announcement_says_nothing_to_a_task_that_reads_channels() -> None:
    """Its barrier comes behind rows that belong to the epoch, sooner or later."""
    reader = Reader(ONE)

    assert reader.tell(EpochAnnounced(barrier(1))) == []
    commands = reader.tell(BarrierArrived(ONE, barrier(1)))
    assert commands == [Cut(barrier(1)), UnblockChannel(ONE), sealed(1)]

    assert reader.tell(EpochAnnounced(barrier(1))) == [], "it may also come late"


# Loops.


def test_batch_in_flight_in_a_loop_is_delivered_and_logged() -> None:
    """It was sent before the cut of its sender and arrives behind that of its reader."""
    reader = Reader(ONE, back=(BACK,))

    assert reader.tell(BarrierArrived(ONE, barrier(1))) == [
        Cut(barrier(1)),
        UnblockChannel(ONE),
    ]
    assert reader.phase() is Phase.LOGGING
    assert reader.tell(BatchArrived(BACK, "x")) == [DeliverBatch(BACK, "x")]
    assert reader.tell(BatchArrived(ONE, "y")) == [DeliverBatch(ONE, "y")]

    commands = reader.tell(BarrierArrived(BACK, barrier(1)))

    assert commands == [sealed(1, (BACK, "x"))]
    assert reader.phase() is Phase.RUNNING


def test_barrier_that_comes_round_early_holds_what_is_behind_it() -> None:
    """The loop is not blocked, and what is held belongs to the next epoch."""
    reader = Reader(ONE, TWO, back=(BACK,))
    reader.tell(BarrierArrived(ONE, barrier(1)))

    assert reader.tell(BarrierArrived(BACK, barrier(1))) == []
    assert reader.tell(BatchArrived(BACK, "x")) == []

    assert reader.tell(BarrierArrived(TWO, barrier(1))) == [
        Cut(barrier(1)),
        UnblockChannel(ONE),
        UnblockChannel(TWO),
        DeliverBatch(BACK, "x"),
        sealed(1),
    ]


def test_loop_without_input_learns_of_epochs_from_the_coordinator() -> None:
    """Rows may go round in it for long after the last channel from outside ended."""
    reader = Reader(ONE, back=(BACK,))
    reader.tell(ChannelEnded(ONE))

    assert reader.tell(EpochAnnounced(barrier(1))) == [Cut(barrier(1))]
    assert reader.tell(BarrierArrived(BACK, barrier(1))) == [sealed(1)]


def test_epoch_announced_before_the_last_input_ended_is_not_forgotten() -> None:
    """The channel ended without its barrier, which nobody else will bring."""
    reader = Reader(ONE, back=(BACK,))

    assert reader.tell(EpochAnnounced(barrier(1))) == []
    assert reader.tell(ChannelEnded(ONE)) == [Cut(barrier(1))]


def test_epochs_announced_while_one_is_passing_wait_for_it() -> None:
    """A loop takes its time."""
    reader = Reader(back=(BACK,))
    reader.tell(EpochAnnounced(barrier(1)))

    assert reader.tell(EpochAnnounced(barrier(2))) == []
    assert reader.tell(BarrierArrived(BACK, barrier(1))) == [
        sealed(1),
        Cut(barrier(2)),
    ]


def test_end_of_a_loop_seals() -> None:
    """Nothing can be in flight in a channel that ended."""
    reader = Reader(ONE, back=(BACK,))
    reader.tell(BarrierArrived(ONE, barrier(1)), BatchArrived(BACK, "x"))

    assert reader.tell(ChannelEnded(BACK)) == [sealed(1, (BACK, "x"))]


# What must not happen.


def test_batch_of_a_blocked_channel_is_the_callers_fault() -> None:
    """It was told not to read."""
    reader = Reader(ONE, TWO)
    reader.tell(BarrierArrived(ONE, barrier(1)))

    with pytest.raises(LocalProtocolError, match="channel 1, which is blocked"):
        reader.tell(BatchArrived(ONE, "a"))


@pytest.mark.parametrize(
    "event",
    [BatchArrived(STRANGER, "a"), BarrierArrived(STRANGER, barrier(1)),
     ChannelEnded(STRANGER)],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_unknown_channel_is_the_callers_fault(event: Event) -> None:
    """So is one that has ended."""
    with pytest.raises(LocalProtocolError, match="unknown or ended channel 9"):
        Reader(ONE).tell(event)


def test_second_barrier_of_an_epoch_is_the_peers_fault() -> None:
    """A channel has one per epoch."""
    reader = Reader(ONE, TWO, back=(BACK,))
    reader.tell(BarrierArrived(BACK, barrier(1)))

    with pytest.raises(RemoteProtocolError, match="a second barrier of epoch 1"):
        reader.tell(BarrierArrived(BACK, barrier(1)))


def test_barrier_of_another_epoch_is_the_peers_fault() -> None:
    """A channel cannot have skipped the epoch that the others are at."""
    reader = Reader(ONE, TWO)
    reader.tell(BarrierArrived(ONE, barrier(1)))

    with pytest.raises(RemoteProtocolError, match="epoch 1 is still ALIGNING"):
        reader.tell(BarrierArrived(TWO, barrier(2)))


def test_barrier_of_an_older_epoch_is_the_peers_fault() -> None:
    """Epochs increase on every channel."""
    reader = Reader(ONE)
    reader.tell(BarrierArrived(ONE, barrier(3)))

    with pytest.raises(RemoteProtocolError, match="epoch 2 came after 3"):
        reader.tell(BarrierArrived(ONE, barrier(2)))


def test_the_next_epoch_waits_for_one_that_still_goes_round() -> None:
    """The coordinator has given it up; its barrier has not come round yet."""
    aligner = Aligner(forward=[ONE], back=[BACK, OTHER])
    aligner.handle(BarrierArrived(ONE, barrier(1)))
    aligner.handle(BarrierArrived(BACK, barrier(1)))

    assert aligner.handle(BarrierArrived(ONE, barrier(2))) == [BlockChannel(ONE)]
    assert aligner.handle(BarrierArrived(BACK, barrier(2))) == []
    assert aligner.handle(BatchArrived(BACK, "behind")) == []
    aligner.validate()
    commands = aligner.handle(BarrierArrived(OTHER, barrier(1)))

    kinds = [type(command).__name__ for command in commands]
    assert kinds == ["Seal", "Cut", "UnblockChannel", "DeliverBatch"]
    assert aligner.phase is Phase.LOGGING
    assert aligner.handle(BarrierArrived(OTHER, barrier(2))) == [sealed(2)]


def test_the_next_epoch_may_come_round_before_this_one_is_cut() -> None:
    """The head of a loop that is over cuts it without waiting for what comes round."""
    reader = Reader(ONE, back=(BACK,))

    first = [
        reader.tell(event)
        for event in (
            BarrierArrived(BACK, barrier(1)),
            BarrierArrived(BACK, barrier(2)),
            BatchArrived(BACK, "behind both"),
        )
    ]
    second = reader.tell(BarrierArrived(ONE, barrier(1)))
    third = reader.tell(BarrierArrived(ONE, barrier(2)))

    assert first == [[], [], []]
    assert second == [Cut(barrier(1)), UnblockChannel(ONE), Seal(Epoch(1), ())]
    assert third == [
        Cut(barrier(2)),
        UnblockChannel(ONE),
        DeliverBatch(BACK, "behind both"),
        Seal(Epoch(2), ()),
    ]
