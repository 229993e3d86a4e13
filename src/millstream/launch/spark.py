"""Run a job on Spark: every worker is one long-running task of a Spark job of its own.

This is the only module of the engine that imports pyspark.  The driver's threads each
wait for one Spark job, which ends when its worker does; the coordinator never waits
for Spark.  Why plain tasks, one job per worker, and `mapInArrow`: see
``docs/design/0001-workers-are-spark-tasks.md``.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import pickle
import re
import sys
import threading
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

import millstream
from millstream.errors import LaunchError, UsageError
from millstream.launch.recruit import Recruiter
from millstream.launch.resident import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.launch.options import LaunchOptions
    from millstream.launch.resident import Bootstrap
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment

__all__ = ["SparkRun", "start", "worker_count"]

_WAIT_S = 0.02
_JOIN_S = 10.0
_EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    ),
}
"""A session that is there for one job is quiet and listens on loopback only."""


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one per task slot, unless otherwise asked for."""
    if options.workers:
        return options.workers
    session = options.spark or _active_session()
    if session is None and not _is_submitted(options):
        return os.cpu_count() or 1
    return _Cluster.find(options).slots or 1


def start(
    deployment: Deployment, commit: Callable[[], None], options: LaunchOptions
) -> SparkRun:
    """Check that Spark can carry the job, and start one Spark job per worker."""
    cluster = _Cluster.find(options, workers=deployment.worker_count)
    try:
        cluster.check(deployment.worker_count, is_insecure=options.insecure)
        cluster.ship_package()
        recruiter = Recruiter(deployment, commit, cluster.driver_host)
        return SparkRun(recruiter, cluster, deployment.stages.name)
    except BaseException:
        cluster.close()
        raise


class SparkRun:
    """The workers of a job as Spark tasks."""

    def __init__(self, recruiter: Recruiter, cluster: _Cluster, name: str) -> None:
        self.coordinator = recruiter.coordinator
        self._cluster = cluster
        self._name = name
        self._group = recruiter.tag
        self._threads = [
            threading.Thread(
                target=self._run_worker,
                args=(worker, recruiter.bootstrap(worker)),
                name=f"millstream-spark-{worker}",
                daemon=True,
            )
            for worker in recruiter.worker_ids
        ]
        for thread in self._threads:
            thread.start()

    def step(self) -> None:
        """Step the coordinator."""
        self.coordinator.step(_WAIT_S)

    def close(self) -> None:
        """End every Spark job that is still there, and the session if it is ours."""
        self.coordinator.close()
        if any(thread.is_alive() for thread in self._threads):
            self._cluster.cancel(self._group)
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._cluster.close()

    def _run_worker(self, worker: PeerId, bootstrap: Bootstrap) -> None:
        """Wait for the Spark job of one worker; the body of its thread."""
        session = self._cluster.session
        try:
            self._cluster.tag(self._group, f"{self._name}: worker {worker}")
            task = functools.partial(_spark_task, pickle.dumps(bootstrap, protocol=5))
            frame = session.range(0, 1, 1, 1).mapInArrow(task, "reason string")
            reason = frame.collect()[0][0] or "its task ended"
        except Exception as error:  # noqa: BLE001 - Spark may raise anything
            reason = _spark_reason(error)
        self.coordinator.worker_exited(worker, reason)


