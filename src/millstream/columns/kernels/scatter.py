"""Columns of state, one entry per slot, and folding batches of values into them.

Every column begins as zeros.  It grows by further chunks and never moves what it has, so
that no batch pays for all slots; blocks of memory become larger as the column does, to
have large pages.

Nothing here knows keys or which aggregate a column belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.columns.kernels.native import NO_NULLS

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from numpy.typing import NDArray

    Slots = NDArray[np.int64]
    Numbers = NDArray[Any]
    """Of the type of their column; NumPy tells when it runs."""
    Nulls = NDArray[np.bool_]

__all__ = ["Extreme", "Held", "Moments", "SlotColumn"]

CHUNK_ENTRIES = 1 << 16  # as in jit_scatter
BLOCK_CHUNKS_MAX = 64
VALUE = 1  # the mark of an entry that holds one, as in jit_scatter


class SlotColumn:
    """One entry per slot.

    Parameters
    ----------
    kernels
        The compiled module.
    dtype
        `int64` or `float64`; `uint32` and `uint8` can be kept, but not added to.
    """

    def __init__(self, kernels: ModuleType, dtype: type[np.generic]) -> None:
        self._kernels = kernels
        self.dtype = np.dtype(dtype)
        self._unsigned = np.dtype(f"u{self.dtype.itemsize}")
        self._blocks: list[Numbers] = []
        self._capacity = 0
        #: Where each chunk lies.
        self.chunks: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    @property
    def capacity(self) -> int:
        """How many slots there is room for."""
        return self._capacity

    def reserve(self, count: int) -> None:
        """Make room for this many slots."""
        while self._capacity < count:
            chunks = min(max(1, len(self.chunks)), BLOCK_CHUNKS_MAX)
            block = np.zeros(chunks * CHUNK_ENTRIES, dtype=self.dtype)
            size = CHUNK_ENTRIES * self.dtype.itemsize
            first = np.uint64(block.ctypes.data)
            starts = first + np.arange(chunks, dtype=np.uint64) * np.uint64(size)
            self.chunks = np.concatenate([self.chunks, starts])
            self._blocks.append(block)
            self._capacity += block.size

    def head(self, count: int) -> Numbers:
        """Return a copy of the entries of the first slots."""
        if count == 0:
            return np.zeros(0, dtype=self.dtype)
        return np.concatenate(self._blocks)[:count]

    def above(self, value: int) -> Slots:
        """Return the slots whose entries are greater than this."""
        found, start = [], 0
        for block in self._blocks:
            found.append(np.flatnonzero(block > value) + start)
            start += block.size
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def take(self, slots: Slots) -> Numbers:
        """Return the entries of these slots."""
        self.check(slots)
        values = np.empty(slots.size, dtype=self.dtype)
        self._kernels.take(self.chunks, slots, values.view(self._unsigned))
        return values

    def put(self, slots: Slots, value: int) -> None:
        """Set the entries of these slots to one value."""
        self.check(slots)
        values = np.array([value], dtype=self.dtype).view(self._unsigned)
        self._kernels.put(self.chunks, slots, values)

    def add(self, slots: Slots, values: Numbers) -> None:
        """Add every value to the entry of its slot; integers wrap around."""
        self.check(slots, values)
        self._kernels.add(self.chunks, slots, values)

    def count(self, slots: Slots) -> None:
        """Add one to the entry of every slot, as often as it is named."""
        self.check(slots)
        self._kernels.count(self.chunks, slots)

    def check(self, slots: Slots, *values: Numbers) -> None:
        """Refuse what compiled code would write into somebody else's memory."""
        if slots.size and int(slots.view(np.uint64).max()) >= self._capacity:
            msg = (
                f"slots run from {slots.min()} to {slots.max()}, but the column has "
                f"{self._capacity} entries; reserve as many as the key index has first"
            )
            raise IndexError(msg)
        for column in values:
            if column.size != slots.size:
                msg = f"{slots.size} slots came with {column.size} values"
                raise ValueError(msg)


class Held:
    """One value of those that came for each slot, or null: the first or the last.

    Parameters
    ----------
    is_first
        Whether the first is kept, else the last.
    skips_nulls
        Whether a null does not count as a value.
    """

    def __init__(
        self,
        kernels: ModuleType,
        dtype: type[np.generic],
        *,
        is_first: bool,
        skips_nulls: bool = True,
    ) -> None:
        self.values = SlotColumn(kernels, dtype)
        self.marks = SlotColumn(kernels, np.uint8)
        self._fold = kernels.first if is_first else kernels.last
        self._skips_nulls = skips_nulls

    def fold(self, slots: Slots, values: Numbers, nulls: Nulls = NO_NULLS) -> None:
        """Take a batch; `nulls` tells in which rows the value means nothing."""
        self._check(slots, values, nulls)
        self._fold(
            self.values.chunks,
            self.marks.chunks,
            slots,
            values.view(np.uint64),
            nulls,
            self._skips_nulls,
        )

    def _check(self, slots: Slots, values: Numbers, nulls: Nulls) -> None:
        self.values.check(slots, values, *([nulls] if nulls.size else []))
        assert self.marks.capacity == self.values.capacity, "they are reserved together"


class Extreme(Held):
    """The least or largest value of each slot; null where there was none.

    A NaN yields to any number, as in Polars.
    """

    def __init__(
        self, kernels: ModuleType, dtype: type[np.generic], *, is_least: bool
    ) -> None:
        super().__init__(kernels, dtype, is_first=True)
        self._most = kernels.most
        self._is_least = is_least

    def fold(self, slots: Slots, values: Numbers, nulls: Nulls = NO_NULLS) -> None:
        """Take a batch; `nulls` tells in which rows the value means nothing."""
        self._check(slots, values, nulls)
        chunks, marks = self.values.chunks, self.marks.chunks
        self._most(chunks, marks, slots, values, nulls, self._is_least)


class Moments:
    """Count, sum and squared distances from the mean of the numbers of each slot."""

    def __init__(self, kernels: ModuleType) -> None:
        self._kernels = kernels
        self.counts = SlotColumn(kernels, np.int64)
        self.totals = SlotColumn(kernels, np.float64)
        self.squares = SlotColumn(kernels, np.float64)

    def fold(
        self,
        slots: Slots,
        counts: Slots,
        totals: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        """Merge what is known of numbers in every row; a number alone is (1, x, 0)."""
        self.counts.check(slots, counts, totals, squares)
        chunks = [c.chunks for c in (self.counts, self.totals, self.squares)]
        self._kernels.moments(*chunks, slots, counts, totals, squares)
