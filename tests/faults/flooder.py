"""Strangers without the secret who open connections as fast as they can; a process.

It looks now and again for every port on which a process and its descendants listen, and
two children hold many connections to each of them, some of which say a byte.  JVMs are
left alone, and so are the ports that it is told of.  Ends when its standard input does, and
says how many ports it found.
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
JVM = "java"


def ports(root: psutil.Process, spared: set[int]) -> list[int]:
    """Return where the processes of a job listen."""
    found: set[int] = set()
    sparks: set[int] = set()
    own = os.getpid()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            if own not in (process.pid, process.ppid()):
                side = sparks if is_sparks(process) else found
                side |= listening(process)
    return sorted(found - sparks - spared)[:PORTS_MAX]


def listening(process: psutil.Process) -> set[int]:
    """Return the ports of one process."""
    return {
        connection.laddr.port
        for connection in process.net_connections("tcp4")
        if connection.status == psutil.CONN_LISTEN
    }


def is_sparks(process: psutil.Process) -> bool:
    """Whether it is a JVM, or the daemon of one, which forks a process for each knock.

    What it has just forked holds its port too, for a moment.
    """
    parent = process.parent()
    return JVM in (process.name(), parent.name() if parent else "")


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
    root, spared = psutil.Process(int(sys.argv[1])), set(map(int, sys.argv[2:]))
    context = multiprocessing.get_context("fork")
    shared = context.Array("i", PORTS_MAX, lock=False)
    strangers = [
        context.Process(target=flood, args=(shared,), daemon=True)
        for _ in range(STRANGERS)
    ]
    for stranger in strangers:
        stranger.start()
    print("ready", flush=True)  # noqa: T201 - read by the test
    flooded: set[int] = set()
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        found = ports(root, spared)
        flooded |= set(found)
        shared[:] = found + [0] * (PORTS_MAX - len(found))
    for stranger in strangers:
        stranger.kill()
        stranger.join()
    print(len(flooded), flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
