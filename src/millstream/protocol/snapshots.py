"""When epochs open, complete, are given up, and what may happen between them.

This module decides over the snapshots of one job.  It does not know how a barrier
reaches a task, what a task captured, where anything is stored, or what time it is.

Theory of operation
-------------------
::

    RESTING --Started--> WAITING --due--> OPEN --all sealed--> STORING --> COMMITTING
                            ^              |                      |            |
                            |              +---- abandoned -------+            |
                            +------------------- committed --------------------+
                                                   or PAUSED, if it was asked for

    PAUSED --stop failed--> WAITING
    any of them --Interrupted--> RESTING, or SEARCHING --FellBack--> RESTING

One epoch at a time: the next is announced when the sinks have committed the last, so
that only the newest manifest can have transactions that are not committed.  An epoch
that takes too long, that a task could not store, or whose manifest could not be written
is abandoned.  Its barriers still pass, its number is spent, and what its tasks sealed
for sinks goes into the next one; state needs no care, because deltas build on the last
*complete* epoch.  The next one is given twice the time, so that a timeout that is too
short for the job, for a lap of a long loop say, delays snapshots and does not end them.

A task is through with an epoch when it sealed it, or when it ended before it.  `Ended`
names the last epoch that the task cut, because its message may overtake the `Sealed` of
that epoch.  When every task has ended, a last epoch is stored without any barrier.

A job that is to stop is paused behind an epoch, and `Stopped` names it: nothing is committed
after that one.  No other epoch is opened then, not even after a recovery, unless the caller
says that the stop failed.  A stop that is interrupted before its epoch is complete is tried
again after the recovery.

A recovery begins with `Interrupted`.  If a manifest is being written just then, it will
count or not; so the answer, `Settled`, waits for it.  Nothing of an older generation is
heard after that.  If the epoch to go back to turns out to be damaged, the answer is the
newest one that is whole: it is the last complete epoch then, and deltas build on it.

Invariants (see `SnapshotCore.validate`)
----------------------------------------
1. Epochs strictly increase; a complete epoch is taken back only if it is damaged.  Deltas
   build on the last complete epoch, or on none.
2. Only tasks of the present generation are waited for, and nothing is kept of one that is
   over.  A task seals an epoch once.
3. A transaction is handed to exactly one epoch that completes.
4. A barrier goes round exactly while an epoch is OPEN, and exactly one epoch is kept while
   it is STORING or COMMITTING.  Tasks stand still only behind an epoch that is under way or
   PAUSED, and no epoch is open once the job has stopped.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.ids import Epoch
from millstream.protocol.snapshot_events import (
    Announce,
    Command,
    Commit,
    CommitFailed,
    Committed,
    Concluded,
    Event,
    FallBack,
    FellBack,
    GiveUp,
    Inject,
    Interrupted,
    Paused,
    PauseRequested,
    Resume,
    Settled,
    SnapshotRequested,
    Started,
    StopFailed,
    Stopped,
    StopRequested,
    Store,
    Stored,
    StoreFailed,
    TaskEnded,
    TaskId,
    TaskSealed,
    TimePassed,
)
from millstream.protocol.story import Severity, Story

if TYPE_CHECKING:
    from millstream.protocol.messages import Ended, Sealed

__all__ = ["Phase", "SnapshotCore"]


_COMMIT_TRIES_MAX = 5
_PATIENCE_MAX = 64


class Phase(Enum):
    """Where the snapshots of a job stand."""

    RESTING = auto()
    WAITING = auto()
    OPEN = auto()
    STORING = auto()
    COMMITTING = auto()
    PAUSED = auto()
    SEARCHING = auto()
    CONCLUDED = auto()


class SnapshotCore:
    """Decide over the epochs of one job.

    Parameters
    ----------
    epoch
        The complete epoch that the job begins at, 0 for none.
    last_used
        The highest epoch number that anybody has ever used.
    is_rebasing
        Whether the first snapshot must hold everything, not only what changed: the
        one that the job begins with was taken by other tasks.
    interval_ns
        Time between epochs; None for no epochs but the last.
    story
        Where decisions are told.
    """

    def __init__(
        self,
        *,
        epoch: Epoch,
        last_used: int,
        interval_ns: int | None,
        timeout_ns: int,
        retry_ns: int,
        is_synchronous: bool = False,
        is_rebasing: bool = False,
        story: Story | None = None,
    ) -> None:
        self.phase = Phase.RESTING
        self.story = story or Story()
        #: The last complete epoch.
        self.complete_epoch = epoch
        self._base_epoch = Epoch(0) if is_rebasing else epoch
        self._last_used = max(epoch, last_used)
        self._interval_ns = interval_ns
        self._timeout_ns = timeout_ns
        #: By how much the timeout is longer after epochs that took too long.
        self._patience = 1
        self._retry_ns = retry_ns
        self._is_synchronous = is_synchronous
        self._generation = 0
        self._tasks: frozenset[TaskId] = frozenset()
        self._sealed: list[Sealed] = []
        self._ended: dict[TaskId, Ended | None] = {}
        #: The epoch that this generation began with, and the last number spent by then.
        self._began, self._spent = epoch, self._last_used
        #: The last epoch that tasks of this generation have sealed.
        self._newest: dict[TaskId, int] = {}
        #: Tasks that have ended in this generation.
        self.ended_tasks: set[TaskId] = set()
        self._now_ns = 0
        self._opened_ns = self._opened_epoch = 0
        self._due_ns: int | None = None
        #: No epoch is tried before, because the last one failed.
        self._retry_at_ns = 0
        self._deadline_ns = 0
        self._barrier: Barrier | None = None
        self._storing: Store | None = None
        self._commit_tries = 0
        #: How far the splits of sources were read in the last complete epoch.
        self._offsets: dict[tuple[str, str], int] = {}
        #: Whether tasks stand still behind the open or just completed epoch.
        self._is_pausing = False
        self._is_snapshot_wanted = False
        #: Whether the open epoch is one that somebody wants, and would want again.
        self._is_rolling = False
        #: Whether somebody waits for all tasks to pause behind an epoch.
        self.is_pause_wanted = False
        self._is_stop_wanted = False
        #: Whether the job is to end behind the last complete epoch.
        self._is_stopped = False
        self._is_interrupted = False
        assert interval_ns is None or interval_ns > 0, (
            f"an epoch every {interval_ns} ns"
        )
        assert min(timeout_ns, retry_ns) >= 0, "no time is negative"

    def handle(self, event: Event) -> list[Command]:  # noqa: C901, PLR0911, PLR0912 - one arm per event
        """Take one event and return the commands to carry out, in order."""
        match event:
            case Started():
                return self._handle_started(event)
            case TaskSealed(report):
                return self._handle_sealed(report)
            case TaskEnded(report):
                return self._handle_ended(report)
            case Stored(epoch):
                return self._handle_stored(epoch)
            case StoreFailed(epoch, reason):
                return self._handle_store_failed(epoch, reason)
            case Committed(epoch):
                return self._handle_committed(epoch)
            case CommitFailed(epoch, reason):
                return self._handle_commit_failed(epoch, reason)
            case SnapshotRequested():
                self._is_snapshot_wanted = True
                return self._advanced()
            case PauseRequested():
                self.is_pause_wanted = True
                return self._advanced()
            case StopRequested():
                self._is_stop_wanted = True
                return self._advanced()
            case StopFailed():
                return self._handle_stop_failed()
            case Interrupted(is_damaged):
                return self._search() if is_damaged else self._handle_interrupted()
            case FellBack(epoch):
                return self._handle_fell_back(epoch)
            case TimePassed(now_ns):
                self._now_ns = now_ns
                return self._handle_time()
        assert_never(event)

    @property
    def epochs(self) -> range:
        """What tasks of this generation can have cut last: its beginning, or later."""
        return range(self._began, self._last_used + 1)

    def validate(self) -> None:
        """Assert the invariants in the module docstring; called by every test."""
        from millstream.protocol.snapshot_invariants import (  # noqa: PLC0415 - tests only
            check_snapshots,
        )

        check_snapshots(self)

    # Events

    def _handle_started(self, event: Started) -> list[Command]:
        assert self.phase in {Phase.RESTING, Phase.PAUSED}, self.phase
        assert event.generation >= self._generation, "no generation comes back"
        assert event.ended <= event.tasks, "only tasks of the plan can have ended"
        self._generation = event.generation
        self._tasks = event.tasks
        self._sealed = []
        self._ended = dict.fromkeys(event.ended)
        self._began, self._spent = self.complete_epoch, self._last_used
        self._newest, self.ended_tasks = {}, set()
        self._now_ns = event.now_ns
        self._is_interrupted = self._is_pausing = False
        self.is_pause_wanted = False
        self._wait(self._interval_ns)
        return self._advanced()

    def _handle_sealed(self, report: Sealed) -> list[Command]:
        if self._is_stale(report.generation):
            return []
        self._check_sealed(report)
        assert self.phase is not Phase.RESTING, "tasks run that nobody has started"
        self._newest[report.stage, report.task] = report.epoch
        self._sealed.append(report)
        is_present = self._barrier is not None and report.epoch == self._barrier.epoch
        if is_present and report.problem:
            return self._abandon(report.problem)
        return self._advanced()

    def _handle_ended(self, report: Ended) -> list[Command]:
        if self._is_stale(report.generation):
            return []
        task = (report.stage, report.task)
        newest = self._newest.get(task, self._began)
        is_new = task in self._tasks and task not in self.ended_tasks
        if not is_new or not newest <= report.epoch <= self._last_used:
            msg = (
                f"task {report.stage}.{report.task} cannot have ended after epoch "
                f"{report.epoch}: it is unknown, has ended before, or can have cut "
                f"epochs {newest} to {self._last_used}"
            )
            raise RemoteProtocolError(msg)
        self.ended_tasks.add(task)
        self._ended[task] = report
        return self._advanced()

    def _check_sealed(self, report: Sealed) -> None:
        """Find out whether a task can have sealed that, now and for the first time."""
        task = (report.stage, report.task)
        newest, ended = self._newest.get(task, self._spent), self._ended.get(task)
        last = self._last_used if ended is None else ended.epoch
        if task not in self._tasks or not newest < report.epoch <= last:
            msg = (
                f"task {report.stage}.{report.task} cannot have sealed epoch "
                f"{report.epoch}: it is unknown, or its epochs are {newest + 1} to {last}"
            )
            raise RemoteProtocolError(msg)

    def _handle_stored(self, epoch: int) -> list[Command]:
        store = self._storing
        assert store is not None
        assert store.epoch == epoch
        assert epoch > self.complete_epoch, f"epoch {epoch} after {self.complete_epoch}"
        self.complete_epoch = self._base_epoch = store.epoch
        self._sealed = [s for s in self._sealed if s.epoch > epoch]
        stored = {(report.stage, report.task) for report in store.ended}
        self._ended |= dict.fromkeys(stored & self._tasks)
        self._patience = 1
        self._is_rolling = False
        took_s = (self._now_ns - self._opened_ns) / 1e9
        after = f" after {took_s:.3f} s" if self._opened_epoch == epoch else ""
        self._tell(f"epoch {epoch} is complete{after}")
        self.phase = Phase.COMMITTING
        self._commit_tries = 1
        return [
            Announce(store.epoch, self._have_sources_moved(store)),
            Commit(store.epoch),
        ]

    def _have_sources_moved(self, store: Store) -> bool:
        """Whether a source has read on since the last epoch, or none has anything left."""
        sealed = [report for report in store.sealed if report.epoch == store.epoch]
        offsets = [offset for report in sealed for offset in report.offsets]
        offsets_ended = [offset for report in store.ended for offset in report.offsets]
        before = self._offsets
        self._offsets = before | {
            (operator, split): offset
            for operator, split, offset, _ in offsets + offsets_ended
        }
        is_over = all(is_over for *_, is_over in offsets)
        return is_over or before != self._offsets

    def _handle_store_failed(self, epoch: int, reason: str) -> list[Command]:
        assert self._storing is not None
        assert self._storing.epoch == epoch
        self._storing = None
        resumed = self._rested(Epoch(epoch), reason)
        return resumed + self._settled() if self._is_interrupted else resumed

    def _handle_committed(self, epoch: int) -> list[Command]:
        assert self.phase is Phase.COMMITTING
        assert epoch == self.complete_epoch
        store, self._storing = self._storing, None
        assert store is not None
        self._tell(f"epoch {epoch} is committed")
        if self._is_interrupted:
            return self._settled()
        if self._tasks == store.ended_tasks:
            self.phase = Phase.CONCLUDED
            return [Concluded(store.epoch)]
        if self._is_pausing and self._is_stop_wanted:
            self.phase = Phase.PAUSED
            self._is_stopped = True
            return [Stopped(store.epoch)]
        if self._is_pausing and self.is_pause_wanted:
            self.phase = Phase.PAUSED
            return [Paused(store.epoch)]
        # A job that stands still meanwhile must be given time to go on as well.
        since_ns = self._now_ns if self._is_synchronous else self._opened_ns
        self._wait(self._interval_ns, since_ns)
        return self._resumed(store.epoch) + self._advanced()

    def _handle_commit_failed(self, epoch: int, reason: str) -> list[Command]:
        assert self.phase is Phase.COMMITTING
        if self._commit_tries >= _COMMIT_TRIES_MAX:
            tries = self._commit_tries
            return [
                GiveUp(f"epoch {epoch} was not committed in {tries} tries: {reason}")
            ]
        self._tell(
            f"epoch {epoch} is not committed ({reason}); try {self._commit_tries} of "
            f"{_COMMIT_TRIES_MAX}, the next in {self._retry_ns / 1e9:g} s",
            Severity.WARNING,
        )
        self._commit_tries += 1
        self._due_ns = self._now_ns + self._retry_ns
        return []

    def _handle_stop_failed(self) -> list[Command]:
        self._is_stop_wanted = self._is_stopped = False
        if self.phase is not Phase.PAUSED:
            return self._advanced()
        self._wait(self._interval_ns)
        return self._resumed(self.complete_epoch) + self._advanced()

    def _handle_interrupted(self) -> list[Command]:
        assert self.phase not in {Phase.SEARCHING, Phase.CONCLUDED}, self.phase
        self._want_again()
        self._leave_generation()
        if self.phase in {Phase.STORING, Phase.COMMITTING}:
            return []
        if self._barrier is not None:
            self._give_up(self._barrier.epoch, "the job recovers")
            self._barrier = None
        return self._settled()

    def _handle_fell_back(self, epoch: int) -> list[Command]:
        assert self.phase is Phase.SEARCHING
        assert epoch <= self.complete_epoch
        self.complete_epoch = self._base_epoch = Epoch(epoch)
        self._tell(
            f"epoch {epoch} is the newest that is whole: the job falls back to it",
            Severity.WARNING,
        )
        return self._settled()

    def _handle_time(self) -> list[Command]:
        assert self._now_ns >= self._opened_ns, "an epoch is opened, and time goes on"
        is_due = self._due_ns is not None and self._now_ns >= self._due_ns
        if self.phase is Phase.COMMITTING and is_due:
            self._due_ns = None
            return [Commit(self.complete_epoch)]
        if self.phase is Phase.OPEN and self._now_ns > self._deadline_ns:
            reason = self._late()
            self._patience = min(2 * self._patience, _PATIENCE_MAX)
            return self._abandon(reason)
        return self._advanced()

    # Steps

    def _leave_generation(self) -> None:
        self._is_interrupted = True
        self._is_pausing = False
        self._sealed, self._ended, self._tasks = [], {}, frozenset()

    def _search(self) -> list[Command]:
        """Look for an older epoch; tasks that were being restored run no epoch."""
        assert self.phase in {Phase.RESTING, Phase.PAUSED}, self.phase
        self._leave_generation()
        self._due_ns = None
        self.phase = Phase.SEARCHING
        self._tell(
            f"epoch {self.complete_epoch} is damaged; an older one is looked for",
            Severity.WARNING,
        )
        return [FallBack()]

    def _advanced(self) -> list[Command]:
        """Open, complete or conclude, if the time has come."""
        if self.phase is Phase.OPEN and self._is_through():
            return self._store()
        if self.phase is not Phase.WAITING or self._now_ns < self._retry_at_ns:
            return []
        if self._is_stopped:
            return []
        if self._tasks and self._ended.keys() == self._tasks:
            self._last_used += 1
            self._barrier = Barrier(Epoch(self._last_used), self._base_epoch)
            return self._store()
        is_due = self._due_ns is not None and self._now_ns >= self._due_ns
        if is_due or self._is_snapshot_wanted or self._must_pause:
            return self._open()
        return []

    @property
    def _must_pause(self) -> bool:
        return self.is_pause_wanted or self._is_stop_wanted

    def _open(self) -> list[Command]:
        assert self._storing is None, "the epoch before is committed"
        assert self._tasks, "tasks run that seal it"
        self._last_used += 1
        self._is_rolling, self._is_snapshot_wanted = self._is_snapshot_wanted, False
        rolls = (Order.ROLL,) if self._is_rolling or self._is_stop_wanted else ()
        self._is_pausing = self._is_synchronous or self._must_pause
        pauses = (Order.PAUSE,) if self._is_pausing else ()
        orders = (Order.SNAPSHOT, *pauses, *rolls)
        self._barrier = Barrier(Epoch(self._last_used), self._base_epoch, orders)
        self._opened_ns, self._opened_epoch = self._now_ns, self._last_used
        self._tell(f"epoch {self._last_used} opened{', to pause' * self._is_pausing}")
        self._deadline_ns = self._now_ns + self._timeout_ns * self._patience
        self._due_ns = None
        self.phase = Phase.OPEN
        return [Inject(self._barrier)]

    def _is_through(self) -> bool:
        """Whether every task has sealed the open epoch or ended before it."""
        assert self._barrier is not None
        epoch = self._barrier.epoch
        sealed = {(s.stage, s.task) for s in self._sealed if s.epoch == epoch}
        return all(
            task in sealed or self._has_ended_before(task, epoch)
            for task in self._tasks
        )

    def _has_ended_before(self, task: TaskId, epoch: Epoch) -> bool:
        if task not in self._ended:
            return False
        report = self._ended[task]
        return report is None or report.epoch < epoch

    def _store(self) -> list[Command]:
        assert self._barrier is not None
        barrier, self._barrier = self._barrier, None
        ended = frozenset(
            task for task in self._tasks if self._has_ended_before(task, barrier.epoch)
        )
        reports = [self._ended[task] for task in sorted(ended)]
        self._storing = Store(
            barrier.epoch,
            barrier.since,
            tuple(s for s in self._sealed if s.epoch <= barrier.epoch),
            tuple(report for report in reports if report is not None),
            ended,
        )
        assert barrier.epoch > self.complete_epoch, f"{self.complete_epoch} is complete"
        self.phase = Phase.STORING
        self._due_ns = None
        return [self._storing]

    def _abandon(self, reason: str) -> list[Command]:
        assert self._barrier is not None
        barrier, self._barrier = self._barrier, None
        return self._rested(barrier.epoch, reason)

    def _rested(self, epoch: Epoch, reason: str) -> list[Command]:
        """Wait a while after an epoch that failed, whoever wants the next one."""
        assert self._storing is None, "it is not stored"
        self._want_again()
        interval_ns = self._interval_ns
        wait_ns = self._retry_ns if interval_ns is None else interval_ns
        self._retry_at_ns = self._now_ns + min(wait_ns, self._retry_ns)
        self._wait(wait_ns)
        self._give_up(epoch, reason)
        return self._resumed(epoch)

    def _give_up(self, epoch: Epoch, reason: str) -> None:
        assert epoch > self.complete_epoch, f"epoch {epoch} is complete"
        self._tell(f"epoch {epoch} is abandoned: {reason}", Severity.WARNING)

    def _want_again(self) -> None:
        """Keep in mind that somebody waits for an epoch that may not complete."""
        self._is_snapshot_wanted |= self._is_rolling
        self._is_rolling = False

    def _resumed(self, epoch: Epoch) -> list[Command]:
        assert not self._is_stopped, "tasks stand still until the job ends"
        was_pausing, self._is_pausing = self._is_pausing, False
        return [Resume(epoch)] if was_pausing else []

    def _wait(self, interval_ns: int | None, since_ns: int | None = None) -> None:
        """Wait for the next epoch, for an interval since some time, or since now."""
        self.phase = Phase.WAITING
        since_ns = self._now_ns if since_ns is None else since_ns
        self._due_ns = None if interval_ns is None else since_ns + interval_ns

    def _settled(self) -> list[Command]:
        assert self._is_interrupted, "nobody asked where to go back to"
        self.phase = Phase.RESTING
        self._due_ns = None
        epoch = self.complete_epoch
        self._tell(f"the job goes back to {f'epoch {epoch}' if epoch else 'its start'}")
        return [Settled(self.complete_epoch)]

    def _is_stale(self, generation: int) -> bool:
        return self._is_interrupted or generation != self._generation

    def _tell(self, text: str, severity: Severity = Severity.INFO) -> None:
        self.story.add(self._now_ns, "snapshots", text, severity)

    def _late(self) -> str:
        assert self._barrier is not None
        epoch = self._barrier.epoch
        sealed = {(s.stage, s.task) for s in self._sealed if s.epoch == epoch}
        missing = [
            f"{stage}.{index}"
            for stage, index in sorted(self._tasks - sealed)
            if not self._has_ended_before((stage, index), epoch)
        ]
        seconds = self._timeout_ns * self._patience / 1e9
        return f"tasks {', '.join(missing)} did not seal it within {seconds:g} s"
