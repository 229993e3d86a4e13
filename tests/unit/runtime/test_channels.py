"""Channels: when a batch leaves, what credit allows, and what a reader refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import channel, node

from millstream.config import BufferPolicy, adaptive, fixed
from millstream.errors import RemoteProtocolError, TransportError
from millstream.plan.nodes import KeyBy
from millstream.ports import PacketArrived
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.chain import TaskFailedError
from millstream.runtime.channels import (
    CreditReturn,
    InputChannel,
    LocalCarrier,
    Mark,
    OutputChannel,
    RemoteCarrier,
)
from millstream.runtime.inprocess import Hub, LocalLink
from millstream.runtime.timers import Timers
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from millstream.values import Batch

WRITER, READER = PeerId(1), PeerId(2)
GENERATION = Generation(1)
ROW_COST = 64
SENDER = node(KeyBy(str))
BARRIER = Barrier(Epoch(7), Epoch(6))


class LocalPair:
    """Both ends of a channel on one worker."""

    def __init__(self, policy: BufferPolicy, batches_max: int = 8) -> None:
        self.clock = ManualClock()
        self.timers = Timers()
        self.woken = 0
        made = channel(buffer=policy)
        self.reader = InputChannel(made)
        self.reader.wake = self._wake
        carrier = LocalCarrier(self.reader, batches_max)
        self.writer = OutputChannel(made, carrier, self.timers.set)
        self.reader.tell_closed = self.writer.close

    def _wake(self, _channel: InputChannel) -> None:
        self.woken += 1

    def put(self, *rows: int) -> None:
        self.writer.put(list(rows), self.clock.monotonic_ns())

    def wait(self, duration: str) -> None:
        self.clock.advance(duration)
        self.timers.fire(self.clock.monotonic_ns())

    def arrived(self) -> list[Batch | Mark]:
        return [self.reader.take() for _ in range(len(self.reader))]


def test_fixed_buffer_leaves_when_it_is_full_and_not_before() -> None:
    """`fixed(n)` waits for n rows, however long that takes."""
    pair = LocalPair(fixed(3))

    pair.put(1, 2)
    pair.wait("1h")
    assert pair.arrived() == []
    pair.put(3, 4)

    assert pair.arrived() == [[1, 2, 3]]
    assert not pair.writer.is_blocked


def test_large_output_leaves_as_several_full_batches() -> None:
    """A batch never holds more rows than the policy says."""
    pair = LocalPair(fixed(3))

    pair.put(*range(8))

    assert pair.arrived() == [[0, 1, 2], [3, 4, 5]]


def test_adaptive_buffer_leaves_when_its_oldest_row_waited_long_enough() -> None:
    """The timer fires by itself, not when the next row comes."""
    pair = LocalPair(adaptive(100, "50ms"))

    pair.put(1)
    pair.wait("30ms")
    pair.put(2)
    pair.wait("19ms")
    assert pair.arrived() == []
    pair.wait("1ms")

    assert pair.arrived() == [[1, 2]]


def test_timer_of_a_buffer_that_left_full_does_nothing_to_the_next() -> None:
    """Rows that came later wait their own time."""
    pair = LocalPair(adaptive(2, "50ms"))
    pair.put(1)
    pair.wait("40ms")
    pair.put(2)
    pair.put(3)
    assert pair.arrived() == [[1, 2]]

    pair.wait("10ms")
    assert pair.arrived() == []
    pair.wait("40ms")

    assert pair.arrived() == [[3]]


def test_writer_without_credit_keeps_its_rows_until_the_reader_takes_some() -> None:
    """Back-pressure: what is not read is not sent, and the writer says so."""
    pair = LocalPair(fixed(1), batches_max=2)

    pair.put(1, 2, 3, 4)
    assert pair.writer.is_blocked
    assert len(pair.reader) == 2
    assert pair.reader.take() == [1]
    pair.writer.send_ready()
    assert pair.reader.take() == [2]
    assert pair.reader.take() == [3]
    pair.writer.send_ready()

    assert pair.reader.take() == [4]
    assert not pair.writer.is_blocked


def test_flush_without_credit_stays_due() -> None:
    """A timer that fired into an exhausted credit is not forgotten."""
    pair = LocalPair(adaptive(10, "1ms"), batches_max=1)
    pair.put(1)
    pair.wait("1ms")
    pair.put(2)
    pair.wait("1ms")

    assert pair.writer.is_blocked
    assert pair.arrived() == [[1]]
    pair.writer.send_ready()
    assert pair.arrived() == [[2]]


def test_shared_list_of_a_router_is_never_extended() -> None:
    """A broadcast puts one list into many buffers; none may change it."""
    pair = LocalPair(fixed(10))
    shared = [1, 2]

    pair.writer.put(shared, 0)
    pair.put(3)
    pair.writer.flush()

    assert shared == [1, 2]
    assert pair.arrived() == [[1, 2, 3]]


def test_end_arrives_after_the_last_batch() -> None:
    """An ended channel still gives what it holds."""
    pair = LocalPair(fixed(10))
    pair.put(1)
    pair.writer.flush()
    pair.writer.end()

    assert pair.reader.is_ended
    assert pair.arrived() == [[1]]
    assert pair.reader.rows_taken == 1
    assert pair.woken == 2


def test_closing_the_reader_stops_the_writer() -> None:
    """Nobody computes rows for a task that has enough."""
    pair = LocalPair(fixed(1))
    pair.put(1)

    pair.reader.close()
    pair.put(2)
    pair.writer.end()

    assert pair.writer.is_closed
    assert pair.arrived() == []
    assert not pair.reader.is_ended


def test_reader_that_has_seen_the_end_closes_quietly() -> None:
    """There is no writer left to tell."""
    pair = LocalPair(fixed(1))
    pair.writer.end()

    pair.reader.close()

    assert not pair.writer.is_closed


def test_gap_in_the_sequence_is_the_peers_fault() -> None:
    """A lost batch must never go unnoticed."""
    reader = LocalPair(fixed(1)).reader
    reader.receive(PacketKind.BATCH, 0, [1], 1)

    with pytest.raises(
        RemoteProtocolError, match=r"element 2 arrived .* element 1 was"
    ):
        reader.receive(PacketKind.BATCH, 2, [3], 1)


def test_element_after_the_end_is_the_peers_fault() -> None:
    """The grammar of a channel is ``(BATCH | BARRIER)* END``."""
    reader = LocalPair(fixed(1)).reader
    reader.receive(PacketKind.END, 0, [], 0)

    with pytest.raises(RemoteProtocolError, match="after its end"):
        reader.receive(PacketKind.BATCH, 1, [1], 1)


# Barriers.


def test_barrier_leaves_behind_the_rows_before_it() -> None:
    """Rows that waited for company go first, those that come later afterwards."""
    pair = LocalPair(fixed(3))

    pair.put(1, 2)
    pair.writer.put_mark(BARRIER)
    pair.put(3)
    pair.writer.flush()

    assert pair.arrived() == [[1, 2], BARRIER, [3]]


def test_barrier_without_rows_before_it_leaves_at_once() -> None:
    """It takes no credit, so nothing can hold it up."""
    pair = LocalPair(fixed(1), batches_max=1)
    pair.put(1)

    pair.writer.put_mark(BARRIER)

    assert pair.arrived() == [[1], BARRIER]
    assert not pair.writer.is_blocked


def test_barrier_waits_for_the_credit_of_the_rows_before_it() -> None:
    """It never overtakes a row, and its task is blocked meanwhile."""
    pair = LocalPair(fixed(1), batches_max=1)
    pair.put(1, 2)

    pair.writer.put_mark(BARRIER)
    assert pair.writer.is_blocked
    assert pair.arrived() == [[1]]
    pair.writer.send_ready()

    assert pair.arrived() == [[2], BARRIER]
    assert not pair.writer.is_blocked


def test_barrier_gives_no_credit_back() -> None:
    """What takes none returns none: a reader grants batches only."""
    pair = LocalPair(fixed(1), batches_max=1)
    pair.writer.put_mark(BARRIER)

    assert pair.arrived() == [BARRIER]
    pair.put(1, 2)

    assert pair.writer.is_blocked
    assert pair.reader.batch_count == 1


def test_closed_channel_drops_its_barrier() -> None:
    """A reader that has enough waits for nothing, a barrier that waits included."""
    pair = LocalPair(fixed(1), batches_max=1)
    pair.put(1, 2)
    pair.writer.put_mark(BARRIER)

    pair.reader.close()
    pair.writer.put_mark(BARRIER)

    assert not pair.writer.is_blocked
    assert pair.arrived() == []


# Between two workers.


class NarrowLink(LocalLink):
    """A network whose packets hold at most two rows."""

    def send(self, peer: PeerId, packet: Packet) -> int:
        if packet.kind is PacketKind.BATCH and len(packet.body) > 2:
            msg = "the packet is too long"
            raise TransportError(msg)
        return super().send(peer, packet)


class RemotePair:
    """Both ends of a channel between two workers, with the packets on the way."""

    def __init__(self, credit_bytes: int, link: type[LocalLink] = LocalLink) -> None:
        hub = Hub()
        hub.join(WRITER)
        self.writing = link(WRITER, hub)
        self.reading = hub.join(READER)
        self.writing.connect(READER, ("", 0))
        self.packets()
        made = channel(7, buffer=adaptive(4, "1ms"))
        self.carrier = RemoteCarrier(
            made, self.writing, READER, GENERATION, credit_bytes, sender=SENDER
        )
        self.timers = Timers()
        self.writer = OutputChannel(made, self.carrier, self.timers.set)
        back = CreditReturn(made, self.reading, WRITER, GENERATION, credit_bytes)
        self.reader = InputChannel(made)
        self.reader.grant, self.reader.tell_closed = back.grant, back.tell_closed

    def packets(self) -> list[Packet]:
        """Return what arrived at the reader."""
        return _packets(self.reading)

    def replies(self) -> list[Packet]:
        """Return what came back to the writer."""
        return _packets(self.writing)


def _packets(link: LocalLink) -> list[Packet]:
    return [e.packet for e in link.poll(0) if isinstance(e, PacketArrived)]


def test_packets_carry_generation_channel_and_sequence() -> None:
    """A reader can tell what a packet belongs to and whether one is missing."""
    pair = RemotePair(credit_bytes=1 << 20)

    pair.writer.put(list(range(8)), 0)
    pair.writer.put_mark(BARRIER)
    pair.writer.end()

    assert [(f.kind, f.generation, f.channel, f.sequence) for f in pair.packets()] == [
        (PacketKind.BATCH, 1, 7, 0),
        (PacketKind.BATCH, 1, 7, 1),
        (PacketKind.BARRIER, 1, 7, 2),
        (PacketKind.END, 1, 7, 3),
    ]


def test_credit_in_bytes_runs_out_and_is_granted_back_in_larger_amounts() -> None:
    """A quarter of the window at a time keeps credit packets rare."""
    window = 4 * 4 * ROW_COST
    pair = RemotePair(credit_bytes=window)

    for _ in range(9):
        pair.writer.put([0] * 4, 0)
    packets = pair.packets()
    assert len(packets) == 4
    assert pair.writer.is_blocked
    for packet in packets:
        pair.reader.receive(packet.kind, packet.sequence, packet.body, packet.cost)
        pair.reader.take()
    (first, *_) = replies = pair.replies()

    assert [f.kind for f in replies] == [PacketKind.CREDIT] * 4
    pair.carrier.add_credit(first.body)
    pair.writer.send_ready()
    assert len(pair.packets()) == 1


def test_close_travels_back_to_the_writer() -> None:
    """The writer's worker learns that nobody reads on."""
    pair = RemotePair(credit_bytes=1 << 20)

    pair.reader.close()
    pair.reader.close()

    assert [f.kind for f in pair.replies()] == [PacketKind.CLOSE]


