"""The driver's hands in matters of snapshots: manifests, commits, savepoints, garbage.

`protocol.snapshots` decides; this module carries out what needs files or sinks, in the
background, and says which messages workers must get.  It knows nothing of workers'
lives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from millstream.credentials import without_credentials
from millstream.errors import MillstreamError, SnapshotError
from millstream.plan.nodes import Read
from millstream.protocol import snapshot_events as events
from millstream.protocol.ids import Epoch
from millstream.protocol.snapshots import Phase, SnapshotCore
from millstream.protocol.story import Severity, Story
from millstream.runtime.event_queue import EventQueue
from millstream.runtime.forgetting import collect_garbage
from millstream.runtime.manifests import (
    ManifestBuilder,
    check_readable,
    transactions_of,
)
from millstream.runtime.restoring import is_same_plan
from millstream.runtime.results import Results, packed_parts
from millstream.runtime.snapshot_stats import REMEMBERED_MAX, snapshot_of
from millstream.runtime.stopping import Stops
from millstream.runtime.takeover import fall_back
from millstream.state.layout import file_name
from millstream.state.manifest import FileRef, Manifest
from millstream.state.plain import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from millstream.ports import Background, Done
    from millstream.protocol.messages import Compacted, SnapshotId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.forgetting import Offsets
    from millstream.runtime.observer import DriverObserver
    from millstream.runtime.results import ResultPart
    from millstream.runtime.snapshot_stats import Snapshot
    from millstream.state.manifest import Transaction
    from millstream.state.store import SnapshotStore

__all__ = ["DriverContext", "MergeFiles", "Output", "Savepoint", "SnapshotCoordinator"]


class _Piece(Enum):
    """What is done in the background."""

    OWN_FILES = auto()
    MANIFEST = auto()
    COMMIT = auto()
    SAVEPOINT = auto()
    STOP = auto()
    FALL_BACK = auto()
    GARBAGE = auto()


@dataclass(frozen=True, slots=True)
class MergeFiles:
    """Let the tasks of these stages merge the files that the snapshot lists."""

    snapshot: SnapshotId
    stages: tuple[int, ...]


class Output(Protocol):
    """All sinks of a job, as the driver reaches them."""

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Make what was sealed up to an epoch visible; safe to repeat."""
        ...


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What stands behind a job in the driver.

    Attributes
    ----------
    store, claim
        Where snapshots are, and our right to write them; no claim, no writing.
    manifest
        The snapshot that the job begins with, if any.
    results
        Rows that came to the driver before that.
    is_writing
        Whether the flow has output that is committed with each epoch.
    is_complete
        Whether nothing was left to do in that snapshot.
    forget
        Lets sources remove what no snapshot that is kept needs, if one of them can.
    """

    output: Output
    store: SnapshotStore | None = None
    claim: int = 0
    manifest: Manifest | None = None
    results: Results = field(default_factory=Results)
    is_writing: bool = True
    is_complete: bool = False
    forget: Callable[[Offsets], None] | None = None

    @property
    def is_keeping(self) -> bool:
        """Whether the job takes snapshots."""
        return self.claim > 0


class SnapshotCoordinator:
    """Carries out what the snapshot core decides.

    Parameters
    ----------
    tell
        Called with every command that is not this class's own business.
    story
        Where decisions are told.
    wall_ms
        Returns the time of day, for diagnostics only.
    """

    def __init__(
        self,
        deployment: Deployment,
        driver: DriverContext,
        background: Background,
        tell: Callable[[events.Command | MergeFiles], None],
        *,
        story: Story | None = None,
        wall_ms: Callable[[], int] = int,
        observer: DriverObserver | None = None,
    ) -> None:
        manifest = driver.manifest
        splits = None
        if (
            manifest is not None
            and manifest.sources.keys() == deployment.sources.keys()
        ):
            # Of a source that was added, it is not known there how it is cut.
            splits = manifest.splits
        self.manifests = ManifestBuilder(deployment, driver.claim, manifest, splits)
        #: The last complete snapshots of this run, oldest first.
        self.taken: deque[Snapshot] = deque(maxlen=REMEMBERED_MAX)
        self._store = driver.store if driver.is_keeping else None
        self._background = background
        self._output = driver.output
        self._is_writing = driver.is_writing
        self._results = driver.results
        self._forget = driver.forget
        self._tell = tell
        self._story = story or Story()
        self._wall_ms = wall_ms
        self._observer = observer
        #: The generation whose tasks take part.
        self.generation = 0
        self._opened_epoch = self._opened_ns = self._now_ns = 0
        self._savepoints: list[Savepoint] = []
        self._stops = Stops()
        self._storing: events.Store | None = None
        self._writing: Manifest | None = None
        self._task_count = 0
        self._pending = 0
        self._is_halted = False
        self._events: EventQueue[events.Event] = EventQueue(self._decide)
        config, epoch = deployment.config, 0 if manifest is None else manifest.epoch
        interval_ns = config.snapshot_every_ms * 1_000_000
        self._core = SnapshotCore(
            epoch=Epoch(epoch),
            last_used=epoch,
            interval_ns=interval_ns if driver.is_keeping else None,
            timeout_ns=config.snapshot_timeout_ms * 1_000_000,
            retry_ns=config.snapshot_retry_ms * 1_000_000,
            is_synchronous=config.snapshot_mode == "synchronous",
            is_rebasing=manifest is not None and not is_same_plan(manifest, deployment),
            story=self._story,
        )

    @property
    def is_running(self) -> bool:
        """Whether there is a generation whose tasks run; after a pause there is none."""
        resting = {Phase.RESTING, Phase.PAUSED, Phase.SEARCHING, Phase.CONCLUDED}
        return self._core.phase not in resting

    @property
    def is_pause_wanted(self) -> bool:
        """Whether somebody waits for all tasks to pause behind an epoch."""
        return self._core.is_pause_wanted

    @property
    def complete_epoch(self) -> int:
        """The last complete epoch."""
        return self._core.complete_epoch

    @property
    def epochs(self) -> range:
        """What tasks of this generation can have cut last: its beginning, or later."""
        return self._core.epochs

    @property
    def ended_tasks(self) -> Collection[tuple[int, int]]:
        """Stage and index of the tasks that have ended in this generation."""
        return self._core.ended_tasks

    @property
    def is_concluding(self) -> bool:
        """Whether the output of the whole job is being made visible."""
        is_last = self._storing is not None and self._is_last(self._storing)
        return is_last and self._core.phase in {
            Phase.STORING,
            Phase.COMMITTING,
            Phase.CONCLUDED,
        }

    @property
    def is_busy(self) -> bool:
        """Whether anything is being done in the background."""
        return self._pending > 0

    def halt(self) -> None:
        """Begin nothing more: the job has failed or was cancelled."""
        self._is_halted = True

    def handle(self, event: events.Event) -> None:
        """Take an event and carry out what follows from it, or do so behind others."""
        self._events.put(event)

    def _decide(self, event: events.Event) -> None:
        if self._is_halted:
            return
        match event:
            case events.TimePassed(now_ns):
                self._now_ns = now_ns
            case events.Started(generation, tasks):
                self.generation = generation
                self._task_count = len(tasks)
                # Whoever was told to merge is gone, or has forgotten it.
                self.manifests.compactions.clear()
            case events.Interrupted():
                self.manifests.compactions.clear()
        commands = self._core.handle(event)
        if self._observer is not None:
            self._observer.decided(self._core, event)
        for command in commands:
            self._carry_out(command)

    def poll(self) -> None:
        """Take up what has ended in the background."""
        for done in self._background.poll():
            self._pending -= 1
            self._handle_done(done)

    def savepoint(self, savepoint: Savepoint) -> None:
        """Copy the next epoch that is opened from now on, and stop if that is asked."""
        if savepoint.does_stop:
            self._stop(savepoint)
            return
        after = max(self.complete_epoch, self._opened_epoch)
        self._savepoints.append(replace(savepoint, after=after))
        self.handle(events.SnapshotRequested())

    def _stop(self, savepoint: Savepoint) -> None:
        if self._is_halted:
            return
        self._stops.wanted.append(savepoint)
        if self._stops.is_ending:
            self._copy_last()
        elif not savepoint.does_drain:
            self.handle(events.StopRequested())

    def compacted(self, report: Compacted) -> None:
        """Take up that a task has merged its files."""
        if report.generation == self.generation:
            self.manifests.compactions.add(report)

    def close(self) -> None:
        """Carry out nothing more."""
        self._background.close()

    def _carry_out(self, command: events.Command) -> None:
        match command:
            case events.Store():
                self._store_epoch(command)
            case events.Commit(epoch):
                self._commit(epoch)
            case events.FallBack():
                self._fall_back()
            case events.Stopped() | events.Concluded():
                self._stops.end_with(command)
                self._copy_last()
            case events.Inject(barrier):
                self._opened_epoch, self._opened_ns = barrier.epoch, self._now_ns
                self._tell(command)
            case _:
                self._tell(command)

    # Storing

    def _store_epoch(self, command: events.Store) -> None:
        self._storing = command
        if self._store is None:
            self.handle(events.Stored(command.epoch))
            return
        since = 0 if self.manifests.manifest is None else self.manifests.manifest.epoch
        parts = self._results.between(since, command.epoch)
        work = partial(self._write_own_files, command, self.generation, parts)
        self._submit(_Piece.OWN_FILES, command.epoch, work)

    def _write_own_files(
        self, store: events.Store, generation: int, parts: list[ResultPart]
    ) -> tuple[FileRef, FileRef | None]:
        """Write how the sources were cut, once, and the rows that came to the driver."""
        check_readable(transactions_of(store))
        epoch = store.epoch
        splits = self.manifests.splits or self._write_splits(epoch, generation)
        if not parts:
            return splits, None
        name = self._name(epoch, f"results-{generation}.state")
        return splits, self._write_file(name, packed_parts(parts), epoch)

    def _write_splits(self, epoch: int, generation: int) -> FileRef:
        deployment = self.manifests.deployment
        names = {
            stage.nodes[0].id: stage.nodes[0].name
            for stage in deployment.stages.stages
            if isinstance(stage.nodes[0].spec, Read)
        }
        splits = {names[id]: tuple(own) for id, own in deployment.splits.items()}  # noqa: A001
        # Every try has a name of its own: one that failed has spent its name.
        name = self._name(0, f"splits-{generation}-{epoch}.state")
        return self._write_file(name, encode(splits), 0)

    def _write_file(self, name: str, data: bytes, epoch: int) -> FileRef:
        assert self._store is not None
        length, digest = self._store.write_file(name, [data])
        return FileRef(name, length, digest, (), True, epoch, 0, 0, 0)  # noqa: FBT003

    def _name(self, epoch: int, rest: str) -> str:
        return file_name(epoch, self.manifests.deployment.run, rest)

    def _store_manifest(self, splits: FileRef, rows: FileRef | None) -> None:
        assert self._store is not None
        assert self._storing is not None
        self.manifests.splits = splits
        duration_ms = self._duration_ns(self._storing) // 1_000_000
        manifest = self.manifests.next_manifest(
            self._storing, self.generation, rows, duration_ms, _date(self._wall_ms())
        )
        self._writing = manifest
        work = partial(self._store.write_manifest, manifest)
        self._submit(_Piece.MANIFEST, manifest.epoch, work)

    def _duration_ns(self, store: events.Store) -> int:
        is_opened = store.epoch == self._opened_epoch
        return self._now_ns - self._opened_ns if is_opened else 0

    # Committing

    def _commit(self, epoch: Epoch) -> None:
        assert self._storing is not None
        assert self._storing.epoch == epoch
        work = partial(
            self._output.commit,
            epoch,
            transactions_of(self._storing),
            is_last=self._is_last(self._storing),
        )
        self._submit(_Piece.COMMIT, epoch, work)

    def _is_last(self, store: events.Store) -> bool:
        return len(store.ended_tasks) == self._task_count

    def _submit(self, piece: _Piece, detail: Any, work: Callable[[], object]) -> None:
        self._pending += 1
        self._background.submit((piece, detail), work)

    def _handle_done(self, done: Done) -> None:
        piece, detail = done.tag
        if piece is _Piece.SAVEPOINT:
            self._tell_savepoint(detail, done.error)
            detail.finish(done.error)
        elif piece is _Piece.STOP:
            self._tell_savepoint(detail, done.error)
            detail.finish(done.error)
            self._stops.copied(is_there=done.error is None)
            self._end_if_copied()
        elif done.error is not None:
            self._handle_error(piece, detail, done.error)
        elif self._is_halted:
            return
        elif piece is _Piece.OWN_FILES:
            self._store_manifest(*done.result)
        elif piece is _Piece.MANIFEST:
            self._handle_manifest(detail)
        elif piece is _Piece.COMMIT:
            self._handle_committed(detail)
        elif piece is _Piece.FALL_BACK:
            self._handle_fallen_back(*done.result)

    def _handle_manifest(self, epoch: int) -> None:
        assert self._storing is not None
        self.manifests.manifest = self._writing
        self.manifests.compactions.settle()
        self.taken.append(snapshot_of(self._storing, self._duration_ns(self._storing)))
        self.handle(events.Stored(epoch))

    def _handle_error(self, piece: _Piece, epoch: int, error: BaseException) -> None:
        """Give the epoch up where that mends it, and the job where nothing does."""
        if piece is _Piece.COMMIT:
            reason = f"the output could not be committed: {_sentence(error)}"
            self.handle(events.CommitFailed(epoch, reason))
        elif isinstance(error, SnapshotError):
            self._tell(events.GiveUp(_sentence(error), SnapshotError.__name__))
        elif piece is _Piece.FALL_BACK:
            reason = (
                "the last snapshot is damaged, and no older one could be taken up "
                f"({_sentence(error)}); mend that and start the job again"
            )
            self._tell(events.GiveUp(reason, SnapshotError.__name__))
        elif piece is _Piece.GARBAGE:
            self._note(f"old files are not removed: {_sentence(error)}", is_grave=True)
        else:
            reason = f"its manifest could not be written: {_sentence(error)}"
            self.handle(events.StoreFailed(epoch, reason))

    def _handle_committed(self, epoch: int) -> None:
        self.handle(events.Committed(epoch))
        manifest = self.manifests.manifest
        if self._store is None or manifest is None or self._is_halted:
            return
        self._copy_savepoints(epoch)
        if self.is_running:
            self._compact(manifest)
        retain = self.manifests.deployment.config.snapshots_retained
        oldest = Epoch(self.manifests.compactions.oldest_epoch(epoch))
        forget = self._forget
        work = partial(collect_garbage, self._store, forget, retain, oldest_open=oldest)
        self._submit(_Piece.GARBAGE, epoch, work)

    def _compact(self, manifest: Manifest) -> None:
        """Let tasks merge their files; only those who run can tell when it is done."""
        stages = self.manifests.compactions.begin(manifest.files, manifest.epoch)
        if stages:
            self._tell(MergeFiles(self.manifests.snapshot, stages))

    def _copy_savepoints(self, epoch: int) -> None:
        due = [s for s in self._savepoints if s.after < epoch]
        self._savepoints = [s for s in self._savepoints if s not in due]
        manifest = self.manifests.manifest
        assert manifest is not None
        assert self._store is not None
        for savepoint in due:
            work = partial(savepoint.copy, self._store, manifest)
            self._submit(_Piece.SAVEPOINT, savepoint, work)

    def _copy_last(self) -> None:
        """Copy the epoch behind which the job ends to wherever it is wanted."""
        store, manifest = self._store, self.manifests.manifest
        for savepoint in self._stops.due():
            assert store is not None, "a job without snapshots is not asked to stop"
            assert manifest is not None, "an epoch is complete"
            work = partial(savepoint.copy, store, manifest)
            self._submit(_Piece.STOP, savepoint, work)
        self._end_if_copied()

    def _end_if_copied(self) -> None:
        answer = self._stops.answer()
        if isinstance(answer, events.StopFailed):
            self.handle(answer)
        elif answer is not None and not self._is_halted:
            self._tell(answer)

    def _tell_savepoint(
        self, savepoint: Savepoint, error: BaseException | None
    ) -> None:
        if error is None:
            if savepoint.path:
                self._note(f"a savepoint is at {savepoint.path}")
        else:
            text = f"no savepoint at {savepoint.path}: {_sentence(error)}"
            self._note(text, is_grave=True)

    def _note(self, text: str, *, is_grave: bool = False) -> None:
        severity = Severity.WARNING if is_grave else Severity.INFO
        self._story.add(self._now_ns, "snapshots", text, severity)

    # Going back behind damage

    def _fall_back(self) -> None:
        assert self._store is not None
        deployment = self.manifests.deployment
        work = partial(fall_back, self._store, deployment, is_writing=self._is_writing)
        self._submit(_Piece.FALL_BACK, 0, work)

    def _handle_fallen_back(self, claim: int, manifest: Manifest) -> None:
        manifests = self.manifests
        manifests.claim, manifests.manifest, manifests.splits = (
            claim,
            manifest,
            manifest.splits,
        )
        self.handle(events.FellBack(manifest.epoch))


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A wish for a copy of the next epoch.

    Attributes
    ----------
    copy
        Copies a stored epoch to where it is wanted.
    finish
        Called with the error, or None, when the copy is there or never will be.
    path
        Where the copy is wanted, for messages; empty if it is wanted nowhere.
    does_stop, does_drain
        Whether the job is to end with it: with the next epoch, or with its input.
    """

    copy: Callable[[SnapshotStore, Manifest], object]
    finish: Callable[[BaseException | None], None]
    path: str = ""
    after: int = 0
    does_stop: bool = False
    does_drain: bool = False


def _date(wall_ms: int) -> str:
    """Return a time of day as people write it, the same on every machine."""
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _sentence(error: BaseException | None) -> str:
    is_ours = isinstance(error, MillstreamError)
    return without_credentials(
        str(error) if is_ours else f"{type(error).__name__}: {error}"
    )
