"""Output directories whose part files appear when the driver commits, and not before.

Each task writes below ``<directory>/.millstream-<job>/``, which readers of the directory
skip, under names that no other attempt has.  A finished part is known by its
*transaction*: where it is and what it is to be called.  The commit moves exactly those
parts; what a killed task left behind is nobody's.  ``_SUCCESS`` comes last.

Nothing here knows what is in a part or when a job is complete.
"""

from __future__ import annotations

import os
import secrets
import shutil
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import quote

from millstream.connectors import remote
from millstream.connectors.paths import local_path
from millstream.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.paths import StrPath

__all__ = ["Output", "Part", "Transaction", "output_to"]

Transaction = tuple[str, str]
"""Name of a finished part in the staging directory, and what it is to be called."""

_STAGING_PREFIX = ".millstream-"
_PART_PREFIX = "part-"
_TEMPORARY_SUFFIX = ".tmp"
_SUCCESS = "_SUCCESS"

_MADE_DIRECTORY = "made-directory"
"""Marks in the staging directory that the output directory was not there before."""

_PREPARED = "prepared"
"""Marks a staging directory where empty directories do not exist."""

_OLD_PARTS_REMOVED = "old-parts-removed"
"""Marks that the parts now in the directory are new, should a commit be repeated."""

_WRITE_BUFFER_BYTES = 1024 * 1024

_UPLOAD_BYTES = 16 * 1024 * 1024
"""Bytes of one request; object stores take at most 10,000 of them for one part."""

_WITHOUT_DIRECTORIES = frozenset(
    {"abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"}
)
"""Object stores: a directory is there when something is in it."""


class Part(ABC):
    """The file of one attempt to write a part."""

    file: BinaryIO

    @abstractmethod
    def finish(self, epoch: int) -> Transaction:
        """Make the file durable and say what the commit must do with it."""

    def abandon(self) -> None:
        """Close the file; the driver's abort removes it."""
        self.file.close()


class Output(ABC):
    """A directory that many tasks write parts to, for one job after the other."""

    @abstractmethod
    def prepare(self, job: str, *, overwrite: bool) -> None:
        """Make the directory, or check that it has room for the output."""

    @abstractmethod
    def prepare_again(self, job: str) -> None:
        """Make ready for a job that has been here before."""

    @abstractmethod
    def part(self, job: str, task: int, suffix: str) -> Part:
        """Open a file for this attempt; an earlier attempt may still hold its own."""

    @abstractmethod
    def commit(
        self, job: str, transactions: list[Transaction], *, overwrite: bool
    ) -> None:
        """Move finished parts into the directory; safe to repeat.

        Where parts of an earlier run are to go, they go when there is the first new
        part to move: a commit that is repeated after the end has none.
        """

    @abstractmethod
    def complete(self, job: str) -> None:
        """Write ``_SUCCESS`` and remove the staging directory; safe to repeat."""

    @abstractmethod
    def abort(self, job: str) -> None:
        """Remove what the job wrote, and the directory if the job made it."""


def output_to(directory: StrPath) -> Output:
    """Return the output directory of a path or a URL."""
    place = local_path(directory)
    return _RemoteOutput(place) if remote.is_url(place) else _LocalOutput(place)


