"""Run a job on Spark: every worker is one long-running task of a Spark job of its own.

This is the only module of the engine that imports pyspark.  The driver's threads each
wait for one Spark job, which ends when its worker does; the coordinator never waits
for Spark.  Why plain tasks, one job per worker, and `mapInArrow`: see
``docs/design/0001-workers-are-spark-tasks.md``.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from millstream.credentials import harmless, shown, without_credentials
from millstream.errors import LaunchError, UsageError
from millstream.launch.bootstrapping import Bootstrapper
from millstream.launch.gate import check_gate, check_speculation, is_protected
from millstream.launch.machine import (
    PACKAGE,
    address_towards,
    await_exit,
    check_java,
    environment,
    is_loopback,
    path_guard,
    python_problem,
    share_of_cores,
    zipped_package,
)
from millstream.launch.own_session import OwnSession, is_placed, is_stopped
from millstream.launch.packaging import parted
from millstream.launch.slots import check_slots, settled, workers_beside
from millstream.launch.spark_messages import (
    first_words,
    local_slots,
    python_advice,
    spark_reason,
)
from millstream.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from millstream.launch.machine import Trust
    from millstream.launch.options import LaunchOptions
    from millstream.launch.packaging import Shipped
    from millstream.launch.worker_main import Bootstrap
    from millstream.protocol.ids import PeerId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext

__all__ = ["SparkRun", "start", "worker_count"]

_WAIT_S = 0.02
_LEAVE_S = 3.0
"""Time in which Spark notices that a task has returned."""
_JOIN_S = 10.0
_CLOSURE_BYTES_MAX = 256 * 1024
"""Far below what PySpark writes to a file (spark.broadcast.UDFCompressionThreshold)."""
_LOOPBACK = "127.0.0.1"
_EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    ),
}
"""A session that is there for one job is quiet and listens on loopback only."""


def worker_count(options: LaunchOptions) -> int:
    """Return the number of workers: one per task slot, unless otherwise asked for.

    What Spark must run beside the workers gets its slots first, and is refused here if
    there are too few: later on its own tasks would be counted against it.
    """
    if options.spare_slots:
        cluster = _find(options, workers=None)
        return cluster.workers_beside(options.workers, options.spare_slots)
    if options.workers:
        return options.workers
    if options.spark is None and not is_placed() and _active_session() is None:
        slots = local_slots(options.master or "local[*]")
        if slots is not None:
            return slots
    return _find(options, workers=None).settled_slots()


def start(
    deployment: Deployment, driver: DriverContext, options: LaunchOptions
) -> SparkRun:
    """Check that Spark can carry the job, and start one Spark job per worker."""
    cluster = _find(options, workers=deployment.worker_count)
    _own.join(cluster.session)
    try:
        cluster.check(is_insecure=options.insecure)
        if not options.spare_slots:
            cluster.check_slots(deployment.worker_count)
        cluster.ship_package()
        cores = cluster.cores_of_each(deployment.worker_count)
        hosts = cluster.driver_host, cluster.bind_host
        bootstrapper = Bootstrapper(
            deployment, driver, *hosts, cores=cores, is_insecure=options.insecure
        )
        return SparkRun(bootstrapper, cluster, deployment.stages.name)
    except BaseException:
        _own.leave(cluster.session)
        raise


class SparkRun:
    """The workers of a job as Spark tasks."""

    def __init__(self, boot: Bootstrapper, cluster: _Cluster, name: str) -> None:
        self.coordinator = boot.coordinator
        self._cluster = cluster
        self._name = name
        self._bootstrapper = boot
        self._lock = threading.Lock()
        self._body: Shipped | None = None
        self._groups: dict[PeerId, str] = {}
        self._threads: dict[PeerId, threading.Thread] = {}
        for worker in boot.worker_ids:
            self._start(worker)

    def _start(self, worker: PeerId) -> None:
        """Start the Spark job of a worker, and a thread that waits for it."""
        self._groups[worker] = f"{self._bootstrapper.tag}-{worker}"
        thread = InheritableThread(
            target=self._run_worker,
            session=self._cluster.session,
            args=(worker, self._bootstrapper.bootstrap(worker)),
            name=f"millstream-spark-{worker}",
            daemon=True,
        )
        self._threads[worker] = thread
        thread.start()

    def step(self) -> None:
        """Step the coordinator, and ask Spark about workers that are gone."""
        self.coordinator.step(_WAIT_S)
        wanted, self.coordinator.wanted_workers = self.coordinator.wanted_workers, []
        for worker in wanted:
            self._start(worker)
        for worker in self.coordinator.lost_workers:
            reason = self._cluster.failure(self._groups[worker])
            if reason is not None:
                self.coordinator.worker_exited(worker, reason)

    def close(self) -> None:
        """End every Spark job that is still there, and the session if it is ours."""
        self.coordinator.close()
        hung = self._alive_after(_LEAVE_S)
        for worker in hung:
            self._cluster.cancel(self._groups[worker])
        self._alive_after(_JOIN_S)
        if self._cluster.is_here:
            await_exit([self.coordinator.pids.get(worker) for worker in hung])
        if not isinstance(self._body, bytes | None):
            with suppress(Exception):  # the session may be gone, and its files with it
                self._body.destroy()
        _own.leave(self._cluster.session)

    def _alive_after(self, patience_s: float) -> list[PeerId]:
        """Wait for the Spark jobs to end; return the workers of those that did not."""
        clock = SystemClock()
        deadline_ns = clock.monotonic_ns() + int(patience_s * 1e9)
        for thread in self._threads.values():
            thread.join(max(0, deadline_ns - clock.monotonic_ns()) / 1e9)
        return [worker for worker, t in self._threads.items() if t.is_alive()]

    def _task(self, bootstrap: Bootstrap) -> Callable[..., Iterator[pa.RecordBatch]]:
        """Return the task of a worker, whose closure holds secrets and little else."""
        secrets, body = parted(bootstrap.deployment)
        with self._lock:
            self._body = self._body or self._cluster.shipped(body)
        # The path is the task's business: a worker takes it as it is.
        small = replace(bootstrap, deployment=secrets, python_path=())
        can_trust = path_guard(trusts_all=self._cluster.is_here)
        path = bootstrap.python_path
        return _task(pickle.dumps(small, protocol=5), self._body, path, can_trust)

    def _run_worker(self, worker: PeerId, bootstrap: Bootstrap) -> None:
        """Wait for the Spark job of one worker; the body of its thread."""
        session = self._cluster.session
        try:
            self._cluster.tag(self._groups[worker], f"{self._name}: worker {worker}")
            task = self._task(bootstrap)
            frame = session.range(0, 1, 1, 1).mapInArrow(task, "reason string")
            reason = frame.collect()[0][0] or "its task ended"
        except Exception as error:  # noqa: BLE001 - Spark may raise anything
            reason = self._cluster.reason(str(error) or type(error).__name__)
        self.coordinator.worker_exited(worker, reason)


def _task(
    bootstrap: bytes, body: Shipped, python_path: tuple[str, ...], can_trust: Trust
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a worker's Spark task; its one row says why it left.

    It is pickled by value and names nothing of this module, so that the executor
    neither needs Millstream to unpickle it nor imports the driver's side of Spark.

    Parameters
    ----------
    bootstrap
        Pickled, with the secrets and without the rest of the flow.
    body
        The rest, as bytes or as a broadcast of them.
    can_trust
        Tells which directories of the executor modules may come from.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import dataclasses  # noqa: PLC0415 - see above
        import pickle  # noqa: PLC0415
        import sys  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415, ICN001
        from pyspark import TaskContext  # noqa: PLC0415

        for _ in batches:
            pass
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            reason = "its Spark task was lost, and a worker never starts twice"
        else:
            new = [path for path in python_path if path not in sys.path]
            sys.path += filter(can_trust, new)
            from millstream.launch.worker_main import serve  # noqa: PLC0415

            found = pickle.loads(bootstrap)  # noqa: S301 - from Spark's task
            rest = body if isinstance(body, bytes) else body.value
            whole = found.deployment + rest
            reason = serve(dataclasses.replace(found, deployment=whole))
        yield pyarrow.RecordBatch.from_pydict({"reason": [reason]})

    return task


class _Cluster:
    """A Spark session of this process, and what the launcher must know about it."""

    #: Whether its settings say how what is sent to executors is protected.
    tells_protection = True

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return self.setting("spark.master", "local")

    @property
    def is_here(self) -> bool:
        """Whether the tasks run on this machine, inside the driver's JVM."""
        return local_slots(self.master) is not None

    @property
    def is_growing(self) -> bool:
        """Whether Spark itself decides how many executors there are."""
        return self.setting("spark.dynamicAllocation.enabled", "false") == "true"

    @property
    def knows_slots(self) -> bool:
        """Whether the number of task slots is known before the tasks come."""
        return not self.is_growing

    @property
    def driver_host(self) -> str:
        """Address at which executors reach the driver."""
        if self.is_here:
            return _LOOPBACK
        return self.setting("spark.driver.host", _LOOPBACK).strip("[]")

    @property
    def bind_host(self) -> str:
        """Address on which the driver listens."""
        if self.is_here:
            return _LOOPBACK
        return self.setting("spark.driver.bindAddress", self.driver_host).strip("[]")

    def cores_of_each(self, workers: int) -> int:
        """Return how many cores a worker may keep busy: on a cluster those of a task."""
        of_task = int(self.setting("spark.task.cpus", "1"))
        return share_of_cores(workers) if self.is_here else of_task

    @property
    def is_trusted(self) -> bool:
        """Whether the job's secret reaches only those who belong to the cluster."""
        return is_protected(self.core_setting) or all(
            is_loopback(host) for host in (self.driver_host, self.bind_host)
        )

    def core_setting(self, key: str) -> str:
        """Return a setting that holds for all of Spark, or "".

        A session that was got from a builder may say what its context does not do.
        """
        return str(self._context.getConf().get(key) or "")

    def setting(self, key: str, default: str) -> str:
        """Return a setting of the session as text."""
        try:
            value = self.session.conf.get(key, default)
        except PySparkException:
            return default
        return default if value is None else str(value)

    def settled_slots(self) -> int:
        """Return how many tasks can run at once, once the executors have come."""
        if self.is_here or self.is_growing:
            return int(self._context.defaultParallelism)
        return settled(self._slots_now, self.master)

    def workers_beside(self, workers: int | None, spare: int) -> int:
        """Return how many workers to start so that `spare` slots stay free."""
        if workers is not None and not self.knows_slots:
            return workers
        slots, busy = self.settled_slots(), self._busy_slots()
        return workers_beside(workers, spare, slots, busy)

    def check(self, *, is_insecure: bool) -> None:
        """Refuse what cannot work, each in a sentence with the fix in it."""
        check_speculation(self.setting("spark.speculation", "false"))
        if not self.is_trusted:
            told = self.core_setting if self.tells_protection else None
            check_gate(self.driver_host, told, is_insecure=is_insecure)
        problem = python_problem(self.python) if self.python and self.is_here else ""
        if problem:
            advice = python_advice(self.python, sys.executable)
            msg = f"a worker could not start: {problem}; {advice}"
            raise LaunchError(msg)

    def shipped(self, body: bytes) -> Shipped:
        """Return the flow as a task may refer to it.

        PySpark writes the closure of a task that is too large to a file.  The secrets are
        in the closure, so what may be large goes another way.
        """
        return self._context.broadcast(body) if len(body) > _CLOSURE_BYTES_MAX else body

    @property
    def python(self) -> str:
        """The Python that executors run, as Spark calls it."""
        return str(self._context.pythonExec)

    def reason(self, text: str) -> str:
        """Return why a worker ended, from what Spark says."""
        reason = spark_reason(text)
        if "No module named" in reason and self.python:
            return f"{reason}; {python_advice(self.python, sys.executable)}"
        return reason

    def ship_package(self) -> None:
        """Send Millstream itself to executors on other machines, once per session."""
        if not self._needs_package:
            return
        context = self._context
        package = zipped_package(Path(context._temp_dir))  # noqa: SLF001 - lives as long
        if package.name not in (context._python_includes or ()):  # noqa: SLF001
            context.addPyFile(str(package))

    def tag(self, group: str, description: str) -> None:
        """Let the Spark jobs of this thread belong to a group."""
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    def cancel(self, group: str) -> None:
        """Cancel the Spark jobs of a group."""
        self._context.cancelJobGroup(group)

    def failure(self, group: str) -> str | None:
        """Return why an attempt at the task of a group failed, where Spark knows."""
        tracker = self._context.statusTracker()
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - no public way
        with suppress(Py4JError, AttributeError):
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    tasks = store.taskList(stage, 0, 1)
                    if tasks.size() and tasks.apply(0).errorMessage().isDefined():
                        return spark_reason(tasks.apply(0).errorMessage().get())
        return None

    @property
    def _needs_package(self) -> bool:
        """Executors elsewhere do, unless whoever started us shipped an archive."""
        return not self.is_here and PACKAGE.is_dir()

    def check_slots(self, workers: int) -> None:
        """Refuse more workers than a local master has free slots for."""
        if self.is_here:
            check_slots(workers, self.settled_slots(), self._busy_slots())

    def _busy_slots(self) -> int:
        tracker = self._context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(info.numActiveTasks for info in infos if info is not None)

    def _slots_now(self) -> int:
        spark = self._context._jsc.sc()  # noqa: SLF001 - no public way
        profile = spark.resourceProfileManager().defaultResourceProfile()
        return int(spark.maxNumConcurrentTasks(profile))

    @property
    def _context(self) -> SparkContext:
        context: SparkContext = self.session.sparkContext
        return context


