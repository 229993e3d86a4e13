"""Who else could have written what lies in a local state directory.

Snapshots hold pickles, and a key that lies beside them proves them only if nobody else
could put one there.  So a directory without a key from elsewhere (`state.key`) must be its
user's own, and its key must be readable for that user alone.  What is no regular file is
never opened in a way that could wait, and never followed.

`judged` decides from what the file system says; the rest asks it.
"""

from __future__ import annotations

import errno
import os
import stat
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.observe.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "Verdict",
    "check_root",
    "judged",
    "read_private",
    "read_regular",
    "regular_files",
]

_log = logger("state")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OWNER_FOLDER = 0o700
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_UNWRITTEN = frozenset({"lock", "lost+found"})
"""What a directory may hold in which nobody has stored anything."""

_LINK = (errno.ELOOP, errno.EMLINK)
_WAYS_OUT = (
    "make it yours and private (chown, chmod 700), name a new directory in it, or keep the "
    "key elsewhere: set MILLSTREAM_STATE_KEY"
)


class Verdict(Enum):
    """What to do about a directory."""

    ACCEPT = auto()
    TIGHTEN = auto()
    REFUSE = auto()


def judged(*, is_own: bool, mode: int, is_unwritten: bool) -> Verdict:
    """Return what to do about the root of a state directory.

    Others may have put something into a directory that they can write.  If it is sticky,
    they cannot have taken anything away; if nothing was stored, there is nothing yet.

    Examples
    --------
    >>> judged(is_own=True, mode=0o755, is_unwritten=False)
    <Verdict.TIGHTEN: 2>
    >>> judged(is_own=True, mode=0o775, is_unwritten=False)
    <Verdict.REFUSE: 3>
    """
    if not is_own:
        return Verdict.REFUSE
    is_safe = not mode & _OTHERS_WRITE or mode & stat.S_ISVTX or is_unwritten
    if not is_safe:
        return Verdict.REFUSE
    return Verdict.TIGHTEN if mode & _OTHERS else Verdict.ACCEPT


def check_root(root: Path, *, tightens: bool) -> None:
    """Refuse a directory that others can write, or have led us to, unless it is not there.

    Parameters
    ----------
    tightens
        Whether to take rights from others that they need not have.
    """
    _refuse_planted_link(root)
    try:
        fd = os.open(root, _FOLDER)
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"cannot open the state directory {root} ({error}); {_WAYS_OUT}"
        raise SnapshotError(msg) from error
    try:
        verdict = _verdict(fd)
        if verdict is Verdict.TIGHTEN and tightens:
            _tighten(fd, root)
            verdict = _verdict(fd)
        if verdict is Verdict.REFUSE:
            found = os.fstat(fd)
            msg = (
                f"the state directory {root} belongs to user {found.st_uid} and has the "
                f"mode {stat.S_IMODE(found.st_mode):04o}, so others than user "
                f"{os.geteuid()} could run code in this job; {_WAYS_OUT}"
            )
            raise SnapshotError(msg)
    finally:
        os.close(fd)


def _refuse_planted_link(root: Path) -> None:
    """Refuse a link of somebody else, who chooses among the user's own directories."""
    try:
        found = os.lstat(root)
    except OSError:
        return
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        msg = (
            f"the state directory {root} is a link that user {found.st_uid} made, so that "
            f"one decides where user {os.geteuid()} stores state; {_WAYS_OUT}"
        )
        raise SnapshotError(msg)


def _verdict(fd: int) -> Verdict:
    found = os.fstat(fd)
    names = {name for name in os.listdir(fd) if not name.startswith(".")}
    return judged(
        is_own=found.st_uid == os.geteuid(),
        mode=stat.S_IMODE(found.st_mode),
        is_unwritten=names <= _UNWRITTEN,
    )


def _tighten(fd: int, root: Path) -> None:
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    try:
        os.fchmod(fd, _OWNER_FOLDER)
    except OSError as error:
        _log.warning(
            "the state directory %s stays open to others, mode %04o (%s)",
            root, mode, error,
        )  # fmt: skip
    else:
        _log.info("the state directory %s had the mode %04o, now 0700", root, mode)


def read_private(path: Path, bytes_max: int) -> bytes:
    """Return the beginning of a file that nobody else can have read or written.

    Raises `FileNotFoundError`, and `SnapshotError` if it is another's.
    """
    try:
        fd = _opened(path)
    except FileNotFoundError:
        if not os.path.lexists(path):
            raise
        msg = f"{path} is a link or no regular file; put the key there as a file"
        raise SnapshotError(msg) from None
    except OSError as error:
        msg = f"cannot open {path} ({error}), which must be this user's; {_WAYS_OUT}"
        raise SnapshotError(msg) from error
    try:
        found = os.fstat(fd)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid() or mode & _OTHERS:
            msg = (
                f"{path} belongs to user {found.st_uid} and has the mode {mode:04o}, and "
                f"must be readable for user {os.geteuid()} alone, as whoever has it can "
                "run code in this job; if it is still a secret, chown it and chmod 600, "
                "else begin with a new directory, or set MILLSTREAM_STATE_KEY"
            )
            raise SnapshotError(msg)
        return _all(fd, bytes_max)
    finally:
        os.close(fd)


def read_regular(path: Path, bytes_max: int | None = None) -> bytes:
    """Return all of a regular file, or its beginning; raises `FileNotFoundError`."""
    fd = _opened(path)
    try:
        return _all(fd, bytes_max)
    finally:
        os.close(fd)


def regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder; what else is there is named in the log."""
    try:
        fd = os.open(folder, _FOLDER | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in {*_LINK, errno.ENOTDIR}:
            raise
        _skip(folder)
        return
    try:
        entries = sorted(os.scandir(fd), key=lambda entry: entry.name)
        kinds = [_kind(entry) for entry in entries]
    finally:
        os.close(fd)
    for entry, kind in zip(entries, kinds, strict=True):
        if kind == stat.S_IFDIR:
            yield from regular_files(folder / entry.name)
        elif kind == stat.S_IFREG:
            yield folder / entry.name
        elif kind:
            _skip(folder / entry.name)


def _kind(entry: os.DirEntry[str]) -> int:
    """Return what an entry is; 0 if it has just gone."""
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _opened(path: Path) -> int:
    """Return a regular file, opened; a link, a pipe or a device is none."""
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        if error.errno in {*_LINK, errno.ENXIO, errno.ENOTDIR}:
            raise _no_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_file(path)
    return fd


def _no_file(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no regular file", str(path))


def _all(fd: int, bytes_max: int | None) -> bytes:
    with os.fdopen(fd, "rb", closefd=False) as file:
        return file.read(-1 if bytes_max is None else bytes_max)


@lru_cache(maxsize=1000)
def _skip(place: Path) -> None:
    """Say once that something is not looked at."""
    _log.warning("%s is neither a file nor a folder, so it is left alone", place)
