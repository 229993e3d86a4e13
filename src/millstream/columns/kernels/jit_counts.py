"""Counting tokens while they are found, in one pass over the text.

Theory of operation.  Tokens are found as in `jit_tokens`: as runs of ones among the bits
that say which of 64 bytes belong to a character class.  A token is at once hashed and
looked up in a table by open addressing with linear probing.  Entry, token and count lie
side by side, so that a known token mostly costs one access to memory.

An entry has four words: the token as an Arrow view, how often it was seen (0 if the entry
is free) and its hash.  A token of at most 12 bytes is inside its view; a longer one is in
the *arena*, padded with zeros to whole words.

Bytes outside ASCII may belong to the class or not; runs with such are handed to somebody
who knows Unicode.  They begin and end at ASCII characters outside the class, so each can
be looked at by itself.

Nothing here allocates.  Without room, `count` returns early and is called again.
"""

# ruff: noqa: PLR0917, FBT001 - kernels take no keywords

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.columns.kernels.jit import compiled, inlined
from millstream.columns.kernels.words import (
    KEEP_HIGH,
    KEEP_LOW,
    bytes_outside_ascii,
    copy_row,
    folded,
    load_word,
    lowered,
    lowest,
    members,
    store_word,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = ["count", "gather", "join", "move"]

BYTES = "Array(uint8, 1, 'C', readonly=True)"

U64 = np.uint64
ZERO, ONE, TWO, THREE, FOUR = U64(0), U64(1), U64(2), U64(3), U64(4)
SEVEN, EIGHT, TWELVE, HALF, TOP = U64(7), U64(8), U64(12), U64(32), U64(63)
SEED_1 = U64(0x9E37_79B9_7F4A_7C15)  # 2**64 over the golden ratio
SEED_2 = U64(0xC2B2_AE3D_27D4_EB4F)  # a prime of XXH64

# Words of an entry.
ENTRY = 4

# How many bytes are looked at together, and the most tokens that can end among them.
BITS, ENDS_MAX = 64, 33

# What may be read beyond the end of a text.
PADDING = 80

# What `state` holds, by position: tokens in the table and how many there may be, bytes
# used of the arena, how far the text is done, the run that is open there, whether it has
# characters outside ASCII, and how many runs with such were found.
KNOWN, ROOM, ARENA_USED, POSITION, IS_OPEN, OPENED, IS_FOREIGN, FOREIGN = range(8)


@inlined
def shift_of(entries: Words) -> U64:
    """Return by how much to shift a hash down to get the number of its entry."""
    shift = U64(64)
    size = entries.size // ENTRY
    while size > 1:
        size >>= 1
        shift -= ONE
    return shift


@inlined
def copied(start: U64, length: U64, is_lower: bool, target: U64) -> U64:
    """Copy a token of more than 12 bytes, and up to 7 that follow; return its hash."""
    value = length
    for position in range(0, length, 8):
        word = load_word(start + U64(position))
        left = length - U64(position)
        if left < EIGHT:
            word &= KEEP_LOW[left]
        if is_lower:
            word = lowered(word)
        store_word(target + U64(position), word)
        value = folded(value ^ word ^ SEED_1, SEED_2)
    return value


@inlined
def is_same(left: U64, right: U64, length: U64) -> bool:
    """Compare what `copied` has written."""
    for position in range(0, length, 8):
        if load_word(left + U64(position)) != load_word(right + U64(position)):
            return False
    return True


@inlined
def count_long(
    start: U64, length: U64, is_lower: bool, entries: Words, arena: Bytes, used: int
) -> int:
    """Count a token of more than 12 bytes; return how many bytes the arena takes on."""
    base = U64(arena.ctypes.data)
    mine = base + U64(used)
    value = copied(start, length, is_lower, mine)
    first = load_word(mine) << HALF | length
    last = U64(entries.size // ENTRY - 1)
    at = value >> shift_of(entries)
    while True:
        entry = at * FOUR
        if entries[entry + TWO] == ZERO:
            entries[entry], entries[entry + ONE] = first, U64(used) << HALF
            entries[entry + TWO], entries[entry + THREE] = ONE, value
            # Rounded up: the end of a copy is compared too.
            return int(length + SEVEN) & ~7
        if entries[entry] == first and entries[entry + THREE] == value:
            theirs = base + (entries[entry + ONE] >> HALF)
            if is_same(mine, theirs, length):
                entries[entry + TWO] += ONE
                return 0
        at = (at + ONE) & last


@inlined
def count_short(
    start: U64, length: U64, is_lower: bool, entries: Words, shift: U64
) -> int:
    """Count a token of at most 12 bytes; return 1 if it is new."""
    low, high = load_word(start), load_word(start + EIGHT)
    if is_lower:
        low, high = lowered(low), lowered(high)
    low &= KEEP_LOW[length]
    high &= KEEP_HIGH[length]
    first, second = low << HALF | length, low >> HALF | high << HALF
    value = folded(first ^ SEED_1, second ^ SEED_2)
    last = U64(entries.size // ENTRY - 1)
    at = value >> shift
    while True:
        entry = at * FOUR
        seen = entries[entry + TWO]
        if seen == ZERO:
            entries[entry], entries[entry + ONE] = first, second
            entries[entry + TWO], entries[entry + THREE] = ONE, value
            return 1
        if entries[entry] == first and entries[entry + ONE] == second:
            entries[entry + TWO] = seen + ONE
            return 0
        at = (at + ONE) & last


@inlined
def looked_at(address: U64, left: int, ranges: Bytes) -> tuple[U64, U64]:
    """Return as bits which of 64 bytes, or those that are left, may be in tokens.

    And which of these are outside ASCII.
    """
    bits, highs = members(address, ranges), bytes_outside_ascii(address)
    if left < BITS:
        inside = (ONE << U64(left)) - ONE
        bits, highs = bits & inside, highs & inside
    return bits | highs, highs


@compiled(
    f"boolean({BYTES}, int64, {BYTES}, boolean, uint64[::1], uint8[::1], int64[::1],"
    " int64[::1])"
)
def count(
    text: Bytes,
    size: int,
    ranges: Bytes,
    is_lower: bool,
    entries: Words,
    arena: Bytes,
    foreign: Integers,
    state: Integers,
) -> bool:
    """Count the tokens of the first `size` bytes; return whether all are done.

    Characters outside ASCII count as members, and runs with such go to `foreign`, start
    and length, to be looked at by somebody else.  `text` has at least `PADDING` bytes
    more than `size`, and the arena as much room as `size` and 8 more.
    """
    base = U64(text.ctypes.data)
    shift = shift_of(entries)
    known, used, found = state[KNOWN], state[ARENA_USED], state[FOREIGN]
    is_open, opened = U64(state[IS_OPEN]), U64(state[OPENED])
    is_foreign = U64(state[IS_FOREIGN])
    at = state[POSITION]
    while (
        at <= size
        and known + ENDS_MAX <= state[ROOM]
        and found + ENDS_MAX <= foreign.size // 2
        and used + size + 8 <= arena.size
    ):
        first = U64(at)
        bits, highs = looked_at(base + first, size - at, ranges)
        before = bits << ONE | is_open
        starts, ends = bits & ~before, ~bits & before
        while ends != ZERO:
            if is_open == ZERO:
                opened = first + lowest(starts)
                starts &= starts - ONE
            is_open = ZERO
            end = ends & -ends
            length = first + lowest(ends) - opened
            ends &= ends - ONE
            if highs | is_foreign != ZERO:
                is_foreign |= highs & (end - ONE)
                highs &= ~(end - ONE)
                if is_foreign != ZERO:
                    foreign[2 * found], foreign[2 * found + 1] = opened, length
                    found += 1
                    is_foreign = ZERO
                    continue
            if length <= TWELVE:
                known += count_short(base + opened, length, is_lower, entries, shift)
            else:
                more = count_long(base + opened, length, is_lower, entries, arena, used)
                known += more > 0
                used += more
        if starts != ZERO:
            opened = first + lowest(starts)
        is_open = bits >> TOP
        is_foreign |= highs
        at += BITS
    state[KNOWN], state[ARENA_USED], state[FOREIGN] = known, used, found
    state[IS_OPEN], state[OPENED] = is_open, opened
    state[IS_FOREIGN] = is_foreign != ZERO
    state[POSITION] = at
    return bool(at > size)


@compiled("void(uint64[::1], uint64[::1])")
def move(old: Words, new: Words) -> None:
    """Copy the entries of a table into a larger one, which is empty."""
    shift = shift_of(new)
    last = U64(new.size // ENTRY - 1)
    for start in range(0, old.size, ENTRY):
        if old[start + 2] == ZERO:
            continue
        at = old[start + 3] >> shift
        while new[at * FOUR + TWO] != ZERO:
            at = (at + ONE) & last
        for word in range(ENTRY):
            new[at * FOUR + U64(word)] = old[start + word]


@compiled("int64(uint64[::1], uint64[::1], int64[::1])")
def gather(entries: Words, views: Words, counts: Integers) -> int:
    """Write the tokens of a table and how often each was seen; return their number."""
    found = 0
    for start in range(0, entries.size, ENTRY):
        if entries[start + 2] != ZERO:
            views[2 * found], views[2 * found + 1] = entries[start], entries[start + 1]
            counts[found] = entries[start + 2]
            found += 1
    return found


@compiled("int64(uint64[::1], int64[::1], uint8, uint8[::1])")
def join(starts: Words, lengths: Integers, between: np.uint8, text: Bytes) -> int:
    """Copy rows one after the other, whatever is in them; return the size."""
    base = U64(text.ctypes.data)
    used = 0
    for row in range(starts.size):
        copy_row(starts[row], lengths[row], base + U64(used))
        used += lengths[row]
        text[used] = between
        used += 1
    return used
