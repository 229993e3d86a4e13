"""A listener on the network between two hosts, as the kernel shows it packets.

Method: two network namespaces joined by a veth pair, one `TCPNetwork` in each, as
processes, and a raw socket at one end of the pair.  Needs root and ``ip``.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.hosts import Host, needs_hosts, two_hosts
from tests.support.sniffers import Sniffer

from millstream.protocol.handshake import Protection
from millstream.runtime.tls import make_certificate

pytestmark = [pytest.mark.fault, needs_hosts]

PEER = Path(__file__).with_name("sniffed_peer.py")
KEY = bytes(range(100, 132))
ROW = b"a row that nobody on the network may read"


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
    with two_hosts() as (near, far), Sniffer(near) as sniffer:
        talk_between(near, far, (KEY, ROW, protection, certificate))

    rows = [] if protection is Protection.TLS else [ROW]
    assert sniffer.heard(ROW, KEY, certificate.private[40:80]) == rows


def talk_between(near: Host, far: Host, words: tuple[object, ...]) -> None:
    """Let a batch pass each way."""
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
