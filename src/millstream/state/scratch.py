"""Directories for the time of a process: whoever comes later removes those of the dead.

A process that is killed leaves its scratch directories behind, and a job that runs for weeks
loses many workers.  So each directory has a lock that its owner holds; it ends with the
process, however that ends, also in another container on the same disk, where process ids
mean nothing.  Who can take the lock of a directory may remove it.

Nothing here knows what is in the directories.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["ScratchDirectory", "remove_abandoned"]

_PREFIX = "millstream-state-"
_LOCK = "owner.lock"


class ScratchDirectory:
    """A new directory of this process.

    Parameters
    ----------
    parent
        Where to make it; None for the system's temporary directory.

    Examples
    --------
    >>> parent = tempfile.mkdtemp()
    >>> scratch = ScratchDirectory(parent)
    >>> remove_abandoned(parent)
    0
    >>> scratch.remove()
    >>> os.listdir(parent)
    []
    """

    def __init__(self, parent: str | None) -> None:
        remove_abandoned(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            lock = _taken(Path(self.path), os.O_CREAT)
            if lock is not None:
                break
        self._lock = lock

    def remove(self) -> None:
        """Remove it with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(parent: str | None) -> int:
    """Remove the directories whose owners are gone; return how many those were.

    What belongs to other users, or has no lock, is left alone.
    """
    count = 0
    for path in Path(parent or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = _taken(path, 0)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
                count += 1
    return count


def _taken(directory: Path, flags: int) -> int | None:
    """Return the lock of a directory if nobody has it and the directory is still there."""
    path = directory / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None
