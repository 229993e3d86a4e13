"""Output directories behind URLs, by fsspec; see `millstream.connectors.output`.

Nothing is locked or renamed there: a part is copied into its place, and who writes to the
directory is told by a note alone.
"""

from __future__ import annotations

import posixpath
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from millstream.connectors import remote
from millstream.connectors.claims import RemoteClaims
from millstream.connectors.output import (
    MADE_DIRECTORY,
    OLD_PARTS_REMOVED,
    PART_PREFIX,
    SUCCESS,
    Output,
    Part,
    check_empty,
    file_in_the_way,
    gone,
    staged_name,
    staging_name,
)
from millstream.credentials import (
    Credential,
    harmless,
    lent,
    shown,
    without_credentials,
)
from millstream.errors import MillstreamError, UsageError
from millstream.state.files import has_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from fsspec import AbstractFileSystem

    from millstream.connectors.claims import Claim
    from millstream.connectors.output import Move, Piece

__all__ = ["RemoteOutput"]

_PREPARED = "prepared"
"""Marks a staging directory where empty directories do not exist."""

_UPLOAD_BYTES = 16 * 1024 * 1024
"""Bytes of one request; object stores take at most 10,000 of them for one part."""


class RemoteOutput(Output):
    """A directory behind a URL."""

    def __init__(self, url: str) -> None:
        self._credential = Credential(url.rstrip("/"))
        self._shown = shown(url)
        if remote.has_magic(url):
            msg = (
                f"cannot write to {self._shown}: it holds one of *?[; name another URL"
            )
            raise UsageError(msg)
        try:
            system, root = remote.file_system(url)
        except OSError as error:
            raise UsageError(str(error)) from None
        self.home = shown(self._url)
        host = getattr(system, "host", "")
        root = system.unstrip_protocol(posixpath.normpath(root))
        self.place = f"{host} {without_credentials(root, url)}"

    @property
    def _url(self) -> str:
        return self._credential.value

    def claim(
        self, claim: Claim, *, overwrite: bool, is_resumed: bool, key: bytes = b""
    ) -> Callable[[], None]:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            claims = RemoteClaims(self._url, self._shown)
            if has_directories(system) and not system.exists(root):
                claim = replace(claim, made_directory=True)
            old, self._own, leave = claims.take(
                claim, overwrite=overwrite, is_resumed=is_resumed, key=key
            )
            if old is not None and claim.inherits(old, overwrite=overwrite):
                _remove(system, f"{root}/{staging_name(old.job)}")
            return leave

    def prepare(self, job: str, *, overwrite: bool) -> None:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            if system.isfile(root):
                raise file_in_the_way(self._shown, self._shown)
            is_new = not system.exists(root)
            if not is_new and not overwrite:
                check_empty(self._shown, _names(system, root))
            staging = f"{root}/{staging_name(job)}"
            _remove(system, staging)
            if has_directories(system):
                system.makedirs(staging, exist_ok=True)
                if is_new:
                    system.pipe_file(f"{staging}/{MADE_DIRECTORY}", b"")
            system.pipe_file(f"{staging}/{_PREPARED}", b"")

    def part(self, job: str, task: int, generation: int) -> Part:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{staging_name(job)}"
            name = staged_name(task, generation)
            return _RemotePart(system, staging, name, self._url)

    def opened(self, piece: Piece) -> BinaryIO:
        self.checked_piece(piece)
        with _writing(self._url):
            for home in (self._url, lent(piece.home, self._url)):
                system, root = remote.file_system(home)
                path = f"{root}/{piece.folder}/{piece.name}"
                if system.exists(path):
                    return cast("BinaryIO", system.open(path, "rb"))
            raise gone(self._shown, f"{piece.folder}/{piece.name}")

    def prepare_again(self, job: str) -> None:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{staging_name(job)}"
            if system.exists(f"{staging}/{_PREPARED}"):
                return
            if has_directories(system):
                system.makedirs(staging, exist_ok=True)
            system.pipe_file(f"{staging}/{OLD_PARTS_REMOVED}", b"")
            system.pipe_file(f"{staging}/{_PREPARED}", b"")

    def commit(self, job: str, moves: list[Move], *, overwrite: bool) -> None:
        moves = self.checked_moves(moves)
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{staging_name(job)}"
            system.invalidate_cache()
            if overwrite and any(system.exists(f"{staging}/{s}") for s, _ in moves):
                _remove_old_parts(system, root, staging)
            for staged, name in moves:
                if not _is_moved(system, f"{staging}/{staged}", f"{root}/{name}"):
                    raise gone(self._shown, f"{staging_name(job)}/{staged}")

    def is_to_replace(self, job: str) -> bool:
        names = self.staged(job)
        return _PREPARED in names and OLD_PARTS_REMOVED not in names

    def discard(self, job: str, names: Collection[str]) -> None:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            for name in self.checked_names(names):
                with suppress(FileNotFoundError):
                    system.rm_file(f"{root}/{staging_name(job)}/{name}")

    def staged(self, job: str) -> list[str]:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{staging_name(job)}"
            return _names(system, staging) if system.exists(staging) else []

    def complete(self, job: str) -> None:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            system.pipe_file(f"{root}/{SUCCESS}", b"")
            self._drop_claim(job)
            for each in self._finished_jobs(job):
                _remove(system, f"{root}/{staging_name(each)}")

    def abort(self, job: str) -> None:
        with _writing(self._url):
            system, root = remote.file_system(self._url)
            staging = f"{root}/{staging_name(job)}"
            made_directory = system.exists(f"{staging}/{MADE_DIRECTORY}")
            made_directory |= self._has_made(job)
            self._drop_claim(job)
            _remove(system, staging)
            if made_directory and not _names(system, root):
                system.rmdir(root)

    def _drop_claim(self, job: str) -> None:
        claims = RemoteClaims(self._url, self._shown)
        noted = claims.noted()
        if noted is not None and noted.job == job:
            claims.drop()


