"""What lies between the bytes of the protocol and a socket: nothing, or TLS.

Both lines have the same methods, which never wait: `BlockingIOError` means that the
socket has nothing for us now, or no room.  A line knows no handshake of the job and no packets.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections import deque
    from collections.abc import Callable

    from millstream.runtime.integrity import Buffer
    from millstream.runtime.tls import TLSSession

__all__ = ["CIPHER_BYTES", "Line", "LineBrokenError", "PlainLine", "TLSLine"]

CIPHER_BYTES = 128 * 1024
"""What is received at once from a socket on which TLS is spoken."""

_SENDMSG_BUFFERS_MAX = min(os.sysconf("SC_IOV_MAX"), 256)
_TURN_BYTES = 112 * 1024
"""What is encrypted before it is written.

More would be memory that the allocator gets from the system, and gives back, every time.
"""
_RECORD_BYTES = 16 * 1024
"""What fits into a record of TLS, each of which costs both sides."""
_HANDSHAKE_READ_BYTES = 4096
_HANDSHAKE_BYTES_MAX = 16 * 1024
"""A side of a handshake says about 1.5 kB."""


class LineBrokenError(Exception):
    """The bytes that came are not those of the other side; the text says why."""


class Line(Protocol):
    """What reads from and writes to one socket."""

    @property
    def held(self) -> int:
        """Bytes that were taken from an outbox and have not left."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the bytes of the protocol may pass."""
        ...

    @property
    def is_greeted(self) -> bool:
        """Whether the other side has said what strangers do not know."""
        ...

    @property
    def failure(self) -> str:
        """Why nothing will come behind what was received; empty if more may."""
        ...

    def begin(self) -> None:
        """Begin to speak; the socket is connected now."""
        ...

    def advance(self) -> bool:
        """Move what precedes the bytes of the protocol; return `is_ready`."""
        ...

    def receive(self, target: memoryview) -> int:
        """Read into `target`; 0 means that the other side has closed."""
        ...

    def rest(self, target: memoryview) -> int:
        """Return what `receive` had no room for; 0 means that there is no more."""
        ...

    def send(self, outbox: deque[Buffer]) -> int:
        """Take buffers from the front of `outbox`; return how many bytes that were."""
        ...

    def close(self) -> None:
        """Say good-bye, as far as that goes without waiting."""
        ...


class PlainLine:
    """The socket as it is."""

    held = 0
    is_ready = True
    is_greeted = False
    failure = ""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def begin(self) -> None:
        """Nothing precedes the bytes of the protocol."""

    def advance(self) -> bool:
        """Return True: see `begin`."""
        return True

    def receive(self, target: memoryview) -> int:
        """Read once."""
        return self._sock.recv_into(target)

    def rest(self, target: memoryview) -> int:  # noqa: ARG002 - nothing is kept here
        """Return 0: a socket that has something says so."""
        return 0

    def send(self, outbox: deque[Buffer]) -> int:
        """Write as many buffers as the socket takes."""
        sent = self._sock.sendmsg(islice(outbox, _SENDMSG_BUFFERS_MAX))
        _drop(outbox, sent)
        return sent

    def close(self) -> None:
        """Nothing is said."""


