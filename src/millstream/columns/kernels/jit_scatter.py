"""Folding values into columns of state by slot, one pass without a temporary.

A column lies in chunks that never move; kernels get the chunks' addresses.  Whether an
entry holds a value stands in a second column, its *marks*: nothing has come yet, a value,
or a null.

Every kernel trusts its slots to be inside the columns; `scatter` checks that.
"""

# ruff: noqa: FBT001, PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types

from millstream.columns.kernels.jit import compiled, inlined, instruction

if TYPE_CHECKING:
    from llvmlite import ir
    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from millstream.columns.kernels.jit import Instruction, Target, Values

    Slots = NDArray[np.int64]
    Column = NDArray[np.int64 | np.float64 | np.uint64]
    Chunks = NDArray[np.uint64]
    Nulls = NDArray[np.bool_]

__all__ = ["add", "count", "first", "last", "moments", "most", "put", "take"]

U64 = np.uint64
# A chunk holds 2**16 entries.
CHUNK_SHIFT, CHUNK_MASK = U64(16), U64(0xFFFF)
BYTE, WORD = U64(1), U64(8)
VALUE, NULL = np.uint8(1), np.uint8(2)  # a mark of 0 says that nothing has come
ONE = np.int64(1)

CHUNKS = "Array(uint64, 1, 'C', readonly=True)"
SLOTS = "Array(int64, 1, 'C', readonly=True)"
NUMBERS = "Array(float64, 1, 'C', readonly=True)"
NULLS = "Array(boolean, 1, 'C', readonly=True)"


@instruction
def read(_context: object, _address: types.Type, like: types.Type) -> Instruction:
    """Return what stands at an address, of the type of the second argument."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        kind = context.get_value_type(like)
        return builder.load(builder.inttoptr(args[0], kind.as_pointer()))

    return like(types.uint64, like), generate


@instruction
def write(_context: object, _address: types.Type, value: types.Type) -> Instruction:
    """Put a value at an address."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        kind = context.get_value_type(value)
        builder.store(args[1], builder.inttoptr(args[0], kind.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.uint64, value), generate


@inlined
def place(chunks: Chunks, slot: int, size: U64) -> U64:
    """Return the address of an entry."""
    return U64(chunks[U64(slot) >> CHUNK_SHIFT] + (U64(slot) & CHUNK_MASK) * size)


@compiled(
    f"void({CHUNKS}, {SLOTS}, {SLOTS})",
    f"void({CHUNKS}, {SLOTS}, {NUMBERS})",
)
def add(chunks: Chunks, slots: Slots, values: Column) -> None:
    """Add every value to the entry of its slot; integers wrap around."""
    for row in range(slots.size):
        entry = place(chunks, slots[row], WORD)
        write(entry, read(entry, values[row]) + values[row])


@compiled(f"void({CHUNKS}, {SLOTS})")
def count(chunks: Chunks, slots: Slots) -> None:
    """Count the rows of each slot."""
    for row in range(slots.size):
        entry = place(chunks, slots[row], WORD)
        write(entry, read(entry, ONE) + ONE)


@compiled(
    f"void({CHUNKS}, {CHUNKS}, {SLOTS}, {SLOTS}, {NULLS}, boolean)",
    f"void({CHUNKS}, {CHUNKS}, {SLOTS}, {NUMBERS}, {NULLS}, boolean)",
)
def most(
    chunks: Chunks,
    marks: Chunks,
    slots: Slots,
    values: Column,
    nulls: Nulls,
    is_least: bool,
) -> None:
    """Keep the largest or least value of each slot; a NaN yields to any number."""
    for row in range(slots.size):
        if nulls.size > 0 and nulls[row]:
            continue
        value = values[row]
        entry = place(chunks, slots[row], WORD)
        mark = place(marks, slots[row], BYTE)
        if read(mark, VALUE) == VALUE:
            held = read(entry, value)
            is_better = value < held if is_least else value > held
            if is_better or held != held:  # noqa: PLR0124 - only NaN is not itself
                write(entry, value)
        else:
            write(entry, value)
            write(mark, VALUE)


@compiled(f"void({CHUNKS}, {CHUNKS}, {SLOTS}, {CHUNKS}, {NULLS}, boolean)")
def first(
    chunks: Chunks,
    marks: Chunks,
    slots: Slots,
    words: Chunks,
    nulls: Nulls,
    skips_nulls: bool,
) -> None:
    """Keep the first value of each slot, be it null unless nulls are skipped."""
    for row in range(slots.size):
        mark = place(marks, slots[row], BYTE)
        held = read(mark, VALUE)
        if held == VALUE or (held == NULL and not skips_nulls):
            continue
        if nulls.size > 0 and nulls[row]:
            write(mark, NULL)
        else:
            write(place(chunks, slots[row], WORD), words[row])
            write(mark, VALUE)


@compiled(f"void({CHUNKS}, {CHUNKS}, {SLOTS}, {CHUNKS}, {NULLS}, boolean)")
def last(
    chunks: Chunks,
    marks: Chunks,
    slots: Slots,
    words: Chunks,
    nulls: Nulls,
    skips_nulls: bool,
) -> None:
    """Keep the last value of each slot, be it null unless nulls are skipped."""
    for row in range(slots.size):
        mark = place(marks, slots[row], BYTE)
        if nulls.size > 0 and nulls[row]:
            if not skips_nulls:
                write(mark, NULL)
        else:
            write(place(chunks, slots[row], WORD), words[row])
            write(mark, VALUE)


@compiled(f"void({CHUNKS}, {CHUNKS}, {CHUNKS}, {SLOTS}, {SLOTS}, {NUMBERS}, {NUMBERS})")
def moments(
    counts: Chunks,
    totals: Chunks,
    squares: Chunks,
    slots: Slots,
    new_counts: Slots,
    new_totals: Column,
    new_squares: Column,
) -> None:
    """Merge numbers given by count, sum and squared distances from their mean."""
    for row in range(slots.size):
        if new_counts[row] == 0:
            continue
        count_entry = place(counts, slots[row], WORD)
        total_entry = place(totals, slots[row], WORD)
        square_entry = place(squares, slots[row], WORD)
        held, fresh = read(count_entry, ONE), new_counts[row]
        total, square = new_totals[row], new_squares[row]
        if held > 0:
            before = read(total_entry, total)
            apart = total / fresh - before / held
            common = np.float64(held) * np.float64(fresh) / np.float64(held + fresh)
            square += read(square_entry, square) + apart * apart * common
            total += before
        write(count_entry, held + fresh)
        write(total_entry, total)
        write(square_entry, square)


@compiled(
    f"void({CHUNKS}, {SLOTS}, uint64[::1])",
    f"void({CHUNKS}, {SLOTS}, uint32[::1])",
    f"void({CHUNKS}, {SLOTS}, uint8[::1])",
)
def take(chunks: Chunks, slots: Slots, values: Column) -> None:
    """Copy the entries of these slots."""
    size = U64(values.itemsize)
    for row in range(slots.size):
        values[row] = read(place(chunks, slots[row], size), values[row])


@compiled(
    f"void({CHUNKS}, {SLOTS}, uint64[::1])",
    f"void({CHUNKS}, {SLOTS}, uint32[::1])",
    f"void({CHUNKS}, {SLOTS}, uint8[::1])",
)
def put(chunks: Chunks, slots: Slots, value: Column) -> None:
    """Set the entries of these slots to the first of `value`."""
    size, single = U64(value.itemsize), value[0]
    for row in range(slots.size):
        write(place(chunks, slots[row], size), single)
