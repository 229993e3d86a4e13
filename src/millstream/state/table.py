"""State by key: what operators may do with a table, and the table in memory.

A batch is worked on in three steps: the operator says which keys it will change
(`touch`), gets a dict in return, and reads and changes the entries of those keys there.
A key that is touched and then not there has been deleted.  That is one call per batch;
the loop over the rows runs on a dict.

Nothing here knows operators, files, or which task a shard belongs to.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from millstream.state.base import Segment, SegmentKind, State
from millstream.state.dirty_keys import DirtyKeys
from millstream.state.plain import encode
from millstream.state.row_codec import (
    DELETED,
    fixed_values,
    rows_within,
    sharded_payloads,
    sharded_segments,
    unstorable,
)
from millstream.state.turns import collecting_no_garbage

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, Sequence

    from millstream.protocol.ids import Epoch
    from millstream.state.base import ShardRange
    from millstream.values import Entries, Key, Pair, Value

__all__ = ["MemoryTable", "PlainTable", "Table", "apply_rows"]


class Table(State, Protocol):
    """The state of an operator that remembers something for every key."""

    def touch(self, keys: Iterable[Key]) -> Entries:
        """Return a dict in which these keys may be read, changed, set and deleted.

        It is good for these keys only, and until the table is used again.
        """
        ...

    def peek(self, keys: Iterable[Key]) -> Entries:
        """Return a dict in which these keys may be read, until the next call."""
        ...

    def items(self) -> ItemsView[Key, Value]:
        """Return all keys and values."""
        ...

    def clear(self) -> None:
        """Forget everything, for good: it is not noted in a delta."""
        ...

    def delete_all(self) -> None:
        """Forget everything, and note that in the next delta."""
        ...

    def keep_keys(self) -> None:
        """Take the promise that no key will ever be deleted."""
        ...


def apply_rows(entries: Entries, rows: list[Pair]) -> None:
    """Do to the entries what the pairs of a delta say."""
    entries.update(rows)
    for key in [key for key, value in rows if value is DELETED]:
        entries.pop(key, None)


class MemoryTable:
    """All entries in one dict, which is what operators get.

    It is not a dict itself: loops over a subclass of dict take a quarter longer.

    Examples
    --------
    >>> from millstream.protocol.ids import Epoch
    >>> table = MemoryTable(shard_count=1024)
    >>> table.touch(["a", "b"]).update(a=1, b=2)
    >>> capture = table.capture(Epoch(1), since=Epoch(0))
    >>> restored = MemoryTable(shard_count=1024)
    >>> restored.restore(capture.segments("sum", 0), (0, 1024))
    >>> sorted(restored.items())
    [('a', 1), ('b', 2)]
    """

    def __init__(self, shard_count: int) -> None:
        self._shard_count = shard_count
        self._entries: Entries = {}
        self._touched = DirtyKeys()
        self._keeps_keys = False

    def keep_keys(self) -> None:
        """Take the promise that no key will ever be deleted."""
        self._keeps_keys = True

    def touch(self, keys: Iterable[Key]) -> Entries:
        """Note that the keys are being changed; return all entries."""
        self._touched.add(keys)
        if self._keeps_keys:
            self._touched.saturate(len(self._entries))
        return self._entries

    def peek(self, keys: Iterable[Key]) -> Entries:  # noqa: ARG002 - all are there
        """Return all entries."""
        return self._entries

    def items(self) -> ItemsView[Key, Value]:
        """Return all keys and values."""
        return self._entries.items()

    def clear(self) -> None:
        """Forget everything, for good: it is not noted in a delta."""
        self._entries.clear()
        self._touched.forget()

    def delete_all(self) -> None:
        """Forget everything, and note that in the next delta."""
        assert not self._keeps_keys, "a table whose keys stay cannot lose all"
        self._touched.add(self._entries)
        self._entries.clear()

    def capture(self, epoch: Epoch, since: Epoch) -> RowsCapture:
        """Return the entries touched after `since`, or all; takes no copies of most."""
        self._touched.cut(epoch)
        touched = None if since == 0 else self._touched.since(since)
        if touched is None:
            keys, values = list(self._entries), list(self._entries.values())
        else:
            keys = list(touched)
            values = list(map(self._entries.get, keys, repeat(DELETED)))
        with collecting_no_garbage():
            return captured_rows(keys, values, self._shard_count)

    def complete(self, epoch: Epoch) -> None:
        """Forget which keys were touched up to `epoch`."""
        self._touched.complete(epoch)

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:
        """Take over the entries of these shards."""
        count = self._shard_count
        with collecting_no_garbage():
            for segment in segments:
                apply_rows(self._entries, rows_within(segment, shards, count))

    def close(self) -> None:
        """Free the memory."""
        self._entries = {}


class PlainTable(MemoryTable):
    """The table where no snapshots are taken: it notes no changes.

    Examples
    --------
    >>> table = PlainTable()
    >>> table.touch(["a"]).update(a=1)
    >>> list(table.items())
    [('a', 1)]
    """

    def __init__(self) -> None:
        super().__init__(shard_count=1)

    def touch(self, keys: Iterable[Key]) -> Entries:  # noqa: ARG002 - all are there
        """Return all entries."""
        return self._entries

    def delete_all(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def capture(self, epoch: Epoch, since: Epoch) -> RowsCapture:  # noqa: ARG002
        """Fail: it is not known what has changed."""
        msg = "a snapshot is taken of a table that notes no changes"
        raise AssertionError(msg)


class RowsCapture:
    """Keys with values that nobody changes any more, and payloads of those that could be.

    Parameters
    ----------
    encoded
        Shards and payloads of what was encoded at the cut.
    """

    def __init__(
        self,
        keys: list[Key],
        values: Sequence[Value],
        shard_count: int,
        encoded: Sequence[tuple[ShardRange, bytes]] = (),
    ) -> None:
        self._keys = keys
        self._values = values
        self._shard_count = shard_count
        self._encoded = encoded

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Encode them, by shard."""
        for shards, payload in self._encoded:
            yield Segment(operator, task, SegmentKind.ROWS, shards, payload)
        yield from sharded_segments(
            operator, task, self._keys, self._values, self._shard_count
        )


def captured_rows(
    keys: list[Key], values: list[Value], shard_count: int
) -> RowsCapture:
    """Capture rows as they are now: where one could still be changed, all are encoded.

    To do that many at a time takes less than to tell those apart that need it.
    """
    fixed = fixed_values(values)
    if fixed is not None:
        return RowsCapture(keys, fixed, shard_count)
    return RowsCapture([], [], shard_count, _encoded_now(keys, values, shard_count))


def _encoded_now(
    keys: list[Key], values: list[Value], shard_count: int
) -> list[tuple[ShardRange, bytes]]:
    """Return the payloads of rows; say which key it is whose value cannot be stored."""
    try:
        return list(sharded_payloads(keys, values, shard_count, _go_on))
    except Exception as error:
        for key, value in zip(keys, values, strict=True):
            _check_storable(key, value)
        owner = "what is kept by key"
        raise unstorable(owner, error) from error


def _check_storable(key: Key, value: Value) -> None:
    try:
        encode(value)
    except Exception as error:
        owner = f"the state of key {key!r}"
        raise unstorable(owner, error) from error


def _go_on() -> None:
    """Give way to nobody: the task stands still until this is done."""