class TLSLine:
    """TLS over the socket.

    Parameters
    ----------
    start
        Makes our side, when the first byte comes or goes: a stranger who says nothing
        costs no more than a socket.
    cipher
        A buffer that all lines of one thread receive into.
    """

    def __init__(
        self, sock: socket.socket, start: Callable[[], TLSSession], cipher: memoryview
    ) -> None:
        self._sock = sock
        self._start = start
        self._started: TLSSession | None = None
        self._cipher = cipher
        self._handshake_bytes = 0
        self._unsent = memoryview(b"")
        self._has_more = False

    @property
    def held(self) -> int:
        """Encrypted bytes that the socket had no room for."""
        return len(self._unsent)

    @property
    def is_ready(self) -> bool:
        """Whether both sides have shown the certificate."""
        return self._started is not None and self._started.is_ready

    @property
    def is_greeted(self) -> bool:
        """Whether the other side knew the name of the job."""
        return self._started is not None and self._started.has_answered

    @property
    def failure(self) -> str:
        """Why nothing will come behind what was received."""
        error = self._session.failure
        return "" if error is None else _words(error)

    @property
    def _session(self) -> TLSSession:
        if self._started is None:
            self._started = self._start()
        return self._started

    def begin(self) -> None:
        """Send our first words."""
        self._session.advance()
        self._push()

    def advance(self) -> bool:
        """Read once, a little, and go on with the handshake."""
        if self.is_ready:
            return True
        count = self._sock.recv_into(self._cipher[:_HANDSHAKE_READ_BYTES])
        if not count:
            msg = "the other side closed the connection unproved"
            raise LineBrokenError(msg)
        self._handshake_bytes += count
        if self._handshake_bytes > _HANDSHAKE_BYTES_MAX:
            msg = f"a TLS handshake of more than {_HANDSHAKE_BYTES_MAX} bytes"
            raise LineBrokenError(msg)
        self._session.take(self._cipher[:count])
        try:
            is_ready = self._session.advance()
        except ssl.SSLError as error:
            raise LineBrokenError(_words(error)) from error
        self._push()
        self._has_more = is_ready
        return is_ready

    def receive(self, target: memoryview) -> int:
        """Read once and decrypt as much as there is room for."""
        count = self.rest(target) if self._has_more else 0
        if count:
            return count
        received = self._sock.recv_into(self._cipher)
        if not received:
            return 0
        self._session.take(self._cipher[:received])
        count = self.rest(target)
        if not count:
            raise BlockingIOError
        return count

    def rest(self, target: memoryview) -> int:
        """Decrypt without reading."""
        try:
            count = self._session.read(target)
        except ssl.SSLError as error:
            raise LineBrokenError(_words(error)) from error
        self._has_more = count == len(target)
        return count

    def send(self, outbox: deque[Buffer]) -> int:
        """Encrypt a while and write it; nothing is taken while the last of it waits."""
        self._push()
        taken = 0
        while outbox and taken < _TURN_BYTES:
            piece = _piece(outbox)
            self._session.write(piece)
            taken += len(piece)
        with suppress(BlockingIOError):
            self._push()
        return taken

    def close(self) -> None:
        """Send the alert that TLS ends with, if there is room."""
        if not self._unsent and self.is_ready:
            self._session.close()
            with suppress(OSError):
                self._push()

    def _push(self) -> None:
        """Write what is encrypted; raises `BlockingIOError` if there is no room."""
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._session.outgoing())
                if not self._unsent:
                    return
            self._unsent = self._unsent[self._sock.send(self._unsent) :]


def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLZeroReturnError):
        return "the other side closed the connection"
    return f"TLS failed: {error.reason or error}"


def _piece(outbox: deque[Buffer]) -> Buffer:
    """Take whole records from the front of a long buffer, or join what fills one."""
    first = outbox.popleft()
    records = min(len(first), _TURN_BYTES) // _RECORD_BYTES
    if records:
        return _front(outbox, first, records * _RECORD_BYTES)
    parts, room = [first], _RECORD_BYTES - len(first)
    while outbox and room:
        parts.append(_front(outbox, outbox.popleft(), room))
        room -= len(parts[-1])
    return first if len(parts) == 1 else b"".join(parts)


def _front(outbox: deque[Buffer], buffer: Buffer, size: int) -> Buffer:
    """Return at most `size` bytes of a buffer and put the others back."""
    if len(buffer) <= size:
        return buffer
    view = memoryview(buffer)
    outbox.appendleft(view[size:])
    return view[:size]


def _drop(outbox: deque[Buffer], sent: int) -> None:
    while sent:
        first = outbox.popleft()
        if sent < len(first):
            outbox.appendleft(memoryview(first)[sent:])
            return
        sent -= len(first)
