"""The memory of the native index: tables that grow in steps, keys that never move.

`WordKeys` gives slots to 64-bit words and `ViewKeys` to strings; the loops are in
`jit_index`, which also says how a table is laid out.

No call pays for all keys.  A table that becomes full has its successor of twice the size
zeroed in steps before, because new keys go everywhere in it and the first touch of a
page costs microseconds; and it is copied over in steps afterwards, while both are
searched.  Steps are bounded by the rows of a call and the new keys of the one before.

Nothing here knows data types other than words and bytes, or Polars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = ["NO_NULLS", "Strings", "ViewKeys", "WordKeys"]

NO_NULLS: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
"""What to pass as `nulls` of a column that has none."""

CHUNK_KEYS = 1 << 16  # as in jit_index
INLINE_MAX = 12  # bytes that fit into a view
LENGTH = np.uint64(0xFFFF_FFFF)  # of a view's first word
TABLE_MIN = 1 << 10
SLOTS_MAX = 2**31 - 1
NO_TABLE: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

# At most 5 of 8 places are taken: then a search looks at fewer than two places when
# it finds its key and fewer than five when it does not.  Preparing begins at 4 of 8.
FULL_OF_8, PREPARED_OF_8 = 5, 4

# From 4 to 5 of 8 takes an eighth of a table's size in keys; twice its size is zeroed.
ZEROED_PER_KEY = 16

# At least 2 a row, or the next growth could come before the last one is complete.
MIGRATED_PER_ROW = 4

# What even a small batch does, so that small tables grow in one step.
STEP_MIN = 1 << 16

ARENA_MIN, ARENA_MAX = 1 << 16, 1 << 24


@dataclass(frozen=True, slots=True)
class Strings:
    """The strings of an Arrow array: views, and the addresses they point into."""

    views: NDArray[np.uint64]
    buffers: NDArray[np.uint64]
    #: What owns the memory.
    owner: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> Strings:
        """Look into a `StringViewArray` or `BinaryViewArray` without copying."""
        _, views, *buffers = array.buffers()
        words = np.frombuffer(views, dtype=np.uint64)
        stop = array.offset + len(array)
        addresses = [buffer.address if buffer else 0 for buffer in buffers]
        return cls(
            words[2 * array.offset : 2 * stop],
            np.array(addresses, dtype=np.uint64),
            array,
        )


class _Keys:
    """What both kinds of keys share: the table, its growth and the chunks."""

    #: Words a key takes in its chunk.
    width = 1

    def __init__(self, kernels: ModuleType) -> None:
        self._kernels = kernels
        self._table = np.zeros(TABLE_MIN, dtype=np.uint64)
        #: The table before, until it is copied, and how far it is.
        self._old = NO_TABLE
        self._migrated = 0
        #: The table to come, as soon as it is prepared, and how far it is.
        self._next = NO_TABLE
        self._zeroed = 0
        #: How many keys there were when the last step was taken.
        self._stepped = 0
        #: Entries of tables zeroed or copied so far, which is the work of growing.
        self.moved = 0
        self._chunks: list[NDArray[np.uint64]] = []
        self._addresses = np.zeros(0, dtype=np.uint64)
        self._state = np.array([0, 0, -1, 0, 0, 0], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._state[self._kernels.COUNT])

    @property
    def null_slot(self) -> int:
        """The slot of null, or -1."""
        return int(self._state[self._kernels.NULL_SLOT])

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use; the unused end of a chunk is never touched."""
        tables = self._table.nbytes + self._old.nbytes + 8 * self._zeroed
        return tables + 8 * self.width * len(self)

    def _gathered(self, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the stored words of these slots, one key after the other."""
        words = np.empty(len(slots) * self.width, dtype=np.uint64)
        self._kernels.gather(self._addresses, slots, self.width, words)
        return words

    def _make_room(self) -> None:
        """Make place for at least one more key."""
        count, capacity = len(self), CHUNK_KEYS * len(self._chunks)
        if count == SLOTS_MAX:
            msg = f"a key index holds at most {SLOTS_MAX} keys; use more workers"
            raise OverflowError(msg)
        if count == capacity:
            chunk = np.empty(CHUNK_KEYS * self.width, dtype=np.uint64)
            self._chunks.append(chunk)
            self._addresses = np.append(self._addresses, np.uint64(chunk.ctypes.data))
            capacity += CHUNK_KEYS
        if count >= self._table.size * FULL_OF_8 // 8:
            self._grow()
        full = self._table.size * FULL_OF_8 // 8
        self._state[self._kernels.ROOM] = min(capacity, full)

    def _take_a_step(self, rows: int) -> None:
        """Do this call's share of the work on the tables before and to come."""
        self._migrate(max(STEP_MIN, MIGRATED_PER_ROW * rows))
        fresh = len(self) - self._stepped
        self._stepped += fresh
        if fresh and len(self) >= self._table.size * PREPARED_OF_8 // 8:
            self._prepare(max(STEP_MIN, ZEROED_PER_KEY * fresh))

    def _grow(self) -> None:
        self._migrate(self._old.size)
        self._prepare(2 * self._table.size)
        self._old, self._migrated = self._table, 0
        self._table, self._next, self._zeroed = self._next, NO_TABLE, 0
        self._migrate(STEP_MIN)

    def _prepare(self, entries: int) -> None:
        """Zero this many more entries of the table to come."""
        if self._next.size == 0:
            self._next = np.empty(2 * self._table.size, dtype=np.uint64)
        stop = min(self._zeroed + entries, self._next.size)
        self._next[self._zeroed : stop] = 0
        self.moved += stop - self._zeroed
        self._zeroed = stop

    def _migrate(self, entries: int) -> None:
        """Copy this many more entries of a table that has become too small."""
        if self._old.size == 0:
            return
        stop = min(self._migrated + entries, self._old.size)
        self._kernels.migrate(self._old, self._table, self._migrated, stop)
        self.moved += stop - self._migrated
        self._migrated = stop
        if stop == self._old.size:
            self._old = NO_TABLE


class WordKeys(_Keys):
    """Slots of 64-bit words."""

    def slots(
        self, words: NDArray[np.uint64], nulls: NDArray[np.bool_] = NO_NULLS
    ) -> NDArray[np.int64]:
        """Return the slot of every word; a new word gets the next one."""
        slots = np.empty(len(words), dtype=np.int64)
        self._take_a_step(len(words))
        row = 0
        while True:
            row = self._kernels.find_words(
                words,
                nulls,
                row,
                self._table,
                self._old,
                self._addresses,
                self._state,
                slots,
            )
            if row == len(words):
                return slots
            self._make_room()

    def keys(self, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the words of these slots; that of null is arbitrary."""
        return self._gathered(slots)


class ViewKeys(_Keys):
    """Slots of strings; those longer than a view are copied into the arena."""

    width = 2

    def __init__(self, kernels: ModuleType) -> None:
        super().__init__(kernels)
        self._arena: list[NDArray[np.uint8]] = []
        self._arena_addresses = np.zeros(0, dtype=np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use; the unused end of the arena is never touched."""
        full = sum(buffer.nbytes for buffer in self._arena[:-1])
        return super().nbytes + full + int(self._state[self._kernels.ARENA_USED])

    def slots(
        self, strings: Strings, nulls: NDArray[np.bool_] = NO_NULLS
    ) -> NDArray[np.int64]:
        """Return the slot of every string; a new string gets the next one."""
        rows = len(strings.views) // 2
        slots = np.empty(rows, dtype=np.int64)
        self._take_a_step(rows)
        row = 0
        while True:
            row = self._kernels.find_views(
                strings.views,
                strings.buffers,
                nulls,
                row,
                self._table,
                self._old,
                self._addresses,
                self._arena_addresses,
                self._state,
                slots,
            )
            if row == rows:
                return slots
            self._make_room()
            if not (nulls.size and nulls[row]):
                self._make_arena(int(strings.views[2 * row] & LENGTH))

    def keys(self, slots: NDArray[np.int64], *, is_text: bool) -> pa.Array:
        """Return the strings of these slots as an Arrow array over the arena."""
        views = self._gathered(slots)
        validity, null_count = None, 0
        if self.null_slot >= 0:
            is_null = slots == self.null_slot
            views[np.repeat(is_null, 2)] = 0
            validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
            null_count = int(is_null.sum())
        buffers = [validity, pa.py_buffer(views), *map(pa.py_buffer, self._arena)]
        kind = pa.string_view() if is_text else pa.binary_view()
        return pa.Array.from_buffers(kind, len(slots), buffers, null_count=null_count)

    def _make_arena(self, length: int) -> None:
        """Open another buffer if a string of this length does not fit into this one."""
        kernels, state = self._kernels, self._state
        left = state[kernels.ARENA_SIZE] - state[kernels.ARENA_USED]
        if length <= max(INLINE_MAX, left):
            return
        usual = min(ARENA_MAX, ARENA_MIN << min(len(self._arena), 8))
        buffer = np.empty(max(usual, length), dtype=np.uint8)
        state[kernels.ARENA_BUFFER] = len(self._arena)
        state[kernels.ARENA_USED] = 0
        state[kernels.ARENA_SIZE] = buffer.size
        self._arena.append(buffer)
        self._arena_addresses = np.append(
            self._arena_addresses, np.uint64(buffer.ctypes.data)
        )
