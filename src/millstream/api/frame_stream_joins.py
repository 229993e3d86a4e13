"""Verbs that join two frames of which neither has to be small, with or without time.

The words are those of keyed streams; both frames are spread by their key columns.  How
rows are kept and matched is in `operators.joins.frame_base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.api.building import located
from millstream.api.event_time import checked_timed
from millstream.api.frame_joining import stream_join_columns
from millstream.api.frame_names import check_names
from millstream.api.graph import WrappedFrame, input_of
from millstream.api.join_specs import (
    asof_spec,
    interval_spec,
    regular_spec,
    window_spec,
)
from millstream.plan.frame_joins import JoinFrameStreams
from millstream.plan.grouping import Columns
from millstream.plan.joins import How, Join, JoinWindow
from millstream.plan.nodes import Regroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.api.frame import Frame
    from millstream.api.frame_joined import JoinedFrame
    from millstream.plan.joins import JoinAsof, JoinInterval
    from millstream.plan.logical import Node
    from millstream.plan.time import Duration
    from millstream.plan.windows import TimeWindows

    JoinedBy = Join | JoinWindow | JoinInterval | JoinAsof

__all__ = ["FrameStreamJoinVerbs"]

AnyHow = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the user said about columns; `keys` are on, left_on, right_on."""

    keys: tuple[Any, Any, Any]
    suffix: str
    nulls_equal: bool


