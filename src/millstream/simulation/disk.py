"""A disk in memory that all nodes of a simulation share, and background work in its time.

What `create` and `publish` promise is kept: a file is durable when they return.  What a
real directory may lose before that is tested where it is written (`state.files`).  Here
things come late, fail for a while, are damaged, or happen after their process has died.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from errno import ENOSPC
from typing import TYPE_CHECKING, Protocol

from millstream.ports import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.simulation.clock import VirtualClock

__all__ = ["Deferred", "DiskWatch", "VirtualDisk"]

_DAMAGED_FOLDERS = ("epochs/", "manifests/")


class DiskWatch(Protocol):
    """Somebody who sees what appears and what goes."""

    def published(self, name: str, data: bytes) -> None:
        """Take note that a file appeared as a whole."""

    def removed(self, name: str) -> None:
        """Take note that somebody is about to remove a file."""


@dataclass(slots=True)
class VirtualDisk:
    """Files by name; the port `Files` of every node.

    Attributes
    ----------
    full_until_ns, slow_until_ns
        Until then nothing can be written; nothing that is begun in the background ends.
    damaged
        Names of files that are not what was written.
    interruption
        Called once, just before the next manifest appears.
    """

    clock: VirtualClock
    files: dict[str, bytes] = field(default_factory=dict)
    full_until_ns: int = 0
    slow_until_ns: int = 0
    damaged: set[str] = field(default_factory=set)
    interruption: Callable[[], object] | None = None
    watch: DiskWatch | None = None

    def __str__(self) -> str:
        return "the simulated disk"

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file that must not be there yet."""
        if name in self.files:
            raise FileExistsError(name)
        data = b"".join(chunks)
        if self._is_full:
            self.files[name] = data[: len(data) // 2]
        self._check_room()
        self.files[name] = data

    def publish(self, name: str, data: bytes) -> None:
        """Let a file appear as a whole or not at all."""
        if self.interruption is not None and name.startswith("manifests/"):
            interruption, self.interruption = self.interruption, None
            interruption()
        if name in self.files:
            raise FileExistsError(name)
        self._check_room()
        self.files[name] = data
        if self.watch is not None:
            self.watch.published(name, data)

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return a file, or its beginning."""
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name][:bytes_max]

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder."""
        return sorted(name for name in self.files if name.startswith(f"{folder}/"))

    def remove(self, name: str) -> None:
        """Remove a file."""
        if self.watch is not None:
            self.watch.removed(name)
        self.files.pop(name, None)

    def damage(self, rng: Random) -> bool:
        """Change, cut off, lose or exchange some file; return whether there was one.

        A manifest is not lost: to remove it is how people go back behind it.
        """
        names = [n for n in sorted(self.files) if n.startswith(_DAMAGED_FOLDERS)]
        if not names:
            return False
        name = rng.choice(names)
        data = self.files[name]
        self.damaged.add(name)
        match rng.randrange(2 if name.startswith("manifests/") else 4):
            case 0:
                self.files[name] = data[: rng.randrange(len(data) + 1)]
            case 1:
                place = rng.randrange(len(data) + 1)
                self.files[name] = data[:place] + b"\xff" + data[place + 1 :]
            case 2:
                self.files[name] = self.files[rng.choice(names)]
            case _:
                del self.files[name]
        return self.files.get(name) != data

    @property
    def _is_full(self) -> bool:
        return self.clock.now_ns < self.full_until_ns

    def _check_room(self) -> None:
        if self._is_full:
            raise OSError(ENOSPC, "no space left on the simulated disk")


@dataclass(slots=True)
class Deferred:
    """Runs pieces in order, each some virtual time after the one before."""

    clock: VirtualClock
    rng: Random
    delay_ns_max: int
    disk: VirtualDisk
    _pieces: list[tuple[int, object, Callable[[], object]]] = field(
        default_factory=list
    )

    @property
    def next_ns(self) -> int | None:
        """When the next piece ends."""
        return self._pieces[0][0] if self._pieces else None

    def submit(self, tag: object, work: Callable[[], object]) -> None:
        """Run the piece after those before it."""
        before = [due for due, _, _ in self._pieces[-1:]]
        begin_ns = max([self.clock.now_ns, self.disk.slow_until_ns, *before])
        due_ns = begin_ns + 1 + int(self.rng.random() * self.delay_ns_max)
        self._pieces.append((due_ns, tag, work))

    def poll(self) -> list[Done]:
        """Run what is due and return how it ended."""
        done = []
        while self._pieces and self._pieces[0][0] <= self.clock.now_ns:
            _, tag, work = self._pieces.pop(0)
            done.append(_run(tag, work))
        return done

    def close(self) -> None:
        """Run nothing more."""
        self._pieces.clear()

    def outlive(self, delay_ns: int) -> Deferred:
        """Return a writer that finishes the piece that was begun, but late.

        So does a thread whose process is thought dead, or a store that took its time.
        """
        late = Deferred(self.clock, self.rng, 0, self.disk)
        late._pieces = [(d + delay_ns, tag, work) for d, tag, work in self._pieces[:1]]
        return late


def _run(tag: object, work: Callable[[], object]) -> Done:
    try:
        return Done(tag, work())
    except Exception as error:  # noqa: BLE001 - handed to whoever polls
        return Done(tag, error=error)
