"""Output directories on a local or mounted disk; see `millstream.connectors.output`.

A part is renamed into its place.  Staged files are reached through the descriptors of the
directories that they are in (`millstream.connectors.confining`), so that a link which
somebody puts in the place of one leads nowhere, at whatever moment it comes.
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from millstream.connectors.claims import LocalClaims
from millstream.connectors.confining import Folder, folder_at
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
from millstream.errors import OperationalError, SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from _typeshed import ReadableBuffer

    from millstream.connectors.claims import Claim
    from millstream.connectors.output import Move, Piece

__all__ = ["LocalOutput"]

_WRITE_BUFFER_BYTES = 1024 * 1024


class LocalOutput(Output):
    """A directory of this machine, or of one that is mounted."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).expanduser().absolute()
        for path in (self._directory, *self._directory.parents):
            if path.exists() and not path.is_dir():
                raise file_in_the_way(directory, str(path))
        self.home, self.place = str(self._directory), str(self._directory.resolve())
        self._claims = LocalClaims(self._directory)

    def claim(
        self, claim: Claim, *, overwrite: bool, is_resumed: bool, key: bytes = b""
    ) -> Callable[[], None]:
        old, self._own, leave = self._claims.take(
            claim, overwrite=overwrite, is_resumed=is_resumed, key=key
        )
        if old is not None and claim.inherits(old, overwrite=overwrite):
            with self._opened() as output:
                output.remove_tree(staging_name(old.job))
        return leave

    def prepare(self, job: str, *, overwrite: bool) -> None:
        is_new = not self._directory.exists()
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._opened() as output:
            if not is_new and not overwrite:
                check_empty(str(self._directory), output.names())
            output.remove_tree(staging_name(job))
            self._make_staging(output, job, *([MADE_DIRECTORY] if is_new else []))

    def prepare_again(self, job: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._opened() as output, output.within(staging_name(job)) as staging:
            if staging is None:
                self._make_staging(output, job, OLD_PARTS_REMOVED)

    def _make_staging(self, output: Folder, job: str, *marks: str) -> None:
        output.make(staging_name(job))
        with output.within(staging_name(job)) as staging:
            if staging is not None:
                for mark in marks:
                    staging.touch(mark)

    def part(self, job: str, task: int, generation: int) -> Part:
        folder = staging_name(job)
        return _LocalPart(self._directory, folder, staged_name(task, generation))

    def opened(self, piece: Piece) -> BinaryIO:
        self.checked_piece(piece)
        for home in (self._directory, Path(piece.home)):
            with _folder_in(home, piece.folder) as folder:
                file = None if folder is None else folder.opened(piece.name)
                if file is not None:
                    return file
        raise gone(str(self._directory), f"{piece.home}/{piece.folder}/{piece.name}")

    def commit(self, job: str, moves: list[Move], *, overwrite: bool) -> None:
        moves = self.checked_moves(moves)
        if not moves:
            return
        with self._opened() as output, output.within(staging_name(job)) as staging:
            there = set() if staging is None else set(staging.names())
            is_new = any(staged in there for staged, _ in moves)
            if overwrite and staging is not None and is_new:
                self._remove_old_parts(output, staging)
            for staged, name in moves:
                self._move(staging if staged in there else None, output, (staged, name))
            output.sync()

    def _move(self, staging: Folder | None, output: Folder, move: Move) -> None:
        staged, name = move
        if staging is None:
            if not output.is_there(name):
                raise gone(str(self._directory), staged)
        elif output.is_there(name):
            msg = (
                f"cannot commit the part {name} to {self._directory}: a file of "
                "that name is there, and none is replaced; an earlier run wrote it, so "
                "go on from its own state, or write to another directory"
            )
            raise OperationalError(msg)
        else:
            staging.move(staged, output, name)

    def is_to_replace(self, job: str) -> bool:
        names = self._staged(job)
        return names is not None and OLD_PARTS_REMOVED not in names

    def discard(self, job: str, names: Collection[str]) -> None:
        names = self.checked_names(names)
        with _folder_in(self._directory, staging_name(job)) as staging:
            if staging is not None:
                for name in names:
                    staging.remove(name)

    def staged(self, job: str) -> list[str]:
        return self._staged(job) or []

    def _staged(self, job: str) -> list[str] | None:
        """Return the names of all staged files; None if the job is not here."""
        with _folder_in(self._directory, staging_name(job)) as staging:
            return None if staging is None else staging.names()

    def complete(self, job: str) -> None:
        with self._opened() as output:
            output.touch(SUCCESS)
            output.sync()
            for each in self._finished_jobs(job):
                output.remove_tree(staging_name(each))
        self._drop_claim(job)

    def abort(self, job: str) -> None:
        made_directory = self._has_made(job)
        with folder_at(self._directory) as output:
            if output is None:
                return
            with suppress(SnapshotError), output.within(staging_name(job)) as staging:
                made_directory |= staging is not None and staging.is_there(
                    MADE_DIRECTORY
                )
            output.remove_tree(staging_name(job))
            self._drop_claim(job)
            if made_directory and not output.names():
                self._directory.rmdir()

    def _drop_claim(self, job: str) -> None:
        noted = self._claims.noted()
        if noted is not None and noted.job == job:
            self._claims.drop()

    def _remove_old_parts(self, output: Folder, staging: Folder) -> None:
        if staging.is_there(OLD_PARTS_REMOVED):
            return
        output.remove(SUCCESS)
        for name in output.names():
            if name.startswith(PART_PREFIX) and not output.is_folder(name):
                output.remove(name)
        output.sync()
        staging.touch(OLD_PARTS_REMOVED)

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with folder_at(self._directory) as output:
            if output is None:
                msg = (
                    f"the output directory {self._directory}, which was there when the "
                    "job was started, is gone; put it back with what was in it"
                )
                raise SnapshotError(msg)
            yield output


class _LocalPart(Part):
    def __init__(self, directory: Path, folder: str, name: str) -> None:
        self.name = name
        self._place = directory, folder
        with _folder_in(*self._place) as staging:
            if staging is None:
                msg = (
                    f"{directory / folder}, which the driver made, is not there on this "
                    "worker; write to a directory that the driver and all workers share"
                )
                raise FileNotFoundError(msg)
            self._bytes = _NewFile(staging.create(name))
        self.file = cast("BinaryIO", self._bytes)

    def finish(self) -> None:
        self._bytes.spill()
        self._bytes.close()

    def store(self) -> None:
        with _folder_in(*self._place) as staging:
            if staging is None:
                raise gone(str(self._place[0]), self.name)
            staging.sync(self.name)
            staging.sync()

    def abandon(self) -> None:
        self._bytes.close()


class _NewFile(io.RawIOBase):
    """A new file, written in large blocks.

    Closing it writes nothing: whoever drops a file does not want to hear of a full disk.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._held = bytearray()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        self._size += len(view)
        if len(self._held) >= _WRITE_BUFFER_BYTES:
            self.spill()
        return len(view)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: nobody reads the file before it is finished."""

    def spill(self) -> None:
        """Write what is held."""
        held, self._held = self._held, bytearray()
        rest = memoryview(held)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
            self._held = bytearray()
        super().close()


@contextmanager
def _folder_in(directory: Path, name: str) -> Iterator[Folder | None]:
    """Open a directory in an output directory; None if one of both is not there."""
    with folder_at(directory) as output:
        if output is None:
            yield None
            return
        with output.within(name) as folder:
            yield folder
