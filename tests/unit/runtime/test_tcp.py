"""TCPNetwork: two or three of them in one thread, over real loopback sockets.

Every test runs with each protection: what the network promises does not depend on it.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.config import Config
from millstream.errors import LocalProtocolError, TransportError
from millstream.ports import NetworkEvent, PacketArrived, PeerConnected, PeerLost
from millstream.protocol.handshake import Protection, Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import Heartbeat
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.tls import make_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.ports import Network

JOB = b"job-0123456789ab"
ONE, TWO = PeerId(1), PeerId(2)
POLLS_MAX = 20_000
CERTIFICATE = make_certificate()


class ManualClock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000


class Cluster:
    """Networks of one job, and everything that has happened to each."""

    def __init__(self, protection: Protection) -> None:
        self.clock = ManualClock()
        self.protection = protection
        self.events: dict[TCPNetwork, list[NetworkEvent]] = {}

    def add(
        self,
        own_id: PeerId,
        *,
        key: bytes = b"key",
        config: Config | None = None,
        listens: bool = True,
    ) -> TCPNetwork:
        network = TCPNetwork(
            own_id=own_id,
            job=JOB,
            key=key,
            clock=self.clock,
            config=config or Config(),
            listens=listens,
            protection=self.protection,
            certificate=CERTIFICATE,
        )
        self.events[network] = []
        return network

    def pair(self, config: Config | None = None) -> tuple[TCPNetwork, TCPNetwork]:
        one, two = self.add(ONE, config=config), self.add(TWO, config=config)
        one.connect(TWO, two.address)
        self.run_until(lambda: bool(self.events[one] and self.events[two]))
        assert self.take(one) == [PeerConnected(TWO)]
        assert self.take(two) == [PeerConnected(ONE)]
        return one, two

    def poll(self) -> None:
        for network in self.events:
            self.events[network] += network.poll(0.001)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if condition():
                return
            self.poll()
        pytest.fail(f"it never happened; events: {list(self.events.values())}")

    def take(self, network: TCPNetwork) -> list[NetworkEvent]:
        events, self.events[network] = self.events[network], []
        return events

    def arrived(self, network: TCPNetwork, count: int) -> list[Packet]:
        """Run until `count` packets have come, and return them."""
        self.run_until(lambda: len(self.events[network]) >= count)
        events = self.take(network)
        assert all(isinstance(event, PacketArrived) for event in events)
        return [event.packet for event in events if isinstance(event, PacketArrived)]

    def lost(self, network: TCPNetwork) -> PeerLost:
        """Run until something happens, which must be one loss and nothing else."""
        self.run_until(lambda: bool(self.events[network]))
        for _ in range(3):
            self.poll()
        (event,) = self.take(network)
        assert isinstance(event, PeerLost)
        return event


@pytest.fixture(params=list(Protection), ids=lambda each: each.name)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(request.param)
    yield cluster
    for network in cluster.events:
        network.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def a_batch(sequence: int, body: object) -> Packet:
    return Packet(PacketKind.BATCH, Generation(1), ChannelId(3), sequence, body)


def a_heartbeat(worker: int) -> Packet:
    body = Heartbeat(worker)
    return Packet(PacketKind.MESSAGE, Generation(0), ChannelId(0), 0, body)


def test_it_is_a_network(cluster: Cluster) -> None:
    """A worker takes it wherever it takes the port."""
    network: Network = cluster.add(ONE)

    assert network.address[0] == "127.0.0.1"


def test_packets_go_both_ways(cluster: Cluster) -> None:
    """One connection carries both directions, whoever dialed."""
    one, two = cluster.pair()

    there, back = a_batch(0, ["there"]), a_batch(0, ["back"])
    one.send(TWO, there)
    two.send(ONE, back)

    assert cluster.arrived(two, 1) == [there]
    assert cluster.arrived(one, 1) == [back]


def test_packets_sent_before_the_handshake_wait_for_its_end(cluster: Cluster) -> None:
    """A caller may send as soon as it has asked for the connection."""
    one, two = cluster.add(ONE), cluster.add(TWO)
    one.connect(TWO, two.address)
    packet = a_batch(0, ["early"])
    cost = one.send(TWO, packet)

    assert cost == packet.cost > 0
    assert one.backlog(TWO) > cost
    cluster.run_until(lambda: len(cluster.events[two]) == 2)
    assert cluster.take(two) == [PeerConnected(ONE), PacketArrived(ONE, packet)]
    assert one.backlog(TWO) == 0


def test_ten_thousand_small_packets_keep_their_order(cluster: Cluster) -> None:
    """A connection is a FIFO however its packets are packed together."""
    one, two = cluster.pair()
    for sequence in range(10_000):
        one.send(TWO, a_batch(sequence, [sequence]))

    packets = cluster.arrived(two, 10_000)

    assert [packet.sequence for packet in packets] == list(range(10_000))
    assert all(packet.body == [packet.sequence] for packet in packets)


def test_packets_larger_than_every_buffer_arrive(cluster: Cluster) -> None:
    """A packet may exceed the sockets' and our own buffers many times."""
    one, two = cluster.pair()
    bodies = [[b"x" * 20_000_000], ["small"], [bytearray(b"y") * 3_000_000]]
    for sequence, body in enumerate(bodies):
        one.send(TWO, a_batch(sequence, body))

    assert one.backlog(TWO) > 10_000_000
    assert [packet.body for packet in cluster.arrived(two, 3)] == bodies
    assert one.backlog(TWO) == 0


