"""The simulated network keeps the promises of `ports.Network`, and only those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.config import Config
from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.simulation.clock import VirtualClock
from millstream.simulation.network import SimulatedNetwork
from millstream.simulation.options import SwarmOptions
from millstream.simulation.seed import stream
from millstream.simulation.trace import Trace

if TYPE_CHECKING:
    from millstream.ports import NetworkEvent
    from millstream.simulation.network import SimulatedLink

MS = 1_000_000
ONE, TWO, THREE = PeerId(1), PeerId(2), PeerId(3)


class Nobody:
    """Watches nothing."""

    def sent(self, source: PeerId, target: PeerId, packet: Packet) -> None: ...

    def arrived(self, source: PeerId, target: PeerId, packet: Packet) -> None: ...


class Pair:
    """Two connected peers."""

    def __init__(self, seed: int = 1) -> None:
        options = SwarmOptions(2, Config(), delay_ns_min=MS, delay_ns_max=50 * MS)
        self.clock = VirtualClock()
        delays = stream(seed, "delays")
        self.network = SimulatedNetwork(self.clock, options, delays, Trace(), Nobody())
        self.one = self.network.join(ONE)
        self.two = self.network.join(TWO)
        self.one.connect(TWO, ("", 0))
        assert self.pass_time(self.one) == [PeerConnected(TWO)]
        assert self.two.poll(0) == [PeerConnected(ONE)]

    def pass_time(
        self, link: SimulatedLink, duration_ns: int = 1_000 * MS
    ) -> list[Any]:
        """Let time pass and return what reached the link, packets as their bodies."""
        end_ns = self.clock.now_ns + duration_ns
        while (next_ns := self.network.next_ns) is not None and next_ns <= end_ns:
            self.clock.jump(next_ns)
            self.network.deliver()
        self.clock.jump(end_ns)
        return [body_of(event) for event in link.poll(0)]


def body_of(event: NetworkEvent) -> Any:
    return event.packet.body if isinstance(event, PacketArrived) else event


def batch(number: int, channel: int = 0) -> Packet:
    return Packet(PacketKind.BATCH, Generation(1), ChannelId(channel), number, [number])


class Unreadable:
    """Can be pickled but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


@pytest.mark.parametrize("seed", range(10))
def test_packets_of_a_channel_arrive_in_order(seed: int) -> None:
    """Whatever each of them takes on its own."""
    pair = Pair(seed)
    for number in range(20):
        pair.one.send(TWO, batch(number))

    assert pair.pass_time(pair.two) == [[number] for number in range(20)]


def test_channels_overtake_each_other() -> None:
    """The engine must not rely on an order that TCP happens to give."""
    pair = Pair()
    for number in range(20):
        pair.one.send(TWO, batch(number // 2, channel=number % 2))
    numbers = [number for (number,) in pair.pass_time(pair.two)]

    assert numbers != sorted(numbers)
    assert sorted(numbers) == [number // 2 for number in range(20)]


def test_clogged_link_holds_everything_and_loses_nothing() -> None:
    """What was on its way and what is sent meanwhile arrives later, in order."""
    pair = Pair()
    pair.one.send(TWO, batch(0))
    pair.network.clog(TWO, ONE, pair.clock.now_ns + 500 * MS)
    pair.one.send(TWO, batch(1))

    assert pair.pass_time(pair.two, 499 * MS) == []
    assert pair.one.backlog(TWO) > 0
    assert pair.pass_time(pair.two, 51 * MS) == [[0], [1]]
    assert pair.one.backlog(TWO) == 0


def test_crash_delivers_a_prefix_and_then_the_loss() -> None:
    """What was on the wire may still come; nothing comes after the loss."""
    prefixes = set()
    for seed in range(20):
        pair = Pair(seed)
        for number in range(10):
            pair.one.send(TWO, batch(number))
        pair.network.crash(ONE)
        *rows, last = pair.pass_time(pair.two)

        assert last == PeerLost(ONE, "connection reset by peer")
        assert rows == [[number] for number in range(len(rows))]
        prefixes.add(len(rows))
    assert len(prefixes) > 1


def test_reset_is_seen_on_both_sides() -> None:
    """Afterwards neither can send, and the network says so with a cost of 0."""
    pair = Pair()
    assert pair.network.reset(ONE, TWO)

    assert pair.pass_time(pair.one) == [PeerLost(TWO, "connection reset by peer")]
    assert pair.two.poll(0) == [PeerLost(ONE, "connection reset by peer")]
    assert pair.one.send(TWO, batch(0)) == 0
    assert not pair.network.reset(ONE, TWO)


def test_close_lets_everything_sent_arrive_first() -> None:
    """A worker that says good-bye and closes has said good-bye."""
    pair = Pair()
    for number in range(5):
        pair.one.send(TWO, batch(number, channel=number))
    pair.one.close()

    arrived = pair.pass_time(pair.two)
    assert sorted(arrived[:-1]) == [[number] for number in range(5)]
    assert arrived[-1] == PeerLost(ONE, "it closed the connection")
    assert pair.network.open_connections == 0


def test_disconnect_tells_only_the_other_side() -> None:
    """Who hangs up knows that already."""
    pair = Pair()
    pair.one.disconnect(TWO)

    assert pair.pass_time(pair.two) == [PeerLost(ONE, "it closed the connection")]
    assert pair.one.poll(0) == []


def test_sender_and_receiver_share_no_object() -> None:
    """On a real network they cannot either."""
    pair = Pair()
    row = {"count": 1}
    pair.one.send(TWO, Packet(PacketKind.BATCH, Generation(1), ChannelId(0), 0, [row]))
    row["count"] = 2

    assert pair.pass_time(pair.two) == [[{"count": 1}]]


def test_batch_that_cannot_be_read_breaks_the_connection() -> None:
    """As with TCP: the reader hangs up and the writer hears of it."""
    pair = Pair()
    bad = Packet(PacketKind.BATCH, Generation(1), ChannelId(0), 0, [Unreadable()])
    pair.one.send(TWO, bad)

    (lost,) = pair.pass_time(pair.two)
    assert isinstance(lost, PeerLost)
    assert "cannot be decoded here" in lost.reason
    assert pair.one.poll(0) == [PeerLost(TWO, "it closed the connection")]


def test_dialing_nobody_is_refused() -> None:
    """The peer is gone, or was never there."""
    pair = Pair()
    pair.one.connect(THREE, ("", 0))

    assert pair.pass_time(pair.one) == [
        PeerLost(THREE, "connection refused", is_absent=True)
    ]


def test_dialing_over_a_cut_link_times_out() -> None:
    """The deadline of the handshake passes without the network."""
    pair = Pair()
    pair.network.join(THREE)
    pair.network.clog(ONE, THREE, pair.clock.now_ns + 60_000 * MS)
    pair.one.connect(THREE, ("", 0))

    assert pair.pass_time(pair.one) == []
    events = pair.pass_time(pair.one, 3_000 * MS)
    assert events == [PeerLost(THREE, "no handshake within 3000 ms")]


def test_packets_sent_while_dialing_arrive_after_the_connection() -> None:
    """The sender need not wait for `PeerConnected`."""
    pair = Pair()
    three = pair.network.join(THREE)
    pair.one.connect(THREE, ("", 0))
    pair.one.send(THREE, batch(0))

    assert pair.pass_time(three) == [PeerConnected(ONE), [0]]
