"""Every directory that a power cut can leave behind.

A `Recorder` notes what the real code does to a real directory.  After a crash, what was
synced is there; of everything else, any part may be: any of the names, in any
combination, and of the bytes of a file any beginning, also half of a write.
`crash_states` enumerates all of it for every prefix of the record.

A folder stands in its parent like a file, so a file in a folder whose own name is lost
is lost too.  Syncing a file does not sync its name: no standard says that it does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CrashState", "Recorder", "crash_states"]

Verb = Literal["enter", "leave", "write", "sync"]


@dataclass(frozen=True, slots=True)
class Step:
    """A change, or a sync.

    `enter` puts a name into a folder, `leave` takes it out; `write` adds to a file;
    `sync` makes everything durable that happened to one file or folder before.

    Attributes
    ----------
    thing
        The file, by number, or the folder, by path, that changes.
    """

    verb: Verb
    thing: int | str
    name: str = ""
    entry: int | str = 0
    data: bytes = b""


class CrashState(NamedTuple):
    """The files that are there after a crash, and how many steps had been taken."""

    steps: int
    content: dict[str, bytes]


class Recorder:
    """`os`, writing down what changes below a directory."""

    def __init__(self, root: Path) -> None:
        self.steps: list[Step] = []
        self._root = str(root)
        self._open: dict[int, int | str] = {}
        self._numbers: dict[str, int] = {}

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        fd = os.open(path, flags, mode)
        if flags & os.O_CREAT:
            number = self._numbers[path] = len(self.steps) + 1
            self._note(Step("enter", *self._place(path), entry=number))
            self._open[fd] = number
        else:
            self._open[fd] = path
        return fd

    def write(self, fd: int, data: memoryview, /) -> int:
        count = os.write(fd, data)
        self._note(Step("write", self._open[fd], data=bytes(data[:count])))
        return count

    def ftruncate(self, fd: int, length: int, /) -> None:
        os.ftruncate(fd, length)

    def fsync(self, fd: int, /) -> None:
        self._note(Step("sync", self._open[fd]))

    def close(self, fd: int, /) -> None:
        os.close(fd)
        del self._open[fd]

    def link(self, source: str, target: str, /) -> None:
        os.link(source, target)
        self._numbers[target] = self._numbers[source]
        place = self._place(target)
        self._note(Step("enter", *place, entry=self._numbers[target]))

    def unlink(self, path: str, /) -> None:
        os.unlink(path)  # noqa: PTH108 - this stands in for os
        self._note(Step("leave", *self._place(path)))

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        os.mkdir(path, mode)  # noqa: PTH102 - this stands in for os
        self._note(Step("enter", *self._place(path), entry=path))

    def rmdir(self, path: str, /) -> None:
        os.rmdir(path)  # noqa: PTH106 - this stands in for os
        self._note(Step("leave", *self._place(path)))

    def _place(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return folder, name

    def _note(self, step: Step) -> None:
        if not isinstance(step.thing, str) or step.thing.startswith(self._root):
            self.steps.append(step)


def crash_states(
    root: Path, before: dict[str, bytes], steps: list[Step]
) -> Iterator[CrashState]:
    """Yield what may be there after a crash after the last step and before each one.

    Parameters
    ----------
    before
        Files that are durable already.
    """
    for count in reversed(range(len(steps) + 1)):
        done = steps[:count]
        lasting, fleeting = _split(done)
        names = [step for step in fleeting if step.verb != "write"]
        for chosen in _subsets(names):
            keeps = {id(step) for step in chain(lasting, chosen)}
            entries = [step for step in done if id(step) in keeps]
            for written in _contents(lasting, fleeting):
                found = _tree(str(root), before, entries, written)
                yield CrashState(count, found)


def _split(done: list[Step]) -> tuple[list[Step], list[Step]]:
    """Return the changes that were synced, and those that were not."""
    lasting, fleeting = [], []
    synced: set[int | str] = set()
    for step in reversed(done):
        if step.verb == "sync":
            synced.add(step.thing)
        elif step.thing in synced:
            lasting.append(step)
        else:
            fleeting.append(step)
    return lasting[::-1], fleeting[::-1]


def _subsets(steps: list[Step]) -> Iterator[tuple[Step, ...]]:
    sizes = range(len(steps) + 1)
    return chain.from_iterable(combinations(steps, size) for size in sizes)


def _contents(
    lasting: list[Step], fleeting: list[Step]
) -> Iterator[dict[int | str, bytes]]:
    """Yield what the files may hold: all that was synced, and a beginning of the rest."""
    synced: dict[int | str, bytes] = {}
    for step in lasting:
        if step.verb == "write":
            synced[step.thing] = synced.get(step.thing, b"") + step.data
    tails: dict[int | str, list[bytes]] = {}
    for step in fleeting:
        if step.verb == "write":
            beginnings = tails.setdefault(step.thing, [b""])
            whole = beginnings[-1] + step.data
            beginnings += [whole[: -len(step.data) // 2 or None], whole]
    for choice in product(*tails.values()):
        rest = dict(zip(tails, choice, strict=True))
        yield synced | {thing: synced.get(thing, b"") + rest[thing] for thing in rest}


def _tree(
    root: str,
    before: dict[str, bytes],
    entries: list[Step],
    written: dict[int | str, bytes],
) -> dict[str, bytes]:
    """Return the content of all files that can be reached from the root."""
    tree: dict[str, bytes | None] = {f"{root}/{name}": before[name] for name in before}
    for name in before:
        tree |= {f"{root}/{folder}": None for folder in list(Path(name).parents)[:-1]}
    for step in entries:
        path = f"{step.thing}/{step.name}"
        if step.verb == "leave":
            tree.pop(path, None)
        else:
            is_folder = isinstance(step.entry, str)
            tree[path] = None if is_folder else written.get(step.entry, b"")
    return {
        path.removeprefix(f"{root}/"): data
        for path, data in tree.items()
        if data is not None and _is_reached(path, root, tree)
    }


def _is_reached(path: str, root: str, tree: dict[str, bytes | None]) -> bool:
    inner = path.removeprefix(f"{root}/").split("/")[:-1]
    folders = ["/".join([root, *inner[: i + 1]]) for i in range(len(inner))]
    return all(folder in tree for folder in folders)
