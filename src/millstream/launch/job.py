"""A running flow as its user holds it."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.credentials import harmless, shown, without_credentials
from millstream.errors import (
    LaunchError,
    MillstreamError,
    SnapshotError,
    UsageError,
)
from millstream.launch import local
from millstream.launch.boundary import public_errors
from millstream.launch.completion import (
    CompleteRun,
    check_ended,
    is_complete,
    with_last_epoch,
)
from millstream.launch.control import ControlDesk
from millstream.launch.fitting import (
    asked_of_sources,
    changed_input,
    check_fit,
    check_outputs,
    plan_hash,
    stored_fingerprints,
)
from millstream.launch.inputs import Inputs, cut_source
from millstream.launch.metrics import WorkerMetrics, stage_metrics
from millstream.launch.names import check_names, job_prefix
from millstream.launch.outputs import Sinks, named_sinks
from millstream.launch.progress import ProgressLog
from millstream.launch.savepoints import Wish, check_overtaken, check_repeats
from millstream.launch.snapshot_context import begins_with_savepoint, open_context
from millstream.observe.log import logger, show_log_as_asked
from millstream.plan.frame_windows import AssignFrameTime
from millstream.plan.nodes import Read, Write
from millstream.plan.stages import plan_stages
from millstream.plan.time import AssignTime
from millstream.protocol.job import Phase
from millstream.protocol.job_events import OutcomeKind
from millstream.runtime.deployment import Deployment
from millstream.runtime.snapshots import DriverContext
from millstream.state.key import given_key

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from millstream.config import Config
    from millstream.connectors.base import Source, Split
    from millstream.launch.metrics import StageMetrics
    from millstream.launch.options import LaunchOptions
    from millstream.launch.run import Launcher, Run
    from millstream.launch.snapshot_context import SnapshotContext
    from millstream.plan.logical import LogicalPlan
    from millstream.plan.stages import Stage, StagePlan
    from millstream.runtime.coordinator import Recovery
    from millstream.runtime.snapshot_stats import Snapshot
    from millstream.values import Row

__all__ = ["Job", "deploy"]

_log = logger("state")
_SAVEPOINT_LOOK_S = 0.05
_STATUS = {
    Phase.RESOLVING_EPOCH: "recovering",
    Phase.REGISTERING: "starting",
    Phase.CONNECTING: "starting",
    Phase.RUNNING: "running",
    Phase.COMMITTING: "committing",
    Phase.STOPPING: "stopping",
}
_OUTCOME = {
    OutcomeKind.SUCCEEDED: "succeeded",
    OutcomeKind.FAILED: "failed",
    OutcomeKind.CANCELLED: "cancelled",
    OutcomeKind.STOPPED: "stopped",
}


class Job:
    """A flow that was started; ends by itself when its input does.

    Made by `Flow.start` and `Flow.run`.
    """

    def __init__(
        self,
        deployment: Deployment,
        run: Run,
        sinks: Sinks,
        *,
        was_complete: bool = False,
    ) -> None:
        self.id = deployment.job
        #: Whether nothing was left to do when it was started, so that nothing was run.
        self.was_complete = was_complete
        self.name = deployment.stages.name
        self._stages = deployment.stages
        self._workers = deployment.worker_count
        self._progress_log_ms = deployment.config.progress_log_ms
        self._migrations = deployment.migrations
        self._run = run
        self._sinks = sinks
        context = sinks.context
        self._desk = ControlDesk(
            context.directory, context.key, context.claim, self._ask_to_stop
        )
        self._is_done = threading.Event()
        self._crash: BaseException | None = None
        self._thread = threading.Thread(
            target=self._drive, name=f"millstream-{self.name}", daemon=True
        )

    @classmethod
    @public_errors()
    def start(cls, plan: LogicalPlan, config: Config, options: LaunchOptions) -> Job:
        """Start the workers of a checked plan."""
        show_log_as_asked()
        check_names(plan)
        launcher = _launcher(options)
        options = replace(options, spare_slots=_spare_slots(plan))
        workers = launcher.worker_count(options)
        written = {n.name: n.spec.sink for n in plan.nodes if isinstance(n.spec, Write)}
        with _usable(options):
            given = given_key(options.state_key)
            options = replace(options, state_key=given)
            if begins_with_savepoint(options) and not options.repeat_output:
                check_repeats(written, str(options.resume_from), given)
            context = open_context(
                job_prefix(plan.name), config, options, flow=plan.name, sinks=written
            )
        with ExitStack() as undo:
            undo.callback(context.held.close)
            deployment = deploy(plan, config, workers, context, options)
            inputs = Inputs.of(deployment.stages, context)
            undo.callback(inputs.let_go, is_over=False)
            sinks = Sinks(context, named_sinks(deployment.stages))
            undo.callback(sinks.abort)
            is_over = is_complete(context.manifest, deployment.stages)
            if not is_over and not options.repeat_output:
                check_overtaken(written, context)
            sinks.prepare(is_complete=is_over)
            if not is_over:
                inputs.resume()
            driver = DriverContext(
                sinks,
                context.store,
                context.claim,
                context.manifest,
                context.results(),
                bool(written),
                is_over,
                inputs.forgetter(),
            )
            if is_over and options.drop_state:
                driver = with_last_epoch(driver, deployment)
            run: Run = (
                CompleteRun(deployment, driver)
                if is_over
                else launcher.start(deployment, driver, options)
            )
            undo.pop_all()
        job = cls(deployment, run, sinks, was_complete=is_over)
        job._thread.start()
        job._desk.listen(job._is_done, config.control_look_ms / 1e3)
        return job

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if `timeout_s` passed first.

        An interrupt (Ctrl-C) while waiting cancels the job and goes on to the caller.

        Raises
        ------
        MillstreamError
            If the job did not succeed.
        """
        try:
            is_done = self._is_done.wait(timeout_s)
        except KeyboardInterrupt:
            self.cancel("interrupted from the keyboard")
            self._is_done.wait()
            raise
        if is_done:
            self._raise_error()
        return is_done

    def result(self) -> dict[str, Any]:
        """Wait for the end and return the rows of every sink that gives them back."""
        self.wait()
        names = {
            n.id: n.name for s in self._stages.stages for n in s.nodes if n.is_sink
        }
        found = {name: self.rows(id) for id, name in names.items()}  # noqa: A001
        return {name: rows for name, rows in found.items() if rows}

    def rows(self, sink: int) -> list[Any]:
        """Wait for the end and return the rows that one sink sent to the driver."""
        self.wait()
        names = {n.id: n.name for s in self._stages.stages for n in s.nodes}
        return self._run.coordinator.results.rows(names[sink])

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Ask the job to end now; `wait` then raises `JobCancelledError`."""
        self._run.coordinator.cancel(reason)

    @public_errors()
    def savepoint(self, path: str | os.PathLike[str]) -> int:
        """Copy the next snapshot to a new directory; return its epoch.

        The copy depends on nothing else: `Flow.run` can begin with it
        (``resume_from=path``), also with another number of workers.  The job goes on; to
        go on elsewhere, `stop` it with a savepoint, so that nothing is written twice.
        """
        self._check_keeping("a savepoint")
        wish = Wish(path, self._sinks.context.given_key)
        self._run.coordinator.savepoint(wish.savepoint())
        while not wish.wait(_SAVEPOINT_LOOK_S):
            if self._is_done.is_set():
                msg = f"the job ended before its state was copied to {shown(str(path))}"
                raise SnapshotError(msg)
        return wish.epoch

    @public_errors()
    def stop(
        self, savepoint: str | os.PathLike[str] | None = None, *, drain: bool = False
    ) -> int:
        """End the job behind one more snapshot, and return its epoch.

        Nothing is read, made or committed after that snapshot, so the flow can go on
        from it, here or elsewhere, and no row is written twice or lost.  `wait` then
        returns as after a success, and `status` is ``"stopped"``.

        Parameters
        ----------
        savepoint
            A new directory to copy the snapshot to, for ``resume_from=``.  If it cannot
            be written, the job goes on.
        drain
            Let the job read its input to the end, and flush for the last time, before it
            ends; for input that has an end.

        Examples
        --------
        >>> import tempfile
        >>> import millstream as ms
        >>> flow = ms.Flow("stop")
        >>> rows = flow.from_iterable(range(3)).collect()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     job = flow.start(on="local", state=f"{directory}/state")
        ...     epoch = job.stop(f"{directory}/savepoint", drain=True)
        ...     again = flow.run(on="local", resume_from=f"{directory}/savepoint")
        >>> again.status(), rows.result()
        ('complete', [0, 1, 2])
        """
        wish = self._ask_to_stop(savepoint, drain=drain)
        while not wish.wait(_SAVEPOINT_LOOK_S):
            if self._is_done.is_set():
                return self._copied_late(wish)
        self._is_done.wait()
        self._raise_error()
        return wish.epoch

    def _ask_to_stop(
        self, savepoint: str | os.PathLike[str] | None, *, drain: bool
    ) -> Wish:
        self._check_keeping("a stop")
        given = self._sinks.context.given_key
        wish = Wish(savepoint, given, does_stop=True, does_drain=drain)
        self._run.coordinator.savepoint(wish.savepoint())
        return wish

    def _copied_late(self, wish: Wish) -> int:
        """Copy the last snapshot of a job that had ended before it could be stopped."""
        self._raise_error()
        store = self._sinks.context.store
        manifest = self._run.coordinator.snapshots.manifests.manifest
        assert store is not None, "the job has a state directory"
        assert manifest is not None, "it ended with an epoch"
        wish.copy_now(store, manifest)
        return wish.epoch

    def _check_keeping(self, what: str) -> None:
        if not self._sinks.context.claim:
            msg = (
                f"{what} needs snapshots, and this job takes none; start it with "
                "state='a/directory'"
            )
            raise UsageError(msg)

    @property
    def epoch(self) -> int:
        """The last complete snapshot; 0 before the first."""
        return self._run.coordinator.snapshots.complete_epoch

    def snapshots(self) -> list[Snapshot]:
        """Return the last complete snapshots of this run and what each cost.

        Examples
        --------
        >>> import tempfile
        >>> import millstream as ms
        >>> flow = ms.Flow("cost")
        >>> rows = flow.from_iterable(range(3)).collect()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     job = flow.run(on="local", state=directory)
        >>> [snapshot.epoch for snapshot in job.snapshots()]
        [1]
        """
        return list(self._run.coordinator.snapshots.taken)

    @property
    def migrations(self) -> list[str]:
        """What has changed since the snapshot that the job went on from.

        A sentence each: state that was carried over to another version of its operator,
        and files that have come since and are not read.
        """
        return list(self._migrations)

    def recoveries(self) -> list[Recovery]:
        """Return how the job went back to a snapshot, oldest first."""
        return list(self._run.coordinator.recoveries)

    def story(self) -> list[str]:
        """Return what the job has decided, one line each, oldest first.

        Workers that came and were lost, generations, epochs opened, complete and
        abandoned, commits, savepoints: each with its reason and the seconds since the
        start.  The last `story_entries_max` are kept, and as many warnings; a failed
        job's error carries the same lines as `story`.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("told")
        >>> flow.from_iterable(range(3)).for_each(id)
        >>> [line.partition(" s  ")[2] for line in flow.run(on="local").story()][-1]
        'the job succeeded'
        """
        return list(self._run.coordinator.story.lines())

    def status(self) -> str:
        """Return one word for where the job stands.

        ``starting``, ``running``, ``recovering``, ``committing`` or ``stopping``, and in
        the end ``succeeded``, ``stopped``, ``failed`` or ``cancelled``; ``complete`` if
        nothing was left to do when it was started.
        """
        outcome = self._run.coordinator.outcome
        if self.was_complete:
            return "complete"
        if self._is_done.is_set():
            return _OUTCOME[outcome.kind] if outcome is not None else "failed"
        return _STATUS.get(self._run.coordinator.phase, "stopping")

    def metrics(self) -> list[StageMetrics]:
        """Return what every stage has done so far.

        Counters never fall: they count the work of this run of the job, with that of lost
        workers, and rows that were processed again after a recovery count again.  Where a
        job stands is in `rounds`, and in the `watermark` of `time`; how each task does is
        in `tasks`.
        """
        coordinator = self._run.coordinator
        tasks = coordinator.tally.tasks(coordinator.members)
        rounds = coordinator.tally.rounds
        return [
            stage_metrics(
                stage,
                [task for own, task in sorted(tasks.items()) if own[0] == stage.id],
                task_count=min(stage.width or self._workers, self._workers),
                rounds=rounds.get(stage.id),
            )
            for stage in self._stages.stages
        ]

    def worker_metrics(self) -> list[WorkerMetrics]:
        """Return how the workers stand that are there, or were at the end.

        Task *i* of every stage is on the worker that has *i* among its `tasks`.
        """
        coordinator = self._run.coordinator
        placement = list(enumerate(coordinator.placement))
        return [
            WorkerMetrics(
                pid=coordinator.pids[worker],
                tasks=tuple(index for index, host in placement if host == worker),
                resident_bytes=coordinator.tally.resident_bytes(worker),
            )
            for worker in coordinator.members
        ]

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers that are there, or were at the end."""
        coordinator = self._run.coordinator
        return [coordinator.pids[worker] for worker in coordinator.members]

    def __repr__(self) -> str:
        return f"<Job {self.id!r}: {self.status()}>"

    def _drive(self) -> None:
        """Step the run until the job is over; the body of the job's thread."""
        progress = ProgressLog(self, self._progress_log_ms)
        try:
            while not self._run.coordinator.is_over:
                self._run.step()
                progress.look()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._crash = error
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._run.close()
            if not self._is_success:
                self._sinks.abort()
            inputs = Inputs.of(self._stages, self._sinks.context)
            inputs.let_go(is_over=self._is_success)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._crash = self._crash or error
        finally:
            self._desk.close(self._run.coordinator.outcome, self.epoch)
            self._sinks.context.held.close()
            self._is_done.set()

    @property
    def _is_success(self) -> bool:
        outcome = self._run.coordinator.outcome
        return outcome is not None and outcome.kind is OutcomeKind.SUCCEEDED

    @public_errors()
    def _raise_error(self) -> None:
        if self._crash is not None:
            if isinstance(self._crash, MillstreamError):
                self._run.coordinator.with_story(self._crash)
            raise self._crash
        error = self._run.coordinator.error()
        if error is not None:
            raise error


