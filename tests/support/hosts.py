"""Two hosts on this machine that reach each other: network namespaces and a veth pair.

Names carry the process id and a number, since namespaces are the machine's, several
processes run tests, and a test may keep a pair while another one makes its own.  Addresses
may repeat: each pair is a network of its own.  Needs root and ``ip``.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEVICE", "Host", "can_make_hosts", "ip", "needs_hosts", "two_hosts"]

DEVICE = "veth0"
"""What a host reaches the other one by."""
_numbers = count(1)
_PROBE = f"millstream-probe-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with one address.

    Examples
    --------
    >>> Host("millstream-left", "10.231.7.1").running("true")
    ['ip', 'netns', 'exec', 'millstream-left', 'true']
    """

    name: str
    address: str

    def running(self, *command: str) -> list[str]:
        """Return the command that runs another one on this host."""
        return ["ip", "netns", "exec", self.name, *command]


def ip(*words: str) -> None:
    """Run ``ip``; what it says is in the error if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Make two hosts that reach each other, and remove them afterwards."""
    tag = f"{os.getpid()}-{next(_numbers)}"
    near, far = (
        Host(f"millstream-{side}-{tag}", f"10.231.7.{number}")
        for number, side in enumerate(("near", "far"), 1)
    )
    made = []
    try:
        for host in (near, far):
            ip("netns", "add", host.name)
            made.append(host)
        ip("link", "add", DEVICE, "netns", near.name, "type", "veth", "peer",
           "name", DEVICE, "netns", far.name)  # fmt: skip
        for host in (near, far):
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", DEVICE)
            ip("-n", host.name, "link", "set", DEVICE, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield near, far
    finally:
        for host in made:
            ip("netns", "del", host.name)


@cache
def can_make_hosts() -> bool:
    """Whether this user may make network namespaces here."""
    try:
        ip("netns", "add", _PROBE)
    except (FileNotFoundError, AssertionError):
        return False
    ip("netns", "del", _PROBE)
    return True


needs_hosts = pytest.mark.skipif(
    not can_make_hosts(), reason="network namespaces need root and the ip command"
)
