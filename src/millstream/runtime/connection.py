"""One non-blocking socket: handshake bytes first, frames afterwards.

A `Connection` moves bytes when it is told to.  It does not know the selector, the
other connections, or what the loss of this one means.

A socket that can no longer be written may still hold frames that the peer sent
before it left, its reason among them.  So a failed write only silences the outbox;
the loss is found by reading, behind the last frame.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from millstream.protocol.handshake import (
    ClientHandshake,
    Outcome,
    Refused,
    Role,
    Send,
    ServerHandshake,
)

if TYPE_CHECKING:
    from millstream.protocol.frames import Frame
    from millstream.protocol.ids import PeerId
    from millstream.runtime.wire import Buffer, FrameDecoder

__all__ = ["Connection", "ConnectionLostError"]

_HANDSHAKE_READ_BYTES = 128
_SENDMSG_BUFFERS_MAX = min(os.sysconf("SC_IOV_MAX"), 256)
_FAREWELL_READ_BYTES = 256 * 1024

_TCP_INFO = struct.Struct("=2xBB4x48xI")
"""Of Linux's tcp_info: unanswered retransmissions, probes, and the last answer's age."""


class ConnectionLostError(Exception):
    """Nothing more will come from this connection; the text says why."""


class Connection:
    """A socket, what waits to be written to it, and what has been read so far.

    Parameters
    ----------
    sock
        A connected or connecting socket; it becomes non-blocking.
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
        machine: ServerHandshake | ClientHandshake,
        deadline_ns: int,
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
        self.backlog = 0
        self._machine = machine
        self._decoder: FrameDecoder | None = None
        self._outbox: deque[Buffer] = deque()
        self._is_silenced = False

    @property
    def is_open(self) -> bool:
        """Both sides have proved who they are; frames may pass."""
        return self._decoder is not None

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
        assert isinstance(self._machine, ClientHandshake)
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise ConnectionLostError(os.strerror(number))
        self.is_dialing = False
        self.answer(self._machine.hello)

    def read_handshake(self) -> list[Outcome]:
        """Read a little and ask the handshake machine what it means."""
        try:
            data = self.sock.recv(_HANDSHAKE_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            return [Refused(str(error))]
        if not data:
            return [Refused("the other side closed the connection unproved")]
        return self._machine.receive(data)

    def answer(self, data: bytes) -> None:
        """Write a handshake message; a fresh socket takes it whole or is useless."""
        try:
            sent = self.sock.send(data)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if sent != len(data):
            msg = f"only {sent} of {len(data)} bytes of a handshake could be written"
            raise ConnectionLostError(msg)

    def carry_out(self, outcomes: list[Outcome]) -> None:
        """Write what the machine wants written."""
        for outcome in outcomes:
            if isinstance(outcome, Send):
                self.answer(outcome.data)

    def open(self, peer: PeerId, role: Role, decoder: FrameDecoder) -> None:
        """Let frames pass."""
        self.peer = peer
        self.role = role
        self._decoder = decoder

    # Frames.

    def queue(self, buffers: list[Buffer]) -> None:
        """Append an encoded frame to what waits to be written."""
        if not self._is_silenced:
            self._outbox.extend(buffers)
            self.backlog += sum(map(len, buffers))

    def flush(self) -> None:
        """Write until nothing waits or the socket is full (`is_stuck`)."""
        self.is_stuck = False
        while self._outbox:
            try:
                sent = self.sock.sendmsg(islice(self._outbox, _SENDMSG_BUFFERS_MAX))
            except (BlockingIOError, InterruptedError):
                self.is_stuck = True
                return
            except OSError:
                self._silence()
                return
            self._drop_sent(sent)

    def read(self) -> list[Frame]:
        """Read once, at most one buffer full, and return the frames that are whole.

        Raises
        ------
        ConnectionLostError
            If the peer is gone, behind the last frame.
        RemoteProtocolError
            If it sent what is no frame.
        """
        assert self._decoder is not None
        try:
            count = self.sock.recv_into(self._decoder.writable())
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if not count:
            msg = "the other side closed the connection"
            raise ConnectionLostError(msg)
        return self._decoder.received(count)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes that came behind the handshake."""
        assert self._decoder is not None
        return self._decoder.feed(data)

    def close(self) -> None:
        """Close the socket; unread bytes are read first, lest it resets the peer."""
        self._silence()
        try:
            self.sock.shutdown(socket.SHUT_WR)
            if self.is_open:
                self.sock.recv(_FAREWELL_READ_BYTES)
        except OSError:
            pass
        self.sock.close()

    def _silence(self) -> None:
        self._is_silenced = True
        self._outbox.clear()
        self.backlog = 0

    def _drop_sent(self, sent: int) -> None:
        self.backlog -= sent
        outbox = self._outbox
        while sent:
            first = outbox.popleft()
            if sent < len(first):
                outbox.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)
