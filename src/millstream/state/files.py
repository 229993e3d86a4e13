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
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from millstream.credentials import Credential, harmless, one_line, shown
from millstream.errors import SnapshotError, UsageError
from millstream.state.guard import read_private, read_regular, regular_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsspec import AbstractFileSystem

__all__ = [
    "TEMPORARY_SUFFIX",
    "Kernel",
    "LocalFiles",
    "RemoteFiles",
    "files_at",
    "has_directories",
    "refuse_strangers",
]

TEMPORARY_SUFFIX = ".tmp"
"""Ends the names of files that were being published; nothing reads them."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OWNER, _OWNER_FOLDER = 0o600, 0o700
"""What is stored is the user's data: nobody else may read it."""

_OWN_NAMES = frozenset(
    {
        "claims", "control", "directory", "epochs", "key", "lock", "manifests", "newest",
        "resumed",
    }
)  # fmt: skip
_HARMLESS = frozenset({"lost+found"})
_SHOWN_STRANGERS = 3
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_KNOWN_FOLDERS_MAX = 64
_BLOCK_BYTES = 8 * 1024 * 1024
_WITHOUT_DIRECTORIES = frozenset(
    {"abfs", "abfss", "adl", "az", "gcs", "gs", "oci", "oss", "s3", "s3a"}
)
"""Object stores: a directory is there when something is in it."""


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

    def mkdir(self, path: str, mode: int = ..., /) -> None:
        """Make a directory."""
        ...

    def rmdir(self, path: str, /) -> None:
        """Remove an empty directory."""
        ...


class LocalFiles:
    """Files below a directory of this machine, or of one that is mounted.

    Only their owner can read them, so driver and workers are one user.

    Parameters
    ----------
    root
        The directory; it is made with the first file.  It may be moved while nobody
        uses it, as nothing depends on where it lies.
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
        self._fill(path, chunks)
        self._sync_folder(path.parent)

    def publish(self, name: str, data: bytes) -> None:
        """Let a durable file appear as a whole or not at all."""
        path = self._path(name)
        token = secrets.token_hex(8)
        temporary = path.with_name(f"{path.name}.{token}{TEMPORARY_SUFFIX}")
        try:
            self._fill(temporary, [data])
            self._link(temporary, path)
        finally:
            with suppress(OSError):
                self._kernel.unlink(str(temporary))
        self._sync_folder(path.parent)

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return a file, or its beginning; raises `FileNotFoundError`.

        A link, a pipe or a device is no file, nor is what lies behind a link.
        """
        path = self._plain(name)
        if not self._is_inside(path):
            raise FileNotFoundError(errno.ENOENT, "a link leads out", str(path))
        return read_regular(path, bytes_max)

    def read_private(self, name: str, bytes_max: int) -> bytes:
        """Return the beginning of a file that must be this user's alone."""
        return read_private(self._plain(name), bytes_max)

    def names(self, folder: str) -> list[str]:
        """Return the full names of all files below a folder, in order; none is fine."""
        place = self._plain(folder)
        found = regular_files(place) if self._is_inside(place) else ()
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def top_names(self) -> list[str]:
        """Return the names of all files and folders in the directory itself."""
        try:
            return os.listdir(self.root)  # noqa: PTH208 - names are enough
        except FileNotFoundError:
            return []

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
        path = self._plain(name)
        if not self._is_inside(path):
            raise self._leads_out(name)
        return path

    def _plain(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise self._leads_out(name)
        return self.root.joinpath(*parts)

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.root.resolve())

    def _leads_out(self, name: str) -> SnapshotError:
        msg = (
            f"the name {name!r} leads out of the state directory {self.root}; "
            "names are relative, and links that leave the directory are not followed"
        )
        return SnapshotError(msg)

    def _fill(self, path: Path, chunks: Iterable[bytes]) -> None:
        fd = self._opened(path)
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

    def _opened(self, path: Path) -> int:
        self._make_folder(path.parent)
        try:
            return self._kernel.open(str(path), _NEW_FILE, _OWNER)
        except FileNotFoundError:  # somebody removed the folder while it was empty
            self._known.discard(path.parent)
        self._make_folder(path.parent)
        return self._kernel.open(str(path), _NEW_FILE, _OWNER)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder durable, whoever made it: that one may not have synced it yet."""
        if folder in self._known:
            return
        is_inside = folder != self.root and folder.is_relative_to(self.root)
        if is_inside or not folder.parent.is_dir():
            self._make_folder(folder.parent)
        is_new = True
        try:
            if folder.is_relative_to(self.root):
                self._kernel.mkdir(str(folder), _OWNER_FOLDER)
            else:
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
        self._credential = Credential(url.rstrip("/"))
        self._system, root = _file_system(self.url)
        self._root = root.rstrip("/")

    @property
    def url(self) -> str:
        """Where they are, password and all."""
        return self._credential.value

    def __str__(self) -> str:
        return shown(self.url)

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file that must not be there yet; it is durable when this returns."""
        path = self._path(name)
        with self._reaching(name):
            self._refuse_taken(path)
            self._make_folder(path)
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

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return a file, or its beginning; raises `FileNotFoundError`."""
        path = self._path(name)
        with self._reaching(name):
            return bytes(self._system.cat_file(path))[:bytes_max]

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

    def top_names(self) -> list[str]:
        """Return the names of all files and folders at the URL itself."""
        with self._reaching("what is there"):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone already is fine."""
        path = self._path(name)
        with self._reaching(name), suppress(FileNotFoundError):
            self._system.rm_file(path)

    def _path(self, name: str) -> str:
        if any(part in {"", ".", ".."} for part in name.split("/")):
            msg = f"the name {name!r} leads out of {self}; names are relative"
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

    def _make_folder(self, path: str) -> None:
        """Make the folder of a file, but no bucket: a typing mistake would cost money."""
        if has_directories(self._system):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _move_in(self, path: str, data: bytes) -> None:
        self._refuse_taken(path)
        self._make_folder(path)
        temporary = f"{path}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        self._system.pipe_file(temporary, data)
        self._refuse_taken(path)
        self._system.mv(temporary, path)

    @contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        """Turn what the packages of stores raise into an `OSError` without credentials."""
        try:
            yield
        except Exception as error:
            cause = harmless(error, self.url)
            if isinstance(error, OSError) and cause is not None:
                raise
            msg = f"cannot reach {name} in {self} ({one_line(error, self.url)})"
            kinds = (FileNotFoundError, FileExistsError, PermissionError)
            kind = next((kind for kind in kinds if isinstance(error, kind)), OSError)
            raise kind(msg) from cause


