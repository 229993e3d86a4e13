"""SnapshotCore: no order of seals, ends, failures and recoveries loses a transaction.

Method: a model plays the shell, and Hypothesis chooses what happens next of what can.
Tasks cut when a barrier has reached them and end when they like; what they say arrives
in order, at any time.  Manifests and commits succeed or fail, time passes, somebody asks
for snapshots and pauses, and at any moment the generation may be over.  An epoch that is
being restored may turn out to be damaged; nothing was shown of it, so an older one takes
its place.  Whatever a task sealed is a transaction with a number of its own.  In the end
everything heals, and the job must conclude.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.barrier import Order
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended, Sealed
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
    Store,
    Stored,
    StoreFailed,
    TaskEnded,
    TaskId,
    TaskSealed,
    TimePassed,
)
from millstream.protocol.snapshots import Phase, SnapshotCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.barrier import Barrier

    Happening = Callable[[st.DataObject], None]

BEGINNING = Epoch(7)
COMMIT_FAILURES_MAX = 4
STEPS_MAX = 80
STEPS_TO_HEAL = 60


@dataclass
class Task:
    """One task of the present generation."""

    id: TaskId
    cut_epoch: int
    is_ended: bool = False
    is_paused: bool = False
    resumed_epoch: int = 0
    barriers: list[Barrier] = field(default_factory=list)
    outbox: list[Sealed | Ended] = field(default_factory=list)

    @property
    def may_run(self) -> bool:
        return not self.is_ended and not self.is_paused


class Job:
    """A job whose tasks, files and sinks are made up."""

    def __init__(
        self, task_count: int, interval_ns: int | None, *, is_synchronous: bool
    ) -> None:
        self.core = SnapshotCore(
            epoch=BEGINNING,
            last_used=BEGINNING + 2,
            interval_ns=interval_ns,
            timeout_ns=30,
            retry_ns=10,
            is_synchronous=is_synchronous,
        )
        self.ids = [(0, index) for index in range(task_count)]
        self.now_ns = 0
        self.generation = 0
        self.tasks: dict[TaskId, Task] = {}
        self.numbers = iter(range(10**6))
        #: Transactions of the history that counts, and those stored, by epoch.
        self.sealed: set[int] = set()
        self.stored: dict[int, set[int]] = {BEGINNING: set()}
        self.ended_at: dict[int, frozenset[TaskId]] = {BEGINNING: frozenset()}
        self.last_epoch = BEGINNING + 2
        self.open: Barrier | None = None
        self.storing: Store | None = None
        self.committing: int | None = None
        self.commit_failures = 0
        self.restart_at: int | None = BEGINNING
        self.is_interrupted = False
        self.is_searching = False
        self.is_concluded = False

    # The shell

    def tell(self, event: Event) -> None:
        commands = self.core.handle(event)
        self.core.validate()
        if self.core.phase not in {Phase.OPEN, Phase.STORING}:
            self.open = None
        for command in commands:
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        match command:
            case Inject(barrier):
                self.inject(barrier)
            case Store():
                self.begin_store(command)
            case Commit(epoch):
                assert self.committing is None
                assert epoch == max(self.stored)
                self.committing = epoch
            case Announce(epoch, _):
                assert epoch == self.core.complete_epoch == max(self.stored)
            case Resume(epoch):
                self.resume(epoch)
            case Paused(epoch):
                assert self.sealed == self.all_stored(), "nothing is under way"
                self.restart_at = epoch
            case FallBack():
                self.is_searching = True
            case Settled(epoch):
                self.settle(epoch)
            case Concluded(epoch):
                assert epoch == max(self.stored)
                self.is_concluded = True
            case GiveUp(reason):
                raise AssertionError(reason)

    def inject(self, barrier: Barrier) -> None:
        assert self.open is None, "one epoch at a time"
        assert self.storing is None
        assert self.committing is None, "the last one is committed first"
        assert barrier.epoch > self.last_epoch, "epochs strictly increase"
        assert barrier.since == max(self.stored)
        self.last_epoch, self.open = barrier.epoch, barrier
        for task in self.tasks.values():
            task.barriers.append(barrier)

    def begin_store(self, store: Store) -> None:
        assert self.storing is None
        assert self.committing is None
        is_last = self.open is None
        assert store.epoch >= self.last_epoch + is_last, "epochs strictly increase"
        assert store.since == max(self.stored)
        captured = {
            (s.stage, s.task)
            for s in store.sealed
            if s.epoch == store.epoch and not s.problem
        }
        assert captured | store.ended_tasks == set(self.ids)
        assert captured.isdisjoint(store.ended_tasks)
        self.last_epoch, self.open, self.storing = store.epoch, None, store

    def resume(self, epoch: int) -> None:
        for task in self.tasks.values():
            task.resumed_epoch = epoch
            if task.cut_epoch <= epoch:
                task.is_paused = False

    def settle(self, epoch: int) -> None:
        assert self.storing is None, "nobody goes back before it is clear where to"
        assert self.committing is None
        assert epoch == max(self.stored), "only a damaged epoch is taken back"
        self.sealed = self.all_stored()
        self.restart_at = epoch
        self.is_interrupted = False

    def all_stored(self) -> set[int]:
        return {number for numbers in self.stored.values() for number in numbers}

    def seal(self) -> tuple[tuple[str, bytes], ...]:
        number = next(self.numbers)
        self.sealed.add(number)
        return (("write", str(number).encode()),)

    # What can happen

    def choices(self) -> list[Happening]:
        """Return what can happen now, more often what should not be rare."""
        tasks = self.tasks.values()
        is_awake = self.core.phase not in {Phase.RESTING, Phase.SEARCHING}
        chances: list[tuple[int, Happening, bool]] = [
            (1, self.end, any(t.may_run for t in tasks)),
            (1, self.want_snapshot, is_awake),
            (1, self.want_pause, is_awake),
            (1, self.hear_old_news, is_awake),
            (3, self.restart, self.restart_at is not None),
            (1, self.interrupt, not self.is_interrupted),
            (1, self.find_damage, self.restart_at is not None),
            (3, self.fall_back, self.is_searching),
            (4, self.cut, any(t.barriers and t.may_run for t in tasks)),
            (2, self.cut_all, any(t.barriers and t.may_run for t in tasks)),
            (4, self.deliver, any(t.outbox for t in tasks)),
            (2, self.deliver_all, any(t.outbox for t in tasks)),
            (3, self.store_works, self.storing is not None),
            (1, self.store_fails, self.storing is not None),
            (3, self.commit_works, self.committing is not None),
            (1, self.commit_fails, self.can_commit_fail),
            (2, self.pass_time, True),
        ]
        return [happen for weight, happen, can in chances if can for _ in range(weight)]

    @property
    def can_commit_fail(self) -> bool:
        is_early = self.commit_failures < COMMIT_FAILURES_MAX
        return self.committing is not None and is_early

    # Generations

    def restart(self, _data: st.DataObject | None = None) -> None:
        assert self.restart_at is not None
        epoch, self.restart_at = self.restart_at, None
        self.generation += 1
        ended = self.ended_at[epoch]
        self.tasks = {id_: Task(id_, epoch, id_ in ended) for id_ in self.ids}
        for stage, index in ended:
            end = Ended(1, self.generation, epoch, stage, index, (), ())
            self.tasks[stage, index].outbox.append(end)
        started = Started(self.generation, frozenset(self.ids), ended, self.now_ns)
        self.tell(started)

    def interrupt(self, _data: st.DataObject) -> None:
        self.is_interrupted = True
        self.open = None
        self.tasks, self.restart_at = {}, None
        self.tell(Interrupted())

    def find_damage(self, _data: st.DataObject) -> None:
        """Let the tasks that are being restored find that they cannot be."""
        self.is_interrupted = True
        self.restart_at = None
        self.tell(Interrupted(is_damaged=True))
        assert self.is_searching

    def fall_back(self, data: st.DataObject | None = None) -> None:
        """Find an epoch that is whole, sometimes the same one."""
        newest = len(self.stored) - 1
        place = newest if data is None else data.draw(st.integers(0, newest))
        epoch = sorted(self.stored)[place]
        self.stored = {e: self.stored[e] for e in self.stored if e <= epoch}
        self.is_searching = False
        self.tell(FellBack(epoch))

    # Tasks

    def cut(self, data: st.DataObject) -> None:
        able = [t.id for t in self.tasks.values() if t.barriers and t.may_run]
        task = self.tasks[data.draw(st.sampled_from(able))]
        self.cut_one(task, is_broken=data.draw(st.integers(0, 9)) == 0)

    def cut_all(self, _data: st.DataObject | None = None) -> None:
        for task in self.tasks.values():
            while task.barriers and task.may_run:
                self.cut_one(task)

    def cut_one(self, task: Task, *, is_broken: bool = False) -> None:
        barrier = task.barriers.pop(0)
        task.cut_epoch = barrier.epoch
        is_pausing = Order.PAUSE in barrier.orders
        task.is_paused = is_pausing and barrier.epoch > task.resumed_epoch
        problem = "disk full" if is_broken else ""
        sealed = Sealed(
            1,
            self.generation,
            barrier.epoch,
            *task.id,
            None,
            (),
            self.seal(),
            0,
            problem,
        )
        task.outbox.append(sealed)

    def end(self, data: st.DataObject) -> None:
        able = [t.id for t in self.tasks.values() if t.may_run]
        self.end_one(self.tasks[data.draw(st.sampled_from(able))])

    def end_one(self, task: Task) -> None:
        task.is_ended = True
        ended = Ended(1, self.generation, task.cut_epoch, *task.id, (), self.seal())
        task.outbox.append(ended)

    def deliver(self, data: st.DataObject) -> None:
        able = [t.id for t in self.tasks.values() if t.outbox]
        self.deliver_one(self.tasks[data.draw(st.sampled_from(able))])

    def deliver_all(self, _data: st.DataObject | None = None) -> None:
        for task in list(self.tasks.values()):
            while task.outbox:
                self.deliver_one(task)

    def deliver_one(self, task: Task) -> None:
        message = task.outbox.pop(0)
        if isinstance(message, Sealed):
            self.tell(TaskSealed(message))
        else:
            self.tell(TaskEnded(message))

    def hear_old_news(self, _data: st.DataObject) -> None:
        old, stale = self.generation - 1, (("write", b"-1"),)
        epoch = self.last_epoch
        self.tell(TaskSealed(Sealed(1, old, epoch, 0, 0, None, (), stale, 0)))
        self.tell(TaskEnded(Ended(1, old, epoch, 0, 0, (), stale)))

    # Files and sinks

    def store_works(self, _data: st.DataObject | None = None) -> None:
        store, self.storing = self.storing, None
        assert store is not None
        reports: list[Sealed | Ended] = [*store.sealed, *store.ended]
        numbers = [int(wire) for r in reports for _, wire in r.transactions]
        assert self.all_stored().isdisjoint(numbers), "a transaction is stored once"
        assert len(set(numbers)) == len(numbers)
        assert -1 not in numbers
        self.stored[store.epoch] = set(numbers)
        self.ended_at[store.epoch] = store.ended_tasks
        self.commit_failures = 0
        self.tell(Stored(store.epoch))

    def store_fails(self, _data: st.DataObject) -> None:
        store, self.storing = self.storing, None
        assert store is not None
        self.tell(StoreFailed(store.epoch, "disk full"))

    def commit_works(self, _data: st.DataObject | None = None) -> None:
        epoch, self.committing = self.committing, None
        assert epoch is not None
        self.tell(Committed(epoch))

    def commit_fails(self, _data: st.DataObject) -> None:
        epoch, self.committing = self.committing, None
        assert epoch is not None
        self.commit_failures += 1
        self.tell(CommitFailed(epoch, "no route to host"))

    # The world

    def pass_time(self, data: st.DataObject) -> None:
        self.now_ns += data.draw(st.sampled_from([1, 10, 50]))
        self.tell(TimePassed(self.now_ns))

    def want_snapshot(self, _data: st.DataObject) -> None:
        self.tell(SnapshotRequested())

    def want_pause(self, _data: st.DataObject) -> None:
        self.tell(PauseRequested())

    # Healing

    def heal(self) -> None:
        """Let everything go well for a while."""
        if self.is_searching:
            self.fall_back()
        if self.restart_at is not None:
            self.restart()
        self.cut_all()
        for task in self.tasks.values():
            if task.may_run:
                self.end_one(task)
        self.deliver_all()
        if self.storing is not None:
            self.store_works()
        if self.committing is not None:
            self.commit_works()
        self.now_ns += 5
        self.tell(TimePassed(self.now_ns))


@given(
    st.builds(
        Job,
        st.integers(1, 3),
        st.sampled_from([None, 10, 50]),
        is_synchronous=st.booleans(),
    ),
    st.integers(1, STEPS_MAX),
    st.data(),
)
def test_every_transaction_is_in_one_stored_epoch_and_the_job_concludes(
    job: Job, steps: int, data: st.DataObject
) -> None:
    """Whatever happens in whatever order, and once everything goes well again."""
    job.restart()
    for _ in range(steps):
        if not job.is_concluded:
            data.draw(st.sampled_from(job.choices()))(data)

    for _ in range(STEPS_TO_HEAL):
        if not job.is_concluded:
            job.heal()

    assert job.is_concluded, job.core.phase
    assert job.core.phase is Phase.CONCLUDED
    assert job.sealed == job.all_stored()
    assert job.ended_at[max(job.stored)] == set(job.ids)
