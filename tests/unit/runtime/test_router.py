"""Routers: which channel a row takes under each grouping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import channel, edge, taken_batches

from millstream.config import Config, configured, fixed
from millstream.plan.grouping import (
    Broadcast,
    ByFunction,
    Fields,
    Gather,
    LocalOrShuffle,
    Shuffle,
)
from millstream.runtime import router
from millstream.runtime.channels import InputChannel, LocalCarrier, OutputChannel
from millstream.runtime.router import make_router
from millstream.state.keyhash import shard_of

if TYPE_CHECKING:
    from millstream.plan.grouping import Grouping


class Fan:
    """A router with readable channels to so many tasks."""

    def __init__(
        self, grouping: Grouping, tasks: int, index: int = 0, **settings: Any
    ) -> None:
        policy = fixed(1_000)
        made = [channel(i, target=i, buffer=policy) for i in range(tasks)]
        self._readers = [InputChannel(c) for c in made]
        self._writers = [
            OutputChannel(c, LocalCarrier(reader, 1_000), lambda *_: None)
            for c, reader in zip(made, self._readers, strict=True)
        ]
        config = configured(Config(), settings)
        self._router = make_router(edge(grouping), self._writers, index, config)

    def route(self, *batches: list[Any]) -> list[list[Any]]:
        """Return the rows of every task."""
        for rows in batches:
            self._router.route(rows, 0)
        for writer in self._writers:
            writer.flush()
        return [
            [row for batch in taken_batches(reader) for row in batch]
            for reader in self._readers
        ]


def test_shuffle_deals_rows_out_evenly_across_batches() -> None:
    """Small batches do not all begin with the same task."""
    parts = Fan(Shuffle(), 3).route([0], [1], [2], [3, 4, 5, 6], [7, 8])

    assert [len(part) for part in parts] == [3, 3, 3]
    assert sorted(row for part in parts for row in part) == list(range(9))


def test_shuffles_of_different_tasks_begin_with_different_targets() -> None:
    """Many senders of one row each do not flood the first task."""
    firsts = [Fan(Shuffle(), 3, index).route(["row"]) for index in range(3)]

    assert [parts.index(["row"]) for parts in firsts] == [0, 1, 2]


def test_equal_keys_go_to_one_task_whoever_sends_them() -> None:
    """Fields grouping depends on the key and on nothing else."""
    pairs = [(f"key {i % 20}", i) for i in range(200)]

    one = Fan(Fields(), 4, index=0).route(pairs)
    other = Fan(Fields(), 4, index=3).route(*[[pair] for pair in pairs])

    assert [sorted(part) for part in one] == [sorted(part) for part in other]
    owners = [{key for key, _ in part} for part in one]
    assert sum(len(keys) for keys in owners) == 20
    assert all(owners), "twenty keys should reach all of four tasks"


def test_forgetting_owners_changes_nothing() -> None:
    """The cache of keys is bounded; a key that was forgotten goes where it went."""
    pairs = [(i % 50, i) for i in range(500)]

    wide = Fan(Fields(), 3).route(pairs)
    narrow = Fan(Fields(), 3, route_cache_keys_max=1).route(*[[p] for p in pairs])

    assert wide == narrow


def test_keys_that_come_again_are_not_forgotten_for_those_that_come_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job with ever new keys must not hash the hot ones again and again."""
    hashed: list[object] = []

    def counted(key: object, shard_count: int) -> int:
        hashed.append(key)
        return shard_of(key, shard_count)

    monkeypatch.setattr(router, "shard_of", counted)
    batches = [[("hot", 0), (number, 0)] for number in range(100)]

    Fan(Fields(), 3, route_cache_keys_max=10).route(*batches)

    assert hashed.count("hot") == 1
    assert len(hashed) == 101


def test_local_or_shuffle_has_one_channel_and_uses_it() -> None:
    """The planner makes the channel to the task of the same worker only."""
    assert Fan(LocalOrShuffle(), 1).route([1, 2], [3]) == [[1, 2, 3]]


def test_broadcast_gives_every_row_to_every_task() -> None:
    """In the same order everywhere."""
    assert Fan(Broadcast(), 3).route([1, 2], [3]) == [[1, 2, 3]] * 3


def test_gather_gives_every_row_to_the_only_task() -> None:
    """Whatever the rows are."""
    assert Fan(Gather(), 1).route([1], ["x"]) == [[1, "x"]]


@pytest.mark.parametrize(("number", "task"), [(0, 0), (4, 1), (-1, 2), (-3, 0)])
def test_function_names_the_task_modulo_their_number(number: int, task: int) -> None:
    """A negative number counts from the end, as an index does."""
    parts = Fan(ByFunction(lambda row: row), 3).route([number])

    assert parts[task] == [number]
    assert sum(len(part) for part in parts) == 1


def test_function_that_returns_no_number_is_told_so() -> None:
    """The user forgot to turn a key into a number."""
    fan = Fan(ByFunction(lambda row: "north"), 3)  # type: ignore[arg-type, return-value]

    with pytest.raises(TypeError, match="number"):
        fan.route([1])
