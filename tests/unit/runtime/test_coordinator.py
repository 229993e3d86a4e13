"""The coordinator's shell: what it tells workers, keeps for the user and raises."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.snapshots import KEY, MemoryFiles

import millstream as ms
from millstream.config import Config, configured
from millstream.errors import (
    JobCancelledError,
    LaunchError,
    OperationalError,
    OperatorError,
    WorkerLostError,
)
from millstream.launch.job import deploy
from millstream.launch.keeping import Keeping
from millstream.ports import FrameArrived
from millstream.protocol.barrier import Barrier, Order, barrier_from_wire
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch, Generation, PeerId
from millstream.protocol.job import OutcomeKind, Phase
from millstream.protocol.messages import (
    Announced,
    Completed,
    Deploy,
    Emitted,
    Ended,
    Failed,
    Finished,
    Heartbeat,
    Message,
    Progress,
    Ready,
    Register,
    Release,
    Sealed,
    Start,
    Stop,
)
from millstream.runtime.background import Inline
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub, LocalLink
from millstream.runtime.snapshots import Backing
from millstream.state.store import SnapshotStore
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.state.manifest import Transaction


def _flow() -> ms.Flow:
    """Return a flow of one wide stage and two sinks in the driver."""
    flow = ms.Flow("job")
    rows = flow.from_parallel(lambda _rank, _size: [1, 2])
    rows.collect(name="own")
    rows.shuffle().collect(name="other")
    return flow


class Stand:
    """A coordinator whose workers are the test."""

    def __init__(
        self,
        workers: int = 2,
        commit: Callable[[], None] | None = None,
        *,
        keeps: bool = False,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        hub = Hub()
        self.ids = [PeerId(1 + i) for i in range(workers)]
        self.generation = 1
        self.committed: list[tuple[int, tuple[Transaction, ...], bool]] = []
        self._fails = commit
        self.files = MemoryFiles()
        self.deployment = deploy(
            _flow().plan, configured(Config(), settings), workers, Keeping("job", "run")
        )
        store = SnapshotStore(self.files, KEY, job="job", run="run")
        backing = Backing(self)
        if keeps:
            backing = Backing(self, store, store.claim())
            store.adopt(None)
        self.coordinator = Coordinator(
            self.ids,
            self.deployment,
            hub.join(COORDINATOR),
            self.clock,
            background=Inline(),
            backing=backing,
        )
        self.hub = hub
        self.links: dict[PeerId, LocalLink] = {}
        for id_ in self.ids:
            self.join(id_)
        self.inboxes()

    def join(self, worker: PeerId) -> PeerId:
        """Let a worker connect."""
        self.links[worker] = self.hub.join(worker)
        self.links[worker].connect(COORDINATOR, ("", 0))
        return worker

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Stand for the sinks."""
        if self._fails is not None:
            self._fails()
        self.committed.append((epoch, transactions, is_last))

    def say(self, worker: PeerId, message: Message) -> None:
        frame = Frame(FrameKind.MESSAGE, Generation(1), ChannelId(0), 0, message)
        self.links[worker].send(COORDINATOR, frame)
        self.coordinator.step()

    def inboxes(self) -> list[list[Message]]:
        """Return what every worker was told."""
        return [
            [e.frame.body for e in link.poll(0) if isinstance(e, FrameArrived)]
            for link in self.links.values()
        ]

    def start(self) -> None:
        for id_ in self.ids:
            self.say(id_, Register(id_, "host", 7, 100 + id_))
        for id_ in self.ids:
            self.say(id_, Ready(id_, 1))

    def finish(self, worker: PeerId) -> None:
        """Let all tasks of a worker end; the source's has sealed something."""
        for stage, task in self.tasks_of(worker):
            sealed = (("write", b"ab"[task : task + 1]),) if stage == 0 else ()
            generation = self.generation
            self.say(worker, Ended(worker, generation, 0, stage, task, (), sealed))
        self.say(worker, Finished(worker, self.generation))

    def tasks_of(self, worker: PeerId) -> list[tuple[int, int]]:
        """Return the tasks that a worker hosts in a job that has lost nobody."""
        width = self.deployment.worker_count
        return [
            (stage.id, worker - 1)
            for stage in self.deployment.stages.stages
            if worker - 1 < min(stage.width or width, width)
        ]

    def all_tasks(self) -> list[tuple[int, int]]:
        """Return the tasks of all workers."""
        return [task for id_ in self.ids for task in self.tasks_of(id_)]

    def sinks(self) -> list[int]:
        """Return the ids of the two sinks."""
        stages = self.deployment.stages.stages
        return [n.id for s in stages for n in s.nodes if n.is_sink]

    def pass_time(self, duration: str) -> None:
        self.clock.advance(duration)
        self.coordinator.step()

    def is_over(self) -> bool:
        return self.coordinator.is_over

    def leave(self) -> None:
        for link in self.links.values():
            link.close()
        self.coordinator.step()


