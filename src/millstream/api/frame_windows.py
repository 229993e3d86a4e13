"""Event time and windows of frames; the words are those of streams.

A frame with event time carries it in columns that its schema does not show
(`millstream.plan.frame_windows`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import checked_function, located, user_location
from millstream.api.event_time import MAX_FUTURE_SKEW, checked_out_of_order
from millstream.api.frame_aggregates import built
from millstream.api.frame_keys import GroupKeys, group_keys
from millstream.api.frame_names import check_names, checked_columns
from millstream.api.frame_times import time_of, watermarks_of
from millstream.api.graph import WrappedFrame
from millstream.api.window_verbs import checked_window
from millstream.columns.table import FrameAggregation
from millstream.errors import UsageError
from millstream.operators.windows.frame_time_partials import rows_part
from millstream.plan import frame_windows as specs
from millstream.plan.frame_windows import WHOLE, WINDOW_END, WINDOW_START
from millstream.plan.frames import Transform
from millstream.plan.grouping import Columns
from millstream.plan.nodes import Regroup
from millstream.plan.time import LateRows, milliseconds
from millstream.plan.windows import CountWindows, GlobalWindow, Panes, SessionWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polars._typing import IntoExpr

    from millstream.api.frame import Frame, WindowFrame
    from millstream.api.frame_aggregates import FrameAggregate
    from millstream.api.graph import Graph
    from millstream.plan.logical import Node
    from millstream.plan.time import Duration
    from millstream.plan.windows import AnyWindow, Window

    FrameWindows = (
        specs.TimeWindowFrame
        | specs.SessionFrame
        | specs.CountFrame
        | specs.TriggerFrame
    )

    WatermarkMaker = Callable[[], Callable[[dict[str, Any], int], int | None]]
    """Called once per split; what it returns is called for every row."""

__all__ = ["FrameTimeVerbs", "WindowedFrame", "late_frame"]


class FrameTimeVerbs(WrappedFrame):
    """Event time and windows over all rows of a `Frame`."""

    def event_time(
        self,
        timestamp: str | pl.Expr,
        *,
        out_of_order: Duration = 0,
        idle_after: Duration | None = None,
        max_future_skew: Duration | None = MAX_FUTURE_SKEW,
        splits_in_order: bool = False,
        watermark: str | pl.Expr | WatermarkMaker | None = None,
        name: str | None = None,
    ) -> Frame:
        """Give every row a timestamp: a column, or what an expression makes of a row.

        It is a number of milliseconds since 1970 (`Int64`), or a `Datetime`, of which
        what is below a millisecond is cut off.  Rows of one split may be up to `out_of_order`
        older than rows before them; what is older than that is late.  Call it right
        behind the source, where splits can be told apart.

        moves data: no · state: a number per split · waits for the end: no

        Parameters
        ----------
        timestamp
            The timestamp of a row; a row without one fails the job.
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
            Instead of `out_of_order`: a column or an expression that says of every row up to
            which timestamp nothing more comes in its split, or null for nothing new.  Or,
            as for streams, a function that is called once per split and returns such a
            function of a row, which is a dict, and its timestamp.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("event_time")
        >>> clicks = pl.DataFrame({"user": ["a", "b", "a"], "at": [1, 12, 5]})
        >>> timed = flow.from_frame(clicks).event_time("at", out_of_order=10)
        >>> windows = timed.group_by("user").window(ms.windows.tumbling(10))
        >>> counts = windows.agg(n=pl.len()).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(counts.result().rows())
        [('a', 0, 10, 2), ('b', 10, 20, 1)]
        """
        with located("event_time"):
            check_names(self.schema)
            time, kind = time_of(timestamp, self.schema)
            spec = specs.AssignFrameTime(
                time,
                checked_out_of_order(out_of_order, watermark),
                None if idle_after is None else milliseconds(idle_after, least=1),
                None if max_future_skew is None else milliseconds(max_future_skew),
                kind,
                splits_in_order,
                watermarks_of(watermark, self.schema),
            )
        times = {"takes_times": False, "makes_times": True, "makes_frames": True}
        source = self._graph.untimed(self._node.id)
        node = self._graph.add("event_time", spec, (source,), name=name, **times)
        return self._graph.frame(node, self.schema)

    def window(
        self,
        window: AnyWindow,
        *,
        allowed_lateness: Duration = 0,
        name: str | None = None,
    ) -> WindowedFrame:
        """Cut the whole frame into windows, in one task; see `GroupedFrame.window`.

        moves data: yes, or only partial aggregates · state: none · waits: for the window

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("window")
        >>> timed = flow.from_frame(pl.DataFrame({"at": [1, 2, 12]})).event_time("at")
        >>> windows = timed.window(ms.windows.tumbling(10))
        >>> counts = windows.agg(n=pl.len()).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(counts.result().rows())
        [(0, 10, 2), (10, 20, 1)]
        """
        graph = self._graph
        checked_window(graph, self._node, window, allowed_lateness, keys=False)
        with located("window"):
            check_names(self.schema)
            keys = group_keys(self.schema, (), {WHOLE: pl.lit(0, pl.Int8)})
        base, free_name = name or "window", graph.plan.free_name
        query = Transform(lambda frame: frame.with_columns(**keys.computed))
        made = graph.add(
            "window",
            query,
            (self._node.id,),
            name=free_name(f"{base}.whole"),
            makes_frames=True,
        )
        regrouped = graph.add(
            "window",
            Regroup(),
            (made.id,),
            name=free_name(f"{base}.together"),
            makes_frames=True,
            regroups=Columns(keys.columns),
        )
        return WindowedFrame(
            graph,
            regrouped,
            self.schema,
            keys,
            window=window,
            allowed_lateness=allowed_lateness,
        )


class WindowedFrame:
    """A frame cut into windows; `agg` makes a row of each, `map_window` any rows."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        schema: pl.Schema,
        keys: GroupKeys,
        *,
        window: AnyWindow,
        allowed_lateness: Duration,
    ) -> None:
        self._graph = graph
        self._node = node
        self._schema = schema
        self._keys = keys
        with located("window"):
            check_names(schema)
        self._given = checked_window(graph, node, window, allowed_lateness, keys=True)
        self._window = self._given.window

    def agg(
        self,
        *exprs: IntoExpr | FrameAggregate | Iterable[IntoExpr | FrameAggregate],
        name: str | None = None,
        **named: IntoExpr | FrameAggregate,
    ) -> WindowFrame:
        """Make one row of each window that has rows; takes what `GroupedFrame.agg` takes.

        Before the aggregates stand the keys and, for windows of time, `window_start` and
        `window_end`, which is outside: milliseconds since 1970, or ``Datetime("ms")``
        where the timestamps are times.  In event time the timestamp of a row is the last
        millisecond of its window; other rows have none.

        moves data: yes, parts of panes · state: panes · waits for the end: of the window

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("agg")
        >>> sales = pl.DataFrame({"shop": ["a", "a", "a"], "net": [1, 2, 4]})
        >>> pairs = (
        ...     flow.from_frame(sales).group_by("shop").window(ms.windows.count(2, 1))
        ... )
        >>> sums = pairs.agg(pl.col("net").sum()).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(sums.result().rows())
        [('a', 3), ('a', 6)]
        """
        aggregation, schema = built(
            self._schema, self._keys, exprs, named, in_time=self._is_in_time
        )
        spec = self._spec(aggregation)
        if isinstance(spec, specs.TimeWindowFrame | specs.SessionFrame):
            schema = self._with_bounds(schema, spec.kind)
        name = name or self._graph.plan.free_name("agg")
        node, late = self._added("agg", spec, name)
        shown = {column: kind for column, kind in schema.items() if column != WHOLE}
        return self._window_frame(node, pl.Schema(shown), late)

    def map_window(
        self,
        function: Callable[[Window, pl.DataFrame], pl.DataFrame],
        *,
        schema: Any,
        name: str | None = None,
    ) -> WindowFrame:
        """Call a function with every window that has rows, and its rows.

        They have all columns of the frame, and keys that were computed under names of
        their own.  In event time they are in the order of their timestamps, elsewhere as
        they come.  Bounds are those of `millstream.windows.Window`: milliseconds since
        1970, whatever type the timestamps have; of a count window, numbers of rows.

        The result has the columns of what the function returns, which may have any
        number of rows.  In event time their timestamp is the last millisecond of the
        window; elsewhere they have none.

        moves data: yes · state: all rows of windows that are not over · waits: for them

        Parameters
        ----------
        schema
            Names and types of the columns that the function returns.

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("map_window")
        >>> clicks = pl.DataFrame({"page": ["a", "b", "a"], "at": [1, 12, 5]})
        >>> timed = flow.from_frame(clicks).event_time("at", out_of_order=10)
        >>> def path(window: ms.windows.Window, rows: pl.DataFrame) -> pl.DataFrame:
        ...     return pl.DataFrame(
        ...         {"from": [window.start], "pages": ["".join(rows["page"])]}
        ...     )
        >>> schema = {"from": pl.Int64, "pages": pl.String}
        >>> windows = timed.window(ms.windows.sliding(20, 10))
        >>> paths = windows.map_window(path, schema=schema).collect()
        >>> _ = flow.run(on="local")
        >>> sorted(paths.result().rows())
        [(-10, 'aa'), (0, 'aab'), (10, 'b')]
        """
        checked_function("map_window", function)
        with located("map_window"):
            after = _result_schema(schema)
        graph, names = self._graph, tuple(n for n in self._keys.names if n != WHOLE)
        name = name or graph.plan.free_name("map_window")
        rows, start, end = self._free_names("rows", WINDOW_START, WINDOW_END)
        windows = self._spec(self._rows_kept(rows))
        bounds = None
        if not isinstance(windows, specs.TriggerFrame):
            bounds = start, end
            windows = replace(windows, bounds=bounds)
        if isinstance(windows, specs.TimeWindowFrame):
            windows = replace(windows, keeps_rows=True)
        made, late = self._added("map_window", windows, f"{name}.rows")
        node = graph.add(
            "map_window",
            specs.MapWindow(function, after, rows, names, bounds),
            (made.id,),
            name=name,
            makes_frames=True,
            takes_times=self._is_in_time,
            makes_times=self._is_in_time,
        )
        return self._window_frame(node, after, late)

    def _rows_kept(self, name: str) -> FrameAggregation:
        """Return the aggregation that keeps all rows, as lists in one column."""
        keys = self._keys
        columns = {column: pl.col(column) for column in self._schema}
        for column, known in keys.renamed.items():
            if known != WHOLE:
                columns.setdefault(known, pl.col(column))
        part = rows_part(columns, name, in_time=self._is_in_time)
        kept = tuple(f"{column}: {kind}" for column, kind in self._schema.items())
        return FrameAggregation(
            keys.columns, (part,), (), (pl.col(name),), keys.described, kept
        )

    def _free_names(self, *names: str) -> list[str]:
        """Return names that no key has, as much like these as can be."""
        taken = {*self._keys.names, *self._keys.columns}
        free = []
        for name in names:
            found = name
            while found in taken:
                found += "_"
            free.append(found)
        return free

    @property
    def _is_in_time(self) -> bool:
        """Whether the windows are of event time, and results have timestamps."""
        return self._given.is_timed and not self._given.waits_for_order

    def _added(self, verb: str, spec: FrameWindows, name: str) -> tuple[Node, Node]:
        """Append a window, and what it needs before and behind it.

        Returned are the node that has its rows, and that for which rows may be late.
        """
        graph, keys, given = self._graph, self._keys, self._given
        source = self._in_order(verb, name)
        made = graph.add(
            verb,
            spec,
            (source.id if given.is_timed else graph.untimed(source.id),),
            name=name,
            makes_frames=True,
            takes_times=given.is_timed,
            makes_times=self._is_in_time,
        )
        late = source if given.waits_for_order else made
        if not keys.renamed:
            return made, late
        renamed = graph.add(
            verb,
            Transform(_renaming(keys)),
            (made.id,),
            name=f"{made.name}.keys",
            makes_frames=True,
        )
        return renamed, late

    def _in_order(self, verb: str, name: str) -> Node:
        """Return the node whose rows windows get; they may have to wait for order."""
        if not self._given.waits_for_order:
            return self._node
        return self._graph.add(
            verb,
            specs.OrderFrame(self._keys.columns, tuple(self._schema), self._schema),
            (self._node.id,),
            name=f"{name}.order",
            makes_frames=True,
            takes_times=True,
            makes_times=True,
        )

    def _spec(self, aggregation: FrameAggregation) -> FrameWindows:
        window, columns = self._window, tuple(self._schema)
        if isinstance(window, CountWindows):
            panes = Panes(window.size, window.slide)
            is_counted = _is_count(aggregation)
            return specs.CountFrame(
                aggregation, panes, window.drops_incomplete, is_counted, window
            )
        is_timed = self._given.is_timed
        if isinstance(window, GlobalWindow):
            has_keys = self._keys.names != (WHOLE,)
            return specs.TriggerFrame(aggregation, window, columns, is_timed, has_keys)
        kind = _kind_of_times(self._graph, self._node) if is_timed else None
        late = columns, self._given.lateness_ms, kind, window, not is_timed
        if isinstance(window, SessionWindows):
            return specs.SessionFrame(aggregation, window.gap_ms, *late)
        panes = Panes(window.size_ms, window.slide_ms, window.offset_ms)
        return specs.TimeWindowFrame(aggregation, panes, *late)

    def _with_bounds(self, schema: pl.Schema, kind: Any) -> pl.Schema:
        """Return the schema of the result, with the bounds of windows after the keys."""
        bounds = (WINDOW_START, WINDOW_END)
        with located("agg"):
            _check_free(schema, bounds)
        names = self._keys.names
        known = {name: schema[name] for name in names}
        rest = {name: t for name, t in schema.items() if name not in names}
        between = dict.fromkeys(bounds, pl.Int64() if kind is None else kind)
        return pl.Schema(known | between | rest)

    def _window_frame(self, node: Node, schema: pl.Schema, late: Node) -> WindowFrame:
        """Return a frame that also knows for which node rows may have come too late."""
        return self._graph.window_frame(node, schema, late, self._schema)

    def __repr__(self) -> str:
        return f"<WindowedFrame by {self._window} at {self._node.location}>"


