"""A running flow as its user holds it."""

from __future__ import annotations

import os
import pickle
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from millstream.errors import LaunchError, SnapshotError, UsageError
from millstream.launch import local
from millstream.launch.keeping import check_fit, open_keeping, plan_hash
from millstream.plan.frame_windows import AssignFrameTime
from millstream.plan.nodes import Read, Write
from millstream.plan.stages import plan_stages
from millstream.plan.time import AssignTime
from millstream.protocol.job import Phase
from millstream.protocol.job_events import OutcomeKind
from millstream.protocol.watermark import BEGINNING
from millstream.runtime.deployment import Deployment
from millstream.runtime.snapshots import Backing, Savepoint
from millstream.state.files import files_at
from millstream.state.savepoint import copy_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.config import Config
    from millstream.connectors.base import Sink, Source, Split
    from millstream.launch.keeping import Keeping
    from millstream.launch.options import LaunchOptions
    from millstream.launch.run import Run
    from millstream.plan.nodes import LogicalPlan
    from millstream.plan.stages import Stage, StagePlan
    from millstream.protocol.messages import TimeProgress
    from millstream.runtime.coordinator import Recovery
    from millstream.runtime.taken import Snapshot
    from millstream.state.manifest import Manifest, Transaction
    from millstream.state.store import SnapshotStore

__all__ = ["Job", "RoundMetrics", "StageMetrics", "TimeMetrics", "deploy"]

