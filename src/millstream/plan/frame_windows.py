"""Time and windows on data frames: the nodes, and the hidden columns.

A frame with event time carries it in two columns that users do not see.

Nothing here imports Polars; expressions are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.windows import Everything, Panes

__all__ = [
    "BEHIND",
    "END",
    "FIRST",
    "HIDDEN",
    "NUMBER",
    "PANE",
    "SLOT",
    "TIME",
    "WHOLE",
    "WINDOW",
    "WINDOW_END",
    "WINDOW_START",
    "AssignFrameTime",
    "CombinePanes",
    "CountFrame",
    "FrameWindowSpec",
    "MapWindow",
    "OrderFrame",
    "SessionFrame",
    "TimeWindowFrame",
    "TriggerFrame",
]

TIME = "__time"
"""The timestamp of a row, `Int64`."""

BEHIND = "__behind"
"""What its origin had promised, where a row is behind that; else null."""

HIDDEN = (TIME, BEHIND)
"""The columns that users do not see."""

PANE = "__pane"
"""The number of a pane."""

FIRST = "__first"
"""The first window that rows of a pane still count for; null for all that have it."""

WINDOW = "__window"
"""The number of a window."""

END = "__end"
"""When a session is over."""

SLOT = "__slot"
"""The number of a key."""

NUMBER = "__number"
"""How many rows a key has."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""What users see of a window."""

WHOLE = "__whole"
"""The key of windows over the whole frame."""


@dataclass(frozen=True, slots=True)
class AssignFrameTime:
    """Give every row a timestamp, and promise how late they may be.

    Attributes
    ----------
    time
        Makes milliseconds since 1970 of a row.
    kind
        The type of times that were made numbers; None if they were numbers.
    watermark
        Instead of `disorder_ms`: makes a promise, or null, of a row; or what
        `millstream.plan.time.AssignTime` has, a function that makes such functions.
    """

    time: Any
    disorder_ms: int = 0
    idle_after_ms: int | None = None
    max_ahead_ms: int | None = None
    kind: Any = None
    splits_in_order: bool = False
    watermark: Any = None


@dataclass(frozen=True, slots=True)
class TimeWindowFrame:
    """A row per key and window of time.

    Attributes
    ----------
    aggregation
        What is kept of the rows of a key.
    columns
        Those of the rows, as users see them.
    lateness_ms
        For how long a window that is over takes rows that come late.
    kind
        The type of the bounds of windows; None for numbers.
    window
        What the user wrote, for people.
    is_by_clock
        Whether rows have the time at which they come, not their timestamps.
    is_combined
        Whether parts of panes come, not rows.
    bounds
        What the bounds of windows are called in the result.
    keeps_rows
        Whether what is kept are the rows, so that parts of panes are not fewer.
    """

    aggregation: Any
    panes: Panes
    columns: tuple[str, ...]
    lateness_ms: int = 0
    kind: Any = None
    window: Any = None
    is_by_clock: bool = False
    is_combined: bool = False
    bounds: tuple[str, str] = (WINDOW_START, WINDOW_END)
    keeps_rows: bool = False


@dataclass(frozen=True, slots=True)
class CombinePanes:
    """Aggregate by key and pane inside the sending stage; put in by the planner."""

    windows: TimeWindowFrame


@dataclass(frozen=True, slots=True)
class SessionFrame:
    """A row per key and session: rows that are less than `gap_ms` apart."""

    aggregation: Any
    gap_ms: int
    columns: tuple[str, ...]
    lateness_ms: int = 0
    kind: Any = None
    window: Any = None
    is_by_clock: bool = False
    bounds: tuple[str, str] = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, slots=True)
class CountFrame:
    """A row per key and so many rows of it, in the order in which they come.

    Attributes
    ----------
    is_exact
        Whether windows that are not full when the input ends are left out.
    is_counted
        Whether nothing is known of the rows but how many there are.
    bounds
        What the numbers of the first row, and of the one behind the last, are called in
        the result; None if they are not in it.
    """

    aggregation: Any
    panes: Panes
    is_exact: bool = True
    is_counted: bool = False
    window: Any = None
    is_combined: bool = False
    bounds: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TriggerFrame:
    """A row per key whenever the trigger of the user wants one.

    Attributes
    ----------
    columns
        Those of the rows that the trigger gets, as users see them.
    is_timed
        Whether the trigger is called by timestamps, in the order of which rows come.
    has_keys
        Whether users know of keys; if not, all rows have the same.
    """

    aggregation: Any
    window: Everything
    columns: tuple[str, ...]
    is_timed: bool = False
    has_keys: bool = True


@dataclass(frozen=True, slots=True)
class OrderFrame:
    """The rows of every key in the order of their timestamps, when their time has come.

    Attributes
    ----------
    columns
        Those of late rows, as users see them.
    schema
        Their types.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    schema: Any = None


@dataclass(frozen=True, slots=True)
class MapWindow:
    """Any data frame for the rows of a window; every window comes as a row.

    Attributes
    ----------
    schema
        Of what the function returns.
    rows
        The column that has the rows of a window as a list.
    keys
        The columns that have its key, for people.
    bounds
        The columns that have its bounds; None where there is only one window.
    """

    function: Callable[[Any, Any], Any]
    schema: Any
    rows: str
    keys: tuple[str, ...] = ()
    bounds: tuple[str, str] | None = None


FrameWindowSpec = (
    AssignFrameTime
    | TimeWindowFrame
    | CombinePanes
    | SessionFrame
    | CountFrame
    | TriggerFrame
    | OrderFrame
)