def test_workers_are_deployed_together_and_started_together() -> None:
    """Everybody knows everybody before the first row is read."""
    stand = Stand()
    stand.start()

    members = ((1, "host", 7), (2, "host", 7))
    deploy_all = Deploy(1, members, (1, 2), (0, 0))
    assert stand.inboxes() == [[deploy_all, Start(1)]] * 2
    assert stand.coordinator.phase is Phase.RUNNING
    assert stand.coordinator.pids == {1: 101, 2: 102}


def test_output_is_committed_once_all_have_finished() -> None:
    """Then workers are released, and the job is over when they are gone."""
    stand = Stand()
    stand.start()
    stand.inboxes()

    stand.finish(stand.ids[0])
    assert stand.committed == []
    stand.finish(stand.ids[1])
    stand.coordinator.step()

    assert stand.committed == [(1, (("write", 0, b"a"), ("write", 1, b"b")), True)]
    assert stand.inboxes() == [[Completed(1, 1), Release()]] * 2
    assert not stand.is_over()
    stand.leave()
    assert stand.is_over()
    assert stand.coordinator.error() is None


def test_failed_commit_fails_the_job_with_the_sinks_words() -> None:
    """Rows that nobody can see are no success."""

    def commit() -> None:
        msg = "disk full"
        raise OSError(msg)

    stand = Stand(1, commit, snapshot_retry_ms=10)
    stand.start()
    stand.finish(stand.ids[0])
    for _ in range(4):
        assert stand.coordinator.error() is None
        stand.pass_time("10ms")
        stand.coordinator.step()

    error = stand.coordinator.error()
    assert isinstance(error, OperationalError)
    assert str(error) == (
        "epoch 1 was not committed in 5 tries: the output could not be committed: "
        "OSError: disk full"
    )


def failed(cause: bytes = b"") -> Failed:
    return Failed(
        1, 1, "OperatorError", "map at job.py:3 raised ValueError: x", "map",
        "job.py:3", "record 7 of a.txt", "Traceback ...", cause,
    )  # fmt: skip


def test_user_error_is_rebuilt_with_the_original_as_its_cause() -> None:
    """`except ... as error: error.__cause__` is what the function raised."""
    stand = Stand()
    stand.start()
    stand.inboxes()

    stand.say(stand.ids[0], failed(pickle.dumps(ValueError("x", 1))))

    error = stand.coordinator.error()
    assert isinstance(error, OperatorError)
    assert (error.operator, error.location) == ("map", "job.py:3")
    assert (error.position, error.details) == ("record 7 of a.txt", "Traceback ...")
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__.args == ("x", 1)
    assert stand.inboxes() == [[Stop("map at job.py:3 raised ValueError: x")]] * 2


@pytest.mark.parametrize("cause", [b"\x80\x05cno_such_module\nX\n.", b"garbage"])
def test_cause_that_cannot_be_rebuilt_is_replaced_by_its_traceback(
    cause: bytes,
) -> None:
    """A class that only the workers can import must not hide the failure."""
    stand = Stand(1)
    stand.start()
    stand.say(stand.ids[0], failed(cause))

    error = stand.coordinator.error()
    assert isinstance(error, OperatorError)
    assert isinstance(error.__cause__, RuntimeError)
    assert str(error.__cause__) == "Traceback ..."


def test_silent_worker_is_lost_after_a_lease() -> None:
    """A hung process looks connected; its silence gives it away."""
    stand = Stand(lease_ms=1_000)
    stand.start()
    for _ in range(3):
        stand.clock.advance("900ms")
        stand.say(stand.ids[0], Heartbeat(1))

    error = stand.coordinator.error()
    assert isinstance(error, WorkerLostError)
    assert "worker 1 was lost: it was silent for 1.8 s" in str(error)


def test_missing_worker_is_a_launch_error_that_says_how_many() -> None:
    """And what to do about it."""
    stand = Stand(launch_timeout_ms=2_000, lease_ms=60_000)
    stand.say(stand.ids[0], Register(1, "host", 7, 1))
    stand.pass_time("2001ms")

    error = stand.coordinator.error()
    assert isinstance(error, LaunchError)
    assert "only 1 of 2 workers registered within 2 s" in str(error)


