"""Somebody who listens on the network between two hosts, as the kernel shows them packets.

A thread of the test process that has moved into the namespace of a host, with an
``AF_PACKET`` socket on the device that leads to the other one.  Loopback is not heard.
Knows TCP and nothing of what it carries.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Self

from tests.support.hosts import DEVICE, Host

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Sniffer"]

ALL_PROTOCOLS = 3
CLONE_NEWNET = 0x40000000
PACKET_STATISTICS = 6
SOL_PACKET = 263
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 1 << 27
ETHERNET_BYTES = 14


class Sniffer:
    """Keeps what two hosts say to each other; a context manager.

    What was heard may be asked for afterwards.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        #: By sender and receiver with their ports; what is not TCP in one of its own.
        self._streams: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        self._dropped_packets = 0
        self._is_ready = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        assert error or not self._dropped_packets, "the listener was too slow"

    def heard(self, *words: bytes) -> list[bytes]:
        """Return which of the words were said."""
        said = [bytes(stream) for stream in self._streams.values()]
        return [word for word in words if any(word in each for each in said)]

    @property
    def heard_bytes(self) -> int:
        """How much was said."""
        return sum(map(len, self._streams.values()))

    def _listen(self) -> None:
        with open(f"/run/netns/{self._host.name}") as name:  # noqa: PTH123 - a descriptor
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(name.fileno(), CLONE_NEWNET) == 0
        with socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)
        ) as raw:
            raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            raw.bind((DEVICE, 0))
            raw.settimeout(0.05)
            self._is_ready.set()
            while self._hears(raw) or not self._is_over.is_set():
                pass
            counts = raw.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            _, self._dropped_packets = struct.unpack("II", counts)

    def _hears(self, raw: socket.socket) -> bool:
        """Take one packet; return whether there was one."""
        try:
            packet = raw.recv(1 << 17)[ETHERNET_BYTES:]
        except TimeoutError:
            return False
        if packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_TCP:
            segment = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0]]
            ends = packet[12:20] + segment[:4]
            self._streams[ends] += segment[(segment[12] >> 4) * 4 :]
        else:
            self._streams[b""] += packet
        return True