class _ConnectCluster(_Cluster):
    """A Spark Connect session: the driver's JVM is behind a server."""

    #: None is about the channel to the server.
    tells_protection = False

    @property
    def is_here(self) -> bool:
        return is_loopback(self._server) and super().is_here

    @property
    def knows_slots(self) -> bool:
        return local_slots(self.master) is not None

    @property
    def driver_host(self) -> str:
        """Where executors reach *this* process, which is not Spark's driver."""
        if is_loopback(self._server):
            return super().driver_host
        return address_towards(self._server)

    @property
    def bind_host(self) -> str:
        return self.driver_host

    @property
    def is_trusted(self) -> bool:
        """A secret on its way to a remote server needs more than Spark's own word."""
        return is_loopback(self._server) and super().is_trusted

    def core_setting(self, key: str) -> str:
        return self.setting(key, "")

    def shipped(self, body: bytes) -> Shipped:
        """Return it as it is: there are no broadcasts, nor files of the driver's."""
        return body

    @property
    def python(self) -> str:
        """Nobody tells."""
        return ""

    def settled_slots(self) -> int:
        slots = local_slots(self.master)
        if slots is None:
            msg = (
                "Spark Connect does not tell how many tasks can run at once; say how "
                "many workers you want, for example flow.run(workers=4)"
            )
            raise UsageError(msg)
        return slots

    def ship_package(self) -> None:
        if not self._needs_package:
            return
        with TemporaryDirectory(prefix="millstream-") as directory:
            package = zipped_package(Path(directory))
            self.session.addArtifact(str(package), pyfile=True)

    def tag(self, group: str, description: str) -> None:  # noqa: ARG002 - has none
        self.session.addTag(group)

    def cancel(self, group: str) -> None:
        self.session.interruptTag(group)

    def failure(self, group: str) -> str | None:  # noqa: ARG002 - does not tell
        return None

    def _busy_slots(self) -> int:
        return 0

    @property
    def _server(self) -> str:
        return str(self.session.client.host).strip("[]")


