"""How every kernel is compiled: ahead of its first call, cached on disk, without GIL.

Importing a module that uses `compiled` compiles its kernels or loads them from Numba's
cache; that takes seconds or tenths of a second, so only `loading` imports such modules.

Numba's cache notices a change of the file a kernel stands in and of no other.  So a
kernel and everything of ours that is inlined into it stand in one file, except for what
is in `words`, which therefore never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numba
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from llvmlite import ir
    from numba import types
    from numba.core.typing.templates import Signature

__all__ = ["Target", "compiled", "inlined", "instruction"]


class Target(Protocol):
    """What Numba generates code for."""

    def get_dummy_value(self) -> ir.Value:
        """Return what stands for nothing."""
        ...

    def get_value_type(self, kind: types.Type) -> ir.Type:
        """Return how a value of a type lies in memory."""
        ...


if TYPE_CHECKING:
    Values = Sequence[ir.Value]
    Instruction = tuple[
        Signature, Callable[[Target, ir.IRBuilder, Signature, Values], ir.Value]
    ]
    """Types of the arguments and the result; what writes the machine code."""

F = TypeVar("F", bound="Callable[..., object]")

OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}

njit: Any = numba.njit


def compiled(*signatures: str) -> Callable[[F], F]:
    """Compile a function for these signatures only; others are refused when called."""

    def decorate(function: F) -> F:
        try:
            kernel: F = njit(list(signatures), cache=True, **OPTIONS)(function)
        except RuntimeError:  # neither the package nor the user's cache is writable
            kernel = njit(list(signatures), cache=False, **OPTIONS)(function)
        return kernel

    return decorate


def inlined(function: F) -> F:
    """Make a function callable from kernels of the same file."""
    callee: F = njit(**OPTIONS)(function)
    return callee


def instruction(generator: Callable[..., Instruction]) -> Callable[..., np.uint64]:
    """Make a function callable from kernels whose machine code is given by hand."""
    generated: Callable[..., np.uint64] = intrinsic(generator)
    return generated
