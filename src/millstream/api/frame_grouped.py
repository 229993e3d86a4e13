"""Frames whose rows wait for an aggregation by key: `GroupedFrame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.frame_aggregates import FrameAggregate, built
from millstream.api.frame_windows import WindowedFrame
from millstream.plan.frames import AggregateFrame, Transform

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl
    from polars._typing import IntoExpr

    from millstream.api.frame import Frame
    from millstream.api.frame_keys import GroupKeys
    from millstream.api.graph import Graph
    from millstream.plan.logical import Node
    from millstream.plan.time import Duration
    from millstream.plan.windows import AnyWindow

__all__ = ["GroupedFrame"]


class GroupedFrame:
    """A frame whose rows with equal keys are together; `agg` makes a row of each key."""

    def __init__(
        self, graph: Graph, node: Node, schema: pl.Schema, keys: GroupKeys
    ) -> None:
        self._graph = graph
        self._node = node
        self._schema = schema
        self._keys = keys

    def agg(
        self,
        *exprs: IntoExpr | FrameAggregate | Iterable[IntoExpr | FrameAggregate],
        name: str | None = None,
        **named: IntoExpr | FrameAggregate,
    ) -> Frame:
        """Make one row of the rows of each key; as `polars.LazyFrame.group_by().agg`.

        Takes sum, count, len, min, max, mean, var, std, first, last, any, all, product,
        n_unique, approx_n_unique, top_k, bottom_k and implode of anything row-wise, and
        what is computed from those row by row; besides `approx_quantile` and
        `frame_aggregate`.

        moves data: yes, parts of keys · state: a row per key · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("totals")
        >>> sales = pl.DataFrame({"shop": ["a", "b", "a"], "price": [1, 5, 3]})
        >>> by_shop = flow.from_frame(sales).group_by("shop")
        >>> totals = by_shop.agg(pl.len(), mean=pl.col("price").mean()).collect()
        >>> _ = flow.run(on="local")
        >>> totals.result().sort("shop").rows()
        [('a', 2, 2.0), ('b', 1, 5.0)]
        """
        aggregation, schema = built(self._schema, self._keys, exprs, named)
        node = self._graph.add(
            "agg",
            AggregateFrame(aggregation),
            (self._node.id,),
            name=name,
            makes_frames=True,
        )
        renamed = self._keys.renamed
        if renamed:
            node = self._graph.add(
                "agg",
                Transform(lambda frame: frame.rename(renamed)),
                (node.id,),
                name=f"{node.name}.keys",
                makes_frames=True,
            )
        return self._graph.frame(node, schema)

    def window(
        self,
        window: AnyWindow,
        *,
        allowed_lateness: Duration = 0,
    ) -> WindowedFrame:
        """Cut the rows of every key into windows; `agg` makes a row of each.

        Windows are made with `millstream.windows`: by time, in `event_time` or by the
        clock; by count; or all rows, with a trigger that gets each as a dict.  The last
        two take rows in the order of their timestamps, where the frame has event time,
        else as they come to the task of their key; the order of rows from several tasks
        is not defined.  Rows that come when their windows are over, or out of their
        turn, are in `WindowFrame.late`.

        moves data: yes, or only parts of panes · state: panes · waits: for the window

        Parameters
        ----------
        allowed_lateness
            For so long a window that is over takes rows that come late; its row comes
            again with every change.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("window")
        >>> sales = pl.DataFrame({"shop": ["a", "b", "a"], "at": [1, 3, 11]})
        >>> timed = flow.from_frame(sales).event_time("at")
        >>> windows = timed.group_by("shop").window(ms.windows.sliding(20, 10))
        >>> counts = windows.agg(n=pl.len()).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(counts.result().rows())
        [('a', -10, 10, 1), ('a', 0, 20, 2), ('a', 10, 30, 1), ('b', -10, 10, 1), ('b', 0, 20, 1)]
        """
        return WindowedFrame(
            self._graph,
            self._node,
            self._schema,
            self._keys,
            window=window,
            allowed_lateness=allowed_lateness,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Any:
            """Explain how to write a verb of Polars, pandas or PySpark."""
            refuse_foreign("GroupedFrame", verb)
            msg = f"a GroupedFrame has no verb {verb!r}"
            raise AttributeError(msg)

    def __repr__(self) -> str:
        return (
            f"<GroupedFrame by {', '.join(self._keys.names)} at {self._node.location}>"
        )
