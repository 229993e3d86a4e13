"""Splitting text into tokens: one pass over the bytes, Arrow views out.

Theory of operation.  A character class is a few ranges of ASCII bytes.  64 bytes are
compared with a range at once, which gives the bits of one word, and the tokens are the
runs of ones in it.  So there is no branch for a byte and hardly a mispredicted one for a
token.  A token of at most 12 bytes is put inside its view by two loads and masks; a
longer one is copied to a buffer of its own.

Bytes outside ASCII belong to no range: the caller keeps such rows away (`pack` finds
them) and has them split by somebody who knows Unicode.

Nothing here allocates.  Without room, `split` returns early and is called again.
"""

# ruff: noqa: PLR0917, FBT001 - kernels take no keywords

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.columns.kernels.jit import compiled, inlined
from millstream.columns.kernels.words import (
    KEEP_HIGH,
    KEEP_LOW,
    copy_row,
    load_byte,
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

__all__ = ["locate", "pack", "rows_of", "split"]

WORDS = "Array(uint64, 1, 'C', readonly=True)"
BYTES = "Array(uint8, 1, 'C', readonly=True)"
INTEGERS = "Array(int64, 1, 'C', readonly=True)"
BOOLEANS = "Array(boolean, 1, 'C', readonly=True)"

U64 = np.uint64
ZERO, ONE, FOUR, EIGHT = U64(0), U64(1), U64(4), U64(8)
TWELVE, SIXTEEN, HALF, TOP = U64(12), U64(16), U64(32), U64(63)
LOW = U64(0xFFFF_FFFF)
HIGH_BITS = U64(0x8080_8080_8080_8080)

# How many bytes are looked at together, and the most tokens that can end among them.
BITS, ENDS_MAX = 64, 33

# What may be read beyond the end of a text.
PADDING = 80

# What goes between packed rows; it belongs to no class.
BETWEEN = np.uint8(0xFF)

# What `state` holds, by position.
COUNT, LONG_USED, POSITION, IS_OPEN, OPENED = range(5)


@inlined
def emit(
    start: U64, length: U64, is_lower: bool, view: U64, long: Bytes, used: int
) -> int:
    """Write the view of a token; return how much of `long` is used then."""
    low, high = load_word(start), load_word(start + EIGHT)
    if is_lower:
        low, high = lowered(low), lowered(high)
    if length <= TWELVE:
        low &= KEEP_LOW[length]
        high &= KEEP_HIGH[length]
        store_word(view, low << HALF | length)
        store_word(view + EIGHT, low >> HALF | high << HALF)
        return used
    for position in range(length):
        byte = load_byte(start + U64(position))
        is_capital = is_lower and np.uint8(byte - np.uint8(0x41)) < np.uint8(26)
        long[used + np.int64(position)] = byte | np.uint8(0x20) if is_capital else byte
    store_word(view, low << HALF | length)
    store_word(view + EIGHT, U64(used) << HALF)
    return used + int(length)


@compiled(
    f"boolean({BYTES}, int64, {BYTES}, boolean, uint64[::1], int64[::1], uint8[::1],"
    " int64[::1])"
)
def split(
    text: Bytes,
    size: int,
    ranges: Bytes,
    is_lower: bool,
    views: Words,
    positions: Integers,
    long: Bytes,
    state: Integers,
) -> bool:
    """Append the tokens of the first `size` bytes; return whether all are done.

    `text` has at least `PADDING` bytes more than `size`, `long` is as long as `size`,
    and `positions`, where the tokens start, is left alone if it is empty.
    """
    base, target = U64(text.ctypes.data), U64(views.ctypes.data)
    count, used = state[COUNT], state[LONG_USED]
    is_open, opened = U64(state[IS_OPEN]), U64(state[OPENED])
    at = state[POSITION]
    # The byte at `size` is looked at too: it ends the last token.
    while at <= size and views.size // 2 - count >= ENDS_MAX:
        first = U64(at)
        bits = members(base + first, ranges)
        if size - at < BITS:
            bits &= (ONE << U64(size - at)) - ONE
        before = bits << ONE | is_open
        starts, ends = bits & ~before, ~bits & before
        while ends != ZERO:
            if is_open == ZERO:
                opened = first + lowest(starts)
                starts &= starts - ONE
            is_open = ZERO
            length = first + lowest(ends) - opened
            ends &= ends - ONE
            if positions.size > 0:
                positions[count] = opened
            view = target + U64(count) * SIXTEEN
            used = emit(base + opened, length, is_lower, view, long, used)
            count += 1
        if starts != ZERO:
            opened = first + lowest(starts)
        is_open = bits >> TOP
        at += BITS
    state[COUNT], state[LONG_USED] = count, used
    state[IS_OPEN], state[OPENED] = is_open, opened
    state[POSITION] = at
    return bool(at > size)


@compiled(f"void(int64[::1], {INTEGERS}, int64[::1])")
def rows_of(positions: Integers, ends: Integers, rows: Integers) -> None:
    """Write the row in which each token starts; `ends` is where each row ends."""
    row = 0
    for token in range(positions.size):
        while ends[row] <= positions[token]:
            row += 1
        rows[token] = row


@compiled(f"void({WORDS}, uint64[::1], {BOOLEANS}, uint64[::1], int64[::1])")
def locate(
    views: Words,
    buffers: Words,
    nulls: NDArray[np.bool_],
    starts: Words,
    lengths: Integers,
) -> None:
    """Write the address and length of the text of each view; that of null is empty."""
    base = U64(views.ctypes.data)
    for row in range(starts.size):
        first, second = views[2 * row], views[2 * row + 1]
        length = first & LOW
        if nulls.size > 0 and nulls[row]:
            length = ZERO
        lengths[row] = length
        if length <= TWELVE:
            starts[row] = base + U64(row) * SIXTEEN + FOUR
        else:
            starts[row] = buffers[second & LOW] + (second >> HALF)


@compiled("int64(uint64[::1], int64[::1], uint8[::1], int64[::1], boolean[::1])")
def pack(
    starts: Words,
    lengths: Integers,
    text: Bytes,
    ends: Integers,
    is_foreign: NDArray[np.bool_],
) -> int:
    """Copy rows one after the other, those outside ASCII as empty; return the size."""
    base = U64(text.ctypes.data)
    used = 0
    for row in range(starts.size):
        seen = copy_row(starts[row], lengths[row], base + U64(used))
        is_foreign[row] = seen & HIGH_BITS != ZERO
        if not is_foreign[row]:
            used += lengths[row]
        text[used] = BETWEEN
        used += 1
        ends[row] = used
    return used
