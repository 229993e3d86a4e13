"""Nodes of columnar streams: batches are Polars data frames.

They stand in the same plan as the nodes of rows and obey the same rules.  Nothing here
imports Polars; expressions and schemas are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.frame_windows import FrameWindowSpec, MapWindow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AggregateFrame",
    "CollectFrames",
    "CombineFrame",
    "FrameSpec",
    "JoinFrames",
    "JoinStatic",
    "MapFrames",
    "SortFrame",
    "ToFrame",
    "ToRows",
    "Tokens",
    "Transform",
    "UniqueFrame",
]


@dataclass(frozen=True, slots=True)
class Transform:
    """A row-wise query: a lazy frame for a lazy frame; a run of them is one query.

    `step` says what it does where `millstream.plan.text_steps` has a word for it.
    """

    function: Callable[[Any], Any]
    step: Any = None


@dataclass(frozen=True, slots=True)
class MapFrames:
    """Any data frame for a data frame.

    Attributes
    ----------
    needs
        Which columns it looks at: all, the same that are needed of its output, or none
        that its input has by right.
    schema
        Of the result, where the function may return another one by mistake.
    """

    function: Callable[[Any], Any]
    needs: Literal["all", "the same", "nothing"] = "all"
    schema: Any = None


@dataclass(frozen=True, slots=True)
class ToRows:
    """Turn frames into rows, which are dicts."""


@dataclass(frozen=True, slots=True)
class ToFrame:
    """Turn rows into frames with this schema."""

    schema: Any


@dataclass(frozen=True, slots=True)
class CombineFrame:
    """Aggregate by key inside the sending stage; put in by the planner.

    Attributes
    ----------
    is_prompt
        Whether somebody waits for what is held, so that it leaves before long.
    """

    aggregation: Any
    is_prompt: bool = False


@dataclass(frozen=True, slots=True)
class AggregateFrame:
    """One row per key when the input ends."""

    aggregation: Any
    is_combined: bool = False


@dataclass(frozen=True, slots=True)
class SortFrame:
    """All rows in order when the input ends; only the first `limit` if given.

    Attributes
    ----------
    is_narrowed
        Whether the planner may have left out columns that nobody needs.
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]
    limit: int | None = None
    schema: Any = None
    is_narrowed: bool = False


@dataclass(frozen=True, slots=True)
class JoinFrames:
    """Every row of input 0 with those of input 1, of which every task has all."""

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    right_schema: Any
    suffix: str = "_right"
    nulls_equal: bool = False
    left_schema: Any = None

    def query(self, left: Any, right: Any) -> Any:
        """Return the join of two lazy frames; left rows stay in order."""
        return left.join(
            right,
            left_on=list(self.left_on),
            right_on=list(self.right_on),
            how=self.how,
            suffix=self.suffix,
            nulls_equal=self.nulls_equal,
            maintain_order="left",
        )


@dataclass(frozen=True, slots=True)
class JoinStatic:
    """Every row with those of a data frame that travels with the plan."""

    join: JoinFrames
    right: Any


@dataclass(frozen=True, slots=True)
class UniqueFrame:
    """The first row of every key, as soon as it comes; `schema` is that of the keys."""

    keys: tuple[str, ...]
    schema: Any = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text column, one row each."""

    column: str
    token_class: Any


@dataclass(frozen=True, slots=True)
class CollectFrames:
    """Send data frames to the driver."""

    schema: Any = None


FrameSpec = (
    Transform
    | MapFrames
    | ToRows
    | ToFrame
    | CombineFrame
    | AggregateFrame
    | SortFrame
    | JoinFrames
    | JoinStatic
    | JoinFrameStreams
    | UniqueFrame
    | Tokens
    | CollectFrames
    | FrameWindowSpec
    | MapWindow
)
