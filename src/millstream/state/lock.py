"""The lock that keeps a second driver of this machine off a state directory.

It ends with its process, however that ends.  Drivers of other machines are kept apart
by claims (`state.store`); this one only says so earlier and in plainer words.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCK_NAME", "DirectoryLock"]

LOCK_NAME = "lock"


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
        root.mkdir(parents=True, exist_ok=True)
        path = root / LOCK_NAME
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
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
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in."""
        os.close(self._fd)