def test_cancelled_job_stops_its_workers() -> None:
    """From any thread; the next step carries it out."""
    stand = Stand()
    stand.start()
    stand.inboxes()

    stand.coordinator.cancel("enough")
    assert stand.coordinator.outcome is None
    stand.coordinator.step()

    assert stand.inboxes() == [[Stop("enough")]] * 2
    assert isinstance(stand.coordinator.error(), JobCancelledError)


def test_job_ends_without_workers_that_never_leave() -> None:
    """After the grace period nobody waits for a hung process."""
    stand = Stand(stop_grace_ms=1_000)
    stand.start()
    stand.coordinator.cancel("enough")
    stand.coordinator.step()
    stand.pass_time("999ms")
    assert not stand.is_over()

    stand.pass_time("1ms")

    assert stand.is_over()


def test_exited_process_is_told_by_its_reason() -> None:
    """The launcher knows why a process is gone."""
    stand = Stand()
    stand.start()

    stand.coordinator.worker_exited(stand.ids[1], "killed by signal 9")
    stand.coordinator.step()

    error = stand.coordinator.error()
    assert isinstance(error, WorkerLostError)
    assert "worker 1 was lost: killed by signal 9" in str(error)


def test_results_are_in_the_order_of_tasks() -> None:
    """Whatever the order in which they arrive."""
    stand = Stand()
    stand.start()
    first, second = stand.ids
    own, other = stand.sinks()
    stand.say(second, Emitted(2, 1, own, 1, 0, pickle.dumps(["c"])))
    stand.say(first, Emitted(1, 1, own, 0, 0, pickle.dumps(["a"])))
    stand.say(first, Emitted(1, 1, own, 0, 1, pickle.dumps(["b"])))
    stand.say(first, Emitted(1, 1, other, 0, 0, pickle.dumps(["other sink"])))

    assert stand.coordinator.results.rows("own") == ["a", "b", "c"]


def test_coordinator_keeps_the_latest_progress_and_beats() -> None:
    """Workers hear from it in the rhythm that their leases need."""
    stand = Stand(1, heartbeat_ms=100)
    stand.start()
    stand.inboxes()
    stand.say(stand.ids[0], Progress(1, 1, ((0, 1, 1, 1, 1),)))
    stand.say(stand.ids[0], Progress(1, 1, ((0, 9, 9, 9, 9),)))
    stand.pass_time("100ms")

    assert stand.coordinator.progress == {1: ((0, 9, 9, 9, 9),)}
    assert stand.inboxes() == [[Heartbeat(0)]]


def test_job_ends_once_even_if_more_goes_wrong() -> None:
    """The first failure is the one that counts."""
    stand = Stand()
    stand.start()
    stand.say(stand.ids[0], failed())
    stand.coordinator.cancel("too late")
    stand.leave()

    outcome = stand.coordinator.outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.FAILED


# A job that keeps snapshots.


