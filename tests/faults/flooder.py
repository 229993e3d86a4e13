"""Strangers without the secret who open connections as fast as they can; a process.

It looks now and again for every port on which a process and its descendants listen, and
two children hold many connections to each of them, some of which say a byte.  Ends when
its standard input does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import sys
import time
from collections import deque
from typing import Any

import psutil

STRANGERS = 2
HELD = 300
LOOK_S = 0.05
BURST = 100
PORTS_MAX = 16


def ports(root: psutil.Process) -> list[int]:
    """Return where the processes of a job listen."""
    found: set[int] = set()
    own = os.getpid()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            if own in (process.pid, process.ppid()):
                continue
            found |= {
                connection.laddr.port
                for connection in process.net_connections("tcp4")
                if connection.status == psutil.CONN_LISTEN
            }
    return sorted(found)[:PORTS_MAX]


def flood(shared: Any) -> None:
    """Knock at every port there is, and keep the last connections open."""
    held: deque[socket.socket] = deque()
    while True:
        targets = [port for port in shared if port]
        for port in targets:
            for number in range(BURST):
                held.append(knock(port, says=b"M" if number % 3 == 0 else b""))
                if len(held) > HELD:
                    held.popleft().close()
        if not targets:
            time.sleep(0.002)  # noqa: TID251 - a process of its own


def knock(port: int, says: bytes) -> socket.socket:
    """Begin to connect, and say something if that is quick."""
    sock = socket.socket()
    sock.settimeout(0)
    with contextlib.suppress(OSError):
        sock.connect_ex(("127.0.0.1", port))
        sock.send(says)
    return sock


def main() -> None:
    """Flood the job of a driver until told to stop."""
    root = psutil.Process(int(sys.argv[1]))
    context = multiprocessing.get_context("fork")
    shared = context.Array("i", PORTS_MAX, lock=False)
    strangers = [
        context.Process(target=flood, args=(shared,), daemon=True)
        for _ in range(STRANGERS)
    ]
    for stranger in strangers:
        stranger.start()
    print("ready", flush=True)  # noqa: T201 - read by the test
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        found = ports(root)
        shared[:] = found + [0] * (PORTS_MAX - len(found))
    for stranger in strangers:
        stranger.kill()
        stranger.join()


if __name__ == "__main__":
    main()
