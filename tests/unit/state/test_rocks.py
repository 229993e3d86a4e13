"""RocksDB behind a mapping: the cache, colliding keys, and the directory's life."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import UsageError
from millstream.protocol.ids import Epoch
from millstream.state.keyhash import key_hash
from millstream.state.rocks import RocksTable, _shared
from millstream.state.row_codec import decode_rows
from millstream.state.settings import StateSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLLIDING = (5, 1 << 32 | 5 ^ 0x9E37_79B1)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RocksTable]:
    table = RocksTable(1024, str(tmp_path), cache_entries=10)
    yield table
    table.close()


def test_it_is_a_mapping(table: RocksTable) -> None:
    """Entries can be read, set, counted, walked through and deleted one by one."""
    table["a"] = 1
    table["b"] = 2
    table["a"] = 3
    table["c"] = 4
    del table["b"]

    assert table == {"a": 3, "c": 4}
    assert len(table) == 2
    assert "b" not in table
    assert table.get("b", 7) == 7
    assert table.pop("c") == 4
    with pytest.raises(KeyError):
        del table["b"]
    with pytest.raises(KeyError):
        table["b"]


def test_keys_of_one_hash_do_not_disturb_each_other(table: RocksTable) -> None:
    """RocksDB knows only the hash."""
    one, other = COLLIDING
    assert key_hash(one) == key_hash(other)
    table.touch([one])[one] = "one"
    table.touch(range(100, 120)).update(dict.fromkeys(range(100, 120), 0))
    table.touch([other])[other] = "other"
    table.touch(range(120, 140)).update(dict.fromkeys(range(120, 140), 0))

    stored = dict(table.items())
    assert (stored[one], stored[other]) == ("one", "other")
    assert (table[one], table[other]) == ("one", "other")
    del table[one]
    assert (one in table, other in table, len(table)) == (False, True, 41)


def test_only_a_few_entries_are_in_memory(table: RocksTable) -> None:
    """State may be larger than memory."""
    for start in range(0, 5_000, 50):
        batch = range(start, start + 50)
        entries = table.touch(batch)
        entries.update({key: [key] for key in batch})
        assert len(entries) <= 60

    assert len(table) == 5_000
    assert all(table[key] == [key] for key in range(0, 5_000, 99))
    assert sum(1 for _ in table.items()) == 5_000


def test_hot_key_is_not_read_from_disk_again(table: RocksTable) -> None:
    """The same object comes back, not a copy that RocksDB kept."""
    first = table.touch(["hot"])["hot"] = []
    for number in range(5):
        table.touch(["hot", number])

    assert table["hot"] is first


def test_directory_goes_with_the_table(tmp_path: Path) -> None:
    """Workers come and go on a machine; their state must not stay."""
    table = RocksTable(1024, str(tmp_path), cache_entries=10)
    table["a"] = 1
    assert [str(path) for path in tmp_path.iterdir()] == [table.directory]

    table.close()

    assert list(tmp_path.iterdir()) == []


def test_directory_waits_for_a_capture(tmp_path: Path) -> None:
    """A task may end before what it captured is stored."""
    table = RocksTable(1024, str(tmp_path), cache_entries=10)
    table.touch("a")["a"] = 1
    capture = table.capture(Epoch(1), since=Epoch(0))
    table.close()

    (segment,) = capture.segments("sum", 0)
    assert decode_rows(segment.payload) == [("a", 1)]
    del capture

    assert list(tmp_path.iterdir()) == []


def test_write_buffers_of_all_tables_share_one_limit(tmp_path: Path) -> None:
    """Otherwise a worker of many tables grows for hours."""
    memory_bytes = 4 << 20
    tables = [RocksTable(1024, str(tmp_path), 10, memory_bytes) for _ in range(3)]
    usages = []
    for start in range(0, 12_000, 100):
        batch = range(start, start + 100)
        for table in tables:
            table.touch(batch).update(dict.fromkeys(batch, b"x" * 1000))
        usages.append(_shared(memory_bytes)[1].get_usage())
    for table in tables:
        table.close()

    # Buffers that are being flushed come on top; 36 MB were written.
    assert 0 < max(usages) <= 3 * memory_bytes


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB is an extra that not everybody installs."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.delitem(sys.modules, "millstream.state.rocks")

    with pytest.raises(UsageError, match=r"install millstream\[rocksdb\]"):
        StateSettings(1024, "rocksdb").make_table()