def test_one_busy_peer_does_not_shut_out_another(cluster: Cluster) -> None:
    """A poll takes a bounded number of bytes from each peer."""
    one, two = cluster.pair()
    three = cluster.add(PeerId(3), listens=False)
    three.connect(TWO, two.address)
    cluster.run_until(lambda: bool(cluster.events[two]))
    cluster.take(two)
    for sequence in range(64):
        one.send(TWO, a_batch(sequence, [b"x" * 65_536]))
    three.send(TWO, a_batch(0, ["hello"]))
    three.poll(0)

    cluster.run_until(
        lambda: any(
            isinstance(event, PacketArrived) and event.peer == 3
            for event in cluster.events[two]
        )
    )

    assert len(cluster.events[two]) < 64


def test_a_peer_that_closes_is_lost_behind_its_last_packet(cluster: Cluster) -> None:
    """What it said before it left is heard; close flushes what is queued."""
    one, two = cluster.pair()
    one.send(TWO, a_batch(0, ["bye"]))
    one.close()

    cluster.run_until(lambda: len(cluster.events[two]) == 2)
    packet, loss = cluster.take(two)
    assert isinstance(packet, PacketArrived)
    assert loss == PeerLost(ONE, "the other side closed the connection")


def test_last_words_are_heard_by_a_peer_that_is_writing(cluster: Cluster) -> None:
    """A failed write does not hide what the other side said before it left."""
    one, two = cluster.pair()
    one.send(TWO, a_batch(0, ["stop"]))
    one.close()
    for sequence in range(100):
        two.send(ONE, a_batch(sequence, [b"x" * 65_536]))

    cluster.run_until(lambda: len(cluster.events[two]) == 2)
    packet, loss = cluster.take(two)
    assert isinstance(packet, PacketArrived)
    assert isinstance(loss, PeerLost)


def test_sending_to_a_lost_peer_takes_nothing(cluster: Cluster) -> None:
    """The caller hears of the loss from poll, never from send."""
    one, two = cluster.pair()
    two.close()

    assert cluster.lost(one).peer == TWO
    assert one.send(TWO, a_batch(0, ["late"])) == 0
    assert one.backlog(TWO) == 0


def test_a_refused_connection_is_a_loss(cluster: Cluster) -> None:
    """Nobody listens there; the reason says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    one = cluster.add(ONE)
    one.connect(TWO, address)

    assert cluster.lost(one) == PeerLost(TWO, "Connection refused", is_absent=True)


def test_a_name_that_does_not_resolve_is_a_loss(cluster: Cluster) -> None:
    """An address may come from far away; a wrong one is no exception here."""
    one = cluster.add(ONE)
    one.connect(TWO, ("256.0.0.1.invalid", 1))

    assert cluster.lost(one).peer == TWO


def test_a_peer_with_another_secret_is_a_loss(cluster: Cluster) -> None:
    """The dialing side learns only that it was turned away."""
    one, two = cluster.add(ONE), cluster.add(TWO, key=b"another")
    one.connect(TWO, two.address)

    assert "closed the connection" in cluster.lost(one).reason
    assert cluster.take(two) == []


def test_a_silent_server_is_a_loss_at_the_deadline(cluster: Cluster) -> None:
    """A dial does not hang on somebody who accepts and says nothing."""
    one = cluster.add(ONE, config=Config(handshake_ms=700))
    with socket.create_server(("127.0.0.1", 0)) as server:
        one.connect(TWO, server.getsockname())
        cluster.clock.now_ns = 699_999_999
        cluster.poll()
        assert cluster.take(one) == []
        cluster.clock.now_ns = 700_000_000

        assert cluster.lost(one) == PeerLost(TWO, "no handshake within 700 ms")


def test_a_second_connection_of_a_peer_is_refused(cluster: Cluster) -> None:
    """The first one stays; nobody can take a peer's place."""
    one, two = cluster.pair()
    impostor = cluster.add(ONE, listens=False)
    impostor.connect(TWO, two.address)

    assert "closed the connection" in cluster.lost(impostor).reason
    packet = a_batch(0, ["still here"])
    one.send(TWO, packet)
    assert cluster.arrived(two, 1) == [packet]


