"""Windows: which rows belong together, and the node that computes something of them.

Users make windows with the functions of `millstream.windows`.  Windows that overlap share
*panes*: the stretches between two places where a window begins or ends.  Of a slide there
are at most two, however large the window is.

Nothing here knows how rows are kept until a window is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from millstream.plan.aggregate import Aggregate
from millstream.plan.spec import Spec, Traits
from millstream.plan.state_fields import Field, aggregate_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.values import Row, TimedRow, Value

__all__ = [
    "FIRST_IN_TIME",
    "LAST_IN_TIME",
    "Action",
    "AnyWindow",
    "CombineWindows",
    "CountWindows",
    "GlobalWindow",
    "Panes",
    "SessionWindows",
    "Time",
    "TimeWindows",
    "Trigger",
    "TriggerContext",
    "Window",
    "Windowed",
    "of_parts",
    "window_field",
]

Time = Literal["event", "processing"]


class Window(NamedTuple):
    """The bounds of one window: `start` is inside, `end` is not.

    Milliseconds since 1970; of a count window, the numbers of its elements.
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Window i has the elements from i * slide to i * slide + size of its key.

    Attributes
    ----------
    drops_incomplete
        Whether windows that are not full when the input ends are left out.
    """

    size: int
    slide: int
    drops_incomplete: bool

    def __str__(self) -> str:
        """Return how it is made, as messages show it."""
        slide = f", {self.slide}" if self.slide != self.size else ""
        return f"count({self.size}{slide}{'' if self.drops_incomplete else ', exact=False'})"


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of `size_ms`, one every `slide_ms`, of which one begins at `offset_ms`."""

    size_ms: int
    slide_ms: int
    offset_ms: int
    time: Time

    def __str__(self) -> str:
        """Return how it is made, as messages show it."""
        if self.slide_ms == self.size_ms:
            return f"tumbling({_span(self.size_ms)}{_clock(self.time)})"
        spans = f"{_span(self.size_ms)}, {_span(self.slide_ms)}"
        return f"sliding({spans}{_clock(self.time)})"


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Rows that are less than `gap_ms` apart, one after the other."""

    gap_ms: int
    time: Time

    def __str__(self) -> str:
        """Return how it is made, as messages show it."""
        return f"session({_span(self.gap_ms)}{_clock(self.time)})"


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """All rows of a key; a trigger says when to look at them.

    Attributes
    ----------
    time
        By which clock the trigger is called; None for event time where there is one.
    """

    trigger: Trigger
    time: Time | None

    def __str__(self) -> str:
        """Return how it is made, as messages show it."""
        return f"global_window({type(self.trigger).__name__})"


AnyWindow = CountWindows | TimeWindows | SessionWindows | GlobalWindow


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


class Action(Flag):
    """What a trigger wants; two of them are joined with ``|``."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2


@dataclass(slots=True)
class TriggerContext:
    """What a trigger may look at, for the key of the row or time it is called with.

    Attributes
    ----------
    key
        The key; None in a stream without keys.
    now
        The timestamp of the row, or the time that the trigger is called for.
    count
        How many rows the window has.
    state
        What the trigger remembers for the key.
    """

    key: Any
    now: int
    count: int
    state: dict[str, Any]
    wanted_at: int | None = None

    def call_at(self, time: int) -> None:
        """Ask for `on_time` when time has come to `time`; the last wish counts.

        A time that has passed is called for at once, before the next row.
        """
        self.wanted_at = time


class Trigger:
    """Says when `windows.global_window` gives a result; override what is needed.

    Examples
    --------
    >>> class EveryThird(Trigger):
    ...     def on_row(self, value, context):
    ...         if context.count < 3:
    ...             return Action.CONTINUE
    ...         return Action.FIRE | Action.PURGE
    >>> EveryThird().on_row("c", TriggerContext("key", 0, 3, {}))
    <Action.FIRE|PURGE: 3>
    """

    def on_row(self, value: Any, context: TriggerContext) -> Action:  # noqa: ARG002
        """Say what follows from a row, which is in the window already."""
        return Action.CONTINUE

    def on_time(self, time: int, context: TriggerContext) -> Action:  # noqa: ARG002
        """Say what follows from the time that `TriggerContext.call_at` named."""
        return Action.FIRE

    def on_end(self, context: TriggerContext) -> Action:
        """Say what follows from the end of the input; by default rows are not lost."""
        return Action.FIRE if context.count else Action.CONTINUE


@dataclass(frozen=True, slots=True)
class Windowed(Spec):
    """One result for every window of every key.

    Attributes
    ----------
    aggregate
        What becomes of the values; None if `function` gets them all.
    function
        Called with the window and the list of its values; None for the list itself.
    lateness_ms
        For how long a window that is over takes rows, and gives its result again.
    is_ordered
        Whether the order of values counts, so that in event time each must wait for those
        with earlier timestamps.
    sees_times
        Whether the aggregate gets pairs of timestamp and value.
    shows_window
        Whether results are pairs of window and result.
    is_combined
        Whether rows are parts of several; put in by the planner.
    """

    traits = Traits(keeps="windows", keeps_time=False, may_fail_on_record=True)

    window: AnyWindow
    aggregate: Aggregate | None
    function: Callable[[Window, list[Value]], Row] | None = None
    lateness_ms: int = 0
    is_ordered: bool = False
    sees_times: bool = False
    shows_window: bool = False
    is_combined: bool = False

    def detail(self) -> str:
        """Return the window, and whether parts come."""
        return f"{self.window}, merge" if self.is_combined else f"{self.window}"

    def kept_fields(self) -> Iterable[Field]:
        """Return window, aggregate and what values are kept for."""
        yield window_field(self.window)
        yield from aggregate_fields(self.aggregate)
        yield Field.span("lateness", self.lateness_ms)
        yield Field.of("in order", self.is_ordered)
        yield Field.of("with times", self.sees_times)


@dataclass(frozen=True, slots=True)
class CombineWindows(Spec):
    """Aggregate by pane inside the sending stage; put in by the planner."""

    traits = Traits(keeps="", keeps_time=False, may_fail_on_record=True)

    windowed: Windowed

    def detail(self) -> str:
        """Say that it is the planner's."""
        return "combine"


def of_parts(aggregate: Aggregate) -> Aggregate:
    """Return the aggregate of what another one has made of parts of the values."""
    assert aggregate.merge is not None
    merge, finish = aggregate.merge, aggregate.finish
    return Aggregate("parts", _itself, merge, merge, finish)


def window_field(window: AnyWindow | None) -> Field:
    """Return a window as far as state is cut by it."""
    if isinstance(window, GlobalWindow):
        return Field.of("window", f"{window}, {window.time or 'any'} time")
    offset = window.offset_ms if isinstance(window, TimeWindows) else 0
    return Field.of("window", f"{window}" + (f" from {offset} ms" if offset else ""))


def _span(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{milliseconds}ms" if rest else f"{seconds}s"


def _clock(time: Time) -> str:
    return ", processing time" if time == "processing" else ""


def _earlier(left: TimedRow, right: TimedRow) -> TimedRow:
    return right if right[0] < left[0] else left


def _later(left: TimedRow, right: TimedRow) -> TimedRow:
    return left if right[0] < left[0] else right


def _itself(value: object) -> object:
    return value


FIRST_IN_TIME = Aggregate("first", _itself, _earlier, _earlier, itemgetter(1))
"""The earliest of pairs of timestamp and value; the first one of equals."""

LAST_IN_TIME = Aggregate("last", _itself, _later, _later, itemgetter(1))
"""The latest of pairs of timestamp and value; the last one of equals."""