def test_batch_that_is_too_long_for_a_packet_is_cut_in_halves() -> None:
    """Order and sequence numbers survive the cut."""
    pair = RemotePair(1 << 20, NarrowLink)

    pair.writer.put([1, 2, 3, 4], 0)

    packets = pair.packets()
    assert [f.body for f in packets] == [[1, 2], [3, 4]]
    assert [f.sequence for f in packets] == [0, 1]


class NoRoom(LocalLink):
    """A network whose packets hold no row at all."""

    def send(self, peer: PeerId, packet: Packet) -> Any:
        msg = "the packet is too long"
        raise TransportError(msg)


def test_single_row_that_is_too_long_is_an_error() -> None:
    """There is nothing left to cut."""
    pair = RemotePair(1 << 20, NoRoom)

    with pytest.raises(TaskFailedError) as caught:
        pair.writer.put([1, 2, 3, 4], 0)
    assert isinstance(caught.value.__cause__, TransportError)


def test_single_row_that_is_too_long_is_an_error_also_in_a_timer() -> None:
    """It belongs to the operator that made it, and not to the worker that sends it."""
    pair = RemotePair(1 << 20, NoRoom)
    pair.writer.put([1], 0)

    with pytest.raises(TaskFailedError) as caught:
        pair.timers.fire(1 << 40)
    assert caught.value.node is SENDER
    assert isinstance(caught.value.__cause__, TransportError)


def test_rows_that_cannot_be_sent_are_their_makers_fault_also_in_a_timer() -> None:
    """A timer belongs to no task, so nobody else knows whose rows they are."""

    class Choosy(LocalLink):
        def send(self, peer: PeerId, packet: Packet) -> Any:
            raise AttributeError("cannot pickle that")  # noqa: EM101, TRY003 - pickle's

    pair = RemotePair(1 << 20, Choosy)
    pair.writer.put([1, 2], 0)

    with pytest.raises(TaskFailedError) as caught:
        pair.timers.fire(1 << 40)
    assert caught.value.node is SENDER
    assert caught.value.position == "while sending 2 records on"
    assert isinstance(caught.value.__cause__, AttributeError)
