"""Verbs that give time to a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.api.building import checked_callable, checked_function, located
from millstream.api.graph import Wrapped
from millstream.errors import UsageError
from millstream.plan.grouping import ByFunction
from millstream.plan.time import AssignTime, Duration, InTimeOrder, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = [
    "MAX_FUTURE_SKEW",
    "TimeVerbs",
    "by_value",
    "checked_out_of_order",
    "checked_timed",
    "time_spec",
]

T_co = TypeVar("T_co", covariant=True)

MAX_FUTURE_SKEW = "24h"


class TimeVerbs(Wrapped, Generic[T_co]):
    """Event time for rows."""

    def event_time(
        self,
        timestamp: Callable[[T_co], int | datetime],
        *,
        out_of_order: Duration = 0,
        idle_after: Duration | None = None,
        max_future_skew: Duration | None = MAX_FUTURE_SKEW,
        splits_in_order: bool = False,
        watermark: Callable[[], Callable[[T_co, int], int | None]] | None = None,
        name: str | None = None,
    ) -> Stream[T_co]:
        """Give every row a timestamp: milliseconds since 1970, or a `datetime`.

        Rows of one split may be up to `out_of_order` older than rows before them; what is
        older than that is late.  Call it right behind the source, where splits can be
        told apart.

        moves data: no · state: a number per split · waits for the end: no

        Parameters
        ----------
        timestamp
            The timestamp of a row.
        out_of_order
            By how much rows of a split are out of order, at most.
        idle_after
            A split that brings nothing for so long does not hold time back.
        max_future_skew
            A timestamp further ahead of the clock does not move time; None for no bound.
        splits_in_order
            Whether splits follow each other in time, as the parts of one log do; those
            that have not been opened then do not hold time back.
        watermark
            Instead of `out_of_order`: called once per split, returns a function that gets a
            row and its timestamp and returns up to which timestamp nothing more comes,
            or None for nothing new.

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("event_time")
        >>> readings = flow.from_iterable([("a", 3), ("a", 1), ("a", 2)])
        >>> timed = readings.event_time(lambda reading: reading[1], out_of_order=5)
        >>> rows = timed.in_time_order().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [('a', 1), ('a', 2), ('a', 3)]
        """
        checked_function("event_time", timestamp)
        if watermark is not None:
            checked_function("event_time", watermark)
        with located("event_time"):
            spec = time_spec(
                timestamp, out_of_order, idle_after, max_future_skew, watermark
            )
        spec = replace(spec, splits_in_order=splits_in_order)
        return self._timed("event_time", spec, name)

    def drop_time(self, *, name: str | None = None) -> Stream[T_co]:
        """Go on without timestamps.

        Verbs that have no use for a time drop it by themselves; what goes round a loop
        keeps it.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("drop_time")
        >>> timed = flow.from_iterable([2, 3, 1]).event_time(
        ...     lambda i: i, out_of_order=2
        ... )
        >>> rows = timed.drop_time().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [2, 3, 1]
        """
        untimed = self._graph.untimed(self._node.id, name)
        return self._graph.stream(self._graph.plan.nodes[untimed])

    def in_time_order(self, *, name: str | None = None) -> Stream[T_co]:
        """Put all rows into the order of their timestamps.

        A row waits until no earlier one can come; what is late is left out, and counted.

        moves data: all rows, to one task · state: the rows that wait · waits: for time

        Examples
        --------
        >>> import millstream as ms
        >>> flow = ms.Flow("in_time_order")
        >>> timed = flow.from_iterable([2, 3, 1]).event_time(
        ...     lambda i: i, out_of_order=2
        ... )
        >>> rows = timed.in_time_order().collect()
        >>> _ = flow.run(on="local")
        >>> rows.result()
        [1, 2, 3]
        """
        with located("in_time_order"):
            checked_timed(self._node)
        return self._timed("in_time_order", InTimeOrder(), name)

    def _timed(self, verb: str, spec: Any, name: str | None) -> Stream[T_co]:
        source, is_giving = self._node.id, isinstance(spec, AssignTime)
        if is_giving:
            source = self._graph.untimed(source)
        node = self._graph.add(
            verb,
            spec,
            (source,),
            name=name,
            takes_times=not is_giving,
            makes_times=True,
            width=None if is_giving else 1,
        )
        return self._graph.stream(node)


def time_spec(
    function: Callable[[Any], Any],
    out_of_order: Duration,
    idle_after: Duration | None,
    max_future_skew: Duration | None,
    watermark: Callable[[], Callable[[Any, int], int | None]] | None = None,
) -> AssignTime:
    """Return what `event_time` was asked for."""
    if watermark is not None:
        checked_callable("event_time", watermark)
    return AssignTime(
        function,
        checked_out_of_order(out_of_order, watermark),
        None if idle_after is None else milliseconds(idle_after, least=1),
        None if max_future_skew is None else milliseconds(max_future_skew),
        watermark,
    )


def checked_out_of_order(out_of_order: Duration, watermark: object) -> int:
    """Return the out_of_order in milliseconds; refuse it beside a watermark of one's own."""
    if watermark is not None and out_of_order != 0:
        msg = (
            f"out_of_order={out_of_order!r} and a watermark of your own both say how late "
            "rows may be; give one of them"
        )
        raise UsageError(msg)
    return milliseconds(out_of_order)


def checked_timed(node: Node) -> None:
    """Refuse a stream without timestamps."""
    if not node.makes_times:
        msg = (
            f"the rows of `{node.verb}` at {node.location} have no timestamps; call "
            ".event_time(...) first, right behind the source"
        )
        raise UsageError(msg)


def by_value(function: Callable[[Any], Any], node: Node) -> ByFunction:
    """Return a grouping by a function of the value, whether or not rows have times."""
    if not node.makes_times:
        return ByFunction(function)
    return ByFunction(lambda row: function(row[1]))
