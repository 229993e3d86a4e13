"""What several kernels do with words, bytes and 64 bytes at once.

Numba's cache does not notice a change of this file, because kernels stand in others.  So
nothing here is changed: what has to do something else gets another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir
from numba import types

from millstream.columns.kernels.jit import inlined, instruction

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature
    from numpy.typing import NDArray

    from millstream.columns.kernels.jit import Instruction, Target, Values

    Bytes = NDArray[np.uint8]

__all__ = [
    "KEEP_HIGH",
    "KEEP_LOW",
    "bytes_outside_ascii",
    "bytes_within",
    "copy_row",
    "folded",
    "load_byte",
    "load_word",
    "lowered",
    "lowest",
    "members",
    "ones",
    "store_byte",
    "store_word",
]

U64 = np.uint64
ZERO, TWO = U64(0), U64(2)
EVERY = U64(0x0101_0101_0101_0101)
HIGH_BITS = EVERY * U64(0x80)
BELOW_A, BELOW_BRACKET = EVERY * U64(0x80 - 0x41), EVERY * U64(0x80 - 0x5B)

# By the length of a token up to 12, what to keep of its first and second eight bytes.
KEEP_LOW = np.array([2 ** (8 * min(n, 8)) - 1 for n in range(13)], dtype=np.uint64)
KEEP_HIGH = np.array([2 ** (8 * max(n - 8, 0)) - 1 for n in range(13)], dtype=np.uint64)

SIXTY_FOUR = ir.VectorType(ir.IntType(8), 64)


@instruction
def load_word(_context: object, _address: types.Type) -> Instruction:
    """Read the word at an address, aligned or not."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.uint64), generate


@instruction
def load_byte(_context: object, _address: types.Type) -> Instruction:
    """Read the byte at an address."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        return builder.load(pointer)

    return types.uint8(types.uint64), generate


@instruction
def store_word(
    _context: object, _address: types.Type, _word: types.Type
) -> Instruction:
    """Write a word to an address, aligned or not."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(args[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


@instruction
def store_byte(
    _context: object, _address: types.Type, _byte: types.Type
) -> Instruction:
    """Write a byte to an address."""

    def generate(
        context: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        builder.store(args[1], pointer)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint8), generate


@instruction
def lowest(_context: object, _word: types.Type) -> Instruction:
    """Return the position of the lowest bit that is set; there must be one."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@instruction
def ones(_context: object, _word: types.Type) -> Instruction:
    """Return how many bits are set."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


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


def sixty_four(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Read 64 bytes at once."""
    return builder.load(builder.inttoptr(address, SIXTY_FOUR.as_pointer()), align=1)


def repeated(builder: ir.IRBuilder, byte: ir.Value) -> ir.Value:
    """Return a byte 64 times."""
    nothing = ir.Constant(SIXTY_FOUR, ir.Undefined)
    first = builder.insert_element(nothing, byte, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), 64), None)
    return builder.shuffle_vector(first, nothing, places)


@instruction
def bytes_within(
    _context: object, _address: types.Type, _low: types.Type, _count: types.Type
) -> Instruction:
    """Return as bits which of 64 bytes are one of `count` numbers from `low` on."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        loaded = sixty_four(builder, args[0])
        above = builder.sub(loaded, repeated(builder, args[1]))
        is_inside = builder.icmp_unsigned("<", above, repeated(builder, args[2]))
        return builder.bitcast(is_inside, ir.IntType(64))

    return types.uint64(types.uint64, types.uint8, types.uint8), generate


@instruction
def bytes_outside_ascii(_context: object, _address: types.Type) -> Instruction:
    """Return as bits which of 64 bytes have their highest bit set."""

    def generate(
        _target: Target, builder: ir.IRBuilder, _signature: Signature, args: Values
    ) -> ir.Value:
        loaded = sixty_four(builder, args[0])
        is_high = builder.icmp_signed("<", loaded, ir.Constant(SIXTY_FOUR, None))
        return builder.bitcast(is_high, ir.IntType(64))

    return types.uint64(types.uint64), generate


@inlined
def lowered(word: U64) -> U64:
    """Turn the capital letters among eight ASCII bytes into small ones."""
    is_capital = (word + BELOW_A) & ~(word + BELOW_BRACKET) & HIGH_BITS
    return word | is_capital >> TWO


@inlined
def members(address: U64, ranges: Bytes) -> U64:
    """Return as bits which of 64 bytes are in a range."""
    bits = ZERO
    for pair in range(ranges.size // 2):
        bits |= bytes_within(address, ranges[2 * pair], ranges[2 * pair + 1])
    return bits


@inlined
def copy_row(start: U64, length: int, target: U64) -> U64:
    """Copy a row; return the bits that are set in one of its bytes at least."""
    seen = ZERO
    whole = length - length % 8
    for at in range(0, whole, 8):
        word = load_word(start + U64(at))
        store_word(target + U64(at), word)
        seen |= word
    for at in range(whole, length):
        byte = load_byte(start + U64(at))
        store_byte(target + U64(at), byte)
        seen |= U64(byte)
    return seen
