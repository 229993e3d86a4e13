"""The real network: one TCP connection per pair of peers, one thread, no waiting.

`TCPNetwork` decides which connection may live and tells the caller what happened;
`runtime.connection` moves the bytes, `protocol.handshake` says who may speak,
`protocol.half_open` who must wait outside, `protocol.permits` what may be said, and
`runtime.wire` knows what a packet looks like.  Nothing here knows what packets mean,
and nothing from a stranger is decoded or kept.

All connections of a job are protected in the same way, which is decided when it starts;
there is nothing to agree on.

Of each pair of peers one side dials.  A second connection of a peer that is already
connected is refused.  A connection of role HEARTBEAT stands beside the main one: its
packets arrive, but neither its coming nor its going is an event.
"""

from __future__ import annotations

import errno
import os
import secrets
import selectors
import socket
from itertools import islice
from typing import TYPE_CHECKING

from millstream.errors import LocalProtocolError, RemoteProtocolError
from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol.half_open import HalfOpen
from millstream.protocol.handshake import (
    NONCE_BYTES,
    ClientHandshake,
    Done,
    Outcome,
    Protection,
    Refused,
    Role,
    ServerHandshake,
)
from millstream.protocol.permits import permit
from millstream.runtime.connection import (
    Connection,
    ConnectionLostError,
    PeerAbsentError,
)
from millstream.runtime.integrity import CHECKSUM, UNTOUCHED, PacketTags
from millstream.runtime.line import CIPHER_BYTES, PlainLine, TLSLine
from millstream.runtime.tls import TLSContexts
from millstream.runtime.wire import RECEIVE_BYTES, PacketDecoder, PacketEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.ports import Address, Clock, NetworkEvent
    from millstream.protocol.handshake import PacketKeys
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet
    from millstream.runtime.integrity import Integrity
    from millstream.runtime.line import Line
    from millstream.runtime.tls import Certificate

__all__ = ["TCPNetwork"]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_ACCEPTS_PER_TURN = 32
_LISTEN_BACKLOG = 1024
_FLUSH_BYTES = 256 * 1024
"""Packets wait for the next poll, to leave together, until they are this many bytes."""
_LOOK_NS = 1_000_000_000
"""Time between two looks at how long peers have been silent."""
_FAREWELL_NS = 200_000_000
_FAREWELL_WAIT_S = 0.01
_FAREWELL_WAITS_MAX = 20
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _random_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


