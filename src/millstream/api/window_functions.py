"""Functions that make windows, which users know as `millstream.windows`.

They check what they are given and describe a window.  They do not know streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.api.building import (
    checked_count,
    checked_function,
    located,
    user_location,
)
from millstream.errors import UsageError
from millstream.plan.time import milliseconds
from millstream.plan.windows import (
    CountWindows,
    GlobalWindow,
    SessionWindows,
    Time,
    TimeWindows,
    Trigger,
)

if TYPE_CHECKING:
    from millstream.plan.time import Duration

__all__ = ["count", "global_window", "session", "sliding", "tumbling"]


def count(size: int, slide: int | None = None, *, exact: bool = True) -> CountWindows:
    """Windows of `size` elements, one every `slide` elements.

    Parameters
    ----------
    slide
        By default `size`, so that every element is in one window.  If it is larger,
        elements between two windows are left out.
    exact
        Whether windows that are not full at the end of the input are left out.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("count")
    >>> numbers = flow.from_iterable(range(6))
    >>> sums = numbers.window(ms.windows.count(4, 2)).sum().collect()
    >>> _ = flow.run(on="local")
    >>> sums.result()
    [6, 14]
    """
    size = checked_count("windows.count", "size", size)
    if slide is not None:
        checked_count("windows.count", "slide", slide)
    return CountWindows(size, slide or size, exact)


def tumbling(
    size: Duration, *, offset: Duration = 0, time: Time = "event"
) -> TimeWindows:
    """Windows of the duration `size`, one after the other.

    Parameters
    ----------
    offset
        A window begins that long after 1970, and so on in steps of `size`.
    time
        ``"event"`` for the timestamps of the rows, ``"processing"`` for the clock.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("tumbling")
    >>> rows = flow.from_iterable([(0, "a"), (9, "b"), (10, "c")])
    >>> timed = rows.event_time(lambda row: row[0])
    >>> counts = timed.window(ms.windows.tumbling(10)).count().collect()
    >>> _ = flow.run(on="local")
    >>> counts.result()
    [2, 1]
    """
    with located("windows.tumbling"):
        return _windows(size, size, offset, time)


def sliding(
    size: Duration, slide: Duration, *, offset: Duration = 0, time: Time = "event"
) -> TimeWindows:
    """Windows of the duration `size`, one every `slide`; see `tumbling`.

    If `slide` is larger than `size`, rows between two windows are left out.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("sliding")
    >>> rows = flow.from_iterable([(0, "a"), (9, "b"), (10, "c")])
    >>> timed = rows.event_time(lambda row: row[0])
    >>> lists = timed.window(ms.windows.sliding(10, 5)).collect().collect()
    >>> _ = flow.run(on="local")
    >>> [[name for _, name in rows] for rows in lists.result()]
    [['a'], ['a', 'b'], ['b', 'c'], ['c']]
    """
    with located("windows.sliding"):
        return _windows(size, slide, offset, time)


def session(gap: Duration, *, time: Time = "event") -> SessionWindows:
    """Windows that end when nothing has come for `gap`.

    A window goes from its first row to `gap` after its last one.

    Examples
    --------
    >>> import millstream as ms
    >>> flow = ms.Flow("session")
    >>> clicks = flow.from_iterable([0, 4, 30]).event_time(lambda click: click)
    >>> visits = clicks.window(ms.windows.session(10)).collect().collect()
    >>> _ = flow.run(on="local")
    >>> visits.result()
    [[0, 4], [30]]
    """
    with located("windows.session"):
        return SessionWindows(milliseconds(gap, least=1), _time(time))


def global_window(trigger: Trigger, *, time: Time | None = None) -> GlobalWindow:
    """One window with all rows of a key; the trigger says when it gives a result.

    Parameters
    ----------
    time
        By which clock the trigger is called; by default event time if the stream has
        it, otherwise the wall clock.

    Examples
    --------
    >>> import millstream as ms
    >>> class UpTo(ms.windows.Trigger):
    ...     def on_row(self, value, context):
    ...         fire = ms.windows.Action.FIRE | ms.windows.Action.PURGE
    ...         return fire if value == "." else ms.windows.Action.CONTINUE
    >>> flow = ms.Flow("sentences")
    >>> sentences = flow.from_iterable("ab.c.").window(ms.windows.global_window(UpTo()))
    >>> texts = sentences.reduce(lambda x, y: x + y).collect()
    >>> _ = flow.run(on="local")
    >>> texts.result()
    ['ab.', 'c.']
    """
    given: object = trigger
    if not isinstance(given, Trigger):
        advice = (
            f"; write {given.__name__}(...)"
            if isinstance(given, type) and issubclass(given, Trigger)
            else ""
        )
        msg = (
            f"`windows.global_window` at {user_location()} takes an instance of Trigger, "
            f"got {given!r}{advice}"
        )
        raise UsageError(msg)
    checked_function("windows.global_window", trigger.on_row)
    with located("windows.global_window"):
        return GlobalWindow(trigger, None if time is None else _time(time))


def _windows(
    size: Duration, slide: Duration, offset: Duration, time: Time
) -> TimeWindows:
    size_ms, slide_ms = milliseconds(size, least=1), milliseconds(slide, least=1)
    first_ms = milliseconds(offset, least=-(2**63)) % slide_ms
    return TimeWindows(size_ms, slide_ms, first_ms, _time(time))


def _time(time: object) -> Time:
    if time == "event":
        return "event"
    if time == "processing":
        return "processing"
    msg = f"expected 'event' or 'processing' as time, got {time!r}"
    raise UsageError(msg)
