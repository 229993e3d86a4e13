"""Copies of values that somebody may go on changing; what cannot change is not copied."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from millstream.state.nan import NotANumber

if TYPE_CHECKING:
    from millstream.values import Value

__all__ = ["FIXED", "SCALARS", "is_fixed", "own_copy"]

SCALARS = frozenset({bool, bytes, complex, float, int, str, type(None), NotANumber})
"""Types of which no value can change, and that hold no others."""

FIXED = (tuple, frozenset)
"""Types that cannot change themselves, but may hold what can."""


def is_fixed(value: Value) -> bool:
    """Whether nobody can change a value, nor anything in it.

    Examples
    --------
    >>> is_fixed((1, ("a", None))), is_fixed((1, []))
    (True, False)
    """
    kind = type(value)
    return kind in SCALARS or (kind in FIXED and all(map(is_fixed, value)))


def own_copy(value: Value) -> Value:
    """Return a copy that shares nothing that can change with the value."""
    return value if is_fixed(value) else copy.deepcopy(value)
