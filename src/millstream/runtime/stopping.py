"""Savepoints behind which a job is to end, until all of them are copied.

The job stands still meanwhile.  It ends if at least one of them is there; it goes on if
none could be written, as somebody wanted it to end only with one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.protocol.snapshot_events import Concluded, StopFailed, Stopped

if TYPE_CHECKING:
    from millstream.runtime.snapshots import Savepoint

__all__ = ["Stops"]

Ending = Stopped | Concluded


@dataclass(slots=True)
class Stops:
    """What is wanted of the last epoch of a job.

    Attributes
    ----------
    wanted
        Savepoints that nobody copies yet.
    """

    wanted: list[Savepoint] = field(default_factory=list)
    _ending: Ending | None = None
    _copying: int = 0
    _has_copy: bool = False

    @property
    def is_ending(self) -> bool:
        """Whether the last epoch is complete, and the job stands still behind it."""
        return self._ending is not None

    def end_with(self, ending: Ending) -> None:
        """Note that the last epoch is complete."""
        self._ending = ending

    def due(self) -> list[Savepoint]:
        """Return the savepoints that can be copied now, each of them once."""
        due, self.wanted = self.wanted, []
        self._copying += len(due)
        return due

    def copied(self, *, is_there: bool) -> None:
        """Note that a copy is there, or never will be."""
        self._copying -= 1
        self._has_copy |= is_there

    def answer(self) -> Ending | StopFailed | None:
        """Return how the job goes on; None while something is being copied."""
        if self._ending is None or self._copying:
            return None
        if isinstance(self._ending, Stopped) and not self._has_copy:
            self._ending = None
            return StopFailed()
        return self._ending
