"""What a join of two frames makes; it also knows the rows that came too late for it.

In a module of its own because `Frame` has the verbs that make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from millstream.api.building import located
from millstream.api.frame import Frame
from millstream.errors import UsageError
from millstream.plan.frame_joins import LATE_SIDE, JoinFrameStreams, late_name
from millstream.plan.frames import Transform
from millstream.plan.joins import Join
from millstream.plan.time import LateRows

if TYPE_CHECKING:
    from millstream.api.graph import Graph
    from millstream.plan.logical import Node

__all__ = ["JoinedFrame"]

_SIDES = ("left", "right")


class JoinedFrame(Frame):
    """Rows of two frames that were joined by key."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        schema: pl.Schema,
        given: tuple[pl.Schema, pl.Schema],
    ) -> None:
        super().__init__(graph, node, schema)
        self._given = given

    def late(
        self, side: Literal["left", "right"] = "left", *, name: str | None = None
    ) -> Frame:
        """Return the rows of a side that came when their partners were gone.

        They have the columns of the frame that was joined.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("late")
        >>> orders = pl.DataFrame({"id": ["A", "B", "C"], "ordered": [10, 90, 20]})
        >>> payments = pl.DataFrame({"id": ["A"], "paid": [15]})
        >>> left = flow.from_frame(orders).event_time("ordered")
        >>> right = flow.from_frame(payments).event_time("paid")
        >>> paid = left.interval_join(right, 0, 30, on="id")
        >>> in_time, late = paid.collect(), paid.late().collect()
        >>> _ = flow.run(on="local")
        >>> in_time.result().rows(), late.result().rows()
        ([('A', 10, 15)], [('C', 20)])
        """
        graph, made, spec = self._graph, self._node, self._node.spec
        with located("late"):
            if side not in _SIDES:
                msg = f"it takes 'left' or 'right', got {side!r}"
                raise UsageError(msg)
            if isinstance(spec, JoinFrameStreams) and isinstance(spec.by, Join):
                msg = (
                    f"it follows `{made.verb}` at {made.location}, for which no row is "
                    "ever too late; call it on the result of a join in event time"
                )
                raise UsageError(msg)
        place = _SIDES.index(side)
        schema = self._given[place]
        both = graph.add(
            "late",
            LateRows(made.id),
            (made.id,),
            name=f"{name or graph.plan.free_name('late')}.both",
            makes_frames=True,
            takes_times=False,
        )

        def of_side(frame: pl.LazyFrame) -> pl.LazyFrame:
            columns = [pl.col(late_name(place, n)).alias(n) for n in schema]
            return frame.filter(pl.col(LATE_SIDE) == place).select(columns)

        node = graph.add(
            "late", Transform(of_side), (both.id,), name=name, makes_frames=True
        )
        return Frame(graph, node, schema)
