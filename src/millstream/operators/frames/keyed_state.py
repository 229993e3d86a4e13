"""State of frames by key, as snapshots want it.

A table marks what it changes with stamps (`state.stamps`); what it took over in a restore
has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millstream.state.frame_codec import frame_segments, frame_within
from millstream.state.stamps import Stamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import polars as pl

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Segment, ShardRange

__all__ = ["FrameState", "FrameTable"]


class FrameTable(Protocol):
    """State by key that knows when a key was last touched."""

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch."""
        ...

    def delta(self, since: int) -> pl.DataFrame:
        """Return the state of the keys touched after epoch `since`; of all after 0."""
        ...

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Apply deltas in the order in which they were taken."""
        ...


class FrameState:
    """Takes deltas from a table and puts them into another one."""

    def __init__(
        self, table: FrameTable, keys: tuple[str, ...], shard_count: int
    ) -> None:
        self._table = table
        self._keys = keys
        self._shard_count = shard_count
        self._stamps = Stamps()

    def capture(self, epoch: Epoch, since: Epoch) -> FrameCapture:
        """Gather the rows of the keys touched after `since`; Polars never changes them."""
        frame = self._table.delta(self._stamps.after(since))
        self._stamps.cut(epoch)
        self._table.begin_epoch(self._stamps.now)
        return FrameCapture(frame, self._keys, self._shard_count)

    def complete(self, epoch: Epoch) -> None:
        """Forget the stamps of epochs before it."""
        self._stamps.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Take over the rows of these shards."""
        count = self._shard_count
        found = [frame_within(segment, shards, count) for segment in segments]
        told = [frame for frame in found if frame is not None]
        # The order of columns may have changed with the engine of the table.
        self._table.restore(frame.select(told[0].columns) for frame in told)
        self._table.begin_epoch(self._stamps.now)

    def begin_anew(self, table: FrameTable) -> None:
        """Take the state of an empty table from now on.

        Only where every cut finds it empty, as between the rounds of an iteration: a
        frame cannot tell which keys are gone.
        """
        self._table = table
        table.begin_epoch(self._stamps.now)

    def close(self) -> None:
        """Do nothing: the operator owns the table."""


@dataclass(frozen=True, slots=True)
class FrameCapture:
    """Rows of state, one per key."""

    frame: pl.DataFrame
    keys: tuple[str, ...]
    shard_count: int

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Encode them, by shard."""
        return frame_segments(operator, task, self.frame, self.keys, self.shard_count)