def _spark_task(
    bootstrap: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Be a worker inside a Spark task; the one row of the answer says why it left."""
    for _ in batches:
        pass
    reason = serve(pickle.loads(bootstrap))  # noqa: S301 - from Spark's own task path
    yield pa.RecordBatch.from_pydict({"reason": [reason]})


class _Cluster:
    """A Spark session and what the launcher must know about it."""

    def __init__(self, session: SparkSession, *, is_own: bool) -> None:
        self.session = session
        self._is_own = is_own
        self._is_connect = type(session).__module__.startswith("pyspark.sql.connect")

    @classmethod
    def find(cls, options: LaunchOptions, workers: int | None = None) -> _Cluster:
        """Take the user's session, or make one."""
        session = options.spark or _active_session()
        if session is not None:
            return cls(session, is_own=False)
        builder = SparkSession.builder.appName("millstream")
        if not _is_submitted(options):
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.master(f"local[{workers or '*'}]")
            for key, value in _EMBEDDED.items():
                builder = builder.config(key, value)
        elif options.master:
            if options.master.startswith("local"):
                os.environ["PYSPARK_PYTHON"] = sys.executable
            builder = builder.master(options.master)
        try:
            return cls(builder.getOrCreate(), is_own=True)
        except PySparkRuntimeError as error:
            msg = (
                f"Spark could not be started ({_first_line(error)}); install a Java 17 "
                "runtime and set JAVA_HOME, or run on='local'"
            )
            raise LaunchError(msg) from error

    @property
    def is_local(self) -> bool:
        """Whether the tasks run on this machine, inside the driver's JVM."""
        return self._setting("spark.master", "local").startswith("local")

    @property
    def slots(self) -> int | None:
        """Number of tasks that can run at once, where the session tells."""
        if self._is_connect:
            return None
        return int(self.session.sparkContext.defaultParallelism)

    @property
    def driver_host(self) -> str:
        """Address at which executors reach the driver."""
        if self.is_local:
            return "127.0.0.1"
        return self._setting("spark.driver.host", "127.0.0.1")

    def check(self, workers: int, *, is_insecure: bool) -> None:
        """Refuse what cannot work, each in a sentence with the fix in it."""
        if self._setting("spark.speculation", "false").lower() == "true":
            msg = (
                "spark.speculation is true, which would start a second copy of every "
                "worker; set it to false for this session"
            )
            raise UsageError(msg)
        self._check_slots(workers)
        host = self.driver_host
        is_authenticated = self._setting("spark.authenticate", "false") == "true"
        if not (_is_loopback(host) or is_authenticated or is_insecure):
            msg = (
                f"workers would connect to the driver at {host} while Spark itself is "
                "not authenticated, so whoever can reach Spark could read the job's "
                "secret; set spark.authenticate=true, or pass insecure=True on a "
                "network you trust"
            )
            raise UsageError(msg)

    def _check_slots(self, workers: int) -> None:
        is_growing = self._setting("spark.dynamicAllocation.enabled", "false") == "true"
        if self._is_connect or is_growing or not self.is_local:
            return
        slots = self.slots or 0
        busy = self._busy_slots()
        if workers > slots - busy:
            taken = f", {busy} of them taken by other jobs" if busy else ""
            msg = (
                f"{workers} workers need {workers} task slots, but this Spark session "
                f"has {slots}{taken}; ask for fewer workers, or start the session with "
                f"master('local[{workers + busy}]')"
            )
            raise UsageError(msg)

    def _busy_slots(self) -> int:
        tracker = self.session.sparkContext.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(info.numActiveTasks for info in infos if info is not None)

    def ship_package(self) -> None:
        """Send Millstream itself to executors on other machines."""
        if self.is_local:
            return
        with TemporaryDirectory(prefix="millstream-") as directory:
            package = _zipped_package(Path(directory))
            if self._is_connect:
                self.session.addArtifact(str(package), pyfile=True)
            else:
                self.session.sparkContext.addPyFile(str(package))

    def tag(self, group: str, description: str) -> None:
        """Let the Spark jobs of this thread belong to a group."""
        if self._is_connect:
            self.session.addTag(group)
        else:
            self.session.sparkContext.setJobGroup(
                group, description, interruptOnCancel=True
            )

    def cancel(self, group: str) -> None:
        """Cancel the Spark jobs of a group."""
        if self._is_connect:
            self.session.interruptTag(group)
        else:
            self.session.sparkContext.cancelJobGroup(group)

    def close(self) -> None:
        """Stop the session if it was made here."""
        if self._is_own:
            self.session.stop()

    def _setting(self, key: str, default: str) -> str:
        try:
            value = self.session.conf.get(key, default)
        except PySparkException:
            return default
        return default if value is None else str(value)


def _active_session() -> SparkSession | None:
    return SparkSession.getActiveSession()


def _is_submitted(options: LaunchOptions) -> bool:
    """Whether somebody else says where Spark is: the user, or spark-submit."""
    return bool(options.master) or any(
        name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _zipped_package(directory: Path) -> Path:
    root = Path(millstream.__file__).parent
    archive = directory / f"millstream-{millstream.__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, Path("millstream") / path.relative_to(root))
    return archive


def _spark_reason(error: Exception) -> str:
    """Return the line of a Spark failure that says what happened on the executor."""
    text = str(error)
    python_error = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    if python_error:
        return f"its Spark task failed: {python_error[-1].strip()}"
    return f"its Spark job ended: {_first_line(error)}"


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
