"""A listener on the network between two hosts, as the kernel shows it packets.

Method: two network namespaces joined by a veth pair, one `TCPNetwork` in each, as
processes, and an ``AF_PACKET`` socket at one end of the pair.  Needs root and ``ip``.
"""

from __future__ import annotations

import ctypes
import pickle
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.hosts import Host, needs_hosts, two_hosts

from millstream.protocol.handshake import Protection
from millstream.runtime.tls import make_certificate

pytestmark = [pytest.mark.fault, needs_hosts]

PEER = Path(__file__).with_name("sniffed_peer.py")
KEY = bytes(range(100, 132))
ROW = b"a row that nobody on the network may read"
ALL_PROTOCOLS = 3
CLONE_NEWNET = 0x40000000


class Sniffer:
    """A thread that has moved into the namespace of one host and hears every packet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.heard = bytearray()
        self._is_ready = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        assert self._is_ready.wait(10)

    def _listen(self) -> None:
        with open(f"/run/netns/{self._host.name}") as name:  # noqa: PTH123 - a descriptor
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(name.fileno(), CLONE_NEWNET) == 0
        with socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)
        ) as raw:
            raw.settimeout(0.05)
            self._is_ready.set()
            while not self._is_over.is_set():
                try:
                    self.heard += raw.recv(65_536)
                except TimeoutError:
                    continue

    def stop(self) -> bytes:
        """Return every byte of every packet."""
        self._is_over.set()
        self._thread.join()
        return bytes(self.heard)


def start(host: Host, *words: object) -> subprocess.Popen[bytes]:
    command = host.running(sys.executable, str(PEER))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    with process.stdin as target:
        target.write(pickle.dumps(words))
    return process


def line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("protection", list(Protection), ids=lambda each: each.name)
def test_a_sniffer_reads_neither_secret_nor_row(protection: Protection) -> None:
    """Inside TLS; without it the rows are there, which shows that it would find them."""
    certificate = make_certificate()
    with two_hosts() as (near, far):
        heard = heard_between(near, far, (KEY, ROW, protection, certificate))

    assert (ROW in heard) == (protection is not Protection.TLS)
    assert KEY not in heard
    assert certificate.private[40:80] not in heard


def heard_between(near: Host, far: Host, words: tuple[object, ...]) -> bytes:
    """Let a batch pass each way; return what a listener on the near host heard."""
    sniffer = Sniffer(near)
    ends = [start(far, 1, far.address, 0, *words)]
    try:
        ends.append(start(near, 2, far.address, int(line(ends[0])), *words))
        assert [line(end) for end in ends] == [b"arrived", b"arrived"]
    finally:
        for end in ends:
            end.kill()
            end.wait()
            assert end.stdout is not None
            end.stdout.close()
        heard = sniffer.stop()
    return heard
