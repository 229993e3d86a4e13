"""Split data frames by key columns, in one pass over the routing table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.runtime.router import Router

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from millstream.protocol.routing import RoutingTable
    from millstream.runtime.channels import OutputChannel

__all__ = ["ColumnsRouter"]

_HASH_SEED = 0x6D73
"""Any number, but the same in every process of a job."""


class ColumnsRouter(Router):
    """Sends every row of a frame to the task that owns the shard of its key.

    The hash is Polars' own: the same in all processes that run the same version, which
    workers of a job do.
    """

    def __init__(
        self, channels: list[OutputChannel], names: tuple[str, ...], table: RoutingTable
    ) -> None:
        super().__init__(channels)
        self._names = names
        self._owners: NDArray[Any] = np.array(table.owners, dtype=np.uint16)

    def route(self, rows: Any, now_ns: int) -> None:
        """Put the rows of every task into the buffer of its channel."""
        owners = self._owners[self._shards(rows)]
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(self.channels)))
        grouped: Any = rows[order]
        start = 0
        for channel, end in zip(self.channels, ends.tolist(), strict=True):
            if end > start:
                channel.put(grouped.slice(start, end - start), now_ns)
            start = end

    def _shards(self, rows: pl.DataFrame) -> NDArray[Any]:
        hashes = rows.select(self._names).hash_rows(_HASH_SEED).to_numpy()
        high = hashes >> np.uint64(32)
        return (high * np.uint64(len(self._owners)) >> np.uint64(32)).astype(np.intp)