class KeepingStand(Stand):
    """A coordinator that takes a snapshot every 100 ms."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(2, keeps=True, snapshot_every_ms=100, **settings)
        self.start()
        self.inboxes()

    def seal(self, worker: PeerId, epoch: int, *tasks: tuple[int, int]) -> None:
        """Let tasks of a worker seal an epoch; without any named, its own."""
        for stage, task in tasks or self.tasks_of(worker):
            generation = self.generation
            self.say(
                worker,
                Sealed(worker, generation, epoch, stage, task, None, (), (), 0),
            )

    def complete_epoch(self) -> None:
        """Take the first snapshot."""
        self.pass_time("100ms")
        for id_ in self.ids:
            self.seal(id_, 1)
        self.coordinator.step()

    def manifests(self) -> list[str]:
        return self.files.names("manifests")


def test_epoch_is_announced_stored_and_committed() -> None:
    """In that order; workers hear that it is complete."""
    stand = KeepingStand()

    stand.pass_time("100ms")
    announcement = Announced(1, Barrier(Epoch(1), Epoch(0)).to_wire())
    assert stand.inboxes() == [[announcement]] * 2
    stand.seal(stand.ids[0], 1)
    assert stand.manifests() == []
    stand.seal(stand.ids[1], 1)
    for _ in range(3):
        stand.coordinator.step()

    assert stand.manifests() == ["manifests/00000001-000001.manifest"]
    assert stand.committed == [(1, (), False)]
    assert stand.inboxes() == [[Completed(1, 1)]] * 2
    assert stand.coordinator.keeper.complete_epoch == 1


def test_lost_worker_is_replaced_and_the_others_take_its_tasks() -> None:
    """They begin at the last snapshot, in a generation of their own."""
    stand = KeepingStand()
    stand.complete_epoch()
    for _ in range(3):
        stand.coordinator.step()
    stand.inboxes()

    stand.links[stand.ids[1]].close()
    stand.coordinator.step()

    assert stand.coordinator.wanted_workers == [3]
    survivors = ((1, "host", 7),)
    assert stand.inboxes()[0] == [Deploy(2, survivors, (1, 1), (1, 1))]
    (recovery,) = stand.coordinator.recoveries
    assert recovery.epoch == 1
    assert "worker 1 was lost" in recovery.reason
    assert stand.coordinator.error() is None


def test_what_was_said_before_a_recovery_is_not_heard_after_it() -> None:
    """Rows, seals and ends of an older generation are dropped where they arrive."""
    stand = KeepingStand()
    stand.coordinator.worker_exited(stand.ids[1], "killed")
    stand.coordinator.step()
    first = stand.ids[0]
    stand.say(first, Ready(first, 2))
    stand.pass_time("100ms")
    sink = stand.sinks()[0]

    stand.say(first, Emitted(1, 1, sink, 0, 0, pickle.dumps(["old"])))
    stand.seal(first, 1, *stand.all_tasks())
    assert stand.manifests() == []
    stand.generation = 2
    stand.say(first, Emitted(1, 2, sink, 0, 0, pickle.dumps(["new"])))
    stand.seal(first, 1, *stand.all_tasks())
    for _ in range(3):
        stand.coordinator.step()

    assert len(stand.manifests()) == 1
    assert stand.coordinator.results.rows("own") == ["new"]


def test_rows_that_came_after_the_last_snapshot_are_forgotten() -> None:
    """They come again, so the user sees them once."""
    stand = KeepingStand()
    first, second = stand.ids
    sink = stand.sinks()[0]
    stand.say(first, Emitted(1, 1, sink, 0, 0, pickle.dumps(["before"])))
    stand.complete_epoch()
    stand.say(first, Emitted(1, 1, sink, 0, 1, pickle.dumps(["after"])))

    stand.coordinator.worker_exited(second, "killed")
    for _ in range(4):
        stand.coordinator.step()

    assert stand.coordinator.results.rows("own") == ["before"]


def test_replacement_gets_its_share_at_a_pause() -> None:
    """The running tasks stop at a cut, and everybody is deployed anew."""
    stand = KeepingStand()
    first, second = stand.ids
    stand.coordinator.worker_exited(second, "killed")
    stand.coordinator.step()
    stand.say(first, Ready(first, 2))
    stand.generation = 2
    stand.links[second].close()
    third = stand.join(PeerId(3))
    stand.inboxes()

    stand.say(third, Register(3, "host", 9, 103))
    announced = [m for m in stand.inboxes()[0] if isinstance(m, Announced)]
    assert [barrier_from_wire(m.barrier).orders for m in announced] == [
        (Order.SNAPSHOT, Order.PAUSE)
    ]
    stand.seal(first, 1, *stand.all_tasks())
    for _ in range(4):
        stand.coordinator.step()

    members = ((1, "host", 7), (3, "host", 9))
    assert stand.inboxes()[-1] == [
        Completed(2, 1),
        Deploy(3, members, (3, 1), (1, 1)),
    ]


def test_user_function_that_keeps_failing_ends_the_job() -> None:
    """After as many tries as the setting says, with the user's exception."""
    stand = KeepingStand(restarts_max=2)
    for generation in (1, 2, 3):
        assert stand.coordinator.error() is None
        stand.say(stand.ids[0], replace(failed(), generation=generation))
        stand.coordinator.step()
        for id_ in stand.ids:
            stand.say(id_, Ready(id_, generation + 1))

    assert isinstance(stand.coordinator.error(), OperatorError)
    assert len(stand.coordinator.recoveries) == 2


def test_epoch_that_a_task_could_not_store_is_given_up() -> None:
    """The job goes on and tries again."""
    stand = KeepingStand()
    stand.pass_time("100ms")

    stand.say(
        stand.ids[0], Sealed(1, 1, 1, 0, 0, None, (), (), 0, "task 0.0: disk full")
    )

    assert stand.coordinator.abandoned == [(1, "task 0.0: disk full")]
    stand.inboxes()
    stand.pass_time("100ms")
    announcement = Announced(1, Barrier(Epoch(2), Epoch(0)).to_wire())
    assert stand.inboxes() == [[announcement]] * 2
