"""A driver in miniature that writes snapshots, and files in memory for it.

The driver keeps no state of its own but the list of files that its next manifest needs;
what the files hold is made up from epoch and task.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millstream.protocol.ids import Epoch
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.layout import state_name
from millstream.state.manifest import FORMAT, FileRef, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.ports import Files
    from millstream.state.store import SnapshotStore

__all__ = ["JOB", "KEY", "TASKS", "Driver", "InterruptedFiles", "MemoryFiles"]

JOB = "word-count"
KEY = bytes(range(32))
TASKS = 2
BASE_EVERY = 3
"""Every so many epochs a task writes a base, and older files are no longer needed."""


class MemoryFiles:
    """`Files` whose content a test can look at and damage."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content = dict(content or {})

    def __str__(self) -> str:
        return "memory"

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        self._put(name, b"".join(chunks))

    def publish(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        if name not in self.content:
            raise FileNotFoundError(name)
        return self.content[name][:bytes_max]

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.content if name.startswith(f"{folder}/"))

    def remove(self, name: str) -> None:
        self.content.pop(name, None)

    def _put(self, name: str, data: bytes) -> None:
        if name in self.content:
            raise FileExistsError(name)
        self.content[name] = data


class InterruptedFiles:
    """`Files` that let something else happen before one call of many."""

    def __init__(self, files: Files, at: int, something: Callable[[], object]) -> None:
        self.calls: Counter[str] = Counter()
        self._files = files
        self._at = at
        self._something = something

    def __str__(self) -> str:
        return str(self._files)

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        self._count("create")
        self._files.create(name, chunks)

    def publish(self, name: str, data: bytes) -> None:
        self._count("publish")
        self._files.publish(name, data)

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        self._count("read")
        return self._files.read(name, bytes_max)

    def names(self, folder: str) -> list[str]:
        self._count("names")
        return self._files.names(folder)

    def remove(self, name: str) -> None:
        self._count("remove")
        self._files.remove(name)

    def _count(self, call: str) -> None:
        if self.calls.total() == self._at:
            self._something()
        self.calls[call] += 1


class Driver:
    """Takes a claim, goes on from what is there, and makes epochs complete."""

    def __init__(self, store: SnapshotStore, run: str) -> None:
        self.store = store
        self.run = run
        self.claim = 0
        self.epoch = 0
        self.attempts = 0
        self.last: Manifest | None = None

    def start(self) -> Manifest | None:
        """Become the driver; return what it goes on from."""
        self.claim = self.store.claim()
        self.last = self.store.newest()
        self.store.adopt(self.last)
        self.epoch = 0 if self.last is None else self.last.epoch
        return self.last

    def commit(self) -> Manifest:
        """Make the next epoch complete."""
        self.epoch += 1
        manifest = self.manifest([self.seal(task) for task in range(TASKS)])
        self.store.write_manifest(manifest)
        self.last = manifest
        return manifest

    def seal(self, task: int) -> FileRef:
        """Write what a task captured for the present epoch."""
        name = self.next_name(task)
        length, digest = self.store.write_state(name, self.segments(task))
        return self.reference(name, task, length, digest)

    def next_name(self, task: int) -> str:
        """Return the name for another attempt."""
        self.attempts += 1
        return state_name(
            self.epoch, self.run, worker=1, stage=0, task=task, generation=self.attempts
        )

    def segments(self, task: int) -> list[Segment]:
        """Return what a task captured, more than one write long."""
        payload = f"epoch {self.epoch} of task {task};".encode() * 20
        segment = Segment("count", task, SegmentKind.TASK, ALL_SHARDS, payload)
        return [segment, segment]

    def reference(self, name: str, task: int, length: int, digest: str) -> FileRef:
        """Return what a manifest says about a file."""
        is_base = self.epoch % BASE_EVERY == 1
        since = 0 if is_base else self.epoch - 1
        return FileRef(
            name, length, digest, ("count",), is_base, self.epoch, since, 0, task
        )

    def manifest(self, refs: list[FileRef]) -> Manifest:
        """Return the manifest of the present epoch, with these files at the end."""
        before = () if self.last is None or refs[0].is_base else self.last.files
        return Manifest(
            format=FORMAT,
            job=JOB,
            plan_hash="5eed",
            epoch=self.epoch,
            parent_epoch=0 if self.last is None else self.last.epoch,
            generation=1,
            claim=self.claim,
            run=self.run,
            shard_count=1024,
            key_hash_version=1,
            task_count=TASKS,
            files=(*before, *refs),
            offsets={"read": {"a.txt": (10 * self.epoch, False), "b.txt": (7, True)}},
            splits=None,
            results=(),
            transactions=(("write", 0, b"staged"),),
            ended=((0, 1),),
            left=((0, 1, 2),),
            ended_operators=(("read", False), ("count", True)),
            operators=("count",),
            duration_ms=12,
            created="2030-01-02 03:04:05",
            flow="words",
            sources={"read": "*.txt"},
            fingerprints={"count": {"does": ("aggregate by key",)}},
        )

    def collect(self, retain: int) -> int:
        """Remove what the newest manifests do not need."""
        return self.store.collect_garbage(retain, oldest_open=Epoch(self.epoch + 1))
