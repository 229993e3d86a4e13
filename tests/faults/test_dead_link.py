"""A path that swallows packets: no reset, no answer, and TCP would wait for ages.

Method: two network namespaces joined by a veth pair, one `TCPNetwork` in each, as
processes.  Once they talk, the listener's side gets a blackhole route.  The dialer keeps
sending and must lose its peer by the lease.  Needs root and ``ip``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="making network namespaces needs root and the ip command",
    ),
]

PEER = Path(__file__).with_name("dead_link_peer.py")
NEAR, FAR = "millstream-near", "millstream-far"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_hosts() -> Iterator[None]:
    """Make two hosts that reach each other, and remove them afterwards."""
    ip("netns", "add", NEAR)
    ip("netns", "add", FAR)
    try:
        ip("link", "add", "ms-near", "netns", NEAR, "type", "veth", "peer",
           "name", "ms-far", "netns", FAR)  # fmt: skip
        for name, device, address in (
            (NEAR, "ms-near", "10.231.7.1/24"),
            (FAR, "ms-far", "10.231.7.2/24"),
        ):
            ip("-n", name, "addr", "add", address, "dev", device)
            ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        ip("netns", "del", NEAR)
        ip("netns", "del", FAR)


def start(host: str, *words: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", host, sys.executable, str(PEER), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_peer_behind_a_dead_path_is_lost_by_the_lease(two_hosts: None) -> None:
    """Neither side closes anything, and packets vanish."""
    listener = start(FAR, "listen", "10.231.7.2")
    dialer = None
    try:
        port = line(listener)
        dialer = start(NEAR, "dial", "10.231.7.2", port)
        assert line(dialer) == "connected"
        ip("-n", FAR, "route", "add", "blackhole", "10.231.7.1/32")

        assert "has not answered" in line(dialer)
    finally:
        for process in (listener, dialer):
            if process is not None:
                process.kill()
                process.communicate()
