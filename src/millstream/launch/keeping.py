"""The state directory of a job, as the driver opens it before anything is started.

Takes the claim, finds the snapshot to begin with, and refuses one that does not fit the
flow.  What happens to snapshots afterwards is not known here.
"""

from __future__ import annotations

import hashlib
import pickle
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError, UsageError
from millstream.plan.grouping import Columns
from millstream.plan.iteration import LoopHead, place_state
from millstream.runtime.results import Results
from millstream.runtime.takeover import stored_results, take_over
from millstream.state.files import LocalFiles, files_at
from millstream.state.key import state_key, stored_key
from millstream.state.keyhash import KEY_HASH_VERSION
from millstream.state.lock import DirectoryLock
from millstream.state.savepoint import copy_snapshot
from millstream.state.settings import StateSettings
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.launch.options import LaunchOptions
    from millstream.plan.stages import StagePlan
    from millstream.ports import Files
    from millstream.runtime.deployment import Deployment
    from millstream.state.manifest import Manifest

__all__ = ["Keeping", "check_fit", "open_keeping", "plan_hash", "worker_store"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a job has of snapshots when it starts.

    Attributes
    ----------
    claim
        Our right to write; 0 for a job that only begins with a snapshot.
    held
        Closed when the job is over.
    """

    job: str
    run: str
    directory: str = ""
    key: bytes = b""
    store: SnapshotStore | None = None
    claim: int = 0
    manifest: Manifest | None = None
    settings: StateSettings | None = None
    held: ExitStack = field(default_factory=ExitStack)

    def splits(self) -> dict[str, tuple[Split, ...]]:
        """Return how the sources were cut when the job began, by their names."""
        if self.store is None or self.manifest is None or self.manifest.splits is None:
            return {}
        data = self.store.read_file(self.manifest.splits)
        found: dict[str, tuple[Split, ...]] = pickle.loads(data)  # noqa: S301 - proved
        return found

    def results(self) -> Results:
        """Return the rows that had come to the driver."""
        if self.store is None:
            return Results()
        return stored_results(self.store, self.manifest)


def open_keeping(
    name: str, config: Config, options: LaunchOptions, *, is_writing: bool
) -> Keeping:
    """Open what the options name; a job without a state directory keeps nothing.

    Parameters
    ----------
    is_writing
        Whether the flow has output that is committed with each epoch.
    """
    run = secrets.token_hex(6)
    fresh = f"{name}-{run}"
    if not options.state and not options.resume_from:
        return Keeping(fresh, run)
    settings = StateSettings(config.shard_count, options.state_backend or "memory")
    if not options.state:
        store, manifest = _found(options.resume_from)
        key = stored_key(store.files) or b""
        directory = str(options.resume_from)
        return Keeping(fresh, run, directory, key, store, 0, manifest, settings)
    with ExitStack() as held:
        files = files_at(options.state)
        if isinstance(files, LocalFiles):
            held.callback(DirectoryLock(files.root).release)
        _bring_savepoint(files, fresh, options.resume_from)
        key = state_key(files)
        job = _job_in(SnapshotStore(files, key)) or fresh
        store = SnapshotStore(files, key, job=job, run=run)
        claim, newest = take_over(store, is_writing=is_writing)
        return Keeping(
            job, run, str(options.state), key, store, claim, newest, settings,
            held.pop_all(),
        )  # fmt: skip


def _found(path: str | None) -> tuple[SnapshotStore, Manifest]:
    """Return the newest snapshot of a directory that must have one."""
    files = files_at(str(path))
    key = stored_key(files)
    store = SnapshotStore(files, key or b"")
    manifest = None if key is None else store.newest()
    if manifest is None:
        msg = f"there is no snapshot in {path}; check the path given as resume_from"
        raise UsageError(msg)
    return store, manifest


def _bring_savepoint(files: Files, job: str, resume_from: str | None) -> None:
    """Copy the snapshot to begin with, unless the job has gone on from it already.

    The copy is a new job's: what the old one's sinks had sealed is not ours to commit.
    """
    if resume_from and not files.names("manifests"):
        store, manifest = _found(resume_from)
        copy_snapshot(store, replace(manifest, job=job, transactions=()), files)


def _job_in(store: SnapshotStore) -> str | None:
    newest = store.newest()
    return None if newest is None else newest.job


def plan_hash(stages: StagePlan) -> str:
    """Return a digest of what the flow does, as far as its state depends on it."""
    shape = [
        (s.id, s.width, [(n.name, type(n.spec).__name__) for n in s.nodes])
        for s in stages.stages
    ]
    edges = [(e.source, e.target, e.port, str(e.grouping)) for e in stages.edges]
    if any(isinstance(edge.grouping, Columns) for edge in stages.edges):
        from millstream.state.frame_codec import hash_fingerprint  # noqa: PLC0415

        edges.append((-1, -1, -1, f"hash {hash_fingerprint()}"))
    return hashlib.sha256(repr((shape, edges)).encode()).hexdigest()


def check_fit(manifest: Manifest, stages: StagePlan, config: Config) -> None:
    """Refuse a snapshot whose state would be lost or land in the wrong place."""
    names = {node.name for stage in stages.stages for node in stage.nodes}
    listed = {name for ref in manifest.files for name in ref.operators}
    lost = sorted((listed | manifest.offsets.keys()) - names - _places(stages))
    if lost:
        have = ", ".join(repr(name) for name in sorted(names))
        msg = (
            f"the snapshot of epoch {manifest.epoch} has state of {_listed(lost)}, and "
            f"the flow has no operator of that name (it has {have}); give the operator "
            "its old name with name=, or pass drop_state=True to begin without that state"
        )
        raise SnapshotError(msg)
    if manifest.shard_count != config.shard_count:
        msg = (
            f"the snapshot has {manifest.shard_count} shards and the setting "
            f"'shard_count' says {config.shard_count}; set it to {manifest.shard_count}"
        )
        raise SnapshotError(msg)
    if manifest.key_hash_version != KEY_HASH_VERSION:
        msg = (
            f"the snapshot lies by version {manifest.key_hash_version} of the key hash, "
            f"this Millstream has version {KEY_HASH_VERSION}; resume with the version "
            "that wrote it"
        )
        raise SnapshotError(msg)


def _places(stages: StagePlan) -> set[str]:
    """Return the names under which heads of loops store where they stand."""
    return {
        place_state(node.name, has_rounds=node.spec.iteration.has_rounds)
        for stage in stages.stages
        for node in stage.nodes
        if isinstance(node.spec, LoopHead)
    }


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def worker_store(deployment: Deployment) -> SnapshotStore | None:
    """Return a worker's way to the snapshots of its job."""
    if deployment.state is None:
        return None
    import numpy  # noqa: ICN001, F401, PLC0415 - now, not in the first snapshot

    files = files_at(deployment.state_directory)
    return SnapshotStore(files, deployment.state_key, run=deployment.run)
