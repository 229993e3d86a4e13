"""The driver's hands: what a manifest lists, and when output is committed."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.snapshots import JOB, KEY, Driver, MemoryFiles

import millstream as ms
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol import snapshot_events as events
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended, Sealed
from millstream.runtime.background import Inline
from millstream.runtime.compacting import Compactions
from millstream.runtime.snapshots import (
    DriverContext,
    MergeFiles,
    Savepoint,
    SnapshotCoordinator,
)
from millstream.state.layout import state_name
from millstream.state.plain import encode
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from millstream.state.manifest import Manifest, Transaction

INTERVAL_NS = 100_000_000


class Keeper:
    """The snapshot coordinator of a job of one stage, whose tasks are the test."""

    def __init__(
        self, width: int, *, is_same_plan: bool = True, is_writing: bool = True
    ) -> None:
        flow = ms.Flow(JOB)
        source = flow.from_parallel(lambda _rank, _size: [1], name="read")
        source.for_each(_ignore)
        config = flow.config({"snapshot_every_ms": 100})
        deployment = deploy(flow.plan, config, width, SnapshotContext(JOB, "new"))
        self.files = MemoryFiles()
        before = Driver(SnapshotStore(self.files, KEY, job=JOB, run="old"), "old")
        before.start()
        before.commit()
        manifest = before.commit()
        if is_same_plan:
            hash_, count = deployment.plan_hash, deployment.worker_count
            manifest = replace(manifest, plan_hash=hash_, task_count=count)
        self.before = manifest
        self.store = SnapshotStore(self.files, KEY, job=JOB, run="new")
        claim = self.store.claim()
        self.store.adopt(manifest)
        self.told: list[events.Command | MergeFiles] = []
        self.committed: list[int] = []
        driver = DriverContext(self, self.store, claim, manifest, is_writing=is_writing)
        self.snapshots = SnapshotCoordinator(
            deployment, driver, Inline(), self.told.append
        )
        self.ids = [(s.id, i) for s in deployment.stages.stages for i in range(width)]
        started = events.Started(1, frozenset(self.ids), frozenset(), 0)
        self.snapshots.handle(started)

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Stand for the sinks."""
        self.committed.append(epoch)

    def open(self, now_ns: int) -> Any:
        """Let time pass until an epoch is announced; return its barrier."""
        self.snapshots.handle(events.TimePassed(now_ns))
        assert isinstance(self.told[-1], events.Inject)
        return self.told[-1].barrier

    def seal(
        self, epoch: int, *, is_showing: bool = False, generation: int = 1
    ) -> list[str]:
        """Let every task seal an epoch; return the names of its files."""
        found = []
        transactions = (("for_each", encode(["rows"])),) if is_showing else ()
        for stage, task in self.ids:
            name = state_name(
                epoch,
                "new",
                worker=1,
                stage=stage,
                task=task,
                generation=generation,
            )
            file = (name, *self.store.write_state(name, []), ("count",))
            sealed = Sealed(
                1, generation, epoch, stage, task, file, (), transactions, 0
            )
            self.snapshots.handle(events.TaskSealed(sealed))
            found.append(name)
        self.work()
        return found

    def work(self) -> None:
        """Let everything in the background come to its end."""
        for _ in range(5):
            self.snapshots.poll()

    @property
    def manifest(self) -> Manifest:
        assert self.snapshots.manifests.manifest is not None
        return self.snapshots.manifests.manifest


