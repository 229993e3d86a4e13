"""Timestamps and durations, and the nodes that give time to a stream.

A *timed* stream has a timestamp with every row: its rows are pairs of timestamp and
value, under the key where there is one.  Windows and joins are in modules of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from millstream.config import nanoseconds
from millstream.errors import UsageError
from millstream.plan.spec import IN_TIME_ORDER, Spec, Traits
from millstream.plan.state_fields import Field, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.plan.frame_windows import AssignFrameTime
    from millstream.values import Row, Value

    WatermarkMaker = Callable[[], Callable[[Row, int], int | None]]
    """Makes a function from row and timestamp to a watermark, or None."""

__all__ = [
    "TIME_LIMIT",
    "AssignTime",
    "DropTime",
    "Duration",
    "InTimeOrder",
    "LateRow",
    "LateRows",
    "LateTimestamp",
    "milliseconds",
    "out_of_time",
    "timestamp",
    "watermark_fields",
]

Duration = int | timedelta | str
"""Milliseconds, or what says its own unit."""

TIME_LIMIT = 2**61
"""The largest timestamp, and the negative of the least, in milliseconds.

It leaves room in 64 bits for the ends of windows and what is allowed to be late.
"""

_DURATION_LIMIT = 2**60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class LateTimestamp(int):
    """A timestamp that is behind the watermark of its origin.

    Attributes
    ----------
    watermark
        The watermark when the record was read.
    """

    watermark: int

    def __new__(cls, value: int, watermark: int) -> Self:
        """Make one; `watermark` is at least `value`."""
        made = super().__new__(cls, value)
        made.watermark = watermark
        return made

    def __reduce__(self) -> tuple[type[LateTimestamp], tuple[int, int]]:
        return LateTimestamp, (int(self), self.watermark)


class LateRow(NamedTuple):
    """A record that came when its window, or its partners, were gone.

    Attributes
    ----------
    key
        Its key; None in a stream without keys.
    """

    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True, slots=True)
class AssignTime(Spec):
    """Give every row a timestamp, and say how late they may be.

    Attributes
    ----------
    function
        Returns the timestamp of a row.
    out_of_order_ms
        By how much a row may be older than one before it in the same split.
    idle_after_ms
        After this long without a row a split does not hold time back; None for never.
    max_future_skew_ms
        Timestamps further ahead of the clock do not move time; None for no bound.
    watermark
        Makes a function from row and timestamp to a watermark, or None; instead of
        `out_of_order_ms`.
    splits_in_order
        Whether splits that have not been opened do not hold time back.
    """

    traits = Traits(keeps="event time", keeps_time=False, may_fail_on_record=True)

    function: Callable[[Row], Value]
    out_of_order_ms: int = 0
    idle_after_ms: int | None = None
    max_future_skew_ms: int | None = None
    watermark: WatermarkMaker | None = None
    splits_in_order: bool = False

    def kept_fields(self) -> Iterable[Field]:
        """Return whose watermarks are kept; bounds may change."""
        return watermark_fields(self)


@dataclass(frozen=True, slots=True)
class DropTime(Spec):
    """Forget the timestamps."""

    traits = Traits(keeps="", keeps_time=False, may_fail_on_record=False, fuses="rows")


@dataclass(frozen=True, slots=True)
class InTimeOrder(Spec):
    """Rows in the order of their timestamps, each when its time has come."""

    traits = Traits(keeps="in time order", keeps_time=True, may_fail_on_record=False)

    def detail(self) -> str:
        """Say what it does."""
        return IN_TIME_ORDER


@dataclass(frozen=True, slots=True)
class LateRows(Spec):
    """What came too late for another operator; the planner connects the two.

    Attributes
    ----------
    of
        Id of the node whose late rows these are.
    """

    traits = Traits(
        keeps="", keeps_time=False, may_fail_on_record=False, has_operator=False
    )

    of: int


def watermark_fields(spec: AssignTime | AssignFrameTime) -> Iterable[Field]:
    """Yield what is kept of watermarks, on rows and on frames."""
    is_own = spec.watermark is not None
    yield Field.of("watermark", "the user's" if is_own else "by a bound")
    yield Field.span("out of order by", spec.out_of_order_ms, Rule.FREE)
    yield Field.span("idle after", spec.idle_after_ms, Rule.FREE)
    yield Field.span("future skew at most", spec.max_future_skew_ms, Rule.FREE)
    yield Field.of("splits in order", spec.splits_in_order, Rule.FREE)


def milliseconds(duration: object, *, least: int = 0) -> int:
    """Return a duration as a number of milliseconds.

    Examples
    --------
    >>> milliseconds("1.5s"), milliseconds(timedelta(minutes=1)), milliseconds(20)
    (1500, 60000, 20)
    """
    if isinstance(duration, int) and not isinstance(duration, bool):
        value = duration
    elif isinstance(duration, timedelta):
        value = duration // _MILLISECOND
    elif isinstance(duration, str):
        value = nanoseconds(duration) // 1_000_000
    else:
        msg = (
            f"{duration!r} is no duration; expected a number of milliseconds, a "
            "timedelta, or text such as '10s'"
        )
        raise UsageError(msg)
    if value < least:
        msg = f"the duration {duration!r} is {value} ms, expected at least {least} ms"
        raise UsageError(msg)
    if value > _DURATION_LIMIT:
        msg = f"the duration {duration!r} is {value} ms, expected at most 2**60 ms"
        raise UsageError(msg)
    return value


def out_of_time(value: int) -> str:
    """Return why a number is no timestamp."""
    return (
        f"{value} is no timestamp; expected milliseconds since 1970 between -2**61 and "
        "2**61; give rows that are never due a time of their own, or filter them"
    )


def timestamp(value: object) -> int:
    """Return a timestamp as milliseconds since 1970.

    Examples
    --------
    >>> timestamp(datetime(1970, 1, 1, 0, 0, 1)), timestamp(-5)
    (1000, -5)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not -TIME_LIMIT <= value <= TIME_LIMIT:
            raise ValueError(out_of_time(value))
        return value
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND
    msg = (
        f"{value!r} is no timestamp; expected an int of milliseconds since 1970 or a "
        "datetime"
    )
    raise TypeError(msg)
