"""Bring what tasks leave at a cut into the store, and tell when it is there.

The encoding, the digests, the writing and the slow part of what sinks seal happen in the
background, in the order of the cuts; so the end of a task is told after everything that
it cut.

State that could not be stored is in the next delta as well, so the epoch is given up and
the task goes on.  Rows that a sink could not seal are nowhere else, and what cannot be
encoded never will be: the task fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from millstream.protocol.messages import Compacted, Ended, Sealed
from millstream.runtime.chain import TaskFailedError
from millstream.runtime.seals import finished
from millstream.state.base import ALL_SHARDS
from millstream.state.compaction import compacted
from millstream.state.layout import state_name
from millstream.state.row_codec import unstorable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.errors import SnapshotError
    from millstream.ports import Background, Done
    from millstream.protocol.ids import Generation, PeerId
    from millstream.protocol.messages import StoredFile
    from millstream.runtime.observer import Observer
    from millstream.runtime.task_cut import TaskCut
    from millstream.state.base import Segment
    from millstream.state.layout import ManifestId
    from millstream.state.store import SnapshotStore

__all__ = ["Report", "SealFailed", "Sealer"]


@dataclass(frozen=True, slots=True)
class SealFailed:
    """A sink could not make durable what it wrote, or state can not be stored at all."""

    generation: int
    error: TaskFailedError | SnapshotError


Report = Sealed | Ended | Compacted | SealFailed


@dataclass(slots=True)
class _Seal:
    generation: int
    cut: TaskCut
    #: Set in the background, also if the state cannot be stored after that.
    transactions: tuple[tuple[str, bytes], ...] = ()
    #: Set there if no other attempt could store the state.
    unstorable: SnapshotError | None = None


@dataclass(slots=True)
class _End(_Seal):
    pass


@dataclass(frozen=True, slots=True)
class _Compaction:
    generation: int
    epoch: int
    stage: int
    task: int


class Sealer:
    """Stores the captures of one worker's tasks.

    Parameters
    ----------
    run
        Names this start of the driver in file names, which no other start may use.
    """

    def __init__(
        self,
        worker: PeerId,
        store: SnapshotStore | None,
        background: Background,
        run: str,
        observer: Observer | None = None,
    ) -> None:
        self._worker = worker
        self._store = store
        self._background = background
        self._run = run
        self._observer = observer
        self._pending = 0
        #: The last cut of every task: epochs before it are complete or given up.
        self._last_epochs: dict[tuple[int, int], int] = {}

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way into the store."""
        return self._pending > 0

    def seal(self, cut: TaskCut, generation: Generation) -> None:
        """Store what a task captured."""
        self._last_epochs[cut.stage, cut.task] = cut.epoch
        tag = _Seal(generation, cut)
        self._submit(tag, partial(self._write, tag))

    def end(self, cut: TaskCut, generation: Generation) -> None:
        """Tell that a task ended, once everything before it is stored."""
        tag = _End(generation, cut)
        self._submit(tag, partial(_finish_seals, tag))

    def compact(
        self, snapshot: ManifestId, stage: int, task: int, generation: Generation
    ) -> None:
        """Merge the files of a task that the snapshot lists into one."""
        tag = _Compaction(generation, snapshot.epoch, stage, task)
        self._submit(tag, partial(self._merge, tag, snapshot))

    def poll(self) -> list[Report]:
        """Return what has been stored, or failed to be, since the last time."""
        reports = [self._report(done) for done in self._background.poll()]
        if self._observer is not None:
            for report in reports:
                self._observer.reported(report)
        return reports

    def close(self) -> None:
        """Store nothing more."""
        self._background.close()

    def _submit(self, tag: _Seal | _End | _Compaction, work: object) -> None:
        self._pending += 1
        self._background.submit(tag, work)  # type: ignore[arg-type]  # a callable

    def _write(self, tag: _Seal) -> StoredFile | None:
        """Store a capture, unless it waited so long that its epoch was given up.

        What sinks sealed counts all the same: it goes into the next epoch.
        """
        _finish_seals(tag)
        cut = tag.cut
        is_late = self._last_epochs[cut.stage, cut.task] > cut.epoch
        if not cut.captures or is_late:
            return None
        operators = tuple(operator for operator, _ in cut.captures)
        name = state_name(
            cut.epoch, self._run, worker=self._worker, stage=cut.stage, task=cut.task,
            generation=tag.generation,
        )  # fmt: skip
        return self._stored(name, _encoded(tag), operators)

    def _merge(self, tag: _Compaction, snapshot: ManifestId) -> StoredFile:
        """Read the snapshot, which may have been removed meanwhile, and merge."""
        assert self._store is not None
        manifest = self._store.load(snapshot)
        own = (tag.stage, tag.task)
        refs = [ref for ref in manifest.files if (ref.stage, ref.task) == own]
        operators = tuple(sorted({name for ref in refs for name in ref.operators}))
        name = state_name(
            tag.epoch, self._run, worker=self._worker, stage=tag.stage, task=tag.task,
            generation=tag.generation,
        )  # fmt: skip
        merged = compacted(refs, self._store, ALL_SHARDS, manifest.shard_count)
        return self._stored(f"{name.removesuffix('.state')}.base", merged, operators)

    def _stored(
        self, name: str, segments: Iterable[Segment], operators: tuple[str, ...]
    ) -> StoredFile:
        assert self._store is not None
        length, digest = self._store.write_state(name, segments)
        return (name, length, digest, operators)

    def _report(self, done: Done) -> Report:
        self._pending -= 1
        tag: _Seal | _End | _Compaction = done.tag
        problem = (
            "" if done.error is None else f"{type(done.error).__name__}: {done.error}"
        )
        if isinstance(tag, _Compaction):
            return Compacted(
                self._worker, tag.generation, tag.epoch, tag.stage, tag.task,
                done.result, problem,
            )  # fmt: skip
        if isinstance(done.error, TaskFailedError):
            return SealFailed(tag.generation, done.error)
        if tag.unstorable is not None:
            return SealFailed(tag.generation, tag.unstorable)
        cut = tag.cut
        if isinstance(tag, _End):
            return Ended(
                self._worker, tag.generation, cut.epoch, cut.stage, cut.task,
                cut.offsets, tag.transactions, cut.nodes_left,
            )  # fmt: skip
        if problem:
            problem = (
                f"task {cut.stage}.{cut.task} could not store its state: {problem}"
            )
        return Sealed(
            self._worker, tag.generation, cut.epoch, cut.stage, cut.task, done.result,
            cut.offsets, tag.transactions, cut.pause_ns, problem,
        )  # fmt: skip


def _encoded(tag: _Seal) -> Iterator[Segment]:
    """Yield the segments of a cut; note on the tag if it is they that cannot be had."""
    for operator, capture in tag.cut.captures:
        try:
            yield from capture.segments(operator, tag.cut.task)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            tag.unstorable = unstorable(f"what {operator!r} keeps", error)
            raise


def _finish_seals(tag: _Seal) -> None:
    tag.transactions = finished(tag.cut.transactions)