_SAVEPOINT_LOOK_S = 0.05
_STATUS = {
    Phase.SETTLING: "recovering",
    Phase.GATHERING: "starting",
    Phase.CONNECTING: "starting",
    Phase.RUNNING: "running",
    Phase.COMMITTING: "committing",
    Phase.STOPPING: "stopping",
}
_OUTCOME = {
    OutcomeKind.SUCCEEDED: "succeeded",
    OutcomeKind.FAILED: "failed",
    OutcomeKind.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """How far an iteration has come.

    Attributes
    ----------
    round
        The round under way; 0 before the first and after the last.
    done
        Rounds done so far, in all runs of an iteration inside another.
    history
        What was decided by after the last rounds, oldest first: numbers, or the name of
        the type of what is no number.
    """

    round: int
    done: int
    history: tuple[float | str, ...]


@dataclass(frozen=True, slots=True)
class TimeMetrics:
    """How event time stands in one stage.

    Attributes
    ----------
    watermark
        Nothing of this time or earlier is expected by any task; None before the first.
    late_rows
        How many rows came too late for their window, or for their partners.
    ahead_rows
        How many timestamps were too far ahead of the clock to move time.
    """

    watermark: int | None
    late_rows: int
    ahead_rows: int


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """What the tasks of one stage have done so far, added up over workers.

    `rounds` is there for stages that decide over an iteration, `time` for those with
    event time.
    """

    stage: int
    name: str
    is_source: bool
    task_count: int
    rows_in: int
    rows_out: int
    busy_s: float
    blocked_s: float
    rounds: RoundMetrics | None = None
    time: TimeMetrics | None = None


class Job:
    """A flow that was started; ends by itself when its input does.

    Made by `Flow.start` and `Flow.run`.
    """

    def __init__(self, deployment: Deployment, run: Run, sinks: _Sinks) -> None:
        self.id = deployment.job
        self.name = deployment.stages.name
        self._stages = deployment.stages
        self._workers = deployment.worker_count
        self._run = run
        self._sinks = sinks
        self._is_done = threading.Event()
        self._crash: BaseException | None = None
        self._thread = threading.Thread(
            target=self._drive, name=f"millstream-{self.name}", daemon=True
        )

    @classmethod
    def start(cls, plan: LogicalPlan, config: Config, options: LaunchOptions) -> Job:
        """Start the workers of a checked plan."""
        launcher = _launcher(options)
        options = replace(options, spare_slots=_spare_slots(plan))
        workers = launcher.worker_count(options)
        is_writing = any(isinstance(node.spec, Write) for node in plan.nodes)
        with _usable(options):
            keeping = open_keeping(
                _safe(plan.name), config, options, is_writing=is_writing
            )
        with ExitStack() as undo:
            undo.callback(keeping.held.close)
            deployment = deploy(plan, config, workers, keeping, options)
            undo.callback(release_sources, deployment.stages)
            sinks = _Sinks(keeping, _named_sinks(deployment.stages))
            undo.callback(sinks.abort)
            sinks.prepare()
            backing = Backing(
                sinks,
                keeping.store,
                keeping.claim,
                keeping.manifest,
                keeping.results(),
                is_writing,
            )
            run = launcher.start(deployment, backing, options)
            undo.pop_all()
        job = cls(deployment, run, sinks)
        job._thread.start()
        return job

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if `timeout_s` passed first.

        An interrupt (Ctrl-C) while waiting cancels the job.

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

    def savepoint(self, path: str | os.PathLike[str]) -> int:
        """Copy the next snapshot to a new directory; return its epoch.

        The copy depends on nothing else: `Flow.run` can begin with it
        (``resume_from=path``), also with another number of workers.
        """
        target, is_there = files_at(os.fspath(path)), threading.Event()
        outcome: list[BaseException | None] = []
        epochs: list[int] = []

        def copy(store: SnapshotStore, manifest: Manifest) -> None:
            copy_snapshot(store, manifest, target)
            epochs.append(manifest.epoch)

        def finish(error: BaseException | None) -> None:
            outcome.append(error)
            is_there.set()

        self._check_keeping()
        self._run.coordinator.savepoint(Savepoint(copy, finish))
        while not is_there.wait(_SAVEPOINT_LOOK_S):
            if self._is_done.is_set():
                msg = f"the job ended before its state was copied to {path}"
                raise SnapshotError(msg)
        if outcome[0] is not None:
            raise outcome[0]
        return epochs[0]

    def _check_keeping(self) -> None:
        if not self._sinks.keeping.claim:
            msg = (
                "a savepoint copies a snapshot, and this job takes none; start it with "
                "state='a/directory'"
            )
            raise UsageError(msg)

    @property
    def epoch(self) -> int:
        """The last complete snapshot; 0 before the first."""
        return self._run.coordinator.keeper.complete_epoch

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
        return list(self._run.coordinator.keeper.taken)

    def recoveries(self) -> list[Recovery]:
        """Return how the job went back to a snapshot, oldest first."""
        return list(self._run.coordinator.recoveries)

    def status(self) -> str:
        """Return one word for where the job stands."""
        outcome = self._run.coordinator.outcome
        if self._is_done.is_set():
            return _OUTCOME[outcome.kind] if outcome is not None else "failed"
        return _STATUS.get(self._run.coordinator.phase, "stopping")

    def metrics(self) -> list[StageMetrics]:
        """Return what every stage has done so far."""
        rounds = {
            stage: RoundMetrics(number, done, history)
            for stage, number, done, history in [*self._run.coordinator.rounds.values()]
        }
        told = dict(self._run.coordinator.times)
        members = self._run.coordinator.members
        times = _time_metrics([told[w] for w in members if w in told])
        totals = {stage.id: [0, 0, 0, 0] for stage in self._stages.stages}
        for stages in list(self._run.coordinator.progress.values()):
            for stage_id, *values in stages:
                for position, value in enumerate(values):
                    totals[stage_id][position] += value
        return [
            StageMetrics(
                stage=stage.id,
                name=stage.name,
                is_source=stage.is_source,
                task_count=min(stage.width or self._workers, self._workers),
                rows_in=rows_in,
                rows_out=rows_out,
                busy_s=busy_ns / 1e9,
                blocked_s=blocked_ns / 1e9,
                rounds=rounds.get(stage.id),
                time=times.get(stage.id),
            )
            for stage, (rows_in, rows_out, busy_ns, blocked_ns) in zip(
                self._stages.stages, totals.values(), strict=True
            )
        ]

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers that are there, or were at the end."""
        coordinator = self._run.coordinator
        return [coordinator.pids[worker] for worker in coordinator.members]

    def __repr__(self) -> str:
        return f"<Job {self.id!r}: {self.status()}>"

    def _drive(self) -> None:
        """Step the run until the job is over; the body of the job's thread."""
        try:
            while not self._run.coordinator.is_over:
                self._run.step()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._crash = error
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._run.close()
            if not self._is_success:
                self._sinks.abort()
            release_sources(self._stages)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._crash = self._crash or error
        finally:
            self._sinks.keeping.held.close()
            self._is_done.set()

    @property
    def _is_success(self) -> bool:
        outcome = self._run.coordinator.outcome
        return outcome is not None and outcome.kind is OutcomeKind.SUCCEEDED

    def _raise_error(self) -> None:
        if self._crash is not None:
            raise self._crash
        error = self._run.coordinator.error()
        if error is not None:
            raise error


@dataclass(frozen=True, slots=True)
class _Sinks:
    """The driver's side of all connectors that a job writes to, by operator name."""

    keeping: Keeping
    sinks: dict[str, Sink[Any]]

    def prepare(self) -> None:
        """Make the destinations; what an earlier run had sealed is committed first."""
        manifest = self.keeping.manifest
        for sink in self.sinks.values():
            sink.prepare(self.keeping.job, is_resumed=manifest is not None)
        if manifest is not None and self.keeping.claim:
            self.commit(manifest.epoch, manifest.transactions, is_last=False)

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        for name, sink in self.sinks.items():
            own = [pickle.loads(t) for n, _, t in transactions if n == name]  # noqa: S301
            sink.commit(self.keeping.job, epoch, own)
            if is_last:
                sink.complete(self.keeping.job)

    def abort(self) -> None:
        """Remove what was not committed, unless the job can be gone on with."""
        if not self.keeping.claim:
            for sink in self.sinks.values():
                sink.abort(self.keeping.job)


def _named_sinks(stages: StagePlan) -> dict[str, Sink[Any]]:
    nodes = [node for stage in stages.stages for node in stage.nodes]
    return {n.name: n.spec.sink for n in nodes if isinstance(n.spec, Write)}


@contextmanager
def _usable(options: LaunchOptions) -> Iterator[None]:
    """Say in one sentence why a state directory cannot be opened."""
    try:
        yield
    except OSError as error:
        place = options.state or options.resume_from
        msg = (
            f"the state directory {place} cannot be used ({error}); name one that the "
            "driver and all workers can read and write"
        )
        raise UsageError(msg) from error


def release_sources(stages: StagePlan) -> None:
    """Let the sources give back what they made for the job."""
    for stage in stages.stages:
        spec = stage.nodes[0].spec
        if isinstance(spec, Read):
            spec.source.release()


def _spare_slots(plan: LogicalPlan) -> int:
    reads = (node.spec for node in plan.nodes if isinstance(node.spec, Read))
    return sum(spec.source.spare_slots for spec in reads)


def deploy(
    plan: LogicalPlan,
    config: Config,
    workers: int,
    keeping: Keeping,
    options: LaunchOptions | None = None,
) -> Deployment:
    """Plan the stages and cut the sources into splits, or as they were cut before."""
    stages = plan_stages(plan, config)
    is_strict = options is None or not options.drop_state
    if keeping.manifest is not None and is_strict:
        check_fit(keeping.manifest, stages, config)
    # All workers may dial the coordinator at once, and the oldest stranger gives way.
    config = replace(config, half_open_max=max(config.half_open_max, 2 * workers))
    splits: dict[int, tuple[Split, ...]] = {}
    before = keeping.splits()
    try:
        for stage in stages.stages:
            first = stage.nodes[0]
            if isinstance(first.spec, Read):
                parts = _parts(stage, first.spec.source, workers)
                own = before.get(first.name)
                splits[first.id] = own or tuple(first.spec.source.splits(parts))
    except BaseException:
        release_sources(stages)
        raise
    return Deployment(
        keeping.job,
        stages,
        workers,
        splits,
        config,
        run=keeping.run,
        plan_hash=plan_hash(stages),
        state=keeping.settings,
        state_directory=keeping.directory,
        state_key=keeping.key,
    )


def _parts(stage: Stage, source: Source[Any], workers: int) -> int:
    """Return for how many tasks a source is cut into splits.

    Where rows are given time, who is late follows from the order of rows in a split; that
    must not depend on the number of workers.
    """
    givers = (AssignTime, AssignFrameTime)
    is_timed = any(isinstance(node.spec, givers) for node in stage.nodes)
    if is_timed and source.timed_parts is not None:
        return source.timed_parts
    return min(stage.width or workers, workers)


def _time_metrics(
    told: list[tuple[TimeProgress, ...]],
) -> dict[int, TimeMetrics]:
    """Add up what the workers say about the event time of every stage."""
    by_stage: dict[int, list[TimeProgress]] = {}
    for entry in chain.from_iterable(told):
        by_stage.setdefault(entry[0], []).append(entry)
    return {
        stage: TimeMetrics(
            None if (least := min(e[3] for e in entries)) == BEGINNING else least,
            sum(e[1] for e in entries),
            sum(e[2] for e in entries),
        )
        for stage, entries in by_stage.items()
    }


def _launcher(options: LaunchOptions) -> Any:
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


def _safe(name: str) -> str:
    """Return the flow's name with what does not belong in a file name replaced."""
    cleaned = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
    if not cleaned:
        msg = "a flow needs a name; write Flow('my-flow')"
        raise UsageError(msg)
    return cleaned[:64]
