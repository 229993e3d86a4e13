"""The two places where snapshots are stored: a local directory, and a URL by fsspec.

Both keep the promises of `ports.Files`, each in its own way.  A local file is written
under a name that nobody has used, synced, and its directory too; it appears as a whole
by a hard link, which never overwrites.  An object appears as a whole by its nature, and
is put on the condition that there is none.

Nothing here knows what is in a file.
"""

from __future__ import annotations

import errno
import inspect
import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from millstream.errors import SnapshotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.ports import Files

__all__ = ["TEMPORARY_SUFFIX", "Kernel", "LocalFiles", "RemoteFiles", "files_at"]

TEMPORARY_SUFFIX = ".tmp"
"""Ends the names of files that were being published; nothing reads them."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_EVERYBODY, _OWNER = 0o666, 0o600
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_KNOWN_FOLDERS_MAX = 64
_BLOCK_BYTES = 8 * 1024 * 1024


class Kernel(Protocol):
    """The calls of `os` that change a directory; tests give one that records them."""

    def open(self, path: str, flags: int, mode: int = ..., /) -> int:
        """Open a file or a directory."""
        ...

    def write(self, fd: int, data: memoryview, /) -> int:
        """Append some of the bytes, and say how many."""
        ...

    def ftruncate(self, fd: int, length: int, /) -> None:
        """Cut a file off."""
        ...

    def fsync(self, fd: int, /) -> None:
        """Make the content of a file, or the names in a directory, survive a crash."""
        ...

    def close(self, fd: int, /) -> None:
        """Close a file or a directory."""
        ...

    def link(self, source: str, target: str, /) -> None:
        """Give a file a second name that must be free."""
        ...

    def unlink(self, path: str, /) -> None:
        """Take a name away."""
        ...

    def mkdir(self, path: str, /) -> None:
        """Make a directory."""
        ...

    def rmdir(self, path: str, /) -> None:
        """Remove an empty directory."""
        ...


class LocalFiles:
    """Files below a directory of this machine, or of one that is mounted.

    Parameters
    ----------
    root
        The directory; it is made with the first file.  It may be moved while nobody
        uses it, as no file says where it lies.
    kernel
        What carries out the changes.

    Examples
    --------
    >>> import tempfile
    >>> files = LocalFiles(tempfile.mkdtemp())
    >>> files.create("epochs/1/a.state", [b"mill", b"stream"])
    >>> files.read("epochs/1/a.state")
    b'millstream'
    >>> files.names("epochs")
    ['epochs/1/a.state']
    """

    def __init__(self, root: str | os.PathLike[str], *, kernel: Kernel = os) -> None:
        self.root = Path(root).absolute()
        self._kernel = kernel
        #: Folders that exist, and whose own names are durable.
        self._known: set[Path] = set()

    def __str__(self) -> str:
        return str(self.root)

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file that must not be there yet; it is durable when this returns."""
        path = self._path(name)
        self._fill(path, chunks, _EVERYBODY)
        self._sync_folder(path.parent)

    def publish(self, name: str, data: bytes) -> None:
        """Let a durable file appear as a whole or not at all, for its owner only."""
        path = self._path(name)
        token = secrets.token_hex(8)
        temporary = path.with_name(f"{path.name}.{token}{TEMPORARY_SUFFIX}")
        try:
            self._fill(temporary, [data], _OWNER)
            self._link(temporary, path)
        finally:
            with suppress(OSError):
                self._kernel.unlink(str(temporary))
        self._sync_folder(path.parent)

    def read(self, name: str) -> bytes:
        """Return all bytes of a file; raises `FileNotFoundError`."""
        return self._path(name).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Return the full names of all files below a folder, in order; none is fine."""
        found = [
            Path(place, name).relative_to(self.root).as_posix()
            for place, _, names in os.walk(self._path(folder), onerror=_unless_gone)
            for name in names
        ]
        return sorted(found)

    def remove(self, name: str) -> None:
        """Remove a file, and its folder with the last one; none is fine."""
        path = self._path(name)
        try:
            self._kernel.unlink(str(path))
        except FileNotFoundError:
            return
        folder = path.parent
        if folder != self.root:
            with suppress(OSError):
                self._kernel.rmdir(str(folder))
                self._known.discard(folder)
                folder = folder.parent
        self._sync_folder(folder)

    def _path(self, name: str) -> Path:
        """Return where a name lies, which is below the root whatever the name says."""
        parts = name.split("/")
        path = self.root.joinpath(*parts)
        is_plain = not any(part in {"", ".", ".."} or "\0" in part for part in parts)
        if not is_plain or not path.resolve().is_relative_to(self.root.resolve()):
            msg = (
                f"the name {name!r} leads out of the state directory {self.root}; "
                "names are relative, and links that leave the directory are not followed"
            )
            raise SnapshotError(msg)
        return path

    def _fill(self, path: Path, chunks: Iterable[bytes], mode: int) -> None:
        fd = self._opened(path, mode)
        try:
            for chunk in chunks:
                self._write(fd, chunk)
            self._kernel.fsync(fd)
        except BaseException:
            # A full disk gets its space back; the empty file keeps the name taken.
            with suppress(OSError):
                self._kernel.ftruncate(fd, 0)
            raise
        finally:
            self._kernel.close(fd)

    def _write(self, fd: int, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._kernel.write(fd, rest) :]

    def _opened(self, path: Path, mode: int) -> int:
        self._make_folder(path.parent)
        try:
            return self._kernel.open(str(path), _NEW_FILE, mode)
        except FileNotFoundError:  # somebody removed the folder while it was empty
            self._known.discard(path.parent)
        self._make_folder(path.parent)
        return self._kernel.open(str(path), _NEW_FILE, mode)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder durable, whoever made it: that one may not have synced it yet."""
        if folder in self._known:
            return
        is_inside = folder != self.root and folder.is_relative_to(self.root)
        if is_inside or not folder.parent.is_dir():
            self._make_folder(folder.parent)
        is_new = True
        try:
            self._kernel.mkdir(str(folder))
        except FileExistsError:
            is_new = False
        if is_new or is_inside:
            self._sync_folder(folder.parent)
        if len(self._known) >= _KNOWN_FOLDERS_MAX:
            self._known.clear()
        self._known.add(folder)

    def _link(self, source: Path, target: Path) -> None:
        try:
            self._kernel.link(str(source), str(target))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            msg = (
                f"the file system of {self.root} has no hard links, without which a "
                "file cannot appear as a whole; use a local disk or the URL of a store"
            )
            raise OSError(error.errno, msg) from error

    def _sync_folder(self, folder: Path) -> None:
        fd = self._kernel.open(str(folder), _FOLDER)
        try:
            self._kernel.fsync(fd)
        finally:
            self._kernel.close(fd)


