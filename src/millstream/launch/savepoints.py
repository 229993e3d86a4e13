"""Savepoints: how a caller waits for one, and how a flow begins with one.

A snapshot that a job begins with must not be older than what the sinks show: the job writes
everything after it, and would write that a second time.  That holds for a savepoint, which
another job may have begun with, and for the state directory of a job that was stopped, and
that another one went on from.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.credentials import harmless, shown, without_credentials
from millstream.errors import MillstreamError, SnapshotError, UsageError
from millstream.launch.boundary import asking, copying
from millstream.runtime.snapshots import Savepoint
from millstream.state.files import LocalFiles, files_at, refuse_strangers
from millstream.state.key import stored_key, warn_unguarded
from millstream.state.notes import Notes
from millstream.state.savepoint import check_unused, copy_snapshot
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.connectors.base import Sink
    from millstream.launch.snapshot_context import SnapshotContext
    from millstream.state.manifest import Manifest
    from millstream.values import Row

__all__ = [
    "Wish",
    "check_overtaken",
    "check_repeats",
    "found_savepoint",
    "note_resumed",
    "refuse_going_back",
]

_RESUMED = "resumed"
"""Folder of a savepoint with a note for each job that began with it."""

_STOPPED = "stopped"
"""Folder of a state directory with a note for each savepoint that its job stopped with."""

_ADDRESS_MARKS = ("@", "?")
"""What a URL has that may hold a password; it is not noted."""


class Wish:
    """A copy of an epoch that the driver is asked for, and how that went.

    Parameters
    ----------
    path
        Where the copy is wanted; None for no copy.
    given
        The key of the job, if it does not lie in its directory; the copy has the same.
    does_stop
        Whether the job is to end with that epoch.
    does_drain
        Whether it is to read its input to the end before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        given: bytes | None = None,
        *,
        does_stop: bool = False,
        does_drain: bool = False,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self._given = given
        self.epoch = 0
        self._does_stop = does_stop
        self._does_drain = does_drain
        self._error: BaseException | None = None
        self._is_answered = threading.Event()
        if self.path is not None:
            with copying(self.path):
                files = files_at(self.path)
                refuse_strangers(files, "a savepoint")
                check_unused(files)
                warn_unguarded(files, given)

    def savepoint(self) -> Savepoint:
        """Return it as the driver takes it."""
        path = shown(self.path or "")
        return Savepoint(
            self.copy, self._finish, path, 0, self._does_stop, self._does_drain
        )

    def copy(self, store: SnapshotStore, manifest: Manifest) -> None:
        """Copy an epoch."""
        if self.path is not None:
            if self._does_stop:
                _note_stopped(store, self.path)
            copy_snapshot(store, manifest, files_at(self.path), self._given)
        self.epoch = manifest.epoch

    def copy_now(self, store: SnapshotStore, manifest: Manifest) -> None:
        """Copy an epoch for a caller who waits for that and for nothing else."""
        with copying(self.path):
            self.copy(store, manifest)

    def wait(self, timeout_s: float) -> bool:
        """Return whether there is an answer; raise if it is a refusal."""
        if not self._is_answered.wait(timeout_s):
            return False
        if self._error is not None:
            with copying(self.path):
                raise self._error
        return True

    def refusal(self) -> str | None:
        """Return why there is no copy, once that is so."""
        try:
            self.wait(0)
        except MillstreamError as error:
            return str(error)
        return None

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._is_answered.set()


def found_savepoint(
    path: str | None, given: bytes | None = None
) -> tuple[SnapshotStore, Manifest]:
    """Return the newest snapshot of a directory that must have one."""
    files = files_at(str(path))
    key = stored_key(files, given)
    store = SnapshotStore(files, key or b"")
    manifest = None if key is None else store.newest()
    if manifest is None:
        msg = f"there is no snapshot in {files}; check the path given as resume_from"
        raise UsageError(msg)
    return store, manifest


