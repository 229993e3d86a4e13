"""Become the driver of a state directory: claim it, find where to go on, and say so.

A driver that finds the snapshot damaged to which its job must go back does the same
once more: it takes the place of itself, and what was damaged is a fork from then on.
What is done to sinks and workers afterwards is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.runtime.restoring import is_same_plan
from millstream.runtime.results import Results, unpacked_parts

if TYPE_CHECKING:
    from millstream.runtime.deployment import Deployment
    from millstream.state.manifest import Manifest
    from millstream.state.store import SnapshotStore

__all__ = ["fall_back", "refuse_repetition", "stored_results", "take_over"]


def take_over(store: SnapshotStore, *, is_writing: bool) -> tuple[int, Manifest | None]:
    """Return the claim, and the snapshot to go on from.

    Parameters
    ----------
    is_writing
        Whether the flow has output that is committed with each epoch; then an epoch
        whose output may be visible is not gone back behind.

    Raises
    ------
    SnapshotError
        If no snapshot can be gone on from without writing rows again.
    """
    claim = store.claim()
    newest = store.newest()
    if is_writing:
        refuse_repetition(store, newest)
    store.adopt(newest)
    return claim, newest


def fall_back(
    store: SnapshotStore, deployment: Deployment, *, is_writing: bool
) -> tuple[int, Manifest]:
    """Return the next claim of a running job, and the newest snapshot that is whole.

    Raises
    ------
    SnapshotError
        Where `take_over` does, and if the tasks of the job cannot be restored from the
        snapshot as they are.
    """
    claim, newest = take_over(store, is_writing=is_writing)
    assert newest is not None, "the job goes on from a snapshot"
    if not is_same_plan(newest, deployment):
        msg = (
            f"the newest snapshot that is whole, of epoch {newest.epoch}, was taken by "
            f"another version of the flow or with {newest.task_count} workers; start the "
            "job again to go on from it"
        )
        raise SnapshotError(msg)
    return claim, newest


def stored_results(store: SnapshotStore, manifest: Manifest | None) -> Results:
    """Return the rows that had come to the driver when the snapshot was taken."""
    results = Results()
    for ref in () if manifest is None else manifest.results:
        for part in unpacked_parts(store.read_file(ref)):
            results.add(part)
    return results


def refuse_repetition(store: SnapshotStore, newest: Manifest | None) -> None:
    """Refuse to go back behind an epoch that may have been committed."""
    for each, manifest in store.passed_over:
        if manifest is not None and not manifest.transactions:
            continue
        older = 0 if newest is None else newest.epoch
        msg = (
            f"epoch {each.epoch} cannot be restored ({'; '.join(store.damage)}) and its "
            f"output may be visible, so going on from epoch {older} would write rows "
            f"again; put the file back, or remove the output after epoch {older} and "
            f"the files {each.name} and {each.newest_name}"
        )
        raise SnapshotError(msg)
