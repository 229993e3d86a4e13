"""The lock that keeps a second driver of this machine off a state directory.

It ends with its process, however that ends.  Drivers of other machines are kept apart
by claims (`state.store`); this one only says so earlier and in plainer words.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCK_NAME", "DirectoryLock", "is_locked"]

LOCK_NAME = "lock"
_PRIVATE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def is_locked(root: Path) -> bool:
    """Return whether a driver holds the directory.

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> is_locked(directory)
    False
    """
    try:
        fd = os.open(root / LOCK_NAME, os.O_RDONLY | _PRIVATE)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class DirectoryLock:
    """Held by the driver that works on a local directory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> lock = DirectoryLock(directory)
    >>> lock.release()
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = _opened(root / LOCK_NAME)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            msg = (
                f"the state directory {root} is in use by process {holder or 'unknown'}; "
                "stop that job, or give this one another directory"
            )
            raise SnapshotError(msg) from None
        if os.fstat(self._fd).st_nlink == 1:
            # A file of two names may be one of the user's that somebody linked here.
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in."""
        os.close(self._fd)


def _opened(path: Path) -> int:
    """Return the file that is locked, and nothing else that lies there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _PRIVATE, 0o600)
    except OSError as error:
        msg = (
            f"cannot open {path} ({error}), by which drivers keep off each other; remove "
            "it if no job runs here, or name a directory that belongs to this user"
        )
        raise SnapshotError(msg) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        msg = f"{path} is no regular file, and it is what drivers lock; remove it"
        raise SnapshotError(msg)
    return fd
