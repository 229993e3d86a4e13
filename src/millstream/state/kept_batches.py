"""State that is a list of whole batches, added to at the end or begun anew.

What snapshots store is what was added since the last one; batches that have not changed
since are not stored again, however large they are.

Nothing here knows keys, or what the batches are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.spill_buffer import SpillBuffer, batch_from_bytes
from millstream.state.stamps import RESTORED, Stamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.protocol.ids import Epoch
    from millstream.state.base import ShardRange
    from millstream.state.spill_buffer import BufferedBatch
    from millstream.values import Batch

__all__ = ["KeptBatches"]

ANEW, MORE = b"\x01", b"\x00"
"""The first byte of a segment: whether it stands for everything up to it."""


class KeptBatches:
    """Batches in the order in which they came.

    Parameters
    ----------
    memory_bytes
        Batches beyond it are kept on disk.

    Examples
    --------
    >>> kept = KeptBatches(1 << 20)
    >>> kept.append([1, 2])
    >>> kept.append([3])
    >>> list(kept)
    [[1, 2], [3]]
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._buffer = SpillBuffer(memory_bytes)
        self._batches: list[BufferedBatch] = []
        self._stamps = Stamps()
        #: The stamps of the batches, and of the last `clear`.
        self._came_at: list[int] = []
        self._cleared_at = 0
        #: Called before a capture, to append what was put aside.
        self.before_capture: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return (kept.load() for kept in list(self._batches))

    @property
    def spilled_bytes(self) -> int:
        """Bytes of all batches that ever went to disk."""
        return self._buffer.spilled_bytes

    def append(self, batch: Batch) -> None:
        """Keep one more batch."""
        self._batches.append(self._buffer.put(batch))
        self._came_at.append(self._stamps.now)

    def clear(self) -> None:
        """Begin anew."""
        self._buffer = SpillBuffer(self._memory_bytes)
        self._batches, self._came_at = [], []
        self._cleared_at = self._stamps.now

    def taken(self) -> list[BufferedBatch]:
        """Return all batches and begin anew."""
        batches = self._batches
        self.clear()
        return batches

    def capture(self, epoch: Epoch, since: Epoch) -> _Capture:
        """Return what came after the cut of `since`."""
        self.before_capture()
        after = self._stamps.after(since)
        is_anew = not after or self._cleared_at > after
        new = [
            kept
            for kept, stamp in zip(self._batches, self._came_at, strict=True)
            if is_anew or stamp > after
        ]
        self._stamps.cut(epoch)
        return _Capture(new, is_anew=is_anew)

    def complete(self, epoch: Epoch) -> None:
        """Forget the stamps of epochs before it."""
        self._stamps.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:  # noqa: ARG002
        """Take over the batches of one or more former tasks."""
        by_task: dict[int, list[bytes]] = {}
        for segment in segments:
            batches = by_task.setdefault(segment.task, [])
            if segment.payload[:1] == ANEW:
                batches.clear()
            if len(segment.payload) > 1:
                batches.append(segment.payload[1:])
        for task in sorted(by_task):
            for data in by_task[task]:
                # The store has checked that the payloads are ours.
                self._batches.append(self._buffer.put(batch_from_bytes(data)))
                self._came_at.append(RESTORED)

    def close(self) -> None:
        """Give the memory back."""
        self._batches, self._came_at = [], []


@dataclass(frozen=True, slots=True)
class _Capture:
    batches: list[BufferedBatch]
    is_anew: bool

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Return a segment per batch, behind an empty one where they are everything."""
        if self.is_anew:
            yield _segment(operator, task, ANEW)
        for kept in self.batches:
            yield _segment(operator, task, MORE + kept.data())


def _nothing() -> None:
    """Stand in where nothing is put aside."""


def _segment(operator: str, task: int, payload: bytes) -> Segment:
    return Segment(operator, task, SegmentKind.BATCHES, ALL_SHARDS, payload)
