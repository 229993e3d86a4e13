"""Routing tables: every shard has one owner and the shares are even."""

from __future__ import annotations

from collections import Counter

import pytest

from millstream.protocol.routing import even_table


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 1024])
def test_shares_differ_by_one_shard_at_most(tasks: int) -> None:
    """No worker starts with more state than another."""
    table = even_table(1024, tasks)

    shares = Counter(table.owners)
    assert set(shares) == set(range(tasks))
    assert max(shares.values()) - min(shares.values()) <= 1
    assert table.shard_count == 1024


def test_shards_of_a_task_are_contiguous() -> None:
    """A range is cheaper to name and to move than a set."""
    owners = even_table(1024, 5).owners

    assert list(owners) == sorted(owners)


def test_more_tasks_than_shards_leaves_some_without() -> None:
    """Every shard still has an owner that exists."""
    table = even_table(3, 5)

    assert len(table.owners) == 3
    assert set(table.owners) < set(range(5))
