"""Which table an operator gets for its state by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from millstream.errors import UsageError
from millstream.state.table import MemoryTable

if TYPE_CHECKING:
    from millstream.state.table import Table

__all__ = ["StateSettings"]


@dataclass(frozen=True, slots=True)
class StateSettings:
    """How the state of a job that takes snapshots is kept while it runs.

    Attributes
    ----------
    backend
        `memory` is fastest; `rocksdb` keeps what does not fit on disk.
    directory
        Where RocksDB may make directories; None for the system's temporary one.
    cache_entries
        Entries of each table of RocksDB that are also kept in memory.
    memory_bytes
        What RocksDB may use for blocks and write buffers of all tables of a worker.
    """

    shard_count: int
    backend: Literal["memory", "rocksdb"] = "memory"
    directory: str | None = None
    cache_entries: int = 65_536
    memory_bytes: int = 64 * 1024 * 1024

    def make_table(self) -> Table:
        """Return an empty table."""
        if self.backend == "memory":
            return MemoryTable(self.shard_count)
        try:
            from millstream.state.rocks import RocksTable  # noqa: PLC0415 - optional
        except ModuleNotFoundError as error:
            msg = (
                f"the state backend 'rocksdb' needs the package {error.name!r}, which is "
                "not installed here; install millstream[rocksdb] on driver and workers, "
                "or use the backend 'memory'"
            )
            raise UsageError(msg) from error
        return RocksTable(
            self.shard_count, self.directory, self.cache_entries, self.memory_bytes
        )