class RemoteFiles:
    """Files below a URL such as ``s3://bucket/job``.

    Where the file system can put an object on the condition that there is none (S3,
    Google Cloud Storage, Azure), of two drivers that publish one name only one succeeds.
    Where it cannot (SFTP, WebHDFS), the name is looked up first, so it is for the user
    to start one driver only.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._system, root = _file_system(self.url)
        self._root = root.rstrip("/")

    def __str__(self) -> str:
        return self.url

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file that must not be there yet; it is durable when this returns."""
        path = self._path(name)
        with self._reaching(name):
            self._refuse_taken(path)
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._system.open(path, "wb", block_size=_BLOCK_BYTES) as file:
                for chunk in chunks:
                    file.write(chunk)

    def publish(self, name: str, data: bytes) -> None:
        """Let a durable file appear as a whole or not at all."""
        path = self._path(name)
        with self._reaching(name):
            if _puts_exclusively(self._system):
                self._put(path, data)
            else:
                self._move_in(path, data)

    def read(self, name: str) -> bytes:
        """Return all bytes of a file; raises `FileNotFoundError`."""
        path = self._path(name)
        with self._reaching(name):
            return bytes(self._system.cat_file(path))

    def names(self, folder: str) -> list[str]:
        """Return the full names of all files below a folder, in order; none is fine."""
        path = self._path(folder)
        with self._reaching(folder):
            self._system.invalidate_cache()
            try:
                found = self._system.find(path)
            except FileNotFoundError:
                return []
        return sorted(file.removeprefix(f"{self._root}/") for file in found)

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone already is fine."""
        path = self._path(name)
        with self._reaching(name), suppress(FileNotFoundError):
            self._system.rm_file(path)

    def _path(self, name: str) -> str:
        if any(part in {"", ".", ".."} for part in name.split("/")):
            msg = f"the name {name!r} leads out of {self.url}; names are relative"
            raise SnapshotError(msg)
        return f"{self._root}/{name}"

    def _refuse_taken(self, path: str) -> None:
        self._system.invalidate_cache()
        if self._system.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def _put(self, path: str, data: bytes) -> None:
        try:
            self._system.pipe_file(path, data, mode="create")
        except FileExistsError:
            raise
        except Exception:
            # Stores word a failed condition differently.
            self._refuse_taken(path)
            raise

    def _move_in(self, path: str, data: bytes) -> None:
        self._refuse_taken(path)
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        temporary = f"{path}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        self._system.pipe_file(temporary, data)
        self._refuse_taken(path)
        self._system.mv(temporary, path)

    @contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        """Turn what the packages of stores raise into an `OSError`."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            msg = f"cannot reach {name} in {self.url} ({type(error).__name__}: {error})"
            raise OSError(msg) from error


def files_at(place: str | os.PathLike[str]) -> Files:
    """Return the files below a path or a URL.

    Examples
    --------
    >>> print(files_at("/var/lib/jobs/word-count"))
    /var/lib/jobs/word-count
    >>> print(files_at("memory://word-count"))
    memory://word-count
    """
    text = os.fspath(place)
    if "://" not in text:
        return LocalFiles(text)
    parts = urlsplit(text)
    if parts.scheme in {"file", "local"}:
        return LocalFiles(unquote(parts.path))
    return RemoteFiles(text)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - takes a while to load

        system, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        msg = (
            f"cannot open the state directory {url!r} ({error}); name a local path, or "
            "install what fsspec needs for this URL where driver and workers run"
        )
        raise UsageError(msg) from error
    return system, str(root)


def _puts_exclusively(system: Any) -> bool:
    """Whether `pipe_file` is the file system's own and knows ``mode="create"``.

    The one that all inherit looks first and then writes in place.
    """
    from fsspec import AbstractFileSystem  # noqa: PLC0415 - takes a while to load

    is_own = type(system).pipe_file is not AbstractFileSystem.pipe_file
    return is_own and "mode" in inspect.signature(system.pipe_file).parameters


def _unless_gone(error: OSError) -> None:
    """Let nothing but a missing folder look like an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error