class FullFiles(MemoryFiles):
    """A disk on which there is no room."""

    def publish(self, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def _ignore(_row: object) -> None:
    """Stand for somebody who wants the rows."""


def test_manifest_lists_the_files_before_and_the_new_deltas() -> None:
    """A restore reads them one after the other."""
    job = Keeper(width=2)

    barrier = job.open(INTERVAL_NS)
    added = job.seal(3)

    assert (barrier.epoch, barrier.since) == (3, 2)
    names = [ref.name for ref in job.manifest.files]
    assert names == [ref.name for ref in job.before.files] + added
    assert not any(ref.is_base for ref in job.manifest.files[-len(added) :])
    assert job.store.newest() == job.manifest
    assert job.committed == [3]


@pytest.mark.parametrize("width", [2, 3])
def test_first_manifest_of_other_tasks_builds_on_nothing(width: int) -> None:
    """Regression: files of tasks that are no more were listed, and read by nobody."""
    job = Keeper(width, is_same_plan=False)

    assert job.open(INTERVAL_NS).since == 0
    added = job.seal(3)

    assert [ref.name for ref in job.manifest.files] == added
    assert all(ref.is_base for ref in job.manifest.files)
    assert job.manifest.task_count == width
    assert job.open(2 * INTERVAL_NS).since == 3


def test_files_of_a_task_that_ended_are_needed_no_more() -> None:
    """Its final flush is part of the epoch."""
    job = Keeper(width=2)
    job.open(INTERVAL_NS)
    first, *rest = job.ids
    ended = Ended(1, 1, 2, *first, (("read", "a.txt", 0, True),), ())
    job.snapshots.handle(events.TaskEnded(ended))
    job.ids = rest
    job.seal(3)

    assert first not in {(ref.stage, ref.task) for ref in job.manifest.files}
    assert job.manifest.ended == (first,)
    assert job.manifest.offsets["read"]["a.txt"] == (0, True)


def test_offsets_of_splits_that_nobody_mentioned_stay() -> None:
    """A task tells of its own splits only."""
    job = Keeper(width=2)
    job.open(INTERVAL_NS)
    job.seal(3)

    assert job.manifest.offsets == job.before.offsets


def test_savepoint_is_a_copy_of_the_next_epoch() -> None:
    """It does not wait for the interval, and is told when it is there."""
    job = Keeper(width=2)
    copied: list[int] = []
    ends: list[BaseException | None] = []

    def copy(_: object, manifest: Manifest | None) -> None:
        assert manifest is not None
        copied.append(manifest.epoch)

    job.snapshots.savepoint(Savepoint(copy, ends.append))
    assert isinstance(job.told[-1], events.Inject)
    assert copied == []

    job.seal(3)

    assert (copied, ends) == ([3], [None])


def test_nothing_is_begun_for_a_job_that_has_ended() -> None:
    """Neither an epoch nor a commit."""
    job = Keeper(width=2)
    job.open(INTERVAL_NS)

    job.snapshots.halt()
    job.seal(3)
    job.snapshots.handle(events.TimePassed(9 * INTERVAL_NS))

    assert job.committed == []
    assert job.snapshots.complete_epoch == Epoch(2)
    assert isinstance(job.told[-1], events.Inject)
    assert len(job.told) == 1


def test_merges_belong_to_the_generation_that_was_told_of_them() -> None:
    """Regression: a stage whose merge was forgotten by a pause was never merged again."""
    job = Keeper(width=2)
    job.snapshots.manifests.compactions = Compactions(deltas_max=0)
    job.open(INTERVAL_NS)
    job.seal(3)
    told = [each for each in job.told if isinstance(each, MergeFiles)]

    job.snapshots.handle(events.PauseRequested())
    job.seal(4)
    assert [each for each in job.told if isinstance(each, MergeFiles)] == told
    job.snapshots.handle(
        events.Started(2, frozenset(job.ids), frozenset(), 2 * INTERVAL_NS)
    )
    job.open(3 * INTERVAL_NS)
    job.seal(5, generation=2)

    assert [each.snapshot[1] for each in job.told if isinstance(each, MergeFiles)] == [
        3,
        5,
    ]


def damaged_at_five(*, is_writing: bool, is_showing: bool = False) -> Keeper:
    """Return a coordinator whose job has found that it cannot be restored from epoch 5."""
    job = Keeper(width=2, is_writing=is_writing)
    for epoch in (3, 4, 5):
        job.open(epoch * INTERVAL_NS)
        job.seal(epoch, is_showing=is_showing)
    job.files.content[job.manifest.files[-1].name] = b"something else"
    job.snapshots.handle(events.Interrupted())
    job.snapshots.handle(events.Interrupted(is_damaged=True))
    job.work()
    return job


@pytest.mark.parametrize("is_writing", [False, True])
def test_damaged_epoch_is_gone_back_behind(
    is_writing: bool,  # noqa: FBT001 - a parameter
) -> None:
    """As by a driver that is started again: under another claim, and as a fork."""
    job = damaged_at_five(is_writing=is_writing)

    assert job.told[-1] == events.Settled(Epoch(4))
    assert job.snapshots.manifests.snapshot == (2, 4)
    assert [each.epoch for each in job.store.forks()] == [5]
    started = events.Started(1, frozenset(job.ids), frozenset(), 9 * INTERVAL_NS)
    job.snapshots.handle(started)
    barrier = job.open(10 * INTERVAL_NS)
    added = job.seal(6)
    assert (barrier.epoch, barrier.since) == (6, 4)
    assert (job.manifest.claim, job.manifest.parent_epoch) == (3, 4)
    assert [ref.name for ref in job.manifest.files[-len(added) :]] == added
    assert not any(ref.epoch == 5 for ref in job.manifest.files)
    assert job.store.newest() == job.manifest


def test_damaged_epoch_whose_output_can_be_seen_ends_the_job() -> None:
    """As at a start of the driver: the rows would be written once more."""
    job = damaged_at_five(is_writing=True, is_showing=True)

    (given_up,) = (told for told in job.told if isinstance(told, events.GiveUp))
    assert given_up.error == "SnapshotError"
    assert "its output may be visible" in given_up.reason


def test_damage_everywhere_ends_the_job() -> None:
    """Nothing is begun from the beginning without being asked."""
    job = Keeper(width=2, is_writing=False)
    for name in list(job.files.names("epochs")):
        job.files.remove(name)
    job.snapshots.handle(events.Interrupted())
    job.snapshots.handle(events.Interrupted(is_damaged=True))
    job.work()

    assert isinstance(job.told[-1], events.GiveUp)
    assert "none of the 2 snapshots in memory can be used" in job.told[-1].reason


def test_older_epoch_of_another_plan_is_left_to_the_next_start() -> None:
    """Its tasks are not those that run, and their splits may be cut in another way."""
    job = Keeper(width=2, is_same_plan=False, is_writing=False)
    job.open(INTERVAL_NS)
    name, *_ = job.seal(3)
    job.files.remove(name)
    job.snapshots.handle(events.Interrupted())
    job.snapshots.handle(events.Interrupted(is_damaged=True))
    job.work()

    assert isinstance(job.told[-1], events.GiveUp)
    assert "start the job again to go on from it" in job.told[-1].reason


def test_full_disk_while_the_job_goes_back_ends_it() -> None:
    """The claim cannot be taken; the next start of the driver can."""
    job = Keeper(width=2, is_writing=False)
    job.store.files = FullFiles(job.files.content)
    job.snapshots.handle(events.Interrupted())
    job.snapshots.handle(events.Interrupted(is_damaged=True))
    job.work()

    assert isinstance(job.told[-1], events.GiveUp)
    assert "mend that and start the job again" in job.told[-1].reason