def late_frame(graph: Graph, made: Node, schema: pl.Schema, name: str | None) -> Frame:
    """Return the rows that came too late for a node."""
    if not made.takes_times:
        msg = (
            f"`late` at {user_location()}: only windows of event time have late rows, and "
            "those by count or with a trigger if the frame has event time"
        )
        raise UsageError(msg)
    node = graph.add(
        "late",
        LateRows(made.id),
        (made.id,),
        name=name,
        makes_frames=True,
        takes_times=False,
    )
    return graph.frame(node, schema)


def _renaming(keys: GroupKeys) -> Any:
    """Return the query that gives computed keys their names, and hides that of all."""
    renamed = {old: new for old, new in keys.renamed.items() if old != new}
    if keys.names == (WHOLE,):
        return lambda frame: frame.drop(*keys.columns)
    return lambda frame: frame.rename(renamed)


def _is_count(aggregation: FrameAggregation) -> bool:
    """Whether nothing is kept but how many rows there are."""
    count = pl.repeat(1, pl.len(), dtype=pl.Int64)
    folds = [part.fold for part in aggregation.columns]
    if aggregation.longs or not folds:
        return False
    return all(
        fold is not None
        and fold.how == "add"
        and len(fold.terms) == 1
        and fold.terms[0].meta.undo_aliases().meta.eq(count)
        for fold in folds
    )


def _result_schema(schema: Any) -> pl.Schema:
    """Return the columns that a function says it makes."""
    known = checked_columns(schema)
    check_names(known)
    return known


def _kind_of_times(graph: Graph, node: Node) -> Any:
    """Return the type of time that the timestamps of a node's rows were made of."""
    known = specs.AssignFrameTime | specs.TimeWindowFrame | specs.SessionFrame
    while not isinstance(node.spec, known):
        if not node.inputs or not node.makes_times:
            return None
        node = graph.plan.nodes[node.inputs[0]]
    return node.spec.kind


def _check_free(schema: pl.Schema, names: Iterable[str]) -> None:
    for name in names:
        if name in schema:
            msg = f"there is a column {name!r} already; rename it"
            raise UsageError(msg)