def check_repeats(
    sinks: Mapping[str, Sink[Row]], path: str, given: bytes | None = None
) -> None:
    """Refuse a savepoint behind which a sink of the flow has shown rows already."""
    store, manifest = found_savepoint(path, given)
    ahead = _ahead(sinks, manifest, [manifest.job, *_marks(store.notes)])
    if ahead is not None:
        msg = (
            f"{ahead}, and {store.files} is of epoch {manifest.epoch}: what came between "
            "would be written a second time; resume from a savepoint that was made with "
            "stop, or from the state directory of that job, or pass repeat_output=True "
            "if the output after the savepoint was removed"
        )
        raise SnapshotError(msg)


def check_overtaken(sinks: Mapping[str, Sink[Row]], context: SnapshotContext) -> None:
    """Refuse the state of a job that another one has gone on from, and written more."""
    store, manifest = context.store, context.manifest
    if store is None or manifest is None:
        return
    heirs = _heirs(store.notes, context.given_key)
    ahead = _ahead(sinks, manifest, [*heirs, manifest.job]) if heirs else None
    if ahead is not None:
        msg = (
            f"{ahead}, and the state directory {store.files} is of epoch "
            f"{manifest.epoch}: what came between would be written a second time; go on "
            "with the job that began with a savepoint of it, or pass repeat_output=True "
            "if the output after that epoch was removed"
        )
        raise SnapshotError(msg)


def _ahead(
    sinks: Mapping[str, Sink[Row]], manifest: Manifest, jobs: Iterable[str]
) -> str | None:
    """Say which sink shows more of a job, or of one that went on from it."""
    for job in jobs:
        for name, sink in sinks.items():
            epoch = _shown_epoch(name, sink, job)
            if epoch is not None and epoch > manifest.epoch:
                return f"the sink {name!r} has committed epoch {epoch} of job {job}"
    return None


def _marks(notes: Notes) -> list[str]:
    """Return the jobs that have begun with what is in a directory."""
    found = notes.files.names(_RESUMED)
    return [name.rpartition("/")[2] for name in found if notes.read(name) is not None]


def _heirs(notes: Notes, given: bytes | None) -> list[str]:
    """Return the jobs that have gone on from a state directory, or a savepoint of it."""
    heirs = _marks(notes)
    for name in notes.files.names(_STOPPED):
        place = notes.read(name)
        if place is not None:
            with suppress(OSError, MillstreamError):  # the savepoint may be gone
                files = files_at(place.decode())
                heirs += _marks(Notes(files, stored_key(files, given) or b""))
    return heirs


def _note_stopped(store: SnapshotStore, path: str) -> None:
    """Note in a state directory where somebody may go on from it."""
    target = files_at(path)
    place = str(target.root.resolve()) if isinstance(target, LocalFiles) else path
    if not any(mark in place for mark in _ADDRESS_MARKS):
        store.notes.publish(f"{_STOPPED}/{secrets.token_hex(8)}", place.encode())


def refuse_going_back(
    sinks: Mapping[str, Sink[Row]],
    store: SnapshotStore,
    newest: Manifest,
    given: bytes | None,
) -> None:
    """Refuse a state directory that is older than what its job's sinks show.

    Somebody has put an old copy in its place, or removed what was newer; where other jobs
    have gone on from it, `check_overtaken` has the word.
    """
    if _heirs(store.notes, given):
        return
    ahead = _ahead(sinks, newest, [newest.job])
    if ahead is not None:
        msg = (
            f"{ahead}, and the newest snapshot in {store.files} is of epoch "
            f"{newest.epoch}, so the directory is an old copy or newer snapshots were "
            "removed; put the newer ones back, remove the files written after epoch "
            f"{newest.epoch}, or begin with a new state directory and empty output"
        )
        raise SnapshotError(msg)


def note_resumed(store: SnapshotStore, job: str) -> None:
    """Note in a savepoint which job begins with it."""
    try:
        store.notes.publish(f"{_RESUMED}/{job}", b"")
    except OSError as error:
        msg = (
            f"{store.files} cannot take the note that a job begins with it "
            f"({without_credentials(str(error))}), without which another one could "
            "write the same rows; let the driver write there, or pass repeat_output=True"
        )
        raise UsageError(msg) from harmless(error)


def _shown_epoch(name: str, sink: Sink[Row], job: str) -> int | None:
    with asking(name, "what it has committed"):
        return sink.committed_epoch(job)
