"""What the state of an operator must offer, and the pieces in which it is stored.

A *capture* is taken by the task's thread at a cut and must be quick; turning it into
*segments* happens on another thread while the task goes on, so a capture holds nothing
that the task still changes.  Nothing here knows where segments are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.protocol.ids import Epoch

__all__ = ["ALL_SHARDS", "Capture", "Segment", "SegmentKind", "ShardRange", "State"]

ShardRange = tuple[int, int]
"""First shard, and the one after the last."""

ALL_SHARDS: ShardRange = (0, 1 << 32)


class SegmentKind(StrEnum):
    """How the payload of a segment is encoded, and how two are merged."""

    ROWS = "rows"
    FRAME = "frame"
    TASK = "task"
    SHARED = "shared"
    BATCHES = "batches"
    LOG = "log"
    LOGS = "logs"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the state of one operator.

    Attributes
    ----------
    task
        Index of the task that captured it.
    shards
        Where its keys lie; `ALL_SHARDS` if they lie anywhere, or if it has no keys.
    """

    operator: str
    task: int
    kind: SegmentKind
    shards: ShardRange
    payload: bytes


class Capture(Protocol):
    """The state of an operator at a cut, or what changed in it since an earlier one."""

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Encode it; called once, on another thread."""
        ...


class State(Protocol):
    """What an operator remembers."""

    def capture(self, epoch: Epoch, since: Epoch) -> Capture:
        """Return what changed in the epochs after `since`, up to this cut.

        `since` 0 means everything.  A change after the call belongs to a later epoch.
        """
        ...

    def complete(self, epoch: Epoch) -> None:
        """Forget what is only needed for deltas since an epoch before this one."""
        ...

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Become what the segments say, in their order, as far as it lies in `shards`.

        Called once, before the first row.
        """
        ...

    def close(self) -> None:
        """Give back files and memory."""
        ...
