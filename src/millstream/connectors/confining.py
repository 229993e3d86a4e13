"""Names that workers gave, kept inside the directory that they are joined to.

A transaction comes from a worker or from a manifest, and the driver moves, reads and
removes what it names.  A name that no writer makes is refused, so that no transaction
reaches beyond the staging directory of its sink.

Nothing here knows what the names stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["confined", "own_directory", "own_file"]


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


def own_directory(path: Path) -> Path:
    """Return a path that is a directory, or nothing yet; a link would lead elsewhere."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise _strange(path, "directory")
    return path


def own_file(path: Path) -> Path:
    """Return a path that is a file, or nothing yet; a link would lead elsewhere."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise _strange(path, "file")
    return path


def _strange(path: Path, expected: str) -> SnapshotError:
    msg = (
        f"{path}, which is staged output, is not a plain {expected} as Millstream makes "
        "them but a link or another thing; remove it, and find out who else writes there"
    )
    return SnapshotError(msg)
