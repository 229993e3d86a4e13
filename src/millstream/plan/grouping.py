"""How an edge between two stages spreads rows over the tasks of the next stage.

These are the policies of the locality-aware routing paper (section 2.2) - shuffle,
local-or-shuffle, fields - and the three that a dataflow needs besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.values import Row

__all__ = [
    "Broadcast",
    "ByFunction",
    "Columns",
    "Fields",
    "Gather",
    "Grouping",
    "LocalOrShuffle",
    "Shuffle",
]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Row by row to each task in turn."""

    def __str__(self) -> str:
        return "shuffle"


@dataclass(frozen=True, slots=True)
class LocalOrShuffle:
    """To the task on the same worker; in turn where there is none."""

    def __str__(self) -> str:
        return "local-or-shuffle"


@dataclass(frozen=True, slots=True)
class Fields:
    """By key: rows are ``(key, value)`` pairs and equal keys meet in one task."""

    def __str__(self) -> str:
        return "fields"


@dataclass(frozen=True, slots=True)
class Columns:
    """By key columns of a frame: rows with equal keys meet in one task."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"columns {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every row to every task."""

    def __str__(self) -> str:
        return "broadcast"


@dataclass(frozen=True, slots=True)
class Gather:
    """Every row to the one task there is."""

    def __str__(self) -> str:
        return "gather"


@dataclass(frozen=True, slots=True)
class ByFunction:
    """To the task that the user's function names, modulo their number."""

    function: Callable[[Row], int]

    def __str__(self) -> str:
        return "function"


Grouping = Shuffle | LocalOrShuffle | Fields | Columns | Broadcast | Gather | ByFunction
