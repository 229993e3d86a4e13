"""The state directory of a job, as the driver opens it before anything is started.

Takes the claim, finds the snapshot to begin with, and refuses one that does not fit the
flow.  What happens to snapshots afterwards is not known here.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.launch.fitting import check_flow
from millstream.launch.savepoints import (
    found_savepoint,
    note_resumed,
    refuse_going_back,
)
from millstream.launch.twins import place_of, refuse_twin
from millstream.protocol.handshake import derive_key
from millstream.runtime.results import Results
from millstream.runtime.takeover import (
    refuse_repetition,
    stored_results,
    take_over,
)
from millstream.state.files import LocalFiles, files_at, refuse_strangers
from millstream.state.key import given_key, state_key, stored_key, warn_unguarded
from millstream.state.lock import DirectoryLock
from millstream.state.plain import decode
from millstream.state.savepoint import copy_snapshot
from millstream.state.scratch import remove_abandoned
from millstream.state.settings import StateSettings
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.config import Config
    from millstream.connectors.base import Sink, Split
    from millstream.launch.options import LaunchOptions
    from millstream.ports import Files
    from millstream.runtime.deployment import Deployment
    from millstream.state.manifest import Manifest
    from millstream.values import Row

__all__ = ["SnapshotContext", "begins_with_savepoint", "open_context", "worker_store"]


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """What a job has of snapshots when it starts.

    Attributes
    ----------
    claim
        Our right to write; 0 for a job that only begins with a snapshot.
    given_key
        The key, if it does not lie in the directory.
    held
        Closed when the job is over.
    """

    job: str
    run: str
    directory: str = field(default="", repr=False)
    key: bytes = field(default=b"", repr=False)
    store: SnapshotStore | None = None
    claim: int = 0
    manifest: Manifest | None = None
    settings: StateSettings | None = None
    given_key: bytes | None = field(default=None, repr=False)
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def owner(self) -> str:
        """The state directory by one spelling; empty if nobody can go on with the job."""
        if not self.claim:
            return ""
        place = self.store.files if self.store is not None else None
        return (
            str(place.root.resolve()) if isinstance(place, LocalFiles) else str(place)
        )

    @property
    def output_key(self) -> bytes:
        """What proves the notes at the places that the job writes to; empty without a key."""
        return derive_key(self.key, b"output") if self.claim else b""

    def splits(self) -> dict[str, tuple[Split, ...]]:
        """Return how the sources were cut when the job began, by their names."""
        if self.store is None or self.manifest is None or self.manifest.splits is None:
            return {}
        data = self.store.read_file(self.manifest.splits)
        splits: dict[str, tuple[Split, ...]] = decode(data)
        return splits

    def results(self) -> Results:
        """Return the rows that had come to the driver."""
        if self.store is None:
            return Results()
        return stored_results(self.store, self.manifest)


def open_context(
    name: str,
    config: Config,
    options: LaunchOptions,
    *,
    flow: str,
    sinks: Mapping[str, Sink[Row]],
) -> SnapshotContext:
    """Open what the options name; a job without a state directory keeps nothing.

    Parameters
    ----------
    name
        What the name of a new job begins with.
    flow
        Whose state it is.
    sinks
        By name, where the flow writes what is committed with each epoch.
    """
    run = secrets.token_hex(6)
    fresh = f"{name}-{run}"
    if not options.state and not options.resume_from:
        return SnapshotContext(fresh, run)
    given, is_writing = given_key(options.state_key), bool(sinks)
    for place in filter(None, (options.state, options.resume_from)):
        warn_unguarded(files_at(place), given)
    settings = StateSettings(
        config.shard_count,
        options.state_backend or "memory",
        memory_bytes=config.rocksdb_memory_bytes,
    )
    if not options.state:
        store, manifest = found_savepoint(options.resume_from, given)
        _note_resumed(fresh, store, options, is_writing=is_writing)
        key = stored_key(store.files, given) or b""
        directory = str(options.resume_from)
        return SnapshotContext(
            fresh, run, directory, key, store, 0, manifest, settings, given
        )
    with ExitStack() as held:
        if settings.backend == "rocksdb":
            # Workers of this machine that were killed have left theirs.
            held.callback(remove_abandoned, settings.directory)
        files = files_at(options.state)
        refuse_strangers(files, "the state of a job")
        if isinstance(files, LocalFiles):
            held.callback(DirectoryLock(files.root).release)
        _bring_savepoint(files, fresh, flow, options, is_writing=is_writing)
        key = state_key(files, given)
        found = SnapshotStore(files, key)
        before = found.newest()
        check_flow(before, flow, str(options.state))
        if is_writing:
            refuse_repetition(found, before)
        if before is not None and not options.repeat_output:
            refuse_going_back(sinks, found, before, given)
        refuse_twin(found, key)
        job = fresh if before is None else before.job
        store = SnapshotStore(files, key, job=job, run=run, place=place_of(files))
        claim, newest = take_over(store, is_writing=is_writing)
        return SnapshotContext(
            job, run, str(options.state), key, store, claim, newest, settings, given,
            held.pop_all(),
        )  # fmt: skip


def begins_with_savepoint(options: LaunchOptions) -> bool:
    """Return whether a job begins with `resume_from`, or has gone on from it already."""
    if not options.resume_from:
        return False
    return not options.state or not files_at(options.state).names("manifests")


def _bring_savepoint(
    files: Files, job: str, flow: str, options: LaunchOptions, *, is_writing: bool
) -> None:
    """Copy the snapshot to begin with, unless the job has gone on from it already.

    The copy is a new job's: what the old one's sinks had sealed is not ours to commit.
    """
    if begins_with_savepoint(options):
        given = given_key(options.state_key)
        store, manifest = found_savepoint(options.resume_from, given)
        _note_resumed(job, store, options, is_writing=is_writing)
        own = replace(manifest, job=job, flow=flow, transactions=())
        copy_snapshot(store, own, files, given)


def _note_resumed(
    job: str, store: SnapshotStore, options: LaunchOptions, *, is_writing: bool
) -> None:
    if is_writing and not options.repeat_output:
        note_resumed(store, job)


def worker_store(deployment: Deployment) -> SnapshotStore | None:
    """Return a worker's way to the snapshots of its job."""
    if deployment.state is None:
        return None
    import numpy  # noqa: ICN001, F401, PLC0415 - now, not in the first snapshot

    files = files_at(deployment.state_directory)
    return SnapshotStore(files, deployment.state_key, run=deployment.run)
