"""Nodes of columnar streams: batches are Polars data frames.

They stand in the same plan as the nodes of rows and obey the same rules.  Nothing here
imports Polars; expressions and schemas are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AggregateFrame",
    "CollectFrames",
    "CombineFrame",
    "FrameSpec",
    "MapFrames",
    "SortFrame",
    "ToFrame",
    "ToRows",
    "Tokens",
    "Transform",
]


@dataclass(frozen=True, slots=True)
class Transform:
    """A row-wise query: a lazy frame for a lazy frame; a run of them is one query."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MapFrames:
    """Any data frame for a data frame."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ToRows:
    """Turn frames into rows, which are dicts."""


@dataclass(frozen=True, slots=True)
class ToFrame:
    """Turn rows into frames with this schema."""

    schema: Any


@dataclass(frozen=True, slots=True)
class CombineFrame:
    """Aggregate by key inside the sending stage; put in by the planner."""

    aggregation: Any


@dataclass(frozen=True, slots=True)
class AggregateFrame:
    """One row per key when the input ends."""

    aggregation: Any
    is_combined: bool = False


@dataclass(frozen=True, slots=True)
class SortFrame:
    """All rows in order when the input ends; only the first `limit` if given."""

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text column, one row each."""

    column: str
    token_class: Any


@dataclass(frozen=True, slots=True)
class CollectFrames:
    """Send data frames to the driver."""


FrameSpec = (
    Transform
    | MapFrames
    | ToRows
    | ToFrame
    | CombineFrame
    | AggregateFrame
    | SortFrame
    | Tokens
    | CollectFrames
)
