"""What must hold for the snapshots of every simulated run, at every moment.

`SnapshotChecker` looks at manifests when they appear, and goes by what observers have seen
of the cuts and ends of tasks (`GenerationSeen`).
A complete epoch is a consistent cut: on every channel its reader had taken exactly the
rows that its writer had put in; on a channel that closes a loop it had taken or logged
them.  It holds nothing of an older generation, and all its
files are there as long as it may be restored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from millstream.state.manifest import decoded_manifest
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.simulation.disk import VirtualDisk
    from millstream.simulation.task_watch import Passed, TaskId, TaskWatch
    from millstream.simulation.upkeep import UpkeepChecker
    from millstream.state.manifest import FileRef, Manifest

__all__ = ["GenerationSeen", "SnapshotChecker"]

_Attempt = tuple[str, int]
"""Run and generation."""

_ATTEMPT_IN_NAME = re.compile(r"epochs/\d+/(\w+)-\d+-\d+-\d+-(\d+)\.state")


@dataclass(slots=True)
class GenerationSeen:
    """All that was seen of the tasks of one generation."""

    tasks: set[TaskId] = field(default_factory=set)
    cuts: dict[tuple[int, TaskId], Passed] = field(default_factory=dict)
    ends: dict[TaskId, Passed] = field(default_factory=dict)
    transactions: set[tuple[str, int, bytes]] = field(default_factory=set)

    def begin(self, watch: TaskWatch, epoch: int, *, has_ended: bool) -> None:
        """Note a task; it may have ended before the snapshot that it was made of."""
        self.tasks.add(watch.id)
        if has_ended:
            self.end(watch, epoch)

    def cut(self, watch: TaskWatch, epoch: int) -> None:
        """Note that a task has handed a cut on."""
        self.cuts[epoch, watch.id] = watch.passed(epoch)

    def end(self, watch: TaskWatch, epoch: int) -> None:
        """Note that a task has ended."""
        self.ends[watch.id] = watch.passed(epoch)

    def seal(self, task: int, transactions: tuple[tuple[str, bytes], ...]) -> None:
        """Note what the sinks of a task sealed."""
        self.transactions |= {(name, task, wire) for name, wire in transactions}


class SnapshotChecker:
    """Sees every cut, every manifest and every file that goes."""

    def __init__(
        self,
        disk: VirtualDisk,
        key: bytes,
        problems: list[str],
        upkeep: UpkeepChecker,
        retained: int,
    ) -> None:
        self._disk = disk
        self._retained = retained
        self._upkeep = upkeep
        self._key = key
        self._problems = problems
        self._generations: dict[_Attempt, GenerationSeen] = defaultdict(GenerationSeen)
        self._manifests: dict[str, Manifest] = {}

    def generation(self, run: str, generation: int) -> GenerationSeen:
        """Return what has been seen of a generation, to be added to."""
        return self._generations[run, generation]

    def published(self, name: str, data: bytes) -> None:
        """Check a manifest at the moment at which it appears."""
        if not name.startswith("manifests/"):
            return
        manifest = self._manifests[name] = decoded_manifest(
            data, self._key, lambda: SnapshotStore(self._disk, self._key).directory
        )
        seen = self._generations[manifest.run, manifest.generation]
        found = [
            *self._missing_files(manifest),
            *_foreign_parts(manifest, seen),
            *_broken_chains(manifest),
            *_unsound_tasks(manifest, seen),
            *_torn_channels(manifest, seen),
        ]
        self._problems += [f"epoch {manifest.epoch}: {problem}" for problem in found]
        self._upkeep.published(manifest, self._needed())

    def removed(self, name: str) -> None:
        """Check that nothing goes that may be needed."""
        for each, manifest in self._manifests.items():
            is_listed = any(ref.name == name for ref in manifest.references())
            is_newest = name == each and self._history()[:1] == [name]
            if is_newest or (is_listed and each in self._history()):
                self._problems.append(f"{name} was removed, and {each} needs it")

    def _needed(self) -> set[str]:
        """Return the names of the manifests that are to be kept, and of their files."""
        kept = self._history()[: self._retained]
        listed = [self._manifests[each].references() for each in kept]
        return {*kept, *(ref.name for refs in listed for ref in refs)}

    def _history(self) -> list[str]:
        """Return the names of the manifests that may be restored, newest first."""
        store = SnapshotStore(self._disk, self._key)
        names = [each.name for each in store.manifests()]
        return [name for name in names if name not in self._disk.damaged]

    def _missing_files(self, manifest: Manifest) -> Iterator[str]:
        for ref in manifest.references():
            data = self._disk.files.get(ref.name)
            if ref.name in self._disk.damaged:
                continue
            if data is None or len(data) != ref.length:
                yield f"its file {ref.name} is missing or cut off"
            elif sha256(data).hexdigest() != ref.sha256:
                yield f"its file {ref.name} has another digest"


def _foreign_parts(manifest: Manifest, seen: GenerationSeen) -> Iterator[str]:
    """Yield what did not come from the present generation."""
    for ref in manifest.files:
        match = _ATTEMPT_IN_NAME.fullmatch(ref.name)
        attempt = (manifest.run, str(manifest.generation))
        if ref.epoch == manifest.epoch and match and match.groups() != attempt:
            yield f"{ref.name} is not of generation {manifest.generation}"
    for transaction in manifest.transactions:
        if transaction not in seen.transactions:
            operator, task, _ = transaction
            yield f"task {task} of {operator!r} sealed no such thing in this generation"


def _broken_chains(manifest: Manifest) -> Iterator[str]:
    """Yield the deltas that do not build on the file before them."""
    last: dict[TaskId, FileRef] = {}
    for ref in manifest.files:
        before = last.get((ref.stage, ref.task))
        if before is None and not ref.is_base:
            yield f"{ref.name} is a delta on nothing"
        if before is not None and not ref.since <= before.epoch < ref.epoch:
            yield f"{ref.name} is a delta since {ref.since} on epoch {before.epoch}"
        last[ref.stage, ref.task] = ref


def _unsound_tasks(manifest: Manifest, seen: GenerationSeen) -> Iterator[str]:
    """Yield the tasks that neither cut the epoch nor ended before it."""
    ended = set(manifest.ended)
    for task in sorted(seen.tasks):
        if task in ended:
            end = seen.ends.get(task)
            if end is None or end.epoch >= manifest.epoch:
                yield f"task {task} counts as ended, and it had not"
        elif (manifest.epoch, task) not in seen.cuts:
            yield f"task {task} has not cut it"


def _torn_channels(manifest: Manifest, seen: GenerationSeen) -> Iterator[str]:
    """Yield the channels on which rows were lost, doubled or passed through the cut."""
    for task in sorted(seen.tasks.difference(manifest.ended)):
        cut = seen.cuts.get((manifest.epoch, task))
        if cut is None:
            continue
        for channel, taken in cut.taken.items():
            writer = cut.writers[channel]
            end = seen.ends.get(writer) if writer in manifest.ended else None
            before = end or seen.cuts.get((manifest.epoch, writer))
            sent = None if before is None else before.sent[channel]
            if sent != taken:
                yield f"{taken} rows of channel {channel} were taken, and {sent} sent"
