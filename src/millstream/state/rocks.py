"""State by key in RocksDB: more than fits into memory, on the worker's own disk.

RocksDB holds one value per *place*, the hash of a key: the pickled dict of all entries
whose keys have that hash, which is nearly always one.  So equal keys meet whatever their
types are, which pickled keys would not, and RocksDB's own order is that of the shards.

Entries in use are in a dict.  `touch` fetches those of a batch before the batch is
worked on, and first writes the longest unused ones back if there are too many.  A value
may be changed in place: a touched place is written when it leaves the dict and at every
cut.  What an iterator of RocksDB reads is what was there when it was made; so a capture
is an iterator, made at the cut and read in the background.

The database is scratch space: it is not synced, has no log, and goes with the table, or
with the next one on this machine if its process was killed (`state.scratch`).  All tables
of a process share one limit for the memory of RocksDB itself.
Nothing here knows operators, or where captures are stored.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from collections.abc import ItemsView, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocksdict import (
    BlockBasedOptions,
    Cache,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from millstream.errors import SnapshotError
from millstream.state.dirty_keys import DirtyKeys
from millstream.state.keyhash import key_hash
from millstream.state.row_codec import (
    DELETED,
    rows_within,
    segments_by_shard,
    unstorable,
)
from millstream.state.scratch import ScratchDirectory
from millstream.state.table import apply_rows
from millstream.values import Key, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocksdict import RdictIter

    from millstream.protocol.ids import Epoch
    from millstream.state.base import Segment, ShardRange
    from millstream.values import Entries, Pair

__all__ = ["RocksTable"]

_PLACE_BYTES = 4
_FIRST_PLACE, _AFTER_LAST_PLACE = b"\x00" * _PLACE_BYTES, b"\xff" * (_PLACE_BYTES + 1)
_MEMORY_BYTES = 64 << 20
_WRITE_BUFFER_BYTES_MAX = 16 << 20
_OPEN_FILES_MAX = 256


class RocksTable(MutableMapping[Key, Value]):
    """A table of which `cache_entries` entries or one batch are in memory.

    Sets of touched keys are in memory, too.

    Parameters
    ----------
    directory
        Where to make a directory of its own; None for the system's temporary one.
    memory_bytes
        What RocksDB may use for blocks and write buffers of all tables of this process.
    """

    def __init__(
        self,
        shard_count: int,
        directory: str | None,
        cache_entries: int,
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        self._shard_count = shard_count
        self._cache_entries = cache_entries
        self._database: _Database | None = _Database(directory, memory_bytes)
        self._touched = DirtyKeys()
        #: The entries of all fetched places.
        self._hot: Entries = {}
        #: The fetched places, longest unused first once full, with the keys that lie or lay there.
        self._fetched: dict[bytes, list[Key]] = {}
        self._place_of: dict[Key, bytes] = {}
        #: Fetched places that RocksDB may have otherwise.
        self._changed: set[bytes] = set()
        #: Number of entries that are not fetched.
        self._cold_count = 0

    @property
    def directory(self) -> str:
        """Its own directory."""
        return self._opened.path

    @property
    def _opened(self) -> _Database:
        assert self._database is not None, "the table is closed"
        return self._database

    def __getitem__(self, key: Key) -> Value:
        return self.peek((key,))[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._changed.update(self._fetch((key,)))
        self._hot[key] = value

    def __delitem__(self, key: Key) -> None:
        self._changed.update(self._fetch((key,)))
        del self._hot[key]

    def __contains__(self, key: object) -> bool:
        return key in self.peek((key,))

    def __len__(self) -> int:
        return self._cold_count + len(self._hot)

    def __iter__(self) -> Iterator[Key]:
        return (key for key, _ in self.items())

    def items(self) -> ItemsView[Key, Value]:
        """Return all keys and values; a walk through them sees no later change."""
        return _Items(self)

    def clear(self) -> None:
        """Forget everything, for good: it is not noted in a delta."""
        self._empty()
        self._touched.forget()

    def delete_all(self) -> None:
        """Forget everything, and note that in the next delta."""
        self._touched.add(self)
        self._empty()

    def _empty(self) -> None:
        self._opened.clear()
        self._drop_cache()
        self._cold_count = 0

    def keep_keys(self) -> None:
        """Take the promise that no key will ever be deleted; nothing follows from it."""

    def touch(self, keys: Iterable[Key]) -> Entries:
        """Fetch what is there of these keys, and note that they are being changed."""
        keys = set(keys)  # They may come only once.
        self._touched.add(keys)
        self._changed.update(self._fetch(keys))
        return self._hot

    def peek(self, keys: Iterable[Key]) -> Entries:
        """Fetch what is there of these keys."""
        self._fetch(keys)
        return self._hot

    def capture(self, epoch: Epoch, since: Epoch) -> RocksCapture:
        """Write back what changed, and hold on to what RocksDB has now."""
        self._touched.cut(epoch)
        self._write_back(list(self._changed))
        keys = None if since == 0 else self._touched.since(since)
        return RocksCapture(self._opened, keys, self._shard_count)

    def complete(self, epoch: Epoch) -> None:
        """Forget which keys were touched up to `epoch`."""
        self._touched.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Take over the entries of these shards, a segment at a time."""
        for segment in segments:
            rows = rows_within(segment, shards, self._shard_count)
            self._changed.update(self._fetch([key for key, _ in rows]))
            apply_rows(self._hot, rows)

    def close(self) -> None:
        """Remove the directory, once no capture needs it."""
        self._drop_cache()
        self._database = None

    def walk(self) -> Iterator[Pair]:
        """Yield the entries as they are now."""
        self._write_back(list(self._changed))
        for _, entries in _walk(self._opened.cursor()):
            yield from entries.items()

    def _fetch(self, keys: Iterable[Key]) -> set[bytes]:
        """Get the entries of these keys into the dict; return their places."""
        self._evict()
        known, is_full = self._place_of, len(self._place_of) >= self._cache_entries
        keys = set(keys)
        fresh = [key for key in keys if key not in known]
        places = {known[key] for key in keys if key in known}
        if is_full:  # Before that nobody need know who was used last.
            for place in places:
                self._use(place)
        for key in fresh:
            place = _place(key)
            self._use(place)
            if key not in known:
                known[key] = place
                self._fetched[place].append(key)
            places.add(place)
        return places

    def _use(self, place: bytes) -> None:
        """Fetch the entries of a place, or make it the last to be evicted."""
        keys = self._fetched.pop(place, None)
        if keys is None:
            entries = self._opened.get(place)
            self._hot.update(entries)
            self._place_of.update(dict.fromkeys(entries, place))
            self._cold_count -= len(entries)
            keys = list(entries)
        self._fetched[place] = keys

    def _evict(self) -> None:
        excess = len(self._place_of) - self._cache_entries
        leaving = []
        for place, keys in self._fetched.items():
            if excess <= 0:
                break
            leaving.append(place)
            excess -= len(keys)
        self._write_back([place for place in leaving if place in self._changed])
        for place in leaving:
            for key in self._fetched.pop(place):
                del self._place_of[key]
                if self._hot.pop(key, DELETED) is not DELETED:
                    self._cold_count += 1

    def _write_back(self, places: list[bytes]) -> None:
        hot = self._hot
        written = {
            place: {key: hot[key] for key in self._fetched[place] if key in hot}
            for place in places
        }
        if written:
            self._opened.write(written)
            self._changed.difference_update(written)

    def _drop_cache(self) -> None:
        for cache in (self._hot, self._fetched, self._place_of, self._changed):
            cache.clear()


