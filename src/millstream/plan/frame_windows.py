"""Time and windows on data frames: the nodes, and the hidden columns.

A frame with event time carries it in two columns that users do not see.

Nothing here imports Polars but for annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.needed_columns import aggregation_columns, united
from millstream.plan.spec import ALL_COLUMNS, IN_TIME_ORDER, Spec, Traits
from millstream.plan.state_fields import Field, aggregation_fields
from millstream.plan.time import watermark_fields
from millstream.plan.windows import window_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from millstream.columns.table import FrameAggregation
    from millstream.plan.spec import Needed, NeededOf
    from millstream.plan.time import WatermarkMaker
    from millstream.plan.windows import AnyWindow, GlobalWindow, Panes, Window

__all__ = [
    "END",
    "FIRST",
    "HIDDEN",
    "NUMBER",
    "ORIGIN_WATERMARK",
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
    "MapWindow",
    "OrderFrame",
    "SessionFrame",
    "TimeWindowFrame",
    "TriggerFrame",
]

TIME = "__time"
"""The timestamp of a row, `Int64`."""

ORIGIN_WATERMARK = "__origin_watermark"
"""The watermark of its origin, where a row is behind it; else null."""

HIDDEN = (TIME, ORIGIN_WATERMARK)
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
class AssignFrameTime(Spec):
    """Give every row a timestamp, and say how late they may be.

    Attributes
    ----------
    time
        Makes milliseconds since 1970 of a row.
    kind
        The type of times that were made numbers; None if they were numbers.
    watermark
        Instead of `out_of_order_ms`: makes a watermark, or null, of a row; or what
        `millstream.plan.time.AssignTime` has, a function that makes such functions.
    """

    traits = Traits(
        keeps="event time of a frame",
        keeps_time=False,
        may_fail_on_record=True,
        takes_frames=True,
    )

    time: pl.Expr
    out_of_order_ms: int = 0
    idle_after_ms: int | None = None
    max_future_skew_ms: int | None = None
    kind: pl.DataType | None = None
    splits_in_order: bool = False
    watermark: pl.Expr | WatermarkMaker | None = None

    def kept_fields(self) -> Iterable[Field]:
        """Return whose watermarks are kept; bounds may change."""
        return watermark_fields(self)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what a timestamp is made of, and what is needed beside it."""
        import polars as pl  # noqa: PLC0415 - there is a frame, so it is there

        exprs = [self.time]
        if self.watermark is not None:
            if not isinstance(self.watermark, pl.Expr):
                return ALL_COLUMNS
            exprs.append(self.watermark)
        hidden = dict.fromkeys(HIDDEN, pl.Int64())
        needed = needed_of(type(schema)({**schema, **hidden}))
        if needed is None:
            return ALL_COLUMNS
        own = frozenset(name for expr in exprs for name in expr.meta.root_names())
        return own | needed - frozenset(HIDDEN)


@dataclass(frozen=True, slots=True)
class TimeWindowFrame(Spec):
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
        What the user wrote, for messages and `explain` only.
    is_by_clock
        Whether rows have the time at which they come, not their timestamps.
    is_combined
        Whether parts of panes come, not rows.
    bounds
        What the bounds of windows are called in the result.
    keeps_rows
        Whether what is kept are the rows, so that parts of panes are not fewer.
    """

    traits = Traits(
        keeps="windows of a frame",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    aggregation: FrameAggregation
    panes: Panes
    columns: tuple[str, ...]
    lateness_ms: int = 0
    kind: pl.DataType | None = None
    window: AnyWindow | None = None
    is_by_clock: bool = False
    is_combined: bool = False
    bounds: tuple[str, str] = (WINDOW_START, WINDOW_END)
    keeps_rows: bool = False

    def detail(self) -> str:
        """Return the window, and whether parts come."""
        return f"{self.window}, merge" if self.is_combined else f"{self.window}"

    def kept_fields(self) -> Iterable[Field]:
        """Return windows and aggregates."""
        yield window_field(self.window)
        yield from aggregation_fields(self.aggregation)
        yield Field.span("lateness", self.lateness_ms)
        yield Field.of("by the clock", self.is_by_clock)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated, and time."""
        aggregated = aggregation_columns(self.aggregation)
        return united([aggregated, frozenset(HIDDEN)])


