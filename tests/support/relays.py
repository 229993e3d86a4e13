"""Somebody in the middle of a connection: passes bytes on, keeps them, changes them."""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.ports import Address

__all__ = ["Relay"]

_READ_BYTES = 64 * 1024


class Relay:
    """Listens for clients and connects each of them to the target.

    Parameters
    ----------
    target
        Where the real listener is.
    change
        Gets what a client (True) or the target (False) sent, and returns what is passed
        on instead.
    """

    def __init__(
        self,
        target: Address,
        change: Callable[[bool, bytes], bytes] = lambda _is_client, data: data,
    ) -> None:
        self._target = target
        self._change = change
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ)
        #: Everything that clients sent, and that the target sent.
        self.from_clients = bytearray()
        self.from_target = bytearray()
        #: The sockets to the target, in the order in which clients came.
        self.to_target: list[socket.socket] = []
        self._sockets: list[socket.socket] = []

    @property
    def address(self) -> Address:
        """Where clients think the target is."""
        host, port = self._listener.getsockname()
        return str(host), int(port)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Pass on what has come."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._accept()
            else:
                self._pass_on(key.fileobj, *key.data)

    def close(self) -> None:
        """Hang up."""
        for sock in (self._listener, *self._sockets):
            sock.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        target = socket.create_connection(self._target)
        self.to_target.append(target)
        self._sockets += [client, target]
        for sock, other, is_client in ((client, target, True), (target, client, False)):
            self._selector.register(sock, selectors.EVENT_READ, (other, is_client))

    def _pass_on(self, sock: object, other: socket.socket, is_client: bool) -> None:  # noqa: FBT001 - from the selector
        assert isinstance(sock, socket.socket)
        try:
            data = sock.recv(_READ_BYTES)
            record = self.from_clients if is_client else self.from_target
            record += data
            other.sendall(self._change(is_client, data) if data else b"")
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(sock)
            with suppress(OSError):
                other.shutdown(socket.SHUT_WR)
