"""Counting the fields of records without cutting them out.

Of 64 bytes at once, those between quotes are found by the parity of the quotes before
them; what is left of the separators is counted from newline to newline.

Nothing here allocates, and nothing here knows what is in a field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.columns.kernels.jit import compiled, inlined
from millstream.columns.kernels.words import bytes_within, load_byte, lowest, ones

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

__all__ = ["regular_rows"]

BYTES = "Array(uint8, 1, 'C', readonly=True)"

U64 = np.uint64
ZERO, ONE = U64(0), U64(1)
LAST_BIT = U64(63)
NEWLINE, RETURN, SINGLE = np.uint8(10), np.uint8(13), np.uint8(1)

# How many bytes are looked at together.
BITS = 64


@inlined
def places(address: U64, last: U64, byte: np.uint8, count: np.uint8) -> U64:
    """Return as bits which of 64 bytes, or those that there are, are `byte`.

    None is if `count` is 0.
    """
    if address + U64(BITS) <= last:
        return bytes_within(address, byte, count)
    found = ZERO
    for position in range(last - address):
        if count == SINGLE and load_byte(address + U64(position)) == byte:
            found |= ONE << U64(position)
    return found


@inlined
def parities(bits: U64) -> U64:
    """Return for every bit whether an odd number is set up to and including it."""
    for shift in (1, 2, 4, 8, 16, 32):
        bits ^= bits << U64(shift)
    return bits


@compiled(f"int64({BYTES}, uint8, uint8, uint8, int64)")
def regular_rows(
    data: Bytes, separator: np.uint8, quote: np.uint8, quote_count: np.uint8, width: int
) -> int:
    """Return the number of lines if each of them has `width` fields, else -1.

    It is -1 also where there is doubt: a quote that is open at the end of a line, stands
    inside a field that does not begin with one, or is closed before the end of a field.
    Where `quote_count` is 0 there are no quotes; the last line must be ended.
    """
    base = U64(data.ctypes.data)
    last = base + U64(data.size)
    rows, separators = 0, ZERO
    wanted = U64(width - 1)
    # What the last of the bytes before means for the first of the next.
    is_inside, is_border, is_closed, is_return = ZERO, ONE, ZERO, ZERO
    for at in range(0, data.size, BITS):
        address = base + U64(at)
        quotes = places(address, last, quote, quote_count)
        cuts = places(address, last, separator, SINGLE)
        ends = places(address, last, NEWLINE, SINGLE)
        inside = parities(quotes) ^ (ZERO - is_inside)
        borders = quotes | cuts | ends
        closed = (quotes & ~inside) << ONE | is_closed
        returns = closed & places(address, last, RETURN, SINGLE)
        doubts = quotes & inside & ~(borders << ONE | is_border)
        doubts |= closed & ~(borders | returns) | (returns << ONE | is_return) & ~ends
        if doubts | (ends & inside):
            return -1
        is_inside, is_border = inside >> LAST_BIT, borders >> LAST_BIT
        is_closed = (quotes & ~inside) >> LAST_BIT
        is_return = returns >> LAST_BIT
        cuts &= ~inside
        while ends != ZERO:
            below = (ONE << lowest(ends)) - ONE
            if separators + ones(cuts & below) != wanted:
                return -1
            cuts &= ~below
            ends &= ends - ONE
            separators = ZERO
            rows += 1
        separators += ones(cuts)
    return -1 if is_inside | separators else rows
