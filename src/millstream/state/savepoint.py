"""A snapshot copied into a directory of its own, which depends on no other.

The copy has an id of its own, and a key of its own unless one is given; it survives
whatever the job or its owner does to the original.  What the sinks staged stays where it
is; the copy names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.state.key import state_key
from millstream.state.layout import ManifestId
from millstream.state.manifest import encoded_manifest
from millstream.state.notes import Notes

if TYPE_CHECKING:
    from millstream.ports import Files
    from millstream.state.manifest import Manifest
    from millstream.state.store import SnapshotStore

__all__ = ["check_unused", "copy_snapshot"]


def check_unused(target: Files) -> None:
    """Refuse a directory that a savepoint cannot be made in."""
    if target.names("manifests") or target.names("epochs"):
        msg = f"{target} holds snapshots already; name a new directory for a savepoint"
        raise SnapshotError(msg)


def copy_snapshot(
    store: SnapshotStore, manifest: Manifest, target: Files, given: bytes | None = None
) -> None:
    """Copy an epoch with all its files, verified, into an empty directory.

    Parameters
    ----------
    given
        Key of the copy; see `millstream.state.key.given_key`.
    """
    check_unused(target)
    key = state_key(target, given)
    notes = Notes(target, key)
    notes.make_directory()
    for ref in manifest.references():
        target.create(ref.name, [store.read_file(ref)])
    name = ManifestId(manifest.claim, manifest.epoch).name
    target.publish(name, encoded_manifest(manifest, key, notes.directory))
