"""Folding values into columns of state by slot, one pass without a temporary.

Every kernel trusts its slots to be inside the target; `scatter` checks that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.state.kernels.jit import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Slots = NDArray[np.int64]
    Column = NDArray[Any]

__all__ = ["add_at", "count_at", "first_at", "last_at", "max_at", "min_at"]

SLOTS = "Array(int64, 1, 'C', readonly=True)"
INTEGERS = f"int64[::1], {SLOTS}, {SLOTS}"
FLOATS = f"float64[::1], {SLOTS}, Array(float64, 1, 'C', readonly=True)"
BOTH = (f"void({INTEGERS})", f"void({FLOATS})")


@compiled(*BOTH)
def add_at(target: Column, slots: Slots, values: Column) -> None:
    """Add every value to the entry of its slot."""
    for row in range(slots.size):
        target[slots[row]] += values[row]


@compiled(*BOTH)
def min_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the smallest value of each slot; a NaN yields to any number."""
    for row in range(slots.size):
        slot, value = slots[row], values[row]
        held = target[slot]
        if value < held or held != held:  # noqa: PLR0124 - only NaN is not itself
            target[slot] = value


@compiled(*BOTH)
def max_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the largest value of each slot; a NaN yields to any number."""
    for row in range(slots.size):
        slot, value = slots[row], values[row]
        held = target[slot]
        if value > held or held != held:  # noqa: PLR0124 - only NaN is not itself
            target[slot] = value


@compiled(*BOTH)
def last_at(target: Column, slots: Slots, values: Column) -> None:
    """Keep the last value of each slot."""
    for row in range(slots.size):
        target[slots[row]] = values[row]


@compiled(f"void({INTEGERS}, boolean[::1])", f"void({FLOATS}, boolean[::1])")
def first_at(
    target: Column, slots: Slots, values: Column, is_set: NDArray[np.bool_]
) -> None:
    """Keep the first value of each slot that is not set yet, and mark it as set."""
    for row in range(slots.size):
        slot = slots[row]
        if not is_set[slot]:
            target[slot] = values[row]
            is_set[slot] = True


@compiled(f"void(int64[::1], {SLOTS})")
def count_at(target: Slots, slots: Slots) -> None:
    """Count the rows of each slot."""
    for row in range(slots.size):
        target[slots[row]] += 1