class TCPNetwork:
    """Connections to the other peers of one job; implements `ports.Network`.

    Parameters
    ----------
    own_id
        Who we are.
    job
        16 bytes that name the job.
    key
        What every member of the job knows; see `protocol.handshake.derive_key`.
    clock
        Measures the deadline of a handshake.
    config
        `handshake_ms`, `lease_ms`, `half_open_max`, `half_open_address_max` and
        `packet_bytes_max` are used.
    host
        Interface to listen on.
    protection
        What guards the connections of the job.
    certificate
        That of the job, for `Protection.TLS`.
    nonce
        Gives 32 fresh random bytes.
    listens
        False makes a network that only dials.
    """

    def __init__(
        self,
        *,
        own_id: PeerId,
        job: bytes,
        key: bytes,
        clock: Clock,
        config: Config,
        host: str = "127.0.0.1",
        protection: Protection = Protection.MAC,
        certificate: Certificate | None = None,
        nonce: Callable[[], bytes] = _random_nonce,
        listens: bool = True,
    ) -> None:
        self._own_id = own_id
        self._job = job
        self._key = key
        self._clock = clock
        self._config = config
        self._nonce = nonce
        self._protection = protection
        self._contexts = _contexts(protection, certificate, job)
        self._cipher = memoryview(bytearray(CIPHER_BYTES if self._contexts else 0))
        self._encoder = PacketEncoder(config.packet_bytes_max)
        self._receive_buffer = bytearray(RECEIVE_BYTES)
        self._peers: dict[PeerId, Connection] = {}
        self._heartbeats: dict[PeerId, Connection] = {}
        self._dialed: dict[Connection, None] = {}
        #: Accepted connections that have not proved yet, in the order they came.
        self._unauthenticated: dict[Connection, None] = {}
        self._half_open: HalfOpen[Connection] = HalfOpen(
            config.half_open_max, config.half_open_address_max, choose=secrets.choice
        )
        self._unflushed: dict[Connection, None] = {}
        self._events: list[NetworkEvent] = []
        self._look_ns = 0
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._listener = self._listen(host) if listens else None

    def _listen(self, host: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server(
            (host, 0), family=family, backlog=_LISTEN_BACKLOG
        )
        listener.settimeout(0)
        self._selector.register(listener, _READ)
        return listener

    # The port.

    @property
    def address(self) -> Address:
        """Where other peers reach this one."""
        if self._listener is None:
            msg = "this network only dials; make it with listens=True to be reached"
            raise LocalProtocolError(msg)
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def half_open_count(self) -> int:
        """Accepted connections that have not proved yet to whom they belong."""
        return len(self._unauthenticated)

    def connect(
        self, peer: PeerId, address: Address, *, role: Role = Role.DATA
    ) -> None:
        """Begin to connect; `PeerConnected` or `PeerLost` tells how it ended."""
        if peer in self._peers:
            msg = f"peer {peer} is connected or being dialed already"
            raise LocalProtocolError(msg)
        machine = ClientHandshake(
            self._key,
            self._job,
            self._own_id,
            self._nonce(),
            peer=peer,
            protection=self._protection,
            role=role,
        )
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        line = self._line(sock, is_client=True)
        deadline_ns = self._deadline_ns(self._config.handshake_ms)
        connection = Connection(sock, line, machine, deadline_ns, peer=peer, role=role)
        self._peers[peer] = connection
        self._dialed[connection] = None
        self._selector.register(sock, _WRITE, connection)
        try:
            number = sock.connect_ex(address)
        except (OSError, OverflowError, ValueError) as error:
            # What a peer calls its address need not be one.
            self._lose(connection, str(error))
        else:
            if number not in (0, errno.EINPROGRESS):
                is_absent = number == errno.ECONNREFUSED
                self._lose(connection, os.strerror(number), is_absent=is_absent)

    def send(self, peer: PeerId, packet: Packet) -> int:
        """Queue a packet and return the credit it takes; a lost peer takes nothing.

        Raises
        ------
        TransportError
            If the packet is longer than a peer accepts.
        Exception
            Whatever pickling a row raises, as it is.
        """
        connection = self._peers.get(peer)
        if connection is None:
            return 0
        connection.queue(*self._encoder.encode(packet))
        if connection.is_open and not connection.is_stuck:
            if connection.backlog >= _FLUSH_BYTES:
                self._flush(connection)
            else:
                self._unflushed[connection] = None
        return packet.cost

    def backlog(self, peer: PeerId) -> int:
        """Bytes queued for the peer that have not left this process."""
        connection = self._peers.get(peer)
        return 0 if connection is None else connection.backlog

    def poll(self, timeout_s: float) -> list[NetworkEvent]:
        """Move bytes; return what happened, waiting up to `timeout_s` for the first."""
        if self._is_closed:
            return []
        self._flush_all()
        for key, mask in self._selector.select(self._patience_s(timeout_s)):
            connection: Connection | None = key.data
            if connection is None:
                self._accept()
            else:
                self._serve(connection, mask)
        if self._dialed or self._unauthenticated:
            self._expire()
        self._look_after_links()
        events, self._events = self._events, []
        return events

    def disconnect(self, peer: PeerId) -> None:
        """Drop the connection to a peer without a `PeerLost`."""
        for connections in (self._peers, self._heartbeats):
            connection = connections.get(peer)
            if connection is not None:
                self._flush(connection)
                self._drop(connection)

    def close(self) -> None:
        """Close every connection and the listener, after a short try to flush."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
        for connection in (*self._dialed, *self._unauthenticated):
            self._drop(connection)
        self._drain_on_close()
        for connection in (*self._peers.values(), *self._heartbeats.values()):
            self._drop(connection)
        self._selector.close()

    # Writing.

    def _flush_all(self) -> None:
        unflushed, self._unflushed = self._unflushed, {}
        for connection in unflushed:
            self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        """Write what waits, and watch for room only while there is none."""
        if not connection.is_open:
            return
        was_stuck = connection.is_stuck
        connection.flush()
        if connection.is_stuck != was_stuck:
            mask = _READ | _WRITE if connection.is_stuck else _READ
            self._selector.modify(connection.sock, mask, connection)

    def _drain_on_close(self) -> None:
        """Flush for a bounded time; the waits are counted lest the clock stands."""
        deadline_ns = self._clock.monotonic_ns() + _FAREWELL_NS
        self._flush_all()
        waits = 0
        while any(connection.backlog for connection in self._peers.values()):
            ready = self._selector.select(_FAREWELL_WAIT_S)
            writable = [key.data for key, mask in ready if mask & _WRITE]
            for connection in writable:
                self._flush(connection)
            waits += 0 if writable else 1
            late = self._clock.monotonic_ns() > deadline_ns
            if late or waits > _FAREWELL_WAITS_MAX:
                return

    # Reading.

    def _serve(self, connection: Connection, mask: int) -> None:
        if connection.sock.fileno() < 0:
            return
        if connection.is_open:
            if mask & _WRITE:
                self._flush(connection)
            if mask & _READ:
                self._read(connection)
        elif connection.is_dialing:
            self._greet(connection)
        else:
            self._advance(connection)

    def _read(self, connection: Connection) -> None:
        assert connection.peer is not None
        peer, events = connection.peer, self._events
        try:
            events += [PacketArrived(peer, packet) for packet in connection.read()]
        except (ConnectionLostError, RemoteProtocolError) as error:
            self._lose(connection, str(error))
        else:
            if connection.failure:
                self._lose(connection, connection.failure)

    # Handshakes.

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._evict(self._half_open.most_crowded())
                return
            self._admit(sock, str(address[0]))

    def _admit(self, sock: socket.socket, address: str) -> None:
        """Let a stranger prove itself; what it has said already is heard at once.

        A member says at once what strangers do not know, and is not displaced by them
        from then on.
        """
        machine = ServerHandshake(
            self._key,
            self._job,
            self._own_id,
            self._nonce(),
            protection=self._protection,
        )
        line = self._line(sock, is_client=False)
        deadline_ns = self._deadline_ns(self._config.handshake_ms)
        connection = Connection(sock, line, machine, deadline_ns)
        self._unauthenticated[connection] = None
        self._selector.register(sock, _READ, connection)
        self._evict(self._half_open.admit(connection, address))
        self._advance(connection)

    def _evict(self, connection: Connection | None) -> None:
        if connection is not None:
            self._drop(connection)

    def _line(self, sock: socket.socket, *, is_client: bool) -> Line:
        contexts = self._contexts
        if contexts is None:
            return PlainLine(sock)
        start = contexts.client if is_client else contexts.server
        return TLSLine(sock, start, self._cipher)

    def _greet(self, connection: Connection) -> None:
        try:
            connection.dialed()
        except ConnectionLostError as error:
            is_absent = isinstance(error, PeerAbsentError)
            self._lose(connection, str(error), is_absent=is_absent)
        else:
            self._selector.modify(connection.sock, _READ, connection)

    def _advance(self, connection: Connection) -> None:
        was_greeted = connection.is_greeted
        try:
            outcomes = connection.read_handshake()
        except ConnectionLostError as error:
            self._lose(connection, str(error))
            return
        if connection.is_greeted and not was_greeted:
            self._note_greeted(connection)
        if not outcomes:
            return
        last = outcomes[-1]
        if isinstance(last, Refused):
            self._lose(connection, last.reason)
        elif isinstance(last, Done) and self._is_duplicate(connection, last):
            self._drop(connection)
        else:
            self._carry_out(connection, outcomes)

    def _note_greeted(self, connection: Connection) -> None:
        """Let nobody displace a client that knows the job, nor give up its server.

        A server that has answered proves itself or closes; a client that left meanwhile
        would be a member that was there and went.
        """
        if connection.peer is None:
            self._half_open.greet(connection)
        else:
            connection.deadline_ns = self._deadline_ns(self._config.lease_ms)

    def _carry_out(self, connection: Connection, outcomes: list[Outcome]) -> None:
        try:
            connection.carry_out(outcomes)
        except ConnectionLostError as error:
            self._lose(connection, str(error))
            return
        last = outcomes[-1]
        if isinstance(last, Done):
            self._welcome(connection, last)

    def _is_duplicate(self, connection: Connection, done: Done) -> bool:
        if done.role is Role.HEARTBEAT:
            return False
        return self._peers.get(done.peer, connection) is not connection

    def _welcome(self, connection: Connection, done: Done) -> None:
        was_dialed = connection.peer is not None
        sending, receiving = self._integrities(done.keys)
        decoder = PacketDecoder(
            self._receive_buffer,
            self._config.packet_bytes_max,
            permit(self._own_id, done.peer, done.role),
            receiving,
        )
        connection.open(done.peer, done.role, decoder, sending)
        self._dialed.pop(connection, None)
        self._forget_stranger(connection)
        if done.role is Role.HEARTBEAT and not was_dialed:
            former = self._heartbeats.pop(done.peer, None)
            if former is not None:
                self._drop(former)
            self._heartbeats[done.peer] = connection
        else:
            self._peers[done.peer] = connection
            self._events.append(PeerConnected(done.peer))
        self._flush(connection)
        self._take_leftover(connection, done)

    def _integrities(self, keys: PacketKeys) -> tuple[Integrity, Integrity]:
        """Return what guards the packets that we send and those that we receive."""
        if self._protection is Protection.MAC:
            return PacketTags(keys.sending), PacketTags(keys.receiving)
        is_tls = self._protection is Protection.TLS
        return (UNTOUCHED, UNTOUCHED) if is_tls else (CHECKSUM, CHECKSUM)

    def _take_leftover(self, connection: Connection, done: Done) -> None:
        """Take packets that came right behind the handshake; no event tells of them."""
        try:
            packets = connection.feed(done.leftover) + connection.rest()
        except (ConnectionLostError, RemoteProtocolError) as error:
            self._lose(connection, str(error))
        else:
            self._events += [PacketArrived(done.peer, packet) for packet in packets]

    def _expire(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for connection in (*self._dialed, *self._unauthenticated):
            if connection.deadline_ns <= now_ns:
                reason = f"no handshake within {self._config.handshake_ms} ms"
                self._lose(connection, reason)

    def _look_after_links(self) -> None:
        """Give up peers whose hosts have not answered for longer than the lease."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + _LOOK_NS
        for connection in (*self._peers.values(), *self._heartbeats.values()):
            silent_ms = connection.silent_ms() if connection.is_open else 0
            if silent_ms > self._config.lease_ms:
                reason = f"its host has not answered for {silent_ms / 1000:.1f} s"
                self._lose(connection, reason)

    # Endings.

    def _lose(
        self, connection: Connection, reason: str, *, is_absent: bool = False
    ) -> None:
        """Drop a connection, and say so if it was the one of a known peer."""
        peer = connection.peer
        is_main = peer is not None and self._peers.get(peer) is connection
        self._drop(connection)
        if peer is None or not is_main:
            return
        heartbeat = self._heartbeats.get(peer)
        if heartbeat is not None:
            self._drop(heartbeat)
        self._events.append(PeerLost(peer, reason, is_absent))

    def _drop(self, connection: Connection) -> None:
        self._dialed.pop(connection, None)
        self._forget_stranger(connection)
        self._unflushed.pop(connection, None)
        peer = connection.peer
        for connections in (self._peers, self._heartbeats):
            if peer is not None and connections.get(peer) is connection:
                del connections[peer]
        self._selector.unregister(connection.sock)
        connection.close()

    def _forget_stranger(self, connection: Connection) -> None:
        self._unauthenticated.pop(connection, None)
        self._half_open.remove(connection)

    def _deadline_ns(self, duration_ms: int) -> int:
        return self._clock.monotonic_ns() + duration_ms * 1_000_000

    def _patience_s(self, timeout_s: float) -> float:
        if self._events:
            return 0.0
        if not self._dialed and not self._unauthenticated:
            return timeout_s
        # All strangers have the same time, so the first of them is the first to go.
        waiting = [*self._dialed, *islice(self._unauthenticated, 1)]
        deadline_ns = min(connection.deadline_ns for connection in waiting)
        left_ns = deadline_ns - self._clock.monotonic_ns()
        return min(timeout_s, max(0, left_ns) / 1_000_000_000)


def _contexts(
    protection: Protection, certificate: Certificate | None, job: bytes
) -> TLSContexts | None:
    if protection is not Protection.TLS:
        return None
    if certificate is None:
        msg = "a network protected by TLS needs the certificate of its job"
        raise LocalProtocolError(msg)
    return TLSContexts(certificate, job)
