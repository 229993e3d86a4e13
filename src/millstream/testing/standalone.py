"""A real Spark standalone cluster on this machine, for tests and for trying things out.

Master and workers are the JVMs of the installed pyspark package, listening on loopback
unless they are told of other addresses.  This module starts and ends processes; it knows
nothing of flows, makes no networks and does not import pyspark.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, Self

from millstream.errors import LaunchError
from millstream.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = ["StandaloneCluster"]

_LOOPBACK = "127.0.0.1"
_STARTED_WITHIN_S = 60.0
_EXIT_S = 5.0
_PAUSE_S = 0.05
_LOG_BYTES = 2_000
_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class StandaloneCluster:
    """A Spark master and its workers, each a JVM of its own; a context manager.

    Parameters
    ----------
    workers
        Number of Spark workers; an application gets one executor on each.
    cores, memory
        What each Spark worker has to give.
    settings
        Settings of Spark for master and workers, such as ``spark.authenticate``.
    hosts
        Addresses to listen on, each with the words that stand before a command which
        runs there: ``{"10.0.0.2": ["ip", "netns", "exec", "far"]}`` for a network
        namespace of this machine.  The master is on the first, the workers are dealt
        out.  Loopback, with no such words, by default.

    Examples
    --------
    ::

        with StandaloneCluster(workers=2) as cluster:
            flow.run(master=cluster.master, workers=2)
    """

    def __init__(
        self,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        settings: Mapping[str, str] | None = None,
        hosts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._worker_count = workers
        self._cores = cores
        self._memory = memory
        self._settings = dict(settings or {})
        self._hosts = [_Host(*host) for host in (hosts or {_LOOPBACK: ()}).items()]
        self._master = ""
        self._workers: list[_Daemon] = []
        self._cleanup = ExitStack()

    @property
    def master(self) -> str:
        """URL of the master, for ``SparkSession.builder.master``."""
        return self._master

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of Spark's workers, which start the executors."""
        return [worker.pid for worker in self._workers]

    def executor_pids(self) -> list[int]:
        """Return the process ids of the executors that are there now."""
        table = _processes()
        return [
            pid
            for worker in self.worker_pids
            for pid in _descendants(worker, table)
            if _EXECUTOR_CLASS in table[pid][1]
        ]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            home = Path(stack.enter_context(TemporaryDirectory(prefix="millstream-")))
            (home / "log4j2.properties").write_text(_LOGGING)
            (home / "spark-defaults.conf").write_text(
                "".join(f"{key} {value}\n" for key, value in self._settings.items())
            )
            master = _Daemon(self._hosts[0], home, "master", _MASTER_CLASS)
            stack.callback(master.stop)
            self._master = master.wait_for(lambda log: _found(_MASTER_URL, log))
            for number in range(self._worker_count):
                worker = self._start_worker(home, number)
                stack.callback(worker.stop)
                self._workers.append(worker)
            for worker in self._workers:
                worker.wait_for(lambda log: _REGISTERED if _REGISTERED in log else None)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cleanup.close()
        self._workers.clear()

    def _start_worker(self, home: Path, number: int) -> _Daemon:
        return _Daemon(
            self._hosts[number % len(self._hosts)],
            home,
            f"worker-{number}",
            _WORKER_CLASS,
            *("--cores", str(self._cores), "--memory", self._memory),
            *("--work-dir", str(home / f"work-{number}"), self._master),
        )


class _Host(NamedTuple):
    """Where a JVM listens, and what lets it run there."""

    address: str
    prefix: Sequence[str]


class _Daemon:
    """One JVM of the cluster, with its log in a file."""

    def __init__(
        self, host: _Host, home: Path, name: str, main_class: str, *arguments: str
    ) -> None:
        self._name = name
        self._log = home / f"{name}.log"
        spark = _spark_home()
        listen = ("--host", host.address, "--port", "0", "--webui-port", "0")
        start = (*host.prefix, str(spark / "bin" / "spark-class"), main_class)
        environment = os.environ | {
            "SPARK_HOME": str(spark),
            "SPARK_CONF_DIR": str(home),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_LOCAL_DIRS": str(home / "local"),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - Spark's own script
                [*start, *listen, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, find: Callable[[str], str | None]) -> str:
        """Wait until something stands in the log, and return it."""
        clock, pause = SystemClock(), threading.Event()
        deadline_ns = clock.monotonic_ns() + int(_STARTED_WITHIN_S * 1e9)
        while True:
            text = self._log.read_text(errors="replace")
            found = find(text)
            if found is not None:
                return found
            is_dead = self._process.poll() is not None
            if is_dead or clock.monotonic_ns() > deadline_ns:
                state = "ended" if is_dead else f"was not up in {_STARTED_WITHIN_S:g} s"
                msg = (
                    f"Spark's {self._name} {state}; its log ends: {text[-_LOG_BYTES:]}"
                )
                raise LaunchError(msg)
            pause.wait(_PAUSE_S)

    def stop(self) -> None:
        """End the JVM and everything that it has started."""
        family = _descendants(self.pid, _processes())
        self._process.terminate()
        try:
            self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        left = family & _processes().keys()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        msg = "a standalone cluster needs pyspark; install it with pip"
        raise LaunchError(msg)
    return Path(spec.origin).parent


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _processes() -> dict[int, tuple[int, str]]:
    """Return parent and command line of every process."""
    answer = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],  # noqa: S607 - everywhere the same
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split(None, 2) for line in answer.stdout.splitlines())
    return {
        int(pid): (int(parent), rest[0] if rest else "") for pid, parent, *rest in rows
    }


def _descendants(pid: int, table: dict[int, tuple[int, str]]) -> set[int]:
    """Return all processes below one, not including itself."""
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, (parent, _) in table.items() if parent in fresh}
        found |= fresh
    return found
