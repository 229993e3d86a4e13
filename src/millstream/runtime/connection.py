"""One non-blocking socket: handshake bytes first, packets afterwards.

A `Connection` moves bytes when it is told to, through a `Line` that may encrypt them.  It
does not know the selector, the other connections, or what the loss of this one means.

A socket that can no longer be written may still hold packets that the peer sent
before it left, its reason among them.  So a failed write only silences the outbox;
the loss is found by reading, behind the last packet.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING

from millstream.protocol.handshake import (
    ClientHandshake,
    Outcome,
    Refused,
    Role,
    Send,
    ServerHandshake,
)
from millstream.runtime.line import LineBrokenError

if TYPE_CHECKING:
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet
    from millstream.runtime.integrity import Buffer, Integrity
    from millstream.runtime.line import Line
    from millstream.runtime.wire import PacketDecoder

__all__ = ["Connection", "ConnectionLostError", "PeerAbsentError"]

_HANDSHAKE_READ_BYTES = 128
_FAREWELL_READ_BYTES = 256 * 1024

_TCP_INFO = struct.Struct("=2xBB4x48xI")
"""Of Linux's tcp_info: unanswered retransmissions, probes, and the last answer's age."""


class ConnectionLostError(Exception):
    """Nothing more will come from this connection; the text says why."""


class PeerAbsentError(ConnectionLostError):
    """Nobody listens there."""


class Connection:
    """A socket, what waits to be written to it, and what has been read so far.

    Parameters
    ----------
    sock
        A connected or connecting socket; it becomes non-blocking.
    line
        What reads from it and writes to it.
    machine
        Our side of the handshake.
    deadline_ns
        When the handshake must be over.
    peer
        Who is dialed; None where somebody dialed us.
    """

    def __init__(
        self,
        sock: socket.socket,
        line: Line,
        machine: ServerHandshake | ClientHandshake,
        deadline_ns: int,
        *,
        peer: PeerId | None = None,
        role: Role = Role.DATA,
    ) -> None:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.peer = peer
        self.role = role
        self.deadline_ns = deadline_ns
        self.is_dialing = peer is not None
        self.is_stuck = False
        self._line = line
        self._machine = machine
        self._decoder: PacketDecoder | None = None
        self._integrity: Integrity | None = None
        #: Packets that were sent before the handshake was over.
        self._early: list[tuple[bytes, bytes]] = []
        self._outbox: deque[Buffer] = deque()
        self._queued = 0
        self._is_silenced = False

    @property
    def is_open(self) -> bool:
        """Both sides have proved who they are; packets may pass."""
        return self._decoder is not None

    @property
    def is_greeted(self) -> bool:
        """Whether the other side has said what strangers do not know."""
        return self._machine.is_greeted or self._line.is_greeted

    @property
    def backlog(self) -> int:
        """Bytes that wait here, encrypted ones included."""
        return self._queued + self._line.held

    @property
    def failure(self) -> str:
        """Why nothing will come behind what was read; empty if more may."""
        return self._line.failure

    def silent_ms(self) -> int:
        """Return for how long the peer's host has left our packets unanswered.

        A peer that is busy, or blocked by us, still answers: its kernel does.  What is
        counted is a host or a path that is gone, which TCP alone would notice after a
        quarter of an hour.
        """
        if not hasattr(socket, "TCP_INFO"):
            return 0
        size = _TCP_INFO.size
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        retransmits, probes, last_ack_ms = _TCP_INFO.unpack(info)
        return int(last_ack_ms) if retransmits or probes else 0

    # The handshake.

    def dialed(self) -> None:
        """Take the result of a non-blocking connect and say hello."""
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number == errno.ECONNREFUSED:
            raise PeerAbsentError(os.strerror(number))
        if number:
            raise ConnectionLostError(os.strerror(number))
        self.is_dialing = False
        try:
            self._line.begin()
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if self._line.is_ready:
            self._say_hello()

    def read_handshake(self) -> list[Outcome]:
        """Read a little and ask the handshake machine what it means.

        Raises
        ------
        ConnectionLostError
            If our own hello cannot be written.
        """
        small = memoryview(bytearray(_HANDSHAKE_READ_BYTES))
        try:
            if not self._line.is_ready:
                if not self._line.advance():
                    return []
                self._say_hello()
            count = self._line.receive(small)
        except (BlockingIOError, InterruptedError):
            return []
        except (LineBrokenError, OSError) as error:
            return [Refused(str(error))]
        if not count:
            return [Refused("the other side closed the connection unproved")]
        return self._machine.receive(bytes(small[:count]))

    def _say_hello(self) -> None:
        if isinstance(self._machine, ClientHandshake):
            self.answer(self._machine.hello)

    def answer(self, data: bytes) -> None:
        """Write a handshake message; a fresh socket takes it whole or is useless."""
        outbox: deque[Buffer] = deque([data])
        try:
            self._line.send(outbox)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if outbox or self._line.held:
            msg = f"{len(data)} bytes of a handshake could not be written at once"
            raise ConnectionLostError(msg)

    def carry_out(self, outcomes: list[Outcome]) -> None:
        """Write what the machine wants written."""
        for outcome in outcomes:
            if isinstance(outcome, Send):
                self.answer(outcome.data)

    def open(
        self, peer: PeerId, role: Role, decoder: PacketDecoder, integrity: Integrity
    ) -> None:
        """Let packets pass, those first that have waited for it."""
        self.peer = peer
        self.role = role
        self._decoder = decoder
        self._integrity = integrity
        early, self._early, self._queued = self._early, [], 0
        for fields, payload in early:
            self.queue(fields, payload)

    # Packets.

    def queue(self, fields: bytes, payload: bytes) -> None:
        """Append an encoded packet to what waits to be written."""
        if self._is_silenced:
            return
        if self._integrity is None:
            self._early.append((fields, payload))
            self._queued += len(fields) + len(payload)
            return
        buffers = self._integrity.closed(fields, payload)
        self._outbox.extend(buffers)
        self._queued += sum(map(len, buffers))

    def flush(self) -> None:
        """Write until nothing waits or the socket is full (`is_stuck`)."""
        self.is_stuck = False
        line = self._line
        while self._outbox or line.held:
            try:
                self._queued -= line.send(self._outbox)
            except (BlockingIOError, InterruptedError):
                self.is_stuck = True
                return
            except OSError:
                self._silence()
                return

    def read(self) -> list[Packet]:
        """Read once, at most one buffer full, and return the packets that are whole.

        Raises
        ------
        ConnectionLostError
            If the peer is gone, behind the last packet.
        RemoteProtocolError
            If it sent what is no packet.
        """
        assert self._decoder is not None
        target = self._decoder.writable()
        try:
            count = self._line.receive(target)
        except (BlockingIOError, InterruptedError):
            return []
        except (LineBrokenError, OSError) as error:
            raise ConnectionLostError(str(error)) from error
        if not count:
            msg = "the other side closed the connection"
            raise ConnectionLostError(msg)
        packets = self._decoder.received(count)
        return packets + self.rest() if count == len(target) else packets

    def rest(self) -> list[Packet]:
        """Return the packets of bytes that were read from the socket already.

        Raises as `read` does.
        """
        assert self._decoder is not None
        packets: list[Packet] = []
        is_full = True
        while is_full:
            target = self._decoder.writable()
            try:
                count = self._line.rest(target)
            except LineBrokenError as error:
                raise ConnectionLostError(str(error)) from error
            is_full = count == len(target)
            packets += self._decoder.received(count)
        return packets

    def feed(self, data: bytes) -> list[Packet]:
        """Take bytes that came behind the handshake."""
        assert self._decoder is not None
        return self._decoder.feed(data)

    def close(self) -> None:
        """Close the socket; unread bytes are read first, lest it resets the peer."""
        self._silence()
        try:
            self._line.close()
            self.sock.shutdown(socket.SHUT_WR)
            if self.is_open:
                self.sock.recv(_FAREWELL_READ_BYTES)
        except OSError:
            pass
        self.sock.close()

    def _silence(self) -> None:
        self._is_silenced = True
        self._outbox.clear()
        self._early.clear()
        self._queued = 0
