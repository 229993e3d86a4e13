"""Names that workers gave, kept inside the directory that they are looked for in.

A transaction comes from a worker or from a manifest, and the driver moves, reads and
removes what it names.  A name that no writer makes is refused, so that no transaction
reaches beyond the staging directory of its sink.

Nor does a link that somebody puts in the place of that directory, or of a file in it, at
whatever moment: a `Folder` is held by its descriptor, no link leads to one, and all that is
done to a name is done in it, not along a path.

Nothing here knows what the names stand for.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Folder", "confined", "folder_at"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKED = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What opening a link, or a file for a directory, fails with."""


def confined(pattern: re.Pattern[str], names: Iterable[object]) -> list[str]:
    """Return names that all match as a whole; refuse any other thing.

    Examples
    --------
    >>> import re
    >>> confined(re.compile(r"part-[0-9]+"), ["part-1"])
    ['part-1']
    """
    checked = []
    for name in names:
        if not isinstance(name, str) or not pattern.fullmatch(name):
            msg = (
                f"a transaction names {name!r}, which no task of this sink can have "
                "written; nothing was committed, so find out who else writes to the state "
                "directory or has joined the job"
            )
            raise SnapshotError(msg)
        checked.append(name)
    return checked


class Folder:
    """A directory that is held open, and what is done to names in it.

    Made by `folder_at` and `within`; it is closed with the block that it was opened for.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        #: Where it was when it was opened; for messages.
        self.path = path
        self._descriptor = descriptor

    @contextmanager
    def within(self, name: str) -> Iterator[Folder | None]:
        """Open a directory in this one; None if there is nothing of that name."""
        with _held(self.path / name, name, os.O_NOFOLLOW, self._descriptor) as folder:
            yield folder

    def names(self) -> list[str]:
        """Return the names of all that is in it."""
        return os.listdir(self._descriptor)  # noqa: PTH208 - by descriptor

    def is_there(self, name: str) -> bool:
        """Whether there is anything of that name."""
        return self._kind(name) is not None

    def is_folder(self, name: str) -> bool:
        """Whether that is a directory, and no link to one."""
        return stat.S_ISDIR(self._kind(name) or 0)

    def make(self, name: str, mode: int = 0o700) -> None:
        """Make a directory, by default for its owner alone; there must be none."""
        os.mkdir(name, 0o700, dir_fd=self._descriptor)
        with self.within(name) as folder:
            if folder is not None:
                folder.allow(mode)

    def create(self, name: str, mode: int = 0o666) -> int:
        """Return the descriptor of a new file to be written; there must be none."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        return os.open(name, flags, mode, dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Make an empty file, unless there is a file already."""
        os.close(self._opened(name, os.O_WRONLY | os.O_CREAT))

    def opened(self, name: str) -> BinaryIO | None:
        """Open a file for reading; None if there is nothing of that name."""
        with suppress(FileNotFoundError):
            return os.fdopen(self._opened(name, os.O_RDONLY), "rb")
        return None

    def move(self, name: str, target: Folder, new_name: str) -> None:
        """Move a file; what was put in its place meanwhile is taken back, and refused."""
        descriptor = self._opened(name, os.O_RDONLY)
        try:
            known = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        folders = self._descriptor, target._descriptor
        os.replace(name, new_name, src_dir_fd=folders[0], dst_dir_fd=folders[1])
        moved = os.stat(new_name, dir_fd=folders[1], follow_symlinks=False)
        if not os.path.samestat(known, moved):
            os.replace(new_name, name, src_dir_fd=folders[1], dst_dir_fd=folders[0])
            raise _strange(self.path / name, "file")

    def remove(self, name: str) -> None:
        """Remove a file or a link; none is fine."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_tree(self, name: str) -> None:
        """Remove a directory and what is in it, or a link and not what it leads to."""
        if self.is_folder(name):
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._descriptor)
        elif self.is_there(name):
            self.remove(name)

    def sync(self, name: str | None = None) -> None:
        """Make a file, or the names in the directory, survive a power cut."""
        if name is None:
            os.fsync(self._descriptor)
            return
        descriptor = self._opened(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def allow(self, mode: int) -> None:
        """Set who may do what with it."""
        os.fchmod(self._descriptor, mode)

    def owner(self) -> int:
        """Return whose it is."""
        return os.fstat(self._descriptor).st_uid

    def _opened(self, name: str, flags: int) -> int:
        """Open what must be a plain file."""
        try:
            descriptor = os.open(name, flags | _FILE, 0o666, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (*_LINKED, errno.EISDIR, errno.ENXIO):
                raise _strange(self.path / name, "file") from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _strange(self.path / name, "file")
        return descriptor

    def _kind(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            return found.st_mode
        return None


@contextmanager
def folder_at(path: Path) -> Iterator[Folder | None]:
    """Open a directory that the user named, by links if it is so; None if there is none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with folder_at(Path(tempfile.mkdtemp())) as folder:
    ...     folder.touch("part-1")
    ...     folder.names()
    ['part-1']
    """
    with _held(path, str(path)) as folder:
        yield folder


@contextmanager
def _held(
    path: Path, name: str, flags: int = 0, parent: int | None = None
) -> Iterator[Folder | None]:
    descriptor = None
    try:
        descriptor = os.open(name, _FOLDER | flags, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in _LINKED:
            raise
        raise _strange(path, "directory") from None
    if descriptor is None:
        yield None
        return
    try:
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def _strange(path: Path, expected: str) -> SnapshotError:
    msg = (
        f"{path}, which is staged output, is not a plain {expected} as Millstream makes "
        "them but a link or another thing; remove it, and find out who else writes there"
    )
    return SnapshotError(msg)