@dataclass(frozen=True, slots=True)
class CombinePanes(Spec):
    """Aggregate by key and pane inside the sending stage; put in by the planner."""

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, takes_frames=True
    )

    windows: TimeWindowFrame

    def detail(self) -> str:
        """Return the window, and that it is the planner's."""
        return f"{self.windows.window}, combine"

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated, and time."""
        return self.windows.columns_needed(schema, needed_of)


@dataclass(frozen=True, slots=True)
class SessionFrame(Spec):
    """A row per key and session: rows that are less than `gap_ms` apart."""

    traits = Traits(
        keeps="sessions of a frame",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    aggregation: FrameAggregation
    gap_ms: int
    columns: tuple[str, ...]
    lateness_ms: int = 0
    kind: pl.DataType | None = None
    window: AnyWindow | None = None
    is_by_clock: bool = False
    bounds: tuple[str, str] = (WINDOW_START, WINDOW_END)

    def detail(self) -> str:
        """Return the window."""
        return f"{self.window}"

    def kept_fields(self) -> Iterable[Field]:
        """Return windows and aggregates."""
        yield window_field(self.window)
        yield from aggregation_fields(self.aggregation)
        yield Field.span("lateness", self.lateness_ms)
        yield Field.of("by the clock", self.is_by_clock)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated, and time."""
        aggregated = aggregation_columns(self.aggregation)
        return united([aggregated, frozenset(HIDDEN)])


@dataclass(frozen=True, slots=True)
class CountFrame(Spec):
    """A row per key and so many rows of it, in the order in which they come.

    Attributes
    ----------
    drops_incomplete
        Whether windows that are not full when the input ends are left out.
    is_counted
        Whether nothing is known of the rows but how many there are.
    bounds
        What the numbers of the first row, and of the one behind the last, are called in
        the result; None if they are not in it.
    """

    traits = Traits(
        keeps="count windows of a frame",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    aggregation: FrameAggregation
    panes: Panes
    drops_incomplete: bool = True
    is_counted: bool = False
    window: AnyWindow | None = None
    is_combined: bool = False
    bounds: tuple[str, str] | None = None

    def detail(self) -> str:
        """Return the window, and whether parts come."""
        return f"{self.window}, merge" if self.is_combined else f"{self.window}"

    def kept_fields(self) -> Iterable[Field]:
        """Return windows and aggregates."""
        yield window_field(self.window)
        yield from aggregation_fields(self.aggregation)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return what is aggregated, and time."""
        aggregated = aggregation_columns(self.aggregation)
        return united([aggregated, frozenset(HIDDEN)])


@dataclass(frozen=True, slots=True)
class TriggerFrame(Spec):
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

    traits = Traits(
        keeps="windows of a frame by trigger",
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    aggregation: FrameAggregation
    window: GlobalWindow
    columns: tuple[str, ...]
    is_timed: bool = False
    has_keys: bool = True

    def detail(self) -> str:
        """Return the window."""
        return f"{self.window}"

    def kept_fields(self) -> Iterable[Field]:
        """Return windows and aggregates."""
        yield window_field(self.window)
        yield from aggregation_fields(self.aggregation)
        yield Field("columns", self.columns)


@dataclass(frozen=True, slots=True)
class OrderFrame(Spec):
    """The rows of every key in the order of their timestamps, when their time has come.

    Attributes
    ----------
    columns
        Those of late rows, as users see them.
    schema
        Their types.
    """

    traits = Traits(
        keeps="order of a frame by time",
        keeps_rows=True,
        keeps_time=False,
        may_fail_on_record=False,
        takes_frames=True,
    )

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pl.Schema | None = None

    def detail(self) -> str:
        """Say what it does."""
        return IN_TIME_ORDER

    def kept_fields(self) -> Iterable[Field]:
        """Return keys and columns."""
        yield Field("keys", self.keys)
        yield Field.columns("columns", self.schema)

    def columns_needed(self, schema: pl.Schema, needed_of: NeededOf) -> Needed:
        """Return keys and time, and what goes through."""
        own = frozenset([*self.keys, *HIDDEN])
        return united([own, needed_of(schema)])


@dataclass(frozen=True, slots=True)
class MapWindow(Spec):
    """Any data frame for the rows of a window; every window comes as a row.

    Attributes
    ----------
    schema
        Of what the function returns.
    rows
        The column that has the rows of a window as a list.
    keys
        The columns that have its key, for messages only.
    bounds
        The columns that have its bounds; None where there is only one window.
    """

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=True, takes_frames=True
    )

    function: Callable[[Window, pl.DataFrame], object]
    schema: pl.Schema
    rows: str
    keys: tuple[str, ...] = ()
    bounds: tuple[str, str] | None = None
