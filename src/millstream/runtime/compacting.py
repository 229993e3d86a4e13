"""When deltas are merged into a base, and what the merge replaces.

A stage is compacted as a whole: its tasks merge what they wrote, each on its own, and
only when all of them are done do their bases take the place of the files before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.state.manifest import FileRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.messages import Compacted

__all__ = ["Compactions", "stages_to_compact"]

_DELTAS_MAX = 32
"""Deltas of one task that a restore reads one after the other, at most."""
_DELTA_BYTES_MIN = 1 << 20
"""Less than this is read in no time, however small the base is."""


def stages_to_compact(
    files: Iterable[FileRef], deltas_max: int = _DELTAS_MAX
) -> set[int]:
    """Return the stages whose deltas outweigh their bases, or are many."""
    found: dict[int, list[FileRef]] = {}
    for ref in files:
        found.setdefault(ref.stage, []).append(ref)
    return {stage for stage, refs in found.items() if _is_due(refs, deltas_max)}


def _is_due(refs: list[FileRef], deltas_max: int) -> bool:
    deltas = [ref for ref in refs if not ref.is_base]
    base_bytes = sum(ref.length for ref in refs if ref.is_base)
    delta_bytes = sum(ref.length for ref in deltas)
    tasks = len({ref.task for ref in refs})
    is_heavy = delta_bytes > max(base_bytes, _DELTA_BYTES_MIN)
    return is_heavy or len(deltas) > deltas_max * tasks


@dataclass(slots=True)
class _Stage:
    epoch: int
    wanted: set[int]
    bases: dict[int, FileRef] = field(default_factory=dict)
    is_applied: bool = False


class Compactions:
    """The compactions that are under way.

    Parameters
    ----------
    deltas_max
        Deltas of one task that are left as they are, however small.
    """

    def __init__(self, deltas_max: int = _DELTAS_MAX) -> None:
        self._deltas_max = deltas_max
        self._stages: dict[int, _Stage] = {}

    def begin(self, files: Iterable[FileRef], epoch: int) -> tuple[int, ...]:
        """Return the stages to be compacted as of an epoch; none twice at once."""
        files = tuple(files)
        found = stages_to_compact(files, self._deltas_max)
        due = found - self._stages.keys()
        for stage in due:
            tasks = {ref.task for ref in files if ref.stage == stage}
            self._stages[stage] = _Stage(epoch, tasks)
        return tuple(sorted(due))

    def oldest_epoch(self, epoch: int) -> int:
        """Return the epoch that the oldest unlisted base is named by, or `epoch`."""
        return min([epoch, *(stage.epoch for stage in self._stages.values())])

    def add(self, report: Compacted) -> None:
        """Take up the base of one task; a failed merge is tried again later."""
        stage = self._stages.get(report.stage)
        if stage is None or stage.epoch != report.epoch:
            return
        if report.file is None or report.problem:
            del self._stages[report.stage]
            return
        name, length, digest, operators = report.file
        stage.bases[report.task] = FileRef(
            name, length, digest, tuple(operators), True, report.epoch, 0,  # noqa: FBT003
            report.stage, report.task,
        )  # fmt: skip

    def applied(self, files: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
        """Put finished bases in the place of the files that went into them."""
        for number in self._finished():
            stage = self._stages[number]
            stage.is_applied = True
            later = [r for r in files if r.stage != number or r.epoch > stage.epoch]
            files = (*(stage.bases[task] for task in sorted(stage.bases)), *later)
        return files

    def settle(self) -> None:
        """Forget the bases that were applied: the manifest with them is stored.

        Those that were finished while it was written wait for the next one.
        """
        self._stages = {n: s for n, s in self._stages.items() if not s.is_applied}

    def _finished(self) -> list[int]:
        return [n for n, s in self._stages.items() if s.bases.keys() >= s.wanted]

    def clear(self) -> None:
        """Forget everything: the tasks are gone."""
        self._stages.clear()
