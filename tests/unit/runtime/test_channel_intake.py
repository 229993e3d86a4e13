"""The intake of channels: what comes first, and what holds the rest back."""

from __future__ import annotations

from dataclasses import replace

from tests.support.making import channel
from tests.support.taking import barrier, taken

from millstream.protocol.barrier import FLUSH, ROUND_END, Hops
from millstream.protocol.packets import PacketKind
from millstream.protocol.watermark import Watermark
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import InputChannel
from millstream.runtime.elements import (
    END_OF_INPUT,
    MarkDue,
    PortEnded,
    ProbeArrived,
    RoundOver,
    TakenBatch,
)


def intake_of(count: int) -> ChannelIntake:
    return ChannelIntake([InputChannel(channel(i)) for i in range(count)])


def test_channels_are_read_in_the_order_in_which_batches_came() -> None:
    """A busy channel does not starve the others."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BATCH, 0, ["a"], 1)
    second.receive(PacketKind.BATCH, 0, ["b"], 1)
    first.receive(PacketKind.BATCH, 1, ["c"], 1)

    assert taken(intake) == [["a"], ["b"], ["c"]]


def test_channel_intake_is_over_when_all_channels_ended_and_are_empty() -> None:
    """One open channel keeps a task alive."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BATCH, 0, ["a"], 1)
    first.receive(PacketKind.END, 1, [], 0)
    assert taken(intake) == [["a"]]

    second.receive(PacketKind.END, 0, [], 0)

    assert taken(intake) == [PortEnded(0), END_OF_INPUT]
    assert taken(intake) == [END_OF_INPUT], "whoever asks again is told again"


def test_position_counts_the_rows_of_the_channel() -> None:
    """The row of an error is named from the beginning of its channel."""
    intake = intake_of(1)
    intake.channels[0].receive(PacketKind.BATCH, 0, [1, 2, 3], 1)
    intake.channels[0].receive(PacketKind.BATCH, 1, [4, 5], 1)
    taken(intake)

    assert intake.position(1, 2) == "record 4 from task 0 of stage 0"


def test_closed_channel_intake_gives_nothing_more() -> None:
    """What already waits is dropped."""
    intake = intake_of(1)
    intake.channels[0].receive(PacketKind.BATCH, 0, [1], 1)

    intake.close()

    assert intake.take(0) is None
    assert intake.channels[0].is_closed


def test_cut_is_due_when_the_barrier_came_on_every_channel() -> None:
    """A channel whose barrier came is not read until the cut is done."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    first.receive(PacketKind.BATCH, 1, ["behind"], 1)
    second.receive(PacketKind.BATCH, 0, ["before"], 1)

    assert taken(intake) == [["before"]]
    assert len(first) == 1
    second.receive(PacketKind.BARRIER, 1, barrier(1), 0)
    second.receive(PacketKind.BATCH, 2, ["also behind"], 1)
    assert taken(intake) == [barrier(1)]

    assert intake.release(is_pausing=False), "there is no loop"

    assert taken(intake) == [["behind"], ["also behind"]]


def test_ended_channel_is_not_waited_for() -> None:
    """It has nothing before the cut that could still come."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    second.receive(PacketKind.BATCH, 0, ["last"], 1)
    second.receive(PacketKind.END, 1, [], 0)

    assert taken(intake) == [["last"], barrier(1)]


def test_channel_that_ends_behind_its_barrier_keeps_the_task_alive() -> None:
    """Blocked elements count: the intake is over only when they are read."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    first.receive(PacketKind.END, 1, [], 0)
    assert taken(intake) == []
    second.receive(PacketKind.END, 0, [], 0)

    assert taken(intake) == [barrier(1)]
    intake.release(is_pausing=False)

    assert taken(intake) == [PortEnded(0), END_OF_INPUT]


def test_blocked_channel_keeps_its_place_in_the_order() -> None:
    """What waited longest is read first after the cut."""
    intake = intake_of(2)
    first, second = intake.channels
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    for number in (1, 2):
        first.receive(PacketKind.BATCH, number, [number], 1)
    taken(intake)
    second.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    taken(intake)
    second.receive(PacketKind.BATCH, 1, [3], 1)

    intake.release(is_pausing=False)

    assert taken(intake) == [[1], [2], [3]]


def test_channel_that_ends_is_a_cut_then_time_then_the_end_of_its_port() -> None:
    """What an operator learns of an end is behind the epoch that the end completes."""
    edge = replace(channel().edge, carries_time=True)
    first, second = (InputChannel(replace(channel(i), edge=edge)) for i in range(2))
    second.port = 1
    intake = ChannelIntake([first, second])
    first.receive(PacketKind.WATERMARK, 0, Watermark(5), 0)
    first.receive(PacketKind.BARRIER, 1, barrier(1), 0)
    second.receive(PacketKind.END, 0, [], 0)

    assert taken(intake) == [barrier(1)]
    intake.release(is_pausing=False)

    assert taken(intake) == [Watermark(5), PortEnded(1)]


def in_a_loop(*, is_free: bool) -> tuple[ChannelIntake, InputChannel]:
    edge = replace(channel().edge, carries_rounds=True)
    inside = InputChannel(replace(channel(), edge=edge))
    rounds = frozenset({inside.channel.id})
    return ChannelIntake([inside], rounds=rounds, is_free=is_free), inside


def test_round_is_over_until_the_next_one_begins() -> None:
    """The task may have something else to do first."""
    intake, inside = in_a_loop(is_free=False)
    inside.receive(PacketKind.BATCH, 0, [1], 1)
    inside.receive(PacketKind.ROUND, 1, ROUND_END, 0)
    over = RoundOver(frozenset())

    first = [intake.take(0) for _ in range(4)]
    intake.begin_round()
    inside.receive(PacketKind.BATCH, 2, [2], 1)

    assert first == [TakenBatch([1]), PortEnded(0), over, over]
    assert taken(intake) == [[2]]


def test_probe_comes_before_the_rows_behind_it_and_says_whether_to_flush() -> None:
    """Where rows come without end it would wait for ever."""
    intake, inside = in_a_loop(is_free=True)
    inside.receive(PacketKind.ROUND, 0, FLUSH, 0)
    inside.receive(PacketKind.BATCH, 1, [1], 1)
    inside.receive(PacketKind.ROUND, 2, ROUND_END, 0)

    first = [intake.take(0) for _ in range(2)]
    intake.begin_round()

    assert first == [PortEnded(0), ProbeArrived(FLUSH)]
    assert [intake.take(0) for _ in range(3)] == [
        TakenBatch([1]),
        PortEnded(0),
        ProbeArrived(ROUND_END),
    ]


def test_rows_that_went_round_more_often_stand_behind_a_mark() -> None:
    """Who reads on knows how often, and no batch says it."""
    intake, inside = in_a_loop(is_free=True)
    inside.receive(PacketKind.BATCH, 0, [0], 1)
    inside.receive(PacketKind.HOPS, 1, Hops(3), 0)
    inside.receive(PacketKind.BATCH, 2, [3], 1)

    assert taken(intake) == [[0], MarkDue(Hops(3)), [3]]
