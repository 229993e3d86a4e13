"""Folding a batch of values into columns of state, each row into the entry of its slot.

Compiled loops do it for `int64` and `float64`; NumPy, with the same results, for all
other types and until the loops are compiled.  A target starts out with what is neutral
for its operation: 0 for sums and counts, the largest number for a minimum, and so on.

Nothing here knows keys, nulls or which aggregate a column belongs to: leave out the rows
whose value is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.state.kernels import loading

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    Slots = NDArray[np.int64]
    Column = NDArray[Any]

__all__ = ["add_at", "count_at", "first_at", "last_at", "max_at", "min_at"]

NATIVE = (np.dtype(np.int64), np.dtype(np.float64))


def add_at(target: Column, slots: Slots, values: Column) -> None:
    """Add every value to the entry of its slot.

    Examples
    --------
    >>> sums = np.zeros(2, dtype=np.int64)
    >>> add_at(sums, np.array([0, 1, 0]), np.array([5, 6, 7]))
    >>> sums
    array([12,  6])
    """
    if kernels := _kernels(target, slots, values):
        kernels.add_at(target, slots, values)
    else:
        np.add.at(target, slots, values)


def count_at(target: Slots, slots: Slots) -> None:
    """Count the rows of each slot."""
    if kernels := _kernels(target, slots, target):
        kernels.count_at(target, slots)
    else:
        np.add.at(target, slots, 1)


def min_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the smallest value of each slot; a NaN yields to any number."""
    if kernels := _kernels(target, slots, values):
        kernels.min_at(target, slots, values)
    else:
        np.fmin.at(target, slots, values)


def max_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the largest value of each slot; a NaN yields to any number."""
    if kernels := _kernels(target, slots, values):
        kernels.max_at(target, slots, values)
    else:
        np.fmax.at(target, slots, values)


def last_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the last value of each slot."""
    if kernels := _kernels(target, slots, values):
        kernels.last_at(target, slots, values)
    else:
        # Of several values for one place, NumPy documents that it keeps the last.
        target[slots] = values


def first_at(
    target: Column, slots: Slots, values: Column, is_set: NDArray[np.bool_]
) -> None:
    """Keep the first value of each slot that is not set yet, and mark it as set."""
    if is_set.shape != target.shape:
        msg = f"`is_set` has {len(is_set)} entries and `target` {len(target)}"
        raise ValueError(msg)
    if kernels := _kernels(target, slots, values):
        kernels.first_at(target, slots, values, is_set)
        return
    rows = np.flatnonzero(~is_set[slots])[::-1]
    target[slots[rows]] = values[rows]
    is_set[slots[rows]] = True


def _kernels(target: Column, slots: Slots, values: Column) -> ModuleType | None:
    """Return the compiled kernels where they fit, after the checks they leave out."""
    if slots.size and int(slots.view(np.uint64).max()) >= target.size:
        msg = (
            f"slots run from {slots.min()} to {slots.max()}, but the target has "
            f"{target.size} entries; make it as long as the key index first"
        )
        raise IndexError(msg)
    if values is not target and values.size != slots.size:
        msg = f"{slots.size} slots came with {values.size} values"
        raise ValueError(msg)
    if target.dtype not in NATIVE or values.dtype != target.dtype:
        return None
    if not all(array.flags.c_contiguous for array in (target, slots, values)):
        return None
    return loading.ready("scatter")
