"""The routing table of an edge: which task owns which shard.

A key's hash picks its shard, the table picks the shard's owner.  Tables are immutable
and carry a version; this module does not know how a key is hashed or how rows move.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RoutingTable", "even_table", "shard_range"]


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Owner of every shard, by task index."""

    version: int
    owners: tuple[int, ...]

    @property
    def shard_count(self) -> int:
        """Number of shards."""
        return len(self.owners)


def even_table(shard_count: int, task_count: int) -> RoutingTable:
    """Give every task a contiguous range of shards of nearly equal length.

    Examples
    --------
    >>> even_table(5, 2).owners
    (0, 0, 0, 1, 1)
    """
    assert task_count > 0, f"{shard_count} shards need a task"
    owners = tuple(shard * task_count // shard_count for shard in range(shard_count))
    assert set(owners) <= set(range(task_count)), f"{owners} are not {task_count} tasks"
    return RoutingTable(1, owners)


def shard_range(shard_count: int, task_count: int, index: int) -> tuple[int, int]:
    """Return the first shard of a task in `even_table`, and the one after its last.

    Examples
    --------
    >>> [shard_range(5, 2, index) for index in range(2)]
    [(0, 3), (3, 5)]
    """
    assert 0 <= index < task_count, f"there is no task {index} of {task_count}"
    first, end = (-(-i * shard_count // task_count) for i in (index, index + 1))
    assert 0 <= first <= end <= shard_count, f"{first} to {end} of {shard_count} shards"
    return first, end
