"""How every kernel is compiled: ahead of its first call, cached on disk, without GIL.

Importing a module that uses `compiled` compiles its kernels or loads them from Numba's
cache; that takes seconds or tenths of a second, so only `loading` imports such modules.

Numba's cache notices a change of the file a kernel stands in and of no other.  So a
kernel and everything of ours that is inlined into it stand in one file, except for what
is in `words`, which therefore never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["compiled", "inlined", "instruction"]

F = TypeVar("F", bound="Callable[..., Any]")

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


def instruction(generator: Callable[..., Any]) -> Callable[..., np.uint64]:
    """Make a function callable from kernels whose machine code is given by hand."""
    generated: Callable[..., np.uint64] = intrinsic(generator)
    return generated