class _LocalOutput(Output):
    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).expanduser().absolute()
        for path in (self._directory, *self._directory.parents):
            if path.exists() and not path.is_dir():
                raise _file_in_the_way(directory, str(path))

    def prepare(self, job: str, *, overwrite: bool) -> None:
        is_new = not self._directory.exists()
        if not is_new and not overwrite:
            names = [path.name for path in self._directory.iterdir()]
            _check_empty(str(self._directory), names)
        staging = self._staging(job)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        if is_new:
            (staging / _MADE_DIRECTORY).touch()

    def prepare_again(self, job: str) -> None:
        self._staging(job).mkdir(parents=True, exist_ok=True)

    def part(self, job: str, task: int, suffix: str) -> Part:
        return _LocalPart(self._staging(job), task, suffix)

    def commit(
        self, job: str, transactions: list[Transaction], *, overwrite: bool
    ) -> None:
        staging = self._staging(job)
        if overwrite and any((staging / staged).exists() for staged, _ in transactions):
            self._remove_old_parts(staging / _OLD_PARTS_REMOVED)
        for staged, name in transactions:
            part, target = staging / staged, self._directory / name
            if part.exists():
                part.replace(target)
            elif not target.exists():
                raise _gone(str(self._directory), str(part))
        _sync_directory(self._directory)

    def complete(self, job: str) -> None:
        (self._directory / _SUCCESS).touch()
        _sync_directory(self._directory)
        shutil.rmtree(self._staging(job), ignore_errors=True)

    def abort(self, job: str) -> None:
        staging = self._staging(job)
        made_directory = (staging / _MADE_DIRECTORY).exists()
        shutil.rmtree(staging, ignore_errors=True)
        if made_directory and not any(self._directory.iterdir()):
            self._directory.rmdir()

    def _remove_old_parts(self, done: Path) -> None:
        if done.exists():
            return
        (self._directory / _SUCCESS).unlink(missing_ok=True)
        for path in self._directory.glob(f"{_PART_PREFIX}*"):
            if path.is_file():
                path.unlink()
        _sync_directory(self._directory)
        done.touch()

    def _staging(self, job: str) -> Path:
        return self._directory / _staging_name(job)


class _LocalPart(Part):
    def __init__(self, staging: Path, task: int, suffix: str) -> None:
        self._task = task
        self._suffix = suffix
        self._path = staging / _staged_name(task)
        self.file = _new_file(self._path)

    def finish(self, epoch: int) -> Transaction:
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        _sync_directory(self._path.parent)
        return self._path.name, _part_name(self._task, epoch, self._suffix)


class _RemoteOutput(Output):
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._shown = remote.shown(url)
        if remote.has_magic(url):
            msg = (
                f"cannot write to {self._shown}: it holds one of *?[; name another URL"
            )
            raise UsageError(msg)
        try:
            remote.file_system(url)
        except OSError as error:
            raise UsageError(str(error)) from None

    def prepare(self, job: str, *, overwrite: bool) -> None:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            if system.isfile(root):
                raise _file_in_the_way(self._shown, self._shown)
            is_new = not system.exists(root)
            if not is_new and not overwrite:
                _check_empty(self._shown, _names(system, root))
            staging = f"{root}/{_staging_name(job)}"
            _remove(system, staging)
            if not _WITHOUT_DIRECTORIES.intersection(_protocols(system)):
                system.makedirs(staging, exist_ok=True)
                if is_new:
                    system.pipe_file(f"{staging}/{_MADE_DIRECTORY}", b"")
            system.pipe_file(f"{staging}/{_PREPARED}", b"")

    def part(self, job: str, task: int, suffix: str) -> Part:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{_staging_name(job)}"
            return _RemotePart(system, staging, task, suffix, self._shown)

    def prepare_again(self, job: str) -> None:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{_staging_name(job)}"
            if not _WITHOUT_DIRECTORIES.intersection(_protocols(system)):
                system.makedirs(staging, exist_ok=True)
            system.pipe_file(f"{staging}/{_PREPARED}", b"")

    def commit(
        self, job: str, transactions: list[Transaction], *, overwrite: bool
    ) -> None:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{_staging_name(job)}"
            system.invalidate_cache()
            if overwrite and any(
                system.exists(f"{staging}/{s}") for s, _ in transactions
            ):
                _remove_old_parts(system, root, staging)
            for staged, name in transactions:
                _move_part(system, f"{staging}/{staged}", f"{root}/{name}")

    def complete(self, job: str) -> None:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            system.pipe_file(f"{root}/{_SUCCESS}", b"")
            _remove(system, f"{root}/{_staging_name(job)}")

    def abort(self, job: str) -> None:
        with _writing(self._shown):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{_staging_name(job)}"
            made_directory = system.exists(f"{staging}/{_MADE_DIRECTORY}")
            _remove(system, staging)
            if made_directory and not _names(system, root):
                system.rmdir(root)