_own = OwnSession()


def _find(options: LaunchOptions, workers: int | None) -> _Cluster:
    """Take the user's session or that of another job, or make one."""
    with _own.lock:
        session = options.spark or _own.session or _active_session()
        if session is None:
            session = _made_session(options, workers)
    if type(session).__name__ != "SparkSession" or is_stopped(session):
        msg = f"spark= takes a SparkSession that is not stopped, got {session!r}"
        raise UsageError(msg)
    is_connect = type(session).__module__.startswith("pyspark.sql.connect")
    cluster = _ConnectCluster(session) if is_connect else _Cluster(session)
    if options.master and not is_connect and options.master != cluster.master:
        msg = (
            f"master={shown(options.master)!r} was asked for, but this program has a session "
            f"on {cluster.master!r}; leave one of the two out"
        )
        raise UsageError(msg)
    return cluster


def _made_session(options: LaunchOptions, workers: int | None) -> SparkSession:
    """Make a session; spark-submit's belongs to the program, any other to its jobs."""
    master = options.master or (None if is_placed() else f"local[{workers or '*'}]")
    is_local = local_slots(master or "") is not None
    builder = SparkSession.builder.appName("millstream")
    if master is not None:
        is_connect = master.startswith("sc://")
        builder = builder.remote(master) if is_connect else builder.master(master)
    for key, value in _EMBEDDED.items() if is_local else ():
        builder = builder.config(key, value)
    if not (_has_jvm() or is_remote() or (master or "").startswith("sc://")):
        check_java()
    variables = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _LOOPBACK}
    try:
        with environment(variables if is_local else {}):
            session = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - Spark may raise anything
        msg = (
            "Spark could not be started: "
            f"{first_words(without_credentials(str(error), master or ''))}; see what "
            "Spark printed, or run on='local'"
        )
        raise LaunchError(msg) from harmless(error, master or "")
    if not is_placed():
        _own.adopt(session)
    return session


def _active_session() -> SparkSession | None:
    """Return the program's session, in whichever thread it was made."""
    session = SparkSession.getActiveSession()
    if session is not None:
        return session
    if is_remote():
        from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415

        return cast("SparkSession | None", Remote._get_default_session())  # noqa: SLF001 - no public way
    if SparkContext._active_spark_context is not None:  # noqa: SLF001
        return SparkSession.builder.getOrCreate()
    return None


def _has_jvm() -> bool:
    """Whether a JVM of this program runs already."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001
