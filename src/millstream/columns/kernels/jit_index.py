"""The kernels of the keyed index: open addressing over raw 64-bit words and views.

Theory of operation.  A *table* is an array of 64-bit entries in a power-of-two size.
An entry is 0 when free, else the upper 32 bits of a key's hash (its *tag*) and, below
them, its slot plus one.  The home of an entry is the top bits of its tag, and probing
is linear, so a table of twice the size keeps the order of the entries: to grow is to
copy entries from left to right without looking at a key.  While a table is growing,
both are searched, the new one first; new keys go into the new one only.

Keys are stored by slot, outside the table, in chunks that never move; `chunks` holds
their addresses.  A key of fixed width is one word.  A string is an Arrow view, two
words: if longer than 12 bytes it points into the *arena*, buffers that the index owns.

Nothing here allocates.  A kernel that runs out of room returns the row it could not
place, and is called again for the rest.
"""

# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import types

from millstream.columns.kernels.jit import compiled, inlined, instruction

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from millstream.columns.kernels.jit import Instruction, Target, Values

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]

__all__ = ["find_views", "find_words", "gather", "migrate"]

U64 = np.uint64
SEED_1 = U64(0x9E37_79B9_7F4A_7C15)  # 2**64 over the golden ratio
SEED_2 = U64(0xC2B2_AE3D_27D4_EB4F)  # the primes of XXH64, which pass its bit tests
SEED_3 = U64(0x1656_67B1_9E37_79F9)
LOW = U64(0xFFFF_FFFF)
ZERO, ONE, THREE, FOUR = U64(0), U64(1), U64(3), U64(4)
EIGHT, SIXTEEN, HALF = U64(8), U64(16), U64(32)
INLINE_MAX = U64(12)

# A chunk of keys holds 2**16 of them.
CHUNK_SHIFT, CHUNK_MASK = U64(16), U64(0xFFFF)

# How many rows are hashed and prefetched before the first of them is looked up.
WINDOW = 64

# Below this number, keys lie in the processor's cache, and asking for them costs more.
CACHED_KEYS = 500_000

# A batch is not ours to write to.
BATCH_WORDS = "Array(uint64, 1, 'C', readonly=True)"
BATCH_NULLS = "Array(boolean, 1, 'C', readonly=True)"

# What `state` holds, by position.
COUNT, ROOM, NULL_SLOT, ARENA_BUFFER, ARENA_USED, ARENA_SIZE = range(6)


@instruction
def load(_context: object, _address: types.Type) -> Instruction:
    """Read the word at an address, aligned or not."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.uint64), generate


@instruction
def store(_context: object, _address: types.Type, _word: types.Type) -> Instruction:
    """Write a word to an address, aligned or not."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(args[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


@instruction
def prefetch(_context: object, _address: types.Type) -> Instruction:
    """Ask for the cache line of an address, which need not be readable."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        hints = [ir.Constant(number, hint) for hint in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(args[0], byte), *hints])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@instruction
def folded(_context: object, _left: types.Type, _right: types.Type) -> Instruction:
    """Multiply two words to 128 bits and return the exclusive or of both halves."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        upper = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(builder.xor(product, upper), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@inlined
def tag_of_words(first: U64, second: U64) -> U64:
    """Hash two words; the upper 32 bits of the result are its tag."""
    return folded(folded(first ^ SEED_1, second ^ SEED_2), SEED_3) & ~LOW


@inlined
def tag_of_bytes(address: U64, length: U64) -> U64:
    """Hash at least 13 bytes; the last word overlaps the one before it."""
    value = folded(length ^ SEED_1, SEED_2)
    end = address + length
    while address + EIGHT < end:
        value = folded(value ^ load(address), SEED_3)
        address += EIGHT
    return folded(value ^ load(end - EIGHT), SEED_2) & ~LOW


@inlined
def is_same(left: U64, right: U64, length: U64) -> bool:
    """Compare at least 13 bytes."""
    end = left + length
    apart = right - left
    while left + EIGHT < end:
        if load(left) != load(left + apart):
            return False
        left += EIGHT
    return bool(load(end - EIGHT) == load(end - EIGHT + apart))


@inlined
def copy(source: U64, target: U64, length: U64) -> None:
    """Copy at least 13 bytes."""
    end = source + length
    apart = target - source
    while source + EIGHT < end:
        store(source + apart, load(source))
        source += EIGHT
    store(end - EIGHT + apart, load(end - EIGHT))


