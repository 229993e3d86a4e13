"""Split data frames by key columns, in one pass over the routing table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.runtime.router import Router
from millstream.state.frame_codec import frame_shards

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from millstream.protocol.routing import RoutingTable
    from millstream.runtime.channels import OutputChannel

__all__ = ["ColumnsRouter"]


class ColumnsRouter(Router):
    """Sends every row of a frame to the task that owns the shard of its key."""

    def __init__(
        self, channels: list[OutputChannel], names: tuple[str, ...], table: RoutingTable
    ) -> None:
        super().__init__(channels)
        self._names = names
        self._owners: NDArray[np.uint16] = np.array(table.owners, dtype=np.uint16)

    def route(self, rows: pl.DataFrame, now_ns: int) -> None:
        """Put the rows of every task into the buffer of its channel."""
        owners = self._owners[frame_shards(rows, self._names, len(self._owners))]
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(self.channels)))
        grouped = rows[order]
        start = 0
        for channel, end in zip(self.channels, ends.tolist(), strict=True):
            if end > start:
                channel.put(grouped.slice(start, end - start), now_ns)
            start = end
