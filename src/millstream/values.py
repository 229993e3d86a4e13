"""What the engine calls the values that pass through it; annotations use these names.

Users choose the types of their rows, keys and state, and the engine looks at none of them:
it passes them on, compares them, or gives them to the user's own functions.  So two of the
names below stand for any Python object, and a third one for any that has a hash; they say
which of the user's objects it is.  There are no others of this kind: what the engine makes itself has a type of its own.

Nothing here runs, and nothing is imported but for annotations.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Batch",
    "Entries",
    "Key",
    "Pair",
    "Plain",
    "Row",
    "Rows",
    "TimedRow",
    "Value",
]

Row: TypeAlias = Any
"""One element of a stream: what a source reads, and a user's function takes or returns."""

Key: TypeAlias = Hashable
"""What decides which rows meet in one task; `state.keyhash` says what can be one."""

Value: TypeAlias = Any
"""What is remembered or computed for a key or a task: an accumulator, a user's state."""

Rows: TypeAlias = list[Row]
"""A batch of rows."""

Batch: TypeAlias = "Rows | pl.DataFrame"
"""What travels on a channel; all batches of one channel are of one kind."""

TimedRow: TypeAlias = tuple[int, Row]
"""A row of a stream that has timestamps, behind its own."""

Pair: TypeAlias = tuple[Key, Value]
"""A key and what belongs to it: a row of a keyed stream, or of stored state."""

Entries: TypeAlias = dict[Key, Value]
"""Pairs by their keys."""

Plain: TypeAlias = (
    "bool | int | float | str | bytes | list[Plain] | dict[str, Plain] | None"
)
"""What msgpack decodes to: a tree of which nothing has been checked."""
