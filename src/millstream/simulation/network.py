"""A network that is slow, clogged, cut and reset as a seed wants it.

It keeps the promises of `ports.Network` and not one more.  Packets between two peers
travel in *lanes* - control messages in one, each channel's elements in one, each
channel's credit in one - and only a lane is a FIFO: a real connection orders all of
them, and the engine must not need that.

A clogged link delivers nothing and loses nothing; that is what a partition looks like
above TCP.  A crash or a reset loses the end of every lane.  Packets are encoded when they
are sent and decoded when they arrive, so nothing is shared between two peers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from millstream.errors import RemoteProtocolError
from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.packets import ELEMENTS, PacketKind
from millstream.protocol.permits import permit
from millstream.runtime.integrity import CHECKSUM
from millstream.runtime.wire import PacketDecoder, PacketEncoder
from millstream.simulation.trace import Happening

if TYPE_CHECKING:
    from random import Random

    from millstream.ports import Address, NetworkEvent
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet
    from millstream.simulation.clock import VirtualClock
    from millstream.simulation.options import SwarmOptions
    from millstream.simulation.trace import Trace

__all__ = ["SimulatedLink", "SimulatedNetwork", "Watch"]

_RECEIVE_BYTES = 64 * 1024
_MESSAGE_LANE = -1
_CREDIT_LANE = -2


class Watch(Protocol):
    """Somebody who sees every packet."""

    def sent(self, source: PeerId, target: PeerId, packet: Packet) -> None:
        """Take note that a peer handed a packet over."""

    def arrived(self, source: PeerId, target: PeerId, packet: Packet) -> None:
        """Take note that a packet reached its peer."""


@dataclass(slots=True, eq=False)
class _Connection:
    """A pair of peers; each side forgets it when it is over for that side."""

    dialer: PeerId
    acceptor: PeerId
    is_established: bool = False
    #: Packets that arrive later are lost.
    cut_ns: int | None = None
    #: When the last packet of a lane arrives, by target and lane.
    lanes: dict[tuple[PeerId, int], int] = field(default_factory=dict)
    #: Before this the target does not know of the connection.
    floors: dict[PeerId, int] = field(default_factory=dict)
    #: Packets that were sent before the connection was there.
    early: list[tuple[PeerId, Packet, bytes]] = field(default_factory=list)
    #: Bytes on the way, by their source.
    backlog: dict[PeerId, int] = field(default_factory=dict)

    def other(self, peer: PeerId) -> PeerId:
        """Return the far end."""
        return self.acceptor if peer == self.dialer else self.dialer


@dataclass(slots=True, eq=False)
class _Packet:
    connection: _Connection
    target: PeerId
    kind: PacketKind
    data: bytes


@dataclass(slots=True, eq=False)
class _Dial:
    connection: _Connection
    target: PeerId
    deadline_ns: int


@dataclass(slots=True, eq=False)
class _News:
    """Connected or lost, on its way to one side."""

    connection: _Connection
    target: PeerId
    event: PeerConnected | PeerLost
    #: A local timeout passes no network and is not held up by one.
    is_local: bool = False


_Flight = _Packet | _Dial | _News


class SimulatedNetwork:
    """All links of a simulated cluster."""

    def __init__(
        self,
        clock: VirtualClock,
        options: SwarmOptions,
        delays: Random,
        trace: Trace,
        watch: Watch,
    ) -> None:
        self.links: dict[PeerId, SimulatedLink] = {}
        #: Peers that got something since the caller last looked.
        self.woken: set[PeerId] = set()
        self.clock = clock
        self.encoder = PacketEncoder(options.config.packet_bytes_max)
        self._options = options
        self._delays = delays
        self._trace = trace
        self._watch = watch
        self._flights: list[tuple[int, int, _Flight]] = []
        self._flight_count = 0
        self._clogs: dict[tuple[PeerId, PeerId], int] = {}
        self._receive_buffer = bytearray(_RECEIVE_BYTES)

    def join(self, peer: PeerId) -> SimulatedLink:
        """Return the network of a new peer."""
        self.links[peer] = SimulatedLink(peer, self)
        return self.links[peer]

    @property
    def next_ns(self) -> int | None:
        """When the next thing arrives."""
        return self._flights[0][0] if self._flights else None

    @property
    def open_connections(self) -> int:
        """Number of connections that some peer still holds."""
        return sum(len(link.peers) for link in self.links.values())

    def deliver(self) -> None:
        """Let everything arrive that is due."""
        now_ns, flights = self.clock.now_ns, self._flights
        while flights and flights[0][0] <= now_ns:
            due_ns, number, flight = heapq.heappop(flights)
            open_ns = self._clogged_until(flight)
            if open_ns > due_ns:
                # The same number: what left first still arrives first.
                heapq.heappush(flights, (open_ns, number, flight))
            else:
                self._land(flight)

    # Faults

    def clog(self, peer: PeerId, other: PeerId, until_ns: int) -> None:
        """Let nothing through between two peers until then."""
        pair = _pair(peer, other)
        self._clogs[pair] = max(until_ns, self._clogs.get(pair, 0))

    def reset(self, peer: PeerId, other: PeerId) -> bool:
        """Break the connection of two peers; return whether there was one."""
        link = self.links.get(peer)
        connection = link.peers.get(other) if link is not None else None
        if connection is None or not connection.is_established:
            return False
        self._cut(connection)
        for side in (peer, other):
            reason = "connection reset by peer"
            self._send_news(side, PeerLost(connection.other(side), reason), connection)
        return True

    def crash(self, peer: PeerId) -> None:
        """Let a peer vanish; the others notice when their side fails."""
        link = self.links.pop(peer)
        for other, connection in link.peers.items():
            self._cut(connection)
            self._send_news(
                other, PeerLost(peer, "connection reset by peer"), connection
            )
        link.peers.clear()

    def _cut(self, connection: _Connection) -> None:
        if connection.cut_ns is None:
            connection.cut_ns = self.clock.now_ns + self._delay_ns()

    # For links

    def dial(self, connection: _Connection) -> None:
        """Begin to connect."""
        now_ns = self.clock.now_ns
        deadline_ns = now_ns + self._options.config.handshake_ms * 1_000_000
        dial = _Dial(connection, connection.acceptor, deadline_ns)
        self._launch(now_ns + self._delay_ns(), dial)

    def dispatch(
        self, connection: _Connection, source: PeerId, packet: Packet, data: bytes
    ) -> None:
        """Send an encoded packet on its way."""
        target = connection.other(source)
        self._watch.sent(source, target, packet)
        connection.backlog[source] = connection.backlog.get(source, 0) + len(data)
        if connection.is_established:
            self._dispatch(connection, target, packet, data)
        else:
            connection.early.append((target, packet, data))

    def part(self, connection: _Connection, peer: PeerId) -> None:
        """Tell the far end, after all packets on their way, that `peer` has closed."""
        if not connection.is_established:
            return
        other = connection.other(peer)
        lanes = [due for (to, _), due in connection.lanes.items() if to == other]
        earliest_ns = max([connection.floors.get(other, 0), *lanes])
        news = _News(connection, other, PeerLost(peer, "it closed the connection"))
        self._launch(max(earliest_ns, self.clock.now_ns + self._delay_ns()), news)

    # Flights

    def _dispatch(
        self, connection: _Connection, target: PeerId, packet: Packet, data: bytes
    ) -> None:
        if connection.cut_ns is not None:
            return
        lane = (target, _lane(packet))
        earliest_ns = connection.lanes.get(lane) or connection.floors.get(target, 0)
        due_ns = max(earliest_ns, self.clock.now_ns + self._delay_ns())
        connection.lanes[lane] = due_ns
        self._launch(due_ns, _Packet(connection, target, packet.kind, data))

    def _launch(self, due_ns: int, flight: _Flight) -> None:
        self._flight_count += 1
        heapq.heappush(self._flights, (due_ns, self._flight_count, flight))

    def _send_news(
        self, target: PeerId, event: PeerConnected | PeerLost, connection: _Connection
    ) -> None:
        due_ns = self.clock.now_ns + self._delay_ns()
        due_ns = max(due_ns, connection.cut_ns or 0, connection.floors.get(target, 0))
        self._launch(due_ns, _News(connection, target, event))

    def _delay_ns(self) -> int:
        options, draw = self._options, self._delays.random
        span_ns = options.delay_ns_max - options.delay_ns_min
        delay_ns = options.delay_ns_min + int(draw() * span_ns)
        return delay_ns * 10 if draw() < options.late_share else delay_ns

    def _clogged_until(self, flight: _Flight) -> int:
        if not self._clogs or (isinstance(flight, _News) and flight.is_local):
            return 0
        connection = flight.connection
        open_ns = self._clogs.get(_pair(connection.dialer, connection.acceptor), 0)
        if isinstance(flight, _Dial) and open_ns > flight.deadline_ns:
            return 0
        return open_ns

    # Landings

    def _land(self, flight: _Flight) -> None:
        match flight:
            case _Packet():
                self._land_packet(flight)
            case _Dial():
                self._land_dial(flight)
            case _News():
                self._land_news(flight)

    def _land_packet(self, flight: _Packet) -> None:
        connection, target = flight.connection, flight.target
        source = connection.other(target)
        self._shrink_backlog(connection, source, len(flight.data))
        link = self._side(connection, target)
        now_ns = self.clock.now_ns
        if link is None or (
            connection.cut_ns is not None and now_ns > connection.cut_ns
        ):
            self._trace.note(now_ns, Happening.DROPPED, target, source)
            return
        try:
            (packet,) = self._decoder(source, target).feed(flight.data)
        except RemoteProtocolError as error:
            self._lose(link, connection, str(error))
            return
        detail = packet.sequence << 3 | packet.kind
        note = self._trace.note
        note(
            now_ns,
            Happening.PACKET,
            target,
            source,
            channel=packet.channel,
            detail=detail,
        )
        self._watch.arrived(source, target, packet)
        self._arrive(link, PacketArrived(source, packet))

    def _land_dial(self, dial: _Dial) -> None:
        connection = dial.connection
        link = self._side(connection, connection.dialer)
        if link is None:
            return
        open_ns = self._clogs.get(_pair(connection.dialer, connection.acceptor), 0)
        if open_ns > dial.deadline_ns:
            handshake_ms = self._options.config.handshake_ms
            reason = f"no handshake within {handshake_ms} ms"
            event = PeerLost(connection.acceptor, reason)
            news = _News(connection, connection.dialer, event, is_local=True)
            self._launch(dial.deadline_ns, news)
            return
        target = self.links.get(connection.acceptor)
        if target is None:
            reason = "connection refused"
            event = PeerLost(connection.acceptor, reason, is_absent=True)
            self._send_news(connection.dialer, event, connection)
            return
        self._establish(connection, target)

    def _establish(self, connection: _Connection, target: SimulatedLink) -> None:
        connection.is_established = True
        target.peers[connection.dialer] = connection
        self._note_news(connection.acceptor, PeerConnected(connection.dialer))
        self._arrive(target, PeerConnected(connection.dialer))
        welcome_ns = self.clock.now_ns + self._delay_ns()
        connection.floors[connection.dialer] = welcome_ns
        welcome = PeerConnected(connection.acceptor)
        self._launch(welcome_ns, _News(connection, connection.dialer, welcome))
        for to, packet, data in connection.early:
            self._dispatch(connection, to, packet, data)
        connection.early.clear()

    def _land_news(self, news: _News) -> None:
        link = self._side(news.connection, news.target)
        if link is None:
            return
        if isinstance(news.event, PeerLost):
            del link.peers[news.event.peer]
        self._note_news(news.target, news.event)
        self._arrive(link, news.event)

    def _lose(self, link: SimulatedLink, connection: _Connection, reason: str) -> None:
        """Drop a connection whose peer sent what is no packet."""
        peer = connection.other(link.own_id)
        self._cut(connection)
        del link.peers[peer]
        self._note_news(link.own_id, PeerLost(peer, reason))
        self._arrive(link, PeerLost(peer, reason))
        self._send_news(
            peer, PeerLost(link.own_id, "it closed the connection"), connection
        )

    def _side(self, connection: _Connection, peer: PeerId) -> SimulatedLink | None:
        """Return the link of a peer that still holds the connection."""
        link = self.links.get(peer)
        if link is None or link.peers.get(connection.other(peer)) is not connection:
            return None
        return link

    def _arrive(self, link: SimulatedLink, event: NetworkEvent) -> None:
        link.inbox.append(event)
        self.woken.add(link.own_id)

    def _note_news(self, peer: PeerId, event: PeerConnected | PeerLost) -> None:
        is_lost = isinstance(event, PeerLost)
        happening = Happening.LOST if is_lost else Happening.CONNECTED
        self._trace.note(self.clock.now_ns, happening, peer, event.peer)

    def _shrink_backlog(
        self, connection: _Connection, source: PeerId, size: int
    ) -> None:
        """Wake a worker that waited for its results to leave."""
        before = connection.backlog[source]
        connection.backlog[source] = before - size
        limit = self._options.config.result_backlog_bytes
        if connection.other(source) == COORDINATOR and before - size <= limit < before:
            self.woken.add(source)

    def _decoder(self, source: PeerId, target: PeerId) -> PacketDecoder:
        return PacketDecoder(
            self._receive_buffer,
            self._options.config.packet_bytes_max,
            permit(target, source),
        )


class SimulatedLink:
    """The network as one peer sees it; implements `ports.Network`."""

    def __init__(self, own_id: PeerId, network: SimulatedNetwork) -> None:
        self.own_id = own_id
        self.peers: dict[PeerId, _Connection] = {}
        self.inbox: list[NetworkEvent] = []
        self._network = network

    @property
    def address(self) -> Address:
        """A name nobody can dial; peers are found by id."""
        return ("simulated", self.own_id)

    def connect(self, peer: PeerId, address: Address) -> None:  # noqa: ARG002 - by id
        """Begin to connect; `PeerConnected` or `PeerLost` tells how it ended."""
        connection = _Connection(self.own_id, peer)
        self.peers[peer] = connection
        self._network.dial(connection)

    def send(self, peer: PeerId, packet: Packet) -> int:
        """Send a packet and return the credit it takes; a lost peer takes nothing."""
        connection = self.peers.get(peer)
        if connection is None:
            return 0
        data = b"".join(CHECKSUM.closed(*self._network.encoder.encode(packet)))
        self._network.dispatch(connection, self.own_id, packet, data)
        return packet.cost

    def backlog(self, peer: PeerId) -> int:
        """Bytes on their way to the peer."""
        connection = self.peers.get(peer)
        return 0 if connection is None else connection.backlog.get(self.own_id, 0)

    def poll(self, timeout_s: float) -> list[NetworkEvent]:  # noqa: ARG002 - virtual time
        """Return what happened since the last call."""
        events, self.inbox = self.inbox, []
        return events

    def disconnect(self, peer: PeerId) -> None:
        """Drop the connection to a peer without a `PeerLost`."""
        connection = self.peers.pop(peer, None)
        if connection is not None:
            self._network.part(connection, self.own_id)

    def close(self) -> None:
        """Close every connection."""
        for peer in list(self.peers):
            self.disconnect(peer)
        self._network.links.pop(self.own_id, None)


def _pair(peer: PeerId, other: PeerId) -> tuple[PeerId, PeerId]:
    return (peer, other) if peer < other else (other, peer)


def _lane(packet: Packet) -> int:
    if packet.kind is PacketKind.MESSAGE:
        return _MESSAGE_LANE
    return packet.channel if packet.kind in ELEMENTS else _CREDIT_LANE - packet.channel