@inlined
def shift_of(table: Words) -> U64:
    """Return by how much to shift a tag down to get its home."""
    shift = U64(64)
    size = table.size
    while size > 1:
        size >>= 1
        shift -= ONE
    return shift


@inlined
def place(table: Words, shift: U64, entry: U64) -> None:
    """Put an entry into the first free place from its home on."""
    last = U64(table.size - 1)
    at = entry >> shift
    while table[at] != ZERO:
        at = (at + ONE) & last
    table[at] = entry


@inlined
def prefetch_keys(
    tags: Words, rows: int, table: Words, shift: U64, chunks: Words, width: U64
) -> None:
    """Ask for the key at the home of each tag, which is mostly the right one."""
    for row in range(rows):
        slot = (table[tags[row] >> shift] & LOW) - ONE
        if slot < LOW:
            chunk = chunks[slot >> CHUNK_SHIFT]
            prefetch(chunk + (slot & CHUNK_MASK) * width)


@inlined
def slot_of_null(state: Integers) -> int:
    """Return the slot of null, taking one for the first null; -1 if there is no room."""
    if state[NULL_SLOT] < 0 and state[COUNT] < state[ROOM]:
        state[NULL_SLOT] = state[COUNT]
        state[COUNT] += 1
    return int(state[NULL_SLOT])


@compiled("void(uint64[::1], uint64[::1], int64, int64)")
def migrate(old: Words, new: Words, start: int, stop: int) -> None:
    """Copy the entries at these positions of a table into a larger one."""
    shift = shift_of(new)
    for at in range(start, stop):
        if old[at] != ZERO:
            place(new, shift, old[at])


@inlined
def find_word(table: Words, shift: U64, tag: U64, word: U64, chunks: Words) -> U64:
    """Return the slot plus one of a word, or 0."""
    last = U64(table.size - 1)
    at = tag >> shift
    while True:
        entry: U64 = table[at]
        if entry == ZERO:
            return ZERO
        if entry & ~LOW == tag:
            slot = (entry & LOW) - ONE
            chunk = chunks[slot >> CHUNK_SHIFT]
            if load(chunk + (slot & CHUNK_MASK) * EIGHT) == word:
                return slot + ONE
        at = (at + ONE) & last


@inlined
def add_word(word: U64, chunks: Words, state: Integers) -> U64:
    """Store a word under the next slot; return that plus one, or 0 without room."""
    if state[COUNT] == state[ROOM]:
        return ZERO
    slot = U64(state[COUNT])
    store(chunks[slot >> CHUNK_SHIFT] + (slot & CHUNK_MASK) * EIGHT, word)
    state[COUNT] += 1
    return slot + ONE


@compiled(
    f"int64({BATCH_WORDS}, {BATCH_NULLS}, int64, uint64[::1], uint64[::1],"
    " uint64[::1], int64[::1], int64[::1])"
)
def find_words(
    words: Words,
    nulls: NDArray[np.bool_],
    start: int,
    table: Words,
    old: Words,
    chunks: Words,
    state: Integers,
    slots: Integers,
) -> int:
    """Write the slots of words from row `start` on; return the first row not done."""
    shift, old_shift = shift_of(table), shift_of(old)
    base = U64(table.ctypes.data)
    tags = np.empty(WINDOW, dtype=np.uint64)
    for window in range(start, words.size, WINDOW):
        stop = min(window + WINDOW, words.size)
        for row in range(window, stop):
            tag = tag_of_words(words[row], ZERO)
            tags[row - window] = tag
            prefetch(base + (tag >> shift) * EIGHT)
        if state[COUNT] > CACHED_KEYS:
            prefetch_keys(tags, stop - window, table, shift, chunks, EIGHT)
        for row in range(window, stop):
            tag, word = tags[row - window], words[row]
            if nulls.size > 0 and nulls[row]:
                found = U64(slot_of_null(state) + 1)
            else:
                found = find_word(table, shift, tag, word, chunks)
                if found == ZERO and old.size > 0:
                    found = find_word(old, old_shift, tag, word, chunks)
                if found == ZERO:
                    found = add_word(word, chunks, state)
                    if found != ZERO:
                        place(table, shift, tag | found)
            if found == ZERO:
                return row
            slots[row] = np.int64(found) - 1
    return int(words.size)


@inlined
def tag_of_view(views: Words, row: int, buffers: Words) -> U64:
    """Hash the string of a row."""
    first, second = views[2 * row], views[2 * row + 1]
    length = first & LOW
    if length <= INLINE_MAX:
        return tag_of_words(first, second)
    return tag_of_bytes(buffers[second & LOW] + (second >> HALF), length)