class FrameStreamJoinVerbs(WrappedFrame):
    """Joins of a frame with another one, both spread by key columns."""

    def keyed_join(
        self,
        right: Frame,
        on: str | Sequence[str] | None = None,
        *,
        how: AnyHow = "inner",
        ttl: Duration | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> JoinedFrame:
        """Pair every row with every row of `right` that has the same keys.

        Both sides may be large, and may come at any time: a pair comes with the second
        of its rows.  A row without a partner comes at the end of the input, or when it has
        waited for `ttl` by the clock.  The keys come once, under the names of the left
        side.  Inner joins of timed frames are timed.

        moves data: both sides · state: all rows of both sides, or those of the last `ttl`

        Warns
        -----
        UnboundedStateWarning
            If an input may never end and there is no `ttl`.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("keyed_join")
        >>> ages = flow.from_frame(pl.DataFrame({"id": [1, 2], "age": [31, 5]}))
        >>> towns = flow.from_frame(
        ...     pl.DataFrame({"id": [1, 3], "town": ["Ulm", "Bonn"]})
        ... )
        >>> people = ages.keyed_join(towns, "id", how="full").collect()
        >>> _ = flow.run(on="local")
        >>> people.result().sort("id").rows()
        [(1, 31, 'Ulm'), (2, 5, None), (3, None, 'Bonn')]
        """
        asked = _Asked((on, left_on, right_on), suffix, nulls_equal)
        nodes = self._node.id, getattr(right, "_node", self._node).id
        with located("keyed_join"):
            by = regular_spec("keyed_join", self._graph, nodes, how, ttl)
        return self._stream_joined("keyed_join", right, by, asked, name)

    def window_join(
        self,
        right: Frame,
        window: TimeWindows,
        *,
        on: str | Sequence[str] | None = None,
        how: AnyHow = "inner",
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> JoinedFrame:
        """Pair rows of both sides that have the same keys and are in the same window.

        Results come when a window is over, and have its last time, unless windows are by
        the clock: these give no times.  In sliding windows the same pair comes once for
        every window that both are in.

        moves data: both sides · state: the rows of windows that are not over

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("window_join")
        >>> views = pl.DataFrame({"user": ["ann", "ann"], "seen": [1, 12]})
        >>> clicks = pl.DataFrame({"user": ["ann", "ann"], "clicked": [3, 4]})
        >>> left = flow.from_frame(views).event_time("seen")
        >>> right = flow.from_frame(clicks).event_time("clicked")
        >>> minutes = ms.windows.tumbling(10)
        >>> pairs = left.window_join(right, minutes, on="user").collect()
        >>> _ = flow.run(on="local")
        >>> sorted(pairs.result().rows())
        [('ann', 1, 3), ('ann', 1, 4)]
        """
        with located("window_join"):
            by = window_spec(how, window)
        asked = _Asked((on, left_on, right_on), suffix, nulls_equal)
        return self._stream_joined("window_join", right, by, asked, name)

    def interval_join(
        self,
        right: Frame,
        lower: Duration,
        upper: Duration,
        *,
        on: str | Sequence[str] | None = None,
        how: AnyHow = "inner",
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> JoinedFrame:
        """Pair rows with those of `right` of the same keys that are `lower` to `upper` later.

        Both bounds are included; a negative one is earlier.  A pair comes as soon as both
        rows are there, and has the larger timestamp.  A row without a partner comes, and
        is timed, when none can come any more.

        moves data: both sides · state: the rows that may still find a partner

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("interval_join")
        >>> orders = pl.DataFrame({"id": ["A", "B"], "ordered": [10, 20]})
        >>> payments = pl.DataFrame({"id": ["A", "B"], "paid": [15, 90]})
        >>> left = flow.from_frame(orders).event_time("ordered")
        >>> right = flow.from_frame(payments).event_time("paid")
        >>> in_time = left.interval_join(right, 0, 30, on="id", how="left").collect()
        >>> _ = flow.run(on="local")
        >>> sorted(in_time.result().rows())
        [('A', 10, 15), ('B', 20, None)]
        """
        with located("interval_join"):
            by = interval_spec(how, lower, upper)
        asked = _Asked((on, left_on, right_on), suffix, nulls_equal)
        return self._stream_joined("interval_join", right, by, asked, name)

    def asof_join(
        self,
        right: Frame,
        *,
        on: str | Sequence[str] | None = None,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        tolerance: Duration | None = None,
        how: Literal["inner", "left"] = "inner",
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> JoinedFrame:
        """Pair every row with the one of `right` of the same keys that is nearest in time.

        A result comes, and is timed, when no nearer one can come.

        moves data: both sides · state: left rows that wait, right rows that may be needed

        Parameters
        ----------
        direction
            ``"backward"`` for the last one that is not later, ``"forward"`` for the first
            one that is not earlier, ``"nearest"`` for the nearer one of these.  Of rows
            with the same timestamp the largest counts, column by column.
        tolerance
            How far away it may be.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("asof_join")
        >>> trades = pl.DataFrame({"stock": ["A", "A"], "at": [10, 20]})
        >>> quotes = pl.DataFrame({"stock": ["A", "A"], "of": [8, 13], "price": [5, 6]})
        >>> left = flow.from_frame(trades).event_time("at")
        >>> right = flow.from_frame(quotes).event_time("of")
        >>> priced = left.asof_join(right, on="stock").collect()
        >>> _ = flow.run(on="local")
        >>> sorted(priced.result().rows())
        [('A', 10, 8, 5), ('A', 20, 13, 6)]
        """
        with located("asof_join"):
            by = asof_spec(how, direction, tolerance)
        asked = _Asked((on, left_on, right_on), suffix, nulls_equal)
        return self._stream_joined("asof_join", right, by, asked, name)

    def _stream_joined(
        self, verb: str, right: Any, by: JoinedBy, asked: _Asked, name: str | None
    ) -> JoinedFrame:
        """Spread both sides by key, and join them."""
        graph = self._graph
        with located(verb):
            columns, schema = stream_join_columns(
                self.schema,
                right,
                asked.keys,
                how=by.how,
                suffix=asked.suffix,
                nulls_equal=asked.nulls_equal,
            )
            check_names([*self.schema, *right.schema])
        sides = self._node, graph.plan.nodes[input_of(verb, graph, right)]
        if _is_in_time(by):
            with located(verb):
                for side in sides:
                    checked_timed(side)
        is_timed = _makes_times(sides, by)
        base = name or graph.plan.free_name(verb)
        spread = []
        for side, names, word in zip(
            sides, (columns.left_on, columns.right_on), ("left", "right"), strict=True
        ):
            source = side.id if is_timed else graph.untimed(side.id)
            node = graph.add(
                verb,
                Regroup(),
                (source,),
                name=f"{base}.{word}",
                makes_frames=True,
                regroups=Columns(names),
            )
            spread.append(node.id)
        node = graph.add(
            verb,
            JoinFrameStreams(by, columns, self.schema),
            tuple(spread),
            name=base,
            makes_frames=True,
            takes_times=is_timed,
            makes_times=is_timed,
        )
        return graph.joined_frame(node, schema, (self.schema, right.schema))


def _makes_times(sides: tuple[Node, Node], by: JoinedBy) -> bool:
    """Whether results have a time: not if nobody knows when a row turns out to be alone."""
    is_in_time = _is_in_time(by) or (isinstance(by, Join) and by.how is How.INNER)
    return all(side.makes_times for side in sides) and is_in_time


def _is_in_time(by: JoinedBy) -> bool:
    """Whether a join goes by event time."""
    is_by_clock = isinstance(by, JoinWindow) and not by.is_event_time
    return not isinstance(by, Join) and not is_by_clock
