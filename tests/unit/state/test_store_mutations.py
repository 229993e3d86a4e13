"""Stores that were broken on purpose, each in one way, and the check that notices.

A check that passes a broken store proves nothing about the real one.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.snapshot_checks import CHECKS, Subject
from tests.support.snapshots import TASKS, Driver, MemoryFiles

from millstream.errors import SnapshotError
from millstream.state import manifest as manifests
from millstream.state.files import LocalFiles
from millstream.state.layout import ManifestId
from millstream.state.segments import encoded_segments
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.protocol.ids import Epoch
    from millstream.state.files import Kernel
    from millstream.state.layout import Listing
    from millstream.state.manifest import FileRef, Manifest


class ManifestBeforeFiles(Driver):
    """Says that an epoch is complete before its files are written."""

    def commit(self) -> Manifest:
        self.epoch += 1
        names = [self.next_name(task) for task in range(TASKS)]
        data = [
            b"".join(encoded_segments(self.segments(task))) for task in range(TASKS)
        ]
        refs = [
            self.reference(names[task], task, len(each), sha256(each).hexdigest())
            for task, each in enumerate(data)
        ]
        manifest = self.manifest(refs)
        self.store.write_manifest(manifest)
        for name, each in zip(names, data, strict=True):
            self.store.files.create(name, [each])
        self.last = manifest
        return manifest


class LookingBeforeClaiming(Driver):
    """Looks for manifests while its predecessor may still write one unnoticed."""

    def start(self) -> Manifest | None:
        self.last = self.store.newest()
        self.claim = self.store.claim()
        self.store.adopt(self.last)
        self.epoch = 0 if self.last is None else self.last.epoch
        return self.last


@dataclass
class Unsynced:
    """A kernel that forgets to sync files, or folders."""

    kernel: Any
    forgets: Callable[[int], bool]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def fsync(self, fd: int, /) -> None:
        if not self.forgets(os.fstat(fd).st_mode):
            self.kernel.fsync(fd)


class UnsyncedFiles(LocalFiles):
    """Syncs folders but no files."""

    def __init__(self, root: Path, *, kernel: Kernel) -> None:
        super().__init__(root, kernel=Unsynced(kernel, stat.S_ISREG))


class UnsyncedFolders(LocalFiles):
    """Syncs files but no folders."""

    def __init__(self, root: Path, *, kernel: Kernel) -> None:
        super().__init__(root, kernel=Unsynced(kernel, stat.S_ISDIR))


class UnsyncedNewFolders(LocalFiles):
    """Forgets that the name of a new folder must be synced in its parent."""

    def _make_folder(self, folder: Path) -> None:
        for each in [*reversed(folder.parents), folder]:
            if not each.is_dir():
                self._kernel.mkdir(str(each))


class PublishingInPlace(LocalFiles):
    """Publishes a file under its final name from the start."""

    def publish(self, name: str, data: bytes) -> None:
        self.create(name, [data])


class Overwriting(LocalFiles):
    """Publishes by a rename, which overwrites."""

    def publish(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._make_folder(path.parent)
        path.with_name("new").write_bytes(data)
        path.with_name("new").replace(path)


class ReusingNames(LocalFiles):
    """Opens a file for writing whether it is there or not."""

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        self._make_folder(path.parent)
        path.write_bytes(b"".join(chunks))


class BelievingNames(LocalFiles):
    """Joins names to the root without a look at them."""

    def _path(self, name: str) -> Path:
        return Path(os.path.normpath(self.root / name.replace("\0", "")))


class OverwritingMemory(MemoryFiles):
    """A store of objects without conditions."""

    def publish(self, name: str, data: bytes) -> None:
        self.content[name] = data


class Unverified(SnapshotStore):
    """Reads files as they are."""

    def _verified(self, ref: FileRef) -> tuple[bytes, str]:
        return self.files.read(ref.name), ""


class VerifiedByLength(SnapshotStore):
    """Takes a file of the right length for the right file."""

    def _verified(self, ref: FileRef) -> tuple[bytes, str]:
        data, problem = super()._verified(ref)
        return (data, "") if "was changed" in problem else (data, problem)


class Unauthenticated(SnapshotStore):
    """Parses a manifest without a look at its HMAC."""

    def _decode(self, data: bytes) -> Manifest:
        return manifests._unpacked(data[manifests._START.size + 16 : -32])


class BelievingNotes(SnapshotStore):
    """Takes a name for what it says, whoever made it."""

    def _is_proved(self, name: str) -> bool:
        return True


class AtHomeEverywhere(SnapshotStore):
    """Does not ask which directory a manifest was written for."""

    def _decode(self, data: bytes) -> Manifest:
        return manifests.decoded_manifest(data, self._key, lambda: data[14:30])


class Silent(SnapshotStore):
    """Uses an older epoch and does not say so."""

    def newest(self) -> Manifest | None:
        found = super().newest()
        self.damage = []
        return found


class StartingEmpty(SnapshotStore):
    """Takes state that cannot be used for none."""

    def newest(self) -> Manifest | None:
        try:
            return super().newest()
        except SnapshotError:
            return None


class OrderedByEpoch(SnapshotStore):
    """Takes the highest epoch for the newest, whoever wrote it."""

    def manifests(self) -> list[ManifestId]:
        found = self._listing().manifests
        return sorted(found, key=lambda each: (each.epoch, each.claim), reverse=True)


class OrderedByClaim(SnapshotStore):
    """Knows claims, but not where their drivers went on from."""

    def manifests(self) -> list[ManifestId]:
        return sorted(self._listing().manifests, reverse=True)


class Unfenced(SnapshotStore):
    """Never looks for a higher claim."""

    def is_current(self, claim: int) -> bool:
        return True


class FencedBefore(SnapshotStore):
    """Looks for a higher claim before it publishes, but not again afterwards."""

    def write_manifest(self, manifest: Manifest) -> None:
        self._refuse_superseded()
        data = manifests.encoded_manifest(manifest, self._key, self.directory)
        self._publish(ManifestId(manifest.claim, manifest.epoch), data)


class OpenToAll(SnapshotStore):
    """Does not ask whose directory it is."""

    def load(self, each: ManifestId) -> Manifest:
        job, self._job = self._job, None
        try:
            return super().load(each)
        finally:
            self._job = job


class KeepingTheNewest(SnapshotStore):
    """Removes files that older retained manifests list."""

    def _retained(
        self, listing: Listing, retain: int
    ) -> dict[ManifestId, Manifest | None]:
        kept = super()._retained(listing, retain)
        newest = next(iter(kept.values()))
        return dict.fromkeys(kept, newest)


class TrustingTheDirectory(SnapshotStore):
    """Takes what no readable manifest lists for garbage, also what its driver needs."""

    def _needed(self, kept: dict[ManifestId, Manifest | None]) -> list[Manifest]:
        return [manifest for manifest in kept.values() if manifest is not None]


class RemovingOpenFiles(SnapshotStore):
    """Takes whatever no manifest lists for garbage."""

    def _is_garbage(self, name: str, oldest_open: Epoch) -> bool:
        return True


class KeepingOrphans(SnapshotStore):
    """Takes only files of other runs for garbage."""

    def _is_garbage(self, name: str, oldest_open: Epoch) -> bool:
        return super()._is_garbage(name, 0)  # type: ignore[arg-type]  # none is older


class RemovingFilesFirst(SnapshotStore):
    """Removes files before the manifests that list them."""

    def collect_garbage(self, retain: int, *, oldest_open: Epoch) -> int:
        listing = self._listing()
        kept = self._retained(listing, retain)
        needed = self._needed(kept)
        listed = {ref.name for each in needed for ref in each.references()}
        doomed = [each for each in self.files.names("epochs") if each not in listed]
        doomed += [each.name for each in listing.manifests if each not in kept]
        for name in doomed:
            self.files.remove(name)
        return len(doomed)


CANARIES = [
    (Subject(driver=ManifestBeforeFiles), "crash_leaves_old_or_new"),
    (Subject(files=UnsyncedFiles), "crash_leaves_old_or_new"),
    (Subject(files=UnsyncedFolders), "crash_leaves_old_or_new"),
    (Subject(files=UnsyncedNewFolders), "crash_leaves_old_or_new"),
    (Subject(files=PublishingInPlace), "crash_leaves_old_or_new"),
    (Subject(files=Overwriting), "name_is_used_once"),
    (Subject(files=ReusingNames), "name_is_used_once"),
    (Subject(files=BelievingNames), "name_stays_below_the_root"),
    (Subject(memory=OverwritingMemory), "claim_has_one_owner"),
    (Subject(store=Unverified), "damage_is_found_and_said"),
    (Subject(store=VerifiedByLength), "damage_is_found_and_said"),
    (Subject(store=Unauthenticated), "damage_is_found_and_said"),
    (Subject(store=Silent), "damage_is_found_and_said"),
    (Subject(store=StartingEmpty), "nothing_usable_is_an_error"),
    (Subject(store=OrderedByEpoch), "stale_manifest_of_a_fork_is_ignored"),
    (Subject(store=OrderedByClaim), "stale_manifest_of_a_fork_is_ignored"),
    (Subject(store=OrderedByClaim), "superseded_driver_changes_nothing"),
    (Subject(driver=LookingBeforeClaiming), "late_manifest_is_a_fork"),
    (Subject(store=Unfenced), "superseded_driver_changes_nothing"),
    (Subject(store=FencedBefore), "superseded_driver_changes_nothing"),
    (Subject(store=OpenToAll), "foreign_directory_is_refused"),
    (Subject(store=KeepingTheNewest), "collection_keeps_what_is_needed"),
    (
        Subject(store=TrustingTheDirectory),
        "collection_keeps_what_the_next_epoch_builds_on",
    ),
    (Subject(store=RemovingOpenFiles), "collection_keeps_what_is_needed"),
    (Subject(store=KeepingOrphans), "collection_keeps_what_is_needed"),
    (Subject(store=BelievingNotes), "forged_notes_change_nothing"),
    (Subject(store=AtHomeEverywhere), "foreign_snapshots_do_not_count"),
    (
        Subject(store=RemovingFilesFirst),
        "crash_during_collection_keeps_manifests_whole",
    ),
]


def broken_part(subject: Subject) -> str:
    """Return the name of the class that is not the usual one."""
    usual = Subject()
    pairs: list[tuple[type, type]] = [
        (subject.files, usual.files),
        (subject.store, usual.store),
        (subject.driver, usual.driver),
        (subject.memory, usual.memory),
    ]
    return next(part.__name__ for part, other in pairs if part is not other)


@pytest.mark.parametrize(
    ("subject", "check"),
    CANARIES,
    ids=[f"{broken_part(subject)}-{check}" for subject, check in CANARIES],
)
def test_check_notices_the_broken_store(
    subject: Subject, check: str, tmp_path: Path
) -> None:
    """It fails as a check does, not because the broken store fell over."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        CHECKS[check](subject, tmp_path)