@inlined
def find_view(
    table: Words,
    shift: U64,
    tag: U64,
    first: U64,
    second: U64,
    buffers: Words,
    chunks: Words,
    arena: Words,
) -> U64:
    """Return the slot plus one of a string, or 0."""
    last = U64(table.size - 1)
    at = tag >> shift
    length = first & LOW
    while True:
        entry: U64 = table[at]
        if entry == ZERO:
            return ZERO
        if entry & ~LOW == tag:
            slot = (entry & LOW) - ONE
            key = chunks[slot >> CHUNK_SHIFT] + (slot & CHUNK_MASK) * SIXTEEN
            if load(key) == first:
                other = load(key + EIGHT)
                if length <= INLINE_MAX:
                    if other == second:
                        return slot + ONE
                else:
                    mine = buffers[second & LOW] + (second >> HALF)
                    theirs = arena[other & LOW] + (other >> HALF)
                    if is_same(mine, theirs, length):
                        return slot + ONE
        at = (at + ONE) & last


@inlined
def add_view(
    first: U64,
    second: U64,
    buffers: Words,
    chunks: Words,
    arena: Words,
    state: Integers,
) -> U64:
    """Store a string under the next slot; return that plus one, or 0 without room."""
    length = first & LOW
    if state[COUNT] == state[ROOM]:
        return ZERO
    if length > INLINE_MAX:
        used = U64(state[ARENA_USED])
        if used + length > U64(state[ARENA_SIZE]):
            return ZERO
        buffer = U64(state[ARENA_BUFFER])
        source = buffers[second & LOW] + (second >> HALF)
        copy(source, arena[buffer] + used, length)
        second = used << HALF | buffer
        state[ARENA_USED] += np.int64(length)
    slot = U64(state[COUNT])
    key = chunks[slot >> CHUNK_SHIFT] + (slot & CHUNK_MASK) * SIXTEEN
    store(key, first)
    store(key + EIGHT, second)
    state[COUNT] += 1
    return slot + ONE


@compiled(
    f"int64({BATCH_WORDS}, uint64[::1], {BATCH_NULLS}, int64, uint64[::1],"
    " uint64[::1], uint64[::1], uint64[::1], int64[::1], int64[::1])"
)
def find_views(
    views: Words,
    buffers: Words,
    nulls: NDArray[np.bool_],
    start: int,
    table: Words,
    old: Words,
    chunks: Words,
    arena: Words,
    state: Integers,
    slots: Integers,
) -> int:
    """Write the slots of strings from row `start` on; return the first row not done."""
    shift, old_shift = shift_of(table), shift_of(old)
    base = U64(table.ctypes.data)
    tags = np.empty(WINDOW, dtype=np.uint64)
    for window in range(start, slots.size, WINDOW):
        stop = min(window + WINDOW, slots.size)
        for row in range(window, stop):
            is_null = nulls.size > 0 and nulls[row]
            # The view of a null may point anywhere.
            tag = ZERO if is_null else tag_of_view(views, row, buffers)
            tags[row - window] = tag
            prefetch(base + (tag >> shift) * EIGHT)
        if state[COUNT] > CACHED_KEYS:
            prefetch_keys(tags, stop - window, table, shift, chunks, SIXTEEN)
        for row in range(window, stop):
            tag = tags[row - window]
            first, second = views[2 * row], views[2 * row + 1]
            if nulls.size > 0 and nulls[row]:
                found = U64(slot_of_null(state) + 1)
            else:
                found = find_view(
                    table, shift, tag, first, second, buffers, chunks, arena
                )
                if found == ZERO and old.size > 0:
                    found = find_view(
                        old, old_shift, tag, first, second, buffers, chunks, arena
                    )
                if found == ZERO:
                    found = add_view(first, second, buffers, chunks, arena, state)
                    if found != ZERO:
                        place(table, shift, tag | found)
            if found == ZERO:
                return row
            slots[row] = np.int64(found) - 1
    return int(slots.size)


@compiled("void(uint64[::1], int64[::1], int64, uint64[::1])")
def gather(chunks: Words, slots: Integers, width: int, words: Words) -> None:
    """Write the keys of these slots, each `width` words."""
    size = U64(8 * width)
    for row in range(slots.size):
        slot = U64(slots[row])
        key = chunks[slot >> CHUNK_SHIFT] + (slot & CHUNK_MASK) * size
        for word in range(width):
            words[row * width + word] = load(key + U64(8 * word))
