"""Which worker hosts which task index.

Task *i* of every stage lives where index *i* lives.  This module knows nothing of
state or load; it moves as few indexes as it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.ids import PeerId

__all__ = ["place"]


def place(
    before: Sequence[PeerId], workers: Sequence[PeerId], task_count: int
) -> tuple[PeerId, ...]:
    """Spread task indexes over workers evenly; an index stays where it can.

    Examples
    --------
    >>> place((), (1, 2, 3), 3)
    (1, 2, 3)
    >>> place((1, 2, 3), (1, 3), 3)
    (1, 1, 3)
    >>> place((1, 1, 3), (1, 3, 4), 3)
    (4, 1, 3)
    """
    assert workers, "tasks need a worker"
    assert task_count > 0, f"there is nothing to place: {task_count} tasks"
    assert len(set(workers)) == len(workers), f"a worker is twice among {workers}"
    hosts: list[PeerId | None] = [
        host if host in workers else None for host in before
    ] or [None] * task_count
    assert len(hosts) == task_count, f"{before} placed other than {task_count} tasks"
    for index, host in enumerate(hosts):
        if host is None:
            hosts[index] = _least_loaded(hosts, workers)
    while True:
        fullest = max(workers, key=lambda w: (hosts.count(w), -w))
        emptiest = _least_loaded(hosts, workers)
        if hosts.count(fullest) - hosts.count(emptiest) <= 1:
            placed = tuple(host for host in hosts if host is not None)
            assert len(placed) == task_count, f"{placed} misses some of {task_count}"
            return placed
        hosts[hosts.index(fullest)] = emptiest


def _least_loaded(hosts: list[PeerId | None], workers: Sequence[PeerId]) -> PeerId:
    return min(workers, key=lambda worker: (hosts.count(worker), worker))