class _RemotePart(Part):
    """A file of its own name.

    Closing uploads the last of the file.  In an object store it is there as a whole
    after that, elsewhere maybe in pieces before; nobody looks at it until it is named.
    """

    def __init__(
        self, system: Any, staging: str, task: int, suffix: str, place: str
    ) -> None:
        self._task = task
        self._suffix = suffix
        self._shown = place
        self._name = _staged_name(task)
        path = f"{staging}/{self._name}"
        self.file = cast("BinaryIO", system.open(path, "wb", block_size=_UPLOAD_BYTES))

    def finish(self, epoch: int) -> Transaction:
        with _writing(self._shown):
            self.file.close()
        return self._name, _part_name(self._task, epoch, self._suffix)


def _move_part(system: Any, staged: str, target: str) -> None:
    """Move a finished part, unless that is done already."""
    system.invalidate_cache()
    if system.exists(staged):
        system.mv(staged, target)
    elif not system.exists(target):
        raise _gone(target.rpartition("/")[0], staged)


def _remove_old_parts(system: Any, root: str, staging: str) -> None:
    done = f"{staging}/{_OLD_PARTS_REMOVED}"
    if system.exists(done):
        return
    for name in _names(system, root):
        path = f"{root}/{name}"
        if name == _SUCCESS or (name.startswith(_PART_PREFIX) and system.isfile(path)):
            system.rm_file(path)
    system.invalidate_cache()
    system.pipe_file(done, b"")


def _remove(system: Any, directory: str) -> None:
    if system.exists(directory):
        system.rm(directory, recursive=True)
    system.invalidate_cache()


def _names(system: Any, directory: str) -> list[str]:
    """Return the names in a directory; stores list a directory in itself, sometimes."""
    system.invalidate_cache()
    paths = [str(path).rstrip("/") for path in system.ls(directory, detail=False)]
    names = [path.rpartition("/")[2] for path in paths if path != directory]
    return sorted(name for name in names if name)


def _protocols(system: Any) -> tuple[str, ...]:
    protocol = system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextmanager
def _writing(place: str) -> Iterator[None]:
    """Say every failure of a file system in one sentence."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if isinstance(error, _GoneError):
            raise
        what, advice = (
            f"cannot write to {place}",
            "check the URL, and who may write there",
        )
        raise remote.restated(error, what, advice) from error


class _GoneError(FileNotFoundError):
    """Finished parts are not where they were."""


def _gone(directory: str, staging: str) -> _GoneError:
    msg = (
        f"cannot commit the output in {directory}: {staging} with the finished parts is "
        "gone; run the flow again"
    )
    return _GoneError(msg)


def _file_in_the_way(directory: str, path: str) -> UsageError:
    msg = (
        f"cannot write to the directory {directory}: {path} is a file; name another "
        "directory"
    )
    return UsageError(msg)


def _check_empty(directory: str, names: list[str]) -> None:
    for name in sorted(names):
        if not name.startswith(_STAGING_PREFIX):
            msg = (
                f"the output directory {directory} is not empty (it holds {name!r}); "
                "remove it, name another, or pass overwrite=True"
            )
            raise UsageError(msg)


def _staging_name(job: str) -> str:
    return f"{_STAGING_PREFIX}{quote(job, safe='')}"


def _staged_name(task: int) -> str:
    return f"{_PART_PREFIX}{task:05}-{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}"


def _part_name(task: int, epoch: int, suffix: str) -> str:
    """Return the name of a part; what comes after the first epoch carries its number."""
    number = f"-{epoch:06}" if epoch > 1 else ""
    return f"{_PART_PREFIX}{task:05}{number}{suffix}"


def _new_file(path: Path) -> BinaryIO:
    try:
        return path.open("xb", buffering=_WRITE_BUFFER_BYTES)
    except FileNotFoundError:
        msg = (
            f"{path.parent}, which the driver made, is not there on this worker; write "
            "to a directory that the driver and all workers share"
        )
        raise FileNotFoundError(msg) from None


def _sync_directory(directory: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