def files_at(place: str | os.PathLike[str]) -> LocalFiles | RemoteFiles:
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


def refuse_strangers(files: LocalFiles | RemoteFiles, what: str) -> None:
    """Refuse a directory that is neither new, nor empty, nor one of Millstream's.

    Snapshots among files of somebody else would be read as input, or removed as output.
    `what` says for what it is wanted.
    """
    names = [name for name in files.top_names() if not name.startswith(".")]
    strange = sorted(set(names) - _OWN_NAMES - _HARMLESS)
    if not strange or {"claims", "manifests"} & set(names):
        return
    more = len(strange) - _SHOWN_STRANGERS
    shown = ", ".join(strange[:_SHOWN_STRANGERS])
    msg = (
        f"the directory {files} is not empty and holds no snapshots (it has {shown}"
        f"{f' and {more} more' if more > 0 else ''}); name a new or an empty directory "
        f"for {what}"
    )
    raise SnapshotError(msg)


def _file_system(url: str) -> tuple[AbstractFileSystem, str]:
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - takes a while to load

        system, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        msg = (
            f"cannot open the state directory {shown(url)!r} ({one_line(error, url)}); "
            "name a local path, or install what fsspec needs for this URL where driver "
            "and workers run"
        )
        raise UsageError(msg) from harmless(error, url)
    except Exception as error:  # noqa: BLE001 - of any package
        msg = f"cannot reach {shown(url)} ({one_line(error, url)})"
        raise OSError(msg) from harmless(error, url)
    return system, str(root)


def has_directories(system: AbstractFileSystem) -> bool:
    """Whether a file system has folders, which must be there before their files are."""
    protocol = system.protocol
    protocols = (protocol,) if isinstance(protocol, str) else tuple(protocol)
    return not _WITHOUT_DIRECTORIES.intersection(protocols)


def _puts_exclusively(system: AbstractFileSystem) -> bool:
    """Whether `pipe_file` is the file system's own and knows ``mode="create"``.

    The one that all inherit looks first and then writes in place.
    """
    from fsspec import AbstractFileSystem  # noqa: PLC0415 - takes a while to load

    is_own = type(system).pipe_file is not AbstractFileSystem.pipe_file
    return is_own and "mode" in inspect.signature(system.pipe_file).parameters
