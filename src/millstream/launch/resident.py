"""A worker that owns its process, or the Python side of a Spark task.

`serve` turns a `Bootstrap` into a running worker and returns when it is over.  It is
importable and takes plain data: nothing of the driver's engine is pickled.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.protocol.handshake import derive_key
from millstream.runtime.clock import SystemClock
from millstream.runtime.heartbeat import Heart
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.ports import Address
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment

__all__ = ["Bootstrap", "network_key", "serve"]

_EXIT_ORPHANED = 70


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a worker needs to find its coordinator and to be believed.

    Attributes
    ----------
    deployment
        The `Deployment`, pickled by value where it has functions of the user's.
    python_path
        Where the driver finds modules; searched after the worker's own.
    """

    worker: PeerId
    secret: bytes
    job: bytes
    coordinator: Address
    deployment: bytes
    python_path: tuple[str, ...]


def network_key(secret: bytes) -> bytes:
    """Return the key of all connections of a job."""
    return derive_key(secret, b"network")


def serve(bootstrap: Bootstrap) -> str:
    """Run a worker to its end; return why it left, or "" if the job was complete."""
    sys.path += [path for path in bootstrap.python_path if path not in sys.path]
    deployment: Deployment = pickle.loads(bootstrap.deployment)  # noqa: S301 - by Spark
    clock = SystemClock()
    config = deployment.config

    def network(*, listens: bool) -> TCPNetwork:
        return TCPNetwork(
            own_id=bootstrap.worker,
            job=bootstrap.job,
            key=network_key(bootstrap.secret),
            clock=clock,
            config=config,
            host=_own_host(bootstrap.coordinator),
            listens=listens,
        )

    is_over = threading.Event()
    heart = Heart(
        bootstrap.worker,
        network(listens=False),
        bootstrap.coordinator,
        interval_s=config.heartbeat_ms / 1000,
        on_lost=_exit_unless(is_over, config),
    )
    worker = Worker(
        bootstrap.worker,
        deployment,
        network(listens=True),
        clock,
        bootstrap.coordinator,
        pid=os.getpid(),
    )
    try:
        heart.start()
        is_working = True
        while not worker.is_over:
            is_working = worker.step(0.0 if is_working else worker.wait_s())
        return worker.reason
    finally:
        is_over.set()
        worker.close()
        heart.stop()


def _exit_unless(
    is_over: threading.Event, config: Config
) -> Callable[[str], None]:
    """End the process when user code still runs long after the coordinator went."""

    def on_lost(_reason: str) -> None:
        if not is_over.wait(config.stop_grace_ms / 1000):
            os._exit(_EXIT_ORPHANED)

    return on_lost


def _own_host(coordinator: Address) -> str:
    """Return the address by which the coordinator's network knows this host."""
    family = socket.AF_INET6 if ":" in coordinator[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(coordinator)
        return str(probe.getsockname()[0])


def main() -> None:
    """Serve the bootstrap that the parent process writes to standard input."""
    bootstrap: Bootstrap = pickle.load(sys.stdin.buffer)  # noqa: S301 - our parent's
    sys.exit(1 if serve(bootstrap) else 0)


if __name__ == "__main__":
    main()
