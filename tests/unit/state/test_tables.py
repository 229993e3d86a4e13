"""Both tables do the same: what they keep, what a capture holds, what comes back."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SnapshotError
from millstream.protocol.ids import Epoch
from millstream.state.keyhash import shard_of
from millstream.state.row_codec import DELETED, decode_rows
from millstream.state.settings import StateSettings
from millstream.state.table import PlainTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.state.base import Capture, Segment
    from millstream.state.table import Table

SHARDS = 1024
EVERYTHING = (0, SHARDS)
BEGINNING = Epoch(0)

Maker = "Callable[[], Table]"


@pytest.fixture(params=["memory", "rocksdb"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Table]]:
    """Make tables of each backend; one of RocksDB caches next to nothing."""
    backend: Literal["memory", "rocksdb"] = request.param
    settings = StateSettings(SHARDS, backend, str(tmp_path), cache_entries=3)
    made: list[Table] = []

    def make() -> Table:
        made.append(settings.make_table())
        return made[-1]

    yield make
    for table in made:
        table.close()


def content(table: Table) -> dict[Any, Any]:
    return dict(table.items())


def stored(capture: Capture) -> list[Segment]:
    return list(capture.segments("sum", 0))


def pairs(capture: Capture) -> dict[Any, Any]:
    rows = [row for segment in stored(capture) for row in decode_rows(segment.payload)]
    assert len(rows) == len(dict(rows)), "a key is captured once"
    return dict(rows)


def test_first_capture_holds_everything(make: Callable[[], Table]) -> None:
    """A base needs no epoch before it."""
    table = make()
    table.touch(range(100)).update(zip(range(100), range(100), strict=True))

    capture = table.capture(Epoch(1), since=BEGINNING)

    assert pairs(capture) == {number: number for number in range(100)}


def test_delta_holds_what_was_touched_and_what_was_deleted(
    make: Callable[[], Table],
) -> None:
    """A delta costs the keys that changed, not all keys."""
    table = make()
    table.touch("abcdef").update(dict.fromkeys("abcdef", 1))
    table.capture(Epoch(1), since=BEGINNING)
    entries = table.touch("ab")
    entries["a"] = 2
    del entries["b"]

    delta = table.capture(Epoch(2), since=Epoch(1))

    assert pairs(delta) == {"a": 2, "b": DELETED}
    assert content(table) == {"a": 2, **dict.fromkeys("cdef", 1)}


def test_a_table_that_keeps_its_keys_need_not_count_when_nearly_all_are_touched(
    make: Callable[[], Table],
) -> None:
    """The delta of such an epoch has all keys, new ones too; the next one has few again."""
    table = make()
    table.keep_keys()
    table.touch(range(20)).update(dict.fromkeys(range(20), 1))
    table.capture(Epoch(1), since=BEGINNING)
    table.touch(range(19)).update(dict.fromkeys(range(19), 2))
    table.touch([99])[99] = 3

    hot = pairs(table.capture(Epoch(2), since=Epoch(1)))
    table.touch([5])[5] = 4
    cold = pairs(table.capture(Epoch(3), since=Epoch(2)))

    assert hot.items() >= {**dict.fromkeys(range(19), 2), 99: 3}.items()
    assert cold == {5: 4}
    both = {**dict.fromkeys(range(19), 2), 5: 4, 99: 3}
    table.touch([7])[7] = 6
    assert (
        pairs(table.capture(Epoch(4), since=Epoch(1))).items()
        >= {
            **both,
            7: 6,
        }.items()
    )


def test_touching_a_key_that_never_was_is_a_deletion(make: Callable[[], Table]) -> None:
    """It may have been set and deleted in an epoch that was abandoned."""
    table = make()
    table.capture(Epoch(1), since=BEGINNING)
    table.touch(["ghost"])

    assert pairs(table.capture(Epoch(2), since=Epoch(1))) == {"ghost": DELETED}


def test_keys_of_many_abandoned_epochs_are_kept_once(make: Callable[[], Table]) -> None:
    """A disk may be full for days."""
    table = make()
    table.capture(Epoch(1), since=BEGINNING)
    table.complete(Epoch(1))
    for number in range(2, 9):
        table.touch("ab").update(a=number, b=number)
        table.capture(Epoch(number), since=Epoch(1))

    touched = table._touched  # type: ignore[attr-defined]
    assert [len(keys) for keys in touched._by_epoch.values()] == [2]


def test_abandoned_epoch_is_part_of_the_next_delta(make: Callable[[], Table]) -> None:
    """Deltas build on the last complete epoch, not on the last cut."""
    table = make()
    table.touch("a")["a"] = 1
    table.capture(Epoch(1), since=BEGINNING)
    table.complete(Epoch(1))
    table.touch("b")["b"] = 2
    table.capture(Epoch(2), since=Epoch(1))
    table.touch("c")["c"] = 3

    delta = table.capture(Epoch(3), since=Epoch(1))

    assert pairs(delta) == {"b": 2, "c": 3}


def test_change_after_the_cut_is_not_in_the_capture(make: Callable[[], Table]) -> None:
    """The task goes on while the capture is encoded on another thread."""
    table = make()
    table.touch("abc").update(a=[1], b=1, c=(1, [1]))
    capture = table.capture(Epoch(1), since=BEGINNING)
    entries = table.touch("abc")
    entries["a"].append(2)
    entries["c"][1].append(2)
    del entries["b"]
    table.touch(range(50)).update(dict.fromkeys(range(50), 0))
    table.touch(range(50, 100))
    found: list[dict[Any, Any]] = []

    background = threading.Thread(target=lambda: found.append(pairs(capture)))
    background.start()
    background.join()

    assert found == [{"a": [1], "b": 1, "c": (1, [1])}]


def test_change_after_the_cut_is_not_in_the_delta(make: Callable[[], Table]) -> None:
    """A delta is read from what RocksDB had at the cut, key by key."""
    table = make()
    table.capture(Epoch(1), since=BEGINNING)
    table.touch("ab").update(a=1, b=1)
    delta = table.capture(Epoch(2), since=Epoch(1))
    entries = table.touch("ab")
    entries["a"] = 2
    del entries["b"]
    table.touch(range(50))
    table.touch(range(50, 100))

    assert pairs(delta) == {"a": 1, "b": 1}


def test_value_changed_in_place_stays_changed(make: Callable[[], Table]) -> None:
    """Also where the cache is too small to hold it until it is asked for again."""
    table = make()
    for number in range(50):
        table.touch([number])[number] = []
    for number in range(50):
        table.touch([number])[number].append(number)

    assert content(table) == {number: [number] for number in range(50)}


def test_equal_keys_are_one_key(make: Callable[[], Table]) -> None:
    """Equal keys meet in one task, so they must meet in its table."""
    table = make()
    # The pickles of the two tuples differ: one holds the same object twice.
    word, equal = "mill", "MILL".lower()
    table.touch([1, (word, word)]).update({1: "one", (word, word): "two"})
    table.touch(range(10, 20))
    entries = table.touch([1.0, True, (word, equal)])

    assert entries[True] == "one"
    assert entries[word, equal] == "two"
    assert len(content(table)) == 2


def test_segments_hold_neighboring_shards_and_enough_rows(
    make: Callable[[], Table],
) -> None:
    """Few rows in many shards would otherwise make many tiny pieces."""
    table = make()
    table.touch(range(500)).update(dict.fromkeys(range(500), 0))

    segments = stored(table.capture(Epoch(1), since=BEGINNING))

    ranges = [segment.shards for segment in segments]
    sizes = [len(decode_rows(segment.payload)) for segment in segments]
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert all(64 <= size < 128 for size in sizes[:-1])
    for segment in segments:
        first, end = segment.shards
        for key, _ in decode_rows(segment.payload):
            assert first <= shard_of(key, SHARDS) < end


def test_restore_takes_only_the_shards_asked_for(make: Callable[[], Table]) -> None:
    """Two tasks that share the shards of one get each key once."""
    table = make()
    table.touch(range(300)).update(dict.fromkeys(range(300), "old"))
    segments = stored(table.capture(Epoch(1), since=BEGINNING))
    entries = table.touch(range(100))
    entries.update(dict.fromkeys(range(50), "new"))
    for number in range(50, 100):
        del entries[number]
    segments += stored(table.capture(Epoch(2), since=Epoch(1)))
    left, right, whole = make(), make(), make()
    border = sorted(shard_of(number, SHARDS) for number in range(300))[100]

    left.restore(segments, (0, border))
    right.restore(segments, (border, SHARDS))
    whole.restore(segments, EVERYTHING)

    assert content(whole) == content(table)
    assert content(left) == {
        key: value
        for key, value in content(table).items()
        if shard_of(key, SHARDS) < border
    }
    assert content(left).keys().isdisjoint(content(right))
    assert content(left) | content(right) == content(table)


def test_delta_after_a_restore_builds_on_what_was_restored(
    make: Callable[[], Table],
) -> None:
    """Restored entries are in the store already."""
    table = make()
    table.touch("ab").update(a=1, b=2)
    segments = stored(table.capture(Epoch(1), since=BEGINNING))
    again = make()
    again.restore(segments, EVERYTHING)
    again.touch("b")["b"] = 3

    assert pairs(again.capture(Epoch(2), since=Epoch(1))) == {"b": 3}


def test_table_forgets_the_keys_of_complete_epochs(make: Callable[[], Table]) -> None:
    """Otherwise sets of keys would pile up; who asks for them has a bug."""
    table = make()
    table.touch("a")["a"] = 1
    table.capture(Epoch(1), since=BEGINNING)
    table.capture(Epoch(2), since=Epoch(1))
    table.complete(Epoch(2))

    with pytest.raises(AssertionError, match="since epoch 1 was asked for"):
        table.capture(Epoch(3), since=Epoch(1))


def test_epochs_only_go_up(make: Callable[[], Table]) -> None:
    """A cut of an old epoch would put new changes into it."""
    table = make()
    table.capture(Epoch(2), since=BEGINNING)

    with pytest.raises(AssertionError, match="epoch 2 was cut"):
        table.capture(Epoch(2), since=BEGINNING)


def test_value_that_cannot_be_stored_is_named(make: Callable[[], Table]) -> None:
    """A lock or a socket in the state is found out at the first snapshot."""
    table = make()
    table.touch(["ann"])["ann"] = {"lock": threading.Lock()}

    with pytest.raises(SnapshotError, match="the state of key 'ann' cannot be stored"):
        table.capture(Epoch(1), since=BEGINNING)


def test_cleared_table_is_empty(make: Callable[[], Table]) -> None:
    """What has been sent on at the end of the input need not be kept."""
    table = make()
    table.touch(range(20)).update(dict.fromkeys(range(20), 1))
    table.clear()

    assert content(table) == {}
    assert table.peek(range(20)).get(7) is None


def test_deleting_everything_is_told_by_the_next_delta(
    make: Callable[[], Table],
) -> None:
    """A restored table would have it all again."""
    table, restored = make(), make()
    table.touch(["a", "b"]).update(a=1, b=2)
    first = stored(table.capture(Epoch(1), BEGINNING))

    table.delete_all()
    table.touch(["b", "c"]).update(b=3, c=4)
    second = stored(table.capture(Epoch(2), Epoch(1)))

    restored.restore([*first, *second], EVERYTHING)
    assert content(restored) == content(table) == {"b": 3, "c": 4}


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.integers() | st.none())
        | st.sampled_from(["clear", "delete_all"])
    )
)
def test_plain_table_is_a_dict(steps: list[Any]) -> None:
    """Nothing but that: it notes no changes, so that no snapshot can be taken of it."""
    table, expected = PlainTable(), dict[int, int | None]()
    table.keep_keys()
    for step in steps:
        if isinstance(step, str):
            getattr(table, step)()
            expected.clear()
        else:
            for entries in (table.touch(iter(step)), expected):
                entries.update(step)
        assert content(table) == table.peek(expected) == expected

    with pytest.raises(AssertionError, match="notes no changes"):
        table.capture(Epoch(1), BEGINNING)
