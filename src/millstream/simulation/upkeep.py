"""What must hold for the size of a state directory, whatever was killed.

A job may run for weeks, so nothing that is to be merged, removed or handed over may be
forgotten by a recovery.  `UpkeepChecker` counts in epochs: between two of them every worker
has answered, and the driver has collected garbage once.  So the deltas of a stage are merged
and a file that no manifest needs is gone a few epochs after it was due, unless the disk
failed meanwhile; and as long as a spare has nothing to do, a pause is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.job import Phase
from millstream.runtime.compacting import stages_to_compact
from millstream.state.layout import parsed_state_file

if TYPE_CHECKING:
    from millstream.runtime.coordinator import Coordinator
    from millstream.simulation.disk import VirtualDisk
    from millstream.state.manifest import Manifest

__all__ = ["UpkeepChecker"]

_EPOCHS_MAX = 4
"""A merge is told of at the second epoch after it was due; one more if a task has ended."""

_Attempt = tuple[str, int]
"""Run and generation."""


class UpkeepChecker:
    """Sees every manifest, and the driver after each of its turns.

    Parameters
    ----------
    deltas_max
        Deltas of a task that need not be merged.
    """

    def __init__(self, disk: VirtualDisk, deltas_max: int, problems: list[str]) -> None:
        self._disk = disk
        self._deltas_max = deltas_max
        self._problems = problems
        self._attempt: _Attempt | None = None
        #: For how many epochs of this attempt a stage with this base was due to be merged.
        self._due: dict[tuple[int, int], int] = {}
        #: For how many epochs of this attempt a file was of no use.
        self._useless: dict[str, int] = {}

    def published(self, manifest: Manifest, needed: set[str]) -> None:
        """Check what the directory holds when an epoch is complete.

        Parameters
        ----------
        needed
            Names of the manifests that are to be kept, and of the files they list.
        """
        attempt = (manifest.run, manifest.generation)
        if attempt != self._attempt or self._is_disk_failing():
            self._attempt = attempt
            self._due, self._useless = {}, {}
            return
        due = stages_to_compact(manifest.files, self._deltas_max)
        bases = {
            (stage, min(ref.epoch for ref in manifest.files if ref.stage == stage))
            for stage in due
        }
        self._due = {base: 1 + self._due.get(base, 0) for base in bases}
        names = [*self._disk.names("manifests"), *self._disk.names("epochs")]
        self._useless = {
            name: 1 + self._useless.get(name, 0)
            for name in names
            if name not in needed and _is_removable(name, manifest)
        }
        self._report(manifest)

    def look_at(self, coordinator: Coordinator) -> None:
        """Check that workers without tasks will get some."""
        is_waiting = coordinator.phase is Phase.RUNNING and coordinator.is_uneven
        if is_waiting and not coordinator.snapshots.is_pause_wanted:
            self._problems.append(_idle(coordinator))

    def _is_disk_failing(self) -> bool:
        """Whether merges and removals may have failed, now or a moment ago."""
        disk = self._disk
        failed_until_ns = max(disk.full_until_ns, disk.slow_until_ns)
        return bool(disk.damaged) or disk.clock.now_ns < failed_until_ns

    def _report(self, manifest: Manifest) -> None:
        epoch = f"epoch {manifest.epoch} is the {_EPOCHS_MAX + 1}th"
        for (stage, _), count in self._due.items():
            if count == _EPOCHS_MAX + 1:
                length = sum(ref.stage == stage for ref in manifest.files)
                self._problems.append(
                    f"{epoch} at which the {length} files of stage {stage} should be merged"
                )
        for name, count in self._useless.items():
            if count == _EPOCHS_MAX + 1:
                self._problems.append(f"{epoch} at which nothing needs the file {name}")


def _is_removable(name: str, manifest: Manifest) -> bool:
    """Whether no epoch that may still come can list a file."""
    file = parsed_state_file(name)
    if file is None or file.run != manifest.run:
        return True
    return 0 < file.epoch < manifest.epoch


def _idle(coordinator: Coordinator) -> str:
    busy = sorted(set(coordinator.placement))
    return (
        f"of workers {coordinator.members} only {busy} have tasks, and nobody has asked "
        "for a pause"
    )
