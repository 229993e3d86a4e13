"""The driver's hands: what a manifest lists, and when output is committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.snapshots import JOB, KEY, Driver, MemoryFiles

import millstream as ms
from millstream.launch.job import deploy
from millstream.launch.keeping import Keeping
from millstream.protocol import snapshots as core
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Ended, Sealed
from millstream.runtime.background import Inline
from millstream.runtime.snapshots import Backing, Savepoint, SnapshotKeeper
from millstream.state.layout import state_name
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from millstream.runtime.snapshots import MergeFiles
    from millstream.state.manifest import Manifest, Transaction

INTERVAL_NS = 100_000_000


class Keeper:
    """A keeper of a job of one stage, whose tasks are the test."""

    def __init__(self, width: int, *, is_same_plan: bool = True) -> None:
        flow = ms.Flow(JOB)
        flow.from_parallel(lambda _rank, _size: [1]).for_each(_ignore)
        config = flow.config({"snapshot_every_ms": 100})
        deployment = deploy(flow.plan, config, width, Keeping(JOB, "new"))
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
        self.told: list[core.Command | MergeFiles] = []
        self.committed: list[int] = []
        backing = Backing(self, self.store, claim, manifest)
        self.keeper = SnapshotKeeper(deployment, backing, Inline(), self.told.append)
        self.ids = [(s.id, i) for s in deployment.stages.stages for i in range(width)]
        started = core.Started(1, frozenset(self.ids), frozenset(), 0)
        self.keeper.handle(started)

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """Stand for the sinks."""
        self.committed.append(epoch)

    def open(self, now_ns: int) -> Any:
        """Let time pass until an epoch is announced; return its barrier."""
        self.keeper.handle(core.TimePassed(now_ns))
        assert isinstance(self.told[-1], core.Inject)
        return self.told[-1].barrier

    def seal(self, epoch: int) -> list[str]:
        """Let every task seal an epoch; return the names of its files."""
        found = []
        for stage, task in self.ids:
            name = state_name(
                epoch, "new", worker=1, stage=stage, task=task, generation=1
            )
            file = (name, *self.store.write_state(name, []), ("count",))
            sealed = Sealed(1, 1, epoch, stage, task, file, (), (), 0)
            self.keeper.handle(core.TaskSealed(sealed))
            found.append(name)
        self.work()
        return found

    def work(self) -> None:
        """Let everything in the background come to its end."""
        for _ in range(5):
            self.keeper.poll()

    @property
    def manifest(self) -> Manifest:
        assert self.keeper.ledger.manifest is not None
        return self.keeper.ledger.manifest


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
    """Its last words are part of the epoch."""
    job = Keeper(width=2)
    job.open(INTERVAL_NS)
    first, *rest = job.ids
    ended = Ended(1, 1, 2, *first, (("read", "a.txt", 0, True),), ())
    job.keeper.handle(core.TaskEnded(ended))
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
    job.keeper.savepoint(
        Savepoint(lambda _, manifest: copied.append(manifest.epoch), ends.append)
    )
    assert isinstance(job.told[-1], core.Inject)
    assert copied == []

    job.seal(3)

    assert (copied, ends) == ([3], [None])


def test_nothing_is_begun_for_a_job_that_has_ended() -> None:
    """Neither an epoch nor a commit."""
    job = Keeper(width=2)
    job.open(INTERVAL_NS)

    job.keeper.halt()
    job.seal(3)
    job.keeper.handle(core.TimePassed(9 * INTERVAL_NS))

    assert job.committed == []
    assert job.keeper.complete_epoch == Epoch(2)
    assert isinstance(job.told[-1], core.Inject)
    assert len(job.told) == 1
