"""A path that swallows packets: no reset, no answer, and TCP would wait for ages.

Method: two network namespaces joined by a veth pair, one `TCPNetwork` in each, as
processes.  Once they talk, the listener's side gets a blackhole route.  The dialer keeps
sending and must lose its peer by the lease.  Needs root and ``ip``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.hosts import Host, ip, needs_hosts, two_hosts

pytestmark = [pytest.mark.fault, needs_hosts]

PEER = Path(__file__).with_name("dead_link_peer.py")


def start(host: Host, *words: str) -> subprocess.Popen[str]:
    command = host.running(sys.executable, str(PEER), *words)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_peer_behind_a_dead_path_is_lost_by_the_lease() -> None:
    """Neither side closes anything, and packets vanish."""
    with two_hosts() as (near, far):
        listener = start(far, "listen", far.address)
        dialer = None
        try:
            dialer = start(near, "dial", far.address, line(listener))
            assert line(dialer) == "connected"
            ip("-n", far.name, "route", "add", "blackhole", f"{near.address}/32")

            assert "has not answered" in line(dialer)
        finally:
            for process in (listener, dialer):
                if process is not None:
                    process.kill()
                    process.communicate()