def test_connecting_twice_is_our_own_fault(cluster: Cluster) -> None:
    """Of each pair of peers one side dials, once."""
    one, two = cluster.pair()

    with pytest.raises(LocalProtocolError, match="peer 2 is connected"):
        one.connect(TWO, two.address)


def test_a_heartbeat_connection_stands_beside_the_main_one(cluster: Cluster) -> None:
    """Its packets arrive; its coming and going are no events."""
    coordinator = cluster.add(COORDINATOR)
    main = cluster.add(ONE, listens=False)
    pulse = cluster.add(ONE, listens=False)
    main.connect(COORDINATOR, coordinator.address)
    cluster.run_until(lambda: bool(cluster.events[coordinator]))
    assert cluster.take(coordinator) == [PeerConnected(ONE)]
    pulse.connect(COORDINATOR, coordinator.address, role=Role.HEARTBEAT)
    pulse.send(COORDINATOR, a_heartbeat(1))
    assert cluster.arrived(coordinator, 1) == [a_heartbeat(1)]

    pulse.close()
    main.send(COORDINATOR, a_heartbeat(1))

    assert cluster.arrived(coordinator, 1) == [a_heartbeat(1)]


def test_a_heartbeat_connection_carries_nothing_else(cluster: Cluster) -> None:
    """A batch on it closes it, silently."""
    coordinator = cluster.add(COORDINATOR)
    pulse = cluster.add(ONE, listens=False)
    pulse.connect(COORDINATOR, coordinator.address, role=Role.HEARTBEAT)
    cluster.run_until(lambda: bool(cluster.events[pulse]))
    cluster.take(pulse)
    pulse.send(COORDINATOR, a_batch(0, ["no"]))

    assert cluster.lost(pulse).peer == COORDINATOR
    assert cluster.take(coordinator) == []


def test_disconnect_is_silent_here_and_a_loss_there(cluster: Cluster) -> None:
    """Who drops a peer knows it already."""
    one, two = cluster.pair()
    one.disconnect(TWO)

    assert cluster.lost(two).peer == ONE
    assert cluster.take(one) == []
    assert one.send(TWO, a_batch(0, ["gone"])) == 0


def test_a_packet_over_the_limit_raises_and_breaks_nothing(cluster: Cluster) -> None:
    """The caller may split the batch and go on."""
    one, two = cluster.pair(Config(packet_bytes_max=1000))
    with pytest.raises(TransportError, match="packet_bytes_max"):
        one.send(TWO, a_batch(0, [b"x" * 1000]))
    packet = a_batch(0, [b"x" * 500])
    one.send(TWO, packet)

    assert cluster.arrived(two, 1) == [packet]


def test_a_row_that_cannot_be_pickled_breaks_nothing(cluster: Cluster) -> None:
    """The exception goes to the caller; the connection has seen none of it."""
    one, two = cluster.pair()
    with pytest.raises(TypeError, match="cannot pickle"):
        one.send(TWO, a_batch(0, ["fine", threading.Lock()]))
    packet = a_batch(0, ["fine"])
    one.send(TWO, packet)

    assert cluster.arrived(two, 1) == [packet]


def test_closing_gives_every_descriptor_back(cluster: Cluster) -> None:
    """Close may be called twice, with peers, dials and strangers in any state."""
    before = open_descriptors()
    one, two = cluster.pair()
    with socket.create_connection(one.address):
        one.connect(PeerId(5), two.address)
        cluster.run_until(lambda: one.half_open_count == 1)
        one.close()
        one.close()
        two.close()
        assert one.poll(0) == []

    assert open_descriptors() == before


def test_closing_does_not_wait_for_a_peer_that_reads_nothing(cluster: Cluster) -> None:
    """The clock stands still here, and close ends all the same."""
    one, _ = cluster.pair()
    one.send(TWO, a_batch(0, [b"x" * 30_000_000]))

    one.close()

    assert one.backlog(TWO) == 0


def test_a_network_that_only_dials_has_no_address(cluster: Cluster) -> None:
    """Asking for one is our own bug, and says how to mend it."""
    one = cluster.add(ONE, listens=False)

    with pytest.raises(LocalProtocolError, match="listens=True"):
        _ = one.address
