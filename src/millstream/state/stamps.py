"""Which changes are older than the cut of an epoch.

Epochs are numbers of the job, and not all of them reach a state; so what is kept is
numbered on its own, in *stamps*: one for what was restored, and one more after every cut.
Which stamp stands for an epoch is known here, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.ids import Epoch

__all__ = ["RESTORED", "Stamps"]

RESTORED = 1
"""The stamp of what was restored."""


class Stamps:
    """The stamp of what comes now, and the last one before the cut of each epoch.

    Examples
    --------
    >>> from millstream.protocol.ids import Epoch
    >>> stamps = Stamps()
    >>> stamps.now, stamps.after(Epoch(0)), stamps.after(Epoch(7))
    (2, 0, 1)
    >>> stamps.cut(Epoch(8))
    >>> stamps.now, stamps.after(Epoch(8))
    (3, 2)
    """

    __slots__ = ("_cut_at", "now", "stored")

    def __init__(self) -> None:
        #: What comes now has this stamp.
        self.now = RESTORED + 1
        #: What has this stamp or an earlier one is stored for good.
        self.stored = RESTORED
        self._cut_at: dict[Epoch, int] = {}

    def after(self, since: Epoch) -> int:
        """Return the last stamp that snapshots up to `since` have; 0 if they have none.

        An epoch that was not cut here is the one that was restored.
        """
        return self._cut_at.get(since, RESTORED) if since else 0

    def cut(self, epoch: Epoch) -> None:
        """Let what comes from now on belong to later epochs."""
        self._cut_at[epoch] = self.now
        self.now += 1

    def complete(self, epoch: Epoch) -> None:
        """Forget the epochs before one that is stored."""
        self.stored = max(self.stored, self._cut_at.get(epoch, 0))
        self._cut_at = {e: stamp for e, stamp in self._cut_at.items() if e >= epoch}
