"""A worker that owns its process, or the Python side of a Spark task.

`serve` turns a `Bootstrap` into a running worker and returns when it is over.  It is
importable and takes plain data: nothing of the driver's engine is pickled.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.credentials import one_line
from millstream.launch.packaging import unpacked
from millstream.launch.snapshot_context import worker_store
from millstream.observe.log import show_log
from millstream.protocol.handshake import derive_key
from millstream.runtime.background import Threaded
from millstream.runtime.clock import SystemClock
from millstream.runtime.heartbeat import HeartbeatThread
from millstream.runtime.memory import resident_bytes
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.config import Config
    from millstream.ports import Address
    from millstream.protocol.handshake import Protection
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.tls import Certificate

__all__ = ["Bootstrap", "network_key", "serve"]

_EXIT_ORPHANED = 70
_POLARS_THREADS = "POLARS_MAX_THREADS"
_TURN_S = 0.001


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a worker needs to find its coordinator and to be believed.

    Attributes
    ----------
    deployment
        The `Deployment`, pickled by value where it has functions of the user's.
    python_path
        Where the driver finds modules; searched after the worker's own.
    cores
        How many cores the worker may keep busy.
    protection, certificate
        What guards the connections of the job, and with what.
    log_level
        From which level on it logs to its standard error; ``""`` for not at all.
    """

    worker: PeerId
    secret: bytes = field(repr=False)
    job: bytes
    coordinator: Address
    deployment: bytes = field(repr=False)
    python_path: tuple[str, ...]
    cores: int
    protection: Protection
    certificate: Certificate | None
    log_level: str = ""


def network_key(secret: bytes) -> bytes:
    """Return the key of all connections of a job."""
    return derive_key(secret, b"network")


def serve(bootstrap: Bootstrap, *, owns_process: bool = False) -> str:
    """Run a worker to its end; return why it left, or "" if the job was complete.

    Parameters
    ----------
    owns_process
        Whether nobody else uses the process, so that it may be ended if it hangs.
    """
    sys.path += [path for path in bootstrap.python_path if path not in sys.path]
    show_log(bootstrap.log_level)
    with ExitStack() as stack:
        stack.enter_context(_polars_threads(bootstrap.cores))
        stack.enter_context(_short_turns())
        try:
            deployment = stack.enter_context(unpacked(bootstrap.deployment))
        except Exception as error:  # noqa: BLE001 - a user's module may raise anything
            return f"it could not load the flow: {one_line(error)}"
        if owns_process:
            stack.callback(faulthandler.cancel_dump_traceback_later)
        return _serve(bootstrap, deployment, owns_process=owns_process)


@contextmanager
def _polars_threads(count: int) -> Iterator[None]:
    """Let Polars, if it is loaded now, start no more threads than these.

    Otherwise every worker would start one for each core of the machine.  What somebody
    has set counts, and what a reused process finds afterwards is as it was.
    """
    if _POLARS_THREADS in os.environ:
        yield
        return
    os.environ[_POLARS_THREADS] = str(count)
    try:
        yield
    finally:
        del os.environ[_POLARS_THREADS]


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads take shorter turns than usual.

    While a snapshot is encoded in the background, the thread of the tasks waits for a
    turn after every system call.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, _TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def _serve(bootstrap: Bootstrap, deployment: Deployment, *, owns_process: bool) -> str:
    """Run a worker beside the thread that sends its heartbeats."""
    config = deployment.config
    is_over = threading.Event()
    heart = HeartbeatThread(
        bootstrap.worker,
        _network(bootstrap, config, listens=False),
        bootstrap.coordinator,
        SystemClock(),
        interval_s=config.heartbeat_ms / 1000,
        patience_s=config.launch_timeout_ms / 1000,
        on_lost=_exit_unless(is_over, config),
        on_beat=_exit_without_beats(config) if owns_process else lambda: None,
    )
    heart.start()
    try:
        return _work(bootstrap, deployment)
    finally:
        is_over.set()
        heart.stop()


def _work(bootstrap: Bootstrap, deployment: Deployment) -> str:
    """Step a worker until it is over; return why it left."""
    worker = Worker(
        bootstrap.worker,
        deployment,
        _network(bootstrap, deployment.config, listens=True),
        SystemClock(),
        bootstrap.coordinator,
        pid=os.getpid(),
        background=Threaded(f"millstream-files-{bootstrap.worker}"),
        store=worker_store(deployment),
        resident_bytes=resident_bytes,
    )
    try:
        is_working = True
        while not worker.is_over:
            is_working = worker.step(0.0 if is_working else worker.wait_s())
        return worker.reason
    finally:
        worker.close()


def _network(bootstrap: Bootstrap, config: Config, *, listens: bool) -> TCPNetwork:
    return TCPNetwork(
        own_id=bootstrap.worker,
        job=bootstrap.job,
        key=network_key(bootstrap.secret),
        clock=SystemClock(),
        config=config,
        host=_own_host(bootstrap.coordinator),
        protection=bootstrap.protection,
        certificate=bootstrap.certificate,
        listens=listens,
    )


def _exit_unless(is_over: threading.Event, config: Config) -> Callable[[str], None]:
    """End the process when user code still runs long after the coordinator went."""

    def on_lost(_reason: str) -> None:
        if not is_over.wait(config.stop_grace_ms / 1000):
            os._exit(_EXIT_ORPHANED)

    return on_lost


def _exit_without_beats(config: Config) -> Callable[[], None]:
    """End the process, and say where it stands, if this is not called for long.

    Native code that holds the interpreter stops the heartbeats too; by then the worker counts
    as lost, and nobody else would end it if its driver is gone.
    """
    silent_s = (config.lease_ms + config.stop_grace_ms) / 1000

    def on_beat() -> None:
        faulthandler.dump_traceback_later(silent_s, exit=True)

    return on_beat


def _own_host(coordinator: Address) -> str:
    """Return the address by which the coordinator's network knows this host."""
    family = socket.AF_INET6 if ":" in coordinator[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(coordinator)
        return str(probe.getsockname()[0])


def main() -> None:
    """Serve the bootstrap that the parent process writes to standard input."""
    try:
        bootstrap: Bootstrap = pickle.load(sys.stdin.buffer)  # noqa: S301 - our parent's
    except EOFError:
        sys.exit("the process that started this worker is gone")
    sys.exit(1 if serve(bootstrap, owns_process=True) else 0)


if __name__ == "__main__":
    main()
