"""Bring the tasks of a worker to the state that a snapshot holds, a file at a time.

Every file is verified before it is parsed.  Where the snapshot was taken with as many
tasks, a task reads the files of its own index; otherwise it reads all files of its
operators and keeps what lies in its shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, SnapshotError
from millstream.plan.ended import remains_of
from millstream.protocol.ids import Epoch
from millstream.runtime.assembly import Beginning
from millstream.state.base import ALL_SHARDS, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.runtime.deployment import Deployment
    from millstream.runtime.task import Task
    from millstream.state.base import Segment, ShardRange, State
    from millstream.state.manifest import FileRef, Manifest
    from millstream.state.store import SnapshotStore

__all__ = ["Restoration", "beginning_of", "is_same_plan"]

_KEYLESS = {SegmentKind.TASK, SegmentKind.SHARED, SegmentKind.BATCHES}


def beginning_of(manifest: Manifest, deployment: Deployment) -> Beginning:
    """Return where the tasks of a plan begin after this snapshot.

    Which tasks had ended says something only about the same plan in the same width; of
    another one, what operators that had ended say.
    """
    offsets = {
        operator: {
            split: None if is_done else offset
            for split, (offset, is_done) in splits.items()
        }
        for operator, splits in manifest.offsets.items()
    }
    epoch = Epoch(manifest.epoch)
    if is_same_plan(manifest, deployment):
        return Beginning(epoch, offsets, frozenset(manifest.ended))
    remains = remains_of(deployment.stages, manifest.finished_operators)
    idle = remains.over | remains.unread
    ended = frozenset(task for task in deployment.tasks() if task[0] in idle)
    return Beginning(epoch, offsets, ended, remains.unread, remains.spent)


def is_same_plan(manifest: Manifest, deployment: Deployment) -> bool:
    """Return whether a snapshot was taken by the same tasks of the same plan."""
    taken = (manifest.plan_hash, manifest.task_count)
    return taken == (deployment.plan_hash, deployment.worker_count)


class Restoration:
    """The work of restoring a worker's tasks, in steps.

    Parameters
    ----------
    shards_of
        Returns the shards of a task.
    """

    def __init__(
        self,
        store: SnapshotStore,
        manifest: Manifest,
        tasks: list[Task],
        deployment: Deployment,
        shards_of: Callable[[Task], ShardRange],
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._is_same_plan = is_same_plan(manifest, deployment)
        self._task_count = deployment.worker_count
        self._tasks = [task for task in tasks if task.states()]
        self._shards_of = shards_of
        #: Bytes of state files read so far.
        self.read_bytes = 0
        self._steps = self._restored()

    def step(self) -> bool:
        """Read a file or fill a state; return whether there is more to do."""
        return next(self._steps, None) is not None

    def _restored(self) -> Iterator[bool]:
        indexes = {task.index for task in self._tasks}
        operators = {name for task in self._tasks for name in task.states()}
        segments: list[Segment] = []
        for ref in self._manifest.files:
            if self._is_wanted(ref, indexes, operators):
                segments += self._store.read_segments(ref)
                self.read_bytes += ref.length
                yield True
        for task in self._tasks:
            for name, state in task.states().items():
                own = [segment for segment in segments if segment.operator == name]
                self._fill(task, state, own)
                yield True
            task.time.restored(task.intake, is_same_plan=self._is_same_plan)

    def _is_wanted(self, ref: FileRef, indexes: set[int], operators: set[str]) -> bool:
        if self._is_same_plan and ref.task not in indexes:
            return False
        return not operators.isdisjoint(ref.operators)

    def _fill(self, task: Task, state: State, segments: list[Segment]) -> None:
        """Give a state what is its own: by shard, or by index where it has no keys."""
        keyless = [
            s for s in segments if s.kind in _KEYLESS and self._is_for(s, task.index)
        ]
        keyed = [s for s in segments if s.kind not in _KEYLESS]
        if self._is_same_plan:
            keyed = [s for s in keyed if s.task == task.index]
        try:
            if keyless:
                state.restore(keyless, ALL_SHARDS)
            if keyed or not keyless:
                state.restore(keyed, self._shards_of(task))
        except MillstreamError:
            raise
        except Exception as error:
            msg = (
                f"the state of {task.stage.name!r} in epoch {self._manifest.epoch} does "
                f"not fit the operator ({type(error).__name__}: {error}); give an "
                "operator that means something else another name"
            )
            raise SnapshotError(msg) from error

    def _is_for(self, segment: Segment, index: int) -> bool:
        if self._is_same_plan:
            return segment.task == index
        is_shared = segment.kind is SegmentKind.SHARED
        return is_shared or segment.task % self._task_count == index