class RocksCapture:
    """What RocksDB had at the cut, and the keys to be read from it; all, if None."""

    def __init__(
        self, database: _Database, keys: set[Key] | None, shard_count: int
    ) -> None:
        self._cursor = database.cursor()
        self._database = database
        self._keys = keys
        self._shard_count = shard_count

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Read and encode them, by shard."""
        rows = self._all() if self._keys is None else self._delta(self._keys)
        count = self._shard_count
        by_shard = (
            (int.from_bytes(place) * count >> 32, (key, value))
            for place, key, value in rows
        )
        return segments_by_shard(operator, task, by_shard)

    def _all(self) -> Iterator[tuple[bytes, Key, Value]]:
        for place, entries in _walk(self._cursor):
            for key, value in entries.items():
                yield place, key, value

    def _delta(self, keys: set[Key]) -> Iterator[tuple[bytes, Key, Value]]:
        by_place: dict[bytes, list[Key]] = {}
        for key in keys:
            by_place.setdefault(_place(key), []).append(key)
        cursor = self._cursor
        for place in sorted(by_place):
            cursor.seek(place)
            cursor.status()
            is_there = cursor.valid() and cursor.key() == place
            entries: Entries = _loaded(cursor.value()) if is_there else {}
            for key in by_place[place]:
                yield place, key, entries.get(key, DELETED)


class _Items(ItemsView[Key, Value]):
    """All entries, read one after the other and not each by its key."""

    def __init__(self, table: RocksTable) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[Pair]:
        return self._table.walk()


class _Database:
    """RocksDB in a directory that goes when the last user of this object is gone.

    A capture may outlive its table by as long as it takes to store it.
    """

    def __init__(self, directory: str | None, memory_bytes: int) -> None:
        scratch = ScratchDirectory(directory)
        self.path = scratch.path
        self._rocks = Rdict(str(Path(self.path, "db")), _options(memory_bytes))
        self._no_log = WriteOptions()
        # The stub says it is a method.
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment]
        self._rocks.set_write_options(self._no_log)
        weakref.finalize(self, _remove, self._rocks, scratch)

    def get(self, place: bytes) -> Entries:
        data = self._rocks.get(place)
        return {} if data is None else _loaded(data)

    def write(self, places: dict[bytes, Entries]) -> None:
        """Set the entries of whole places."""
        batch = WriteBatch(raw_mode=True)
        for place, entries in places.items():
            if entries:
                batch.put(place, _dumped(entries))
            else:
                batch.delete(place)
        try:
            self._rocks.write(batch, self._no_log)
        except Exception as error:
            msg = (
                f"RocksDB cannot write to {self.path}: {error}; make room there, or let "
                "the workers keep their state in another directory"
            )
            raise SnapshotError(msg) from error

    def clear(self) -> None:
        self._rocks.delete_range(_FIRST_PLACE, _AFTER_LAST_PLACE)

    def cursor(self) -> RdictIter:
        """Return an iterator over what is there now; it sees no later change.

        Not `Rdict.snapshot`: in rocksdict 0.3 the iterators of a snapshot see everything.
        """
        return self._rocks.iter()


def _walk(cursor: RdictIter) -> Iterator[tuple[bytes, Entries]]:
    """Yield all places in order, with what lies there."""
    cursor.seek_to_first()
    while cursor.valid():
        yield cursor.key(), _loaded(cursor.value())
        cursor.next()
    cursor.status()  # Raises where it ended for another reason than the end.


def _options(memory_bytes: int) -> Options:
    blocks, buffers = _shared(memory_bytes)
    tables = BlockBasedOptions()
    tables.set_block_cache(blocks)
    tables.set_cache_index_and_filter_blocks(True)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(min(_WRITE_BUFFER_BYTES_MAX, memory_bytes // 4))
    options.set_max_open_files(_OPEN_FILES_MAX)
    return options


@functools.cache
def _shared(memory_bytes: int) -> tuple[Cache, WriteBufferManager]:
    """Return what all tables of this process share: write buffers count as blocks."""
    blocks = Cache(memory_bytes)
    made = WriteBufferManager.new_write_buffer_manager_with_cache
    return blocks, made(memory_bytes // 2, allow_stall=False, cache=blocks)


def _remove(rocks: Rdict, scratch: ScratchDirectory) -> None:
    try:
        rocks.close()
    finally:
        scratch.remove()


def _place(key: object) -> bytes:
    return key_hash(key).to_bytes(_PLACE_BYTES)


def _dumped(entries: Entries) -> bytes:
    try:
        return pickle.dumps(entries, protocol=5)
    except Exception as error:
        owner = f"the state of key {next(iter(entries))!r}"
        raise unstorable(owner, error) from error


def _loaded(data: bytes) -> Entries:
    entries: Entries = pickle.loads(data)  # noqa: S301 - written by this process
    return entries