@contextmanager
def _usable(options: LaunchOptions) -> Iterator[None]:
    """Say in one sentence why a state directory cannot be opened."""
    try:
        yield
    except OSError as error:
        place = str(options.state or options.resume_from)
        cause = without_credentials(str(error), place)
        msg = (
            f"the state directory {shown(place)} cannot be used ({cause}); name one that "
            "the driver and all workers can read and write"
        )
        raise UsageError(msg) from harmless(error, place)


def _spare_slots(plan: LogicalPlan) -> int:
    reads = (node.spec for node in plan.nodes if isinstance(node.spec, Read))
    return sum(spec.source.spare_slots for spec in reads)


def deploy(
    plan: LogicalPlan,
    config: Config,
    workers: int,
    context: SnapshotContext,
    options: LaunchOptions | None = None,
) -> Deployment:
    """Plan the stages and cut the sources into splits, or as they were cut before."""
    stages = plan_stages(plan, config)
    migrations: list[str] = []
    before = context.splits()
    if context.manifest is not None:
        is_dropping = options is not None and options.drop_state
        migrations = check_fit(
            context.manifest, stages, config, is_dropping=is_dropping
        )
        check_ended(context.manifest, stages, before, is_dropping=is_dropping)
        if context.claim and not is_dropping:
            check_outputs(context.manifest, stages)
        migrations += changed_input(stages, before)
        for sentence in migrations:
            _log.warning("%s", sentence)
    # All workers may dial the coordinator at once, and the oldest stranger gives way.
    config = replace(config, half_open_max=max(config.half_open_max, 2 * workers))
    splits: dict[int, tuple[Split, ...]] = {}
    inputs = Inputs.of(stages, context)
    inputs.keep()
    try:
        for stage in stages.stages:
            first = stage.nodes[0]
            if isinstance(first.spec, Read):
                parts = _parts(stages, stage, first.spec.source, workers)
                own = before.get(first.name)
                splits[first.id] = cut_source(first, parts) if own is None else own
    except BaseException:
        inputs.let_go(is_over=False)
        raise
    return Deployment(
        context.job,
        stages,
        workers,
        splits,
        config,
        run=context.run,
        plan_hash=plan_hash(stages),
        state=context.settings,
        state_directory=context.directory,
        state_key=context.key,
        sources=asked_of_sources(stages),
        fingerprints=stored_fingerprints(stages),
        migrations=tuple(migrations),
    )


def _parts(stages: StagePlan, stage: Stage, source: Source[Row], workers: int) -> int:
    """Return for how many tasks a source is cut into splits.

    Where rows are given time, who is late follows from the order of rows in a split; that
    must not depend on the number of workers.
    """
    givers = (AssignTime, AssignFrameTime)
    is_timed = any(isinstance(node.spec, givers) for node in stage.nodes)
    is_timed |= any(edge.carries_splits for edge in stages.outputs(stage))
    if is_timed and source.timed_parts is not None:
        return source.timed_parts
    return min(stage.width or workers, workers)


def _launcher(options: LaunchOptions) -> Launcher:
    """Return the launcher's module; Spark is imported only where it is used."""
    if options.on == "local":
        return local
    if options.on == "processes":
        from millstream.launch import processes  # noqa: PLC0415 - not always needed

        return processes
    try:
        from millstream.launch import spark  # noqa: PLC0415 - seconds of imports
    except ImportError as error:
        msg = f"pyspark cannot be imported ({error}); install it, or run on='local'"
        raise LaunchError(msg) from error
    return spark