class _RemotePart(Part):
    """A file of its own name.

    Closing uploads the last of the file.  In an object store it is there as a whole
    after that, elsewhere maybe in pieces before; nobody looks at it until it is named.
    """

    def __init__(
        self, system: AbstractFileSystem, staging: str, name: str, url: str
    ) -> None:
        self.name = name
        self._url = url
        path = f"{staging}/{name}"
        self.file = cast("BinaryIO", system.open(path, "wb", block_size=_UPLOAD_BYTES))

    def finish(self) -> None:
        with _writing(self._url):
            self.file.close()

    def store(self) -> None:
        """Do nothing: what was uploaded is durable."""

    def abandon(self) -> None:
        file: Any = self.file
        with suppress(Exception):
            if hasattr(file, "discard") and not file.closed:
                file.discard()
                file.closed = True
            file.close()


def _is_moved(system: AbstractFileSystem, staged: str, target: str) -> bool:
    """Move a finished part, unless that is done already; return whether it is there."""
    system.invalidate_cache()
    if system.exists(staged):
        system.mv(staged, target)
        return True
    return bool(system.exists(target))


def _remove_old_parts(system: AbstractFileSystem, root: str, staging: str) -> None:
    done = f"{staging}/{OLD_PARTS_REMOVED}"
    if system.exists(done):
        return
    for name in _names(system, root):
        path = f"{root}/{name}"
        if name == SUCCESS or (name.startswith(PART_PREFIX) and system.isfile(path)):
            system.rm_file(path)
    system.invalidate_cache()
    system.pipe_file(done, b"")


def _remove(system: AbstractFileSystem, directory: str) -> None:
    if system.exists(directory):
        system.rm(directory, recursive=True)
    system.invalidate_cache()


def _names(system: AbstractFileSystem, directory: str) -> list[str]:
    """Return the names in a directory; stores list a directory in itself, sometimes."""
    system.invalidate_cache()
    paths = [str(path).rstrip("/") for path in system.ls(directory, detail=False)]
    names = [path.rpartition("/")[2] for path in paths if path != directory]
    return sorted(name for name in names if name)


@contextmanager
def _writing(url: str) -> Iterator[None]:
    """Say every failure of a file system in one sentence."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:  # noqa: BLE001 - of any package
        what, advice = (
            f"cannot write to {shown(url)}",
            "check the URL, and who may write there",
        )
        raise remote.restated(error, url, what, advice) from harmless(error, url)
