"""Cutting text into lines, and finding out that lines are a text.

Lines become Arrow views into the text itself, 64 bytes of which are searched for line
breaks at once.  The other way round, views that follow one another in a buffer, with line
breaks between them, need not be looked at one by one.

Nothing here allocates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.columns.kernels.jit import compiled, inlined
from millstream.columns.kernels.words import (
    KEEP_HIGH,
    KEEP_LOW,
    bytes_within,
    load_byte,
    load_word,
    lowest,
    ones,
    store_word,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = ["count_lines", "lines", "stretch"]

WORDS = "Array(uint64, 1, 'C', readonly=True)"
BYTES = "Array(uint8, 1, 'C', readonly=True)"

U64 = np.uint64
ZERO, ONE, EIGHT, TWELVE, SIXTEEN = U64(0), U64(1), U64(8), U64(12), U64(16)
HALF, LOW = U64(32), U64(0xFFFF_FFFF)
NEWLINE, CARRIAGE_RETURN = np.uint8(10), np.uint8(13)

# How many bytes are looked at together.
BITS = 64


@inlined
def write_line(start: U64, end: U64, base: U64, last: U64, view: U64) -> None:
    """Write the view of a line that ends before `end`, without a carriage return."""
    if end > start and load_byte(end - ONE) == CARRIAGE_RETURN:
        end -= ONE
    length = end - start
    if length > TWELVE:
        store_word(view, load_word(start) << HALF | length)
        store_word(view + EIGHT, (start - base) << HALF)
        return
    low, high = ZERO, ZERO
    if start + SIXTEEN <= last:
        low, high = load_word(start), load_word(start + EIGHT)
        low, high = low & KEEP_LOW[length], high & KEEP_HIGH[length]
    else:
        for position in range(length):
            byte = U64(load_byte(start + U64(position)))
            if position < 8:  # noqa: PLR2004 - bytes of a word
                low |= byte << U64(8 * position)
            else:
                high |= byte << U64(8 * position - 64)
    store_word(view, low << HALF | length)
    store_word(view + EIGHT, low >> HALF | high << HALF)


@inlined
def breaks_at(address: U64, last: U64) -> U64:
    """Return as bits which of 64 bytes, or those that there are, end a line."""
    if address + U64(BITS) <= last:
        return bytes_within(address, NEWLINE, np.uint8(1))
    breaks = ZERO
    for position in range(last - address):
        if load_byte(address + U64(position)) == NEWLINE:
            breaks |= ONE << U64(position)
    return breaks


@compiled(f"int64({BYTES})")
def count_lines(text: Bytes) -> int:
    """Return the number of lines; the last one need not be ended."""
    base = U64(text.ctypes.data)
    last = base + U64(text.size)
    count = ZERO
    for at in range(0, text.size, BITS):
        count += ones(breaks_at(base + U64(at), last))
    is_open = text.size > 0 and text[text.size - 1] != NEWLINE
    return int(count) + is_open


@compiled(f"int64({BYTES}, uint64[::1])")
def lines(text: Bytes, views: Words) -> int:
    """Write the views of the lines of a text, which has no padding; return how many."""
    base, target = U64(text.ctypes.data), U64(views.ctypes.data)
    last = base + U64(text.size)
    start, count = base, 0
    for at in range(0, text.size, BITS):
        address = base + U64(at)
        breaks = breaks_at(address, last)
        while breaks != ZERO:
            end = address + lowest(breaks)
            breaks &= breaks - ONE
            write_line(start, end, base, last, target + U64(count) * SIXTEEN)
            start = end + ONE
            count += 1
    if start < last:
        write_line(start, last, base, last, target + U64(count) * SIXTEEN)
        count += 1
    return count


@inlined
def is_inline(first: U64, second: U64, length: int, address: U64) -> bool:
    """Compare a string that lies inside its view with the bytes at an address."""
    for position in range(length):
        inside = first >> U64(32 + 8 * position)
        if position >= 4:  # noqa: PLR2004 - bytes of the first word
            inside = second >> U64(8 * position - 32)
        if load_byte(address + U64(position)) != np.uint8(inside):
            return False
    return True


@compiled(f"boolean({WORDS}, {WORDS}, int64, int64[::1])")
def stretch(views: Words, buffers: Words, size: int, found: Integers) -> bool:
    """Tell whether rows follow one another in a buffer, with line breaks between them.

    So together they read as one text.  `found` is the first row of it, as short ones
    before it lie inside their views, and where it begins and ends in the buffer, which
    is the first one and has `size` bytes.
    """
    rows = views.size // 2
    row = 0
    while row < rows and views[2 * row] & LOW <= TWELVE:
        row += 1
    if row == rows or views[2 * row + 1] & LOW != ZERO:
        return False
    at = np.int64(views[2 * row + 1] >> HALF)
    found[0], found[1] = row, at
    at += np.int64(views[2 * row] & LOW)
    for following in range(row + 1, rows):
        first, second = views[2 * following], views[2 * following + 1]
        length = np.int64(first & LOW)
        if at + 2 + length > size:
            return False
        if load_byte(buffers[0] + U64(at)) == CARRIAGE_RETURN:
            at += 1
        if load_byte(buffers[0] + U64(at)) != NEWLINE:
            return False
        at += 1
        if length > np.int64(TWELVE):
            if second & LOW != ZERO or np.int64(second >> HALF) != at:
                return False
        elif not is_inline(first, second, int(length), buffers[0] + U64(at)):
            return False
        at += length
    found[2] = at
    return True
