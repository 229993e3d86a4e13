"""Time and windows on data frames: the nodes, hidden columns, and panes.

A frame with event time carries it in two columns that users do not see.  Windows that
overlap share *panes*: the stretches between two places where a window begins or ends.  Of
a slide there are at most two, however large the window is.

Nothing here imports Polars; expressions are opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    "Panes",
    "SessionFrame",
    "TimeWindowFrame",
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
class Panes:
    """How time, or the number of a row, is cut: window `k` begins at ``k * slide``.

    Examples
    --------
    >>> panes = Panes(size=10, slide=4)
    >>> [panes.of(time) for time in (0, 1, 2, 3, 4, 5, 6)]
    [0, 0, 1, 1, 2, 2, 3]
    >>> [(panes.first_window(pane), panes.last_window(pane)) for pane in (4, 5)]
    [(0, 2), (1, 2)]
    """

    size: int
    slide: int
    offset: int = 0

    @property
    def step(self) -> int:
        """How many panes a slide has."""
        return 2 if self.size % self.slide else 1

    @property
    def count(self) -> int:
        """How many panes a window has."""
        return self.size // self.slide * self.step + self.step - 1

    def of(self, time: int) -> int:
        """Return the pane of a time."""
        slides, rest = divmod(time - self.offset, self.slide)
        return slides if self.step == 1 else 2 * slides + (rest >= self._rest)

    def start(self, window: int) -> int:
        """Return the time at which a window begins."""
        return self.offset + window * self.slide

    def over(self, time: int) -> int:
        """Return the last window that is over when nothing up to `time` follows."""
        return (time + 1 - self.offset - self.size) // self.slide

    def first_window(self, pane: int) -> int:
        """Return the first window that has this pane."""
        return -((self.count - 1 - pane) // self.step)

    def last_window(self, pane: int) -> int:
        """Return the last window that has this pane; before the first if none has."""
        return pane // self.step

    def begin(self, window: int) -> int:
        """Return the first pane of a window."""
        return window * self.step

    def end(self, window: int) -> int:
        """Return the pane after the last one of a window."""
        return window * self.step + self.count

    @property
    def has_gaps(self) -> bool:
        """Whether some panes are in no window."""
        return self.slide > self.size

    @property
    def _rest(self) -> int:
        return self.size % self.slide


@dataclass(frozen=True, slots=True)
class AssignFrameTime:
    """Give every row a timestamp, and promise how late they may be.

    Attributes
    ----------
    time
        Makes milliseconds since 1970 of a row.
    kind
        The type of times that were made numbers; None if they were numbers.
    """

    time: Any
    disorder_ms: int = 0
    idle_after_ms: int | None = None
    max_ahead_ms: int | None = None
    kind: Any = None
    splits_in_order: bool = False


@dataclass(frozen=True, slots=True)
class TimeWindowFrame:
    """A row per key and window of event time.

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
    is_combined
        Whether parts of panes come, not rows.
    """

    aggregation: Any
    panes: Panes
    columns: tuple[str, ...]
    lateness_ms: int = 0
    kind: Any = None
    window: Any = None
    is_combined: bool = False


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


@dataclass(frozen=True, slots=True)
class CountFrame:
    """A row per key and so many rows of it, in the order in which they come.

    Attributes
    ----------
    is_exact
        Whether windows that are not full when the input ends are left out.
    is_counted
        Whether nothing is known of the rows but how many there are.
    """

    aggregation: Any
    panes: Panes
    is_exact: bool = True
    is_counted: bool = False
    window: Any = None
    is_combined: bool = False


FrameWindowSpec = (
    AssignFrameTime | TimeWindowFrame | CombinePanes | SessionFrame | CountFrame
)
