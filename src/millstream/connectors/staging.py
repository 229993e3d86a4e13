"""Where a source stages what Spark computes for a job, and how long that stays there.

A job that keeps nothing stages in a temporary directory, which is gone when the job is.
What a job with a state directory stages belongs to its state: it lies below that
directory, or below the one that the user named, under a name that the next run finds
again, until the job is complete.

What is staged, and when it may be removed, is known to the sources.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.connectors.confining import folder_at
from millstream.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.confining import Folder

__all__ = ["Staging"]

_PREFIX = "millstream-staged-"


class Staging:
    """The directory in which one source stages rows.

    Parameters
    ----------
    parent
        A directory that the driver and all executors share; by default a temporary one
        of this machine, which is enough for a local master, or the job's state directory.

    Attributes
    ----------
    path
        Where rows are staged now; None before and after.
    """

    def __init__(self, parent: str | None = None) -> None:
        self.path: str | None = None
        self._parent = parent
        self._directory: str | None = None
        self._label = ""

    @property
    def is_kept(self) -> bool:
        """Whether a later run may need what is staged."""
        return bool(self._label)

    def keep_in(self, directory: str | None, label: str) -> None:
        """Say where it is to stay; see `Source.keep_in`."""
        self._directory, self._label = directory, label

    def make(self) -> str:
        """Make an empty directory; what a run left that had not begun is removed."""
        kept = self._kept()
        if kept is None:
            parent = self._parent and Path(self._parent).absolute()
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent or None)
            return self.path
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _found(kept):  # which refuses a link
            pass
        # Neither of the two follows a link that comes now.
        shutil.rmtree(kept, ignore_errors=True)
        try:
            kept.mkdir(mode=0o700)
        except FileExistsError:
            raise _not_ours(kept) from None
        self.path = str(kept)
        return self.path

    def find(self) -> str:
        """Return the directory that an earlier run of the job made.

        Raises
        ------
        SnapshotError
            If it is not there: then the job cannot go on.
        """
        kept = self._kept()
        if kept is None:
            raise _not_there(None)
        with _found(kept) as folder:
            if folder is None:
                raise _not_there(kept)
            if folder.owner() != os.geteuid():
                raise _not_ours(kept)
        self.path = str(kept)
        return self.path

    def leave(self) -> None:
        """Leave it to a later run."""
        self.path = None

    def remove(self) -> None:
        """Remove all of it, also what only an earlier run had made."""
        found = self.path or (self._kept() if self.is_kept else None)
        if found is not None:
            shutil.rmtree(found, ignore_errors=True)
        self.path = None

    def _kept(self) -> Path | None:
        if self._parent is not None and not Path(self._parent).is_dir():
            msg = (
                f"staging={self._parent!r} is not a directory of this machine; name one "
                "that is there and that all executors share"
            )
            raise UsageError(msg)
        if not self.is_kept:
            return None
        if self._parent is not None:
            return Path(self._parent).absolute() / f"{_PREFIX}{self._label}"
        if self._directory is None:
            msg = (
                "what Spark stages for a job stays with the job's state, which is not on "
                "a file system here; pass staging='a/directory' that the driver and all "
                "executors share"
            )
            raise UsageError(msg)
        return Path(self._directory).absolute()


@contextmanager
def _found(path: Path) -> Iterator[Folder | None]:
    with folder_at(path.parent) as parent:
        if parent is None:
            yield None
            return
        with parent.within(path.name) as folder:
            yield folder


def _not_there(place: Path | None) -> SnapshotError:
    msg = (
        "the rows that Spark had staged for this job, and its query, belong to the state "
        f"directory and are not at {place or 'any place that stays'}; go on with the state= and staging= of the "
        "first run (a savepoint does not hold them), or begin anew with another state "
        "directory"
    )
    return SnapshotError(msg)


def _not_ours(path: Path) -> SnapshotError:
    msg = (
        f"{path}, where Spark stages rows for this job, belongs to another user, who could "
        "put rows of their own there; remove it, or pass a staging= that only you can write"
    )
    return SnapshotError(msg)
