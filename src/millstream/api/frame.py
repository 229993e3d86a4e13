"""Frames: columnar streams, whose batches are Polars data frames.

`Frame` is to `Stream` what a DataFrame is to an RDD: the same flow, plan, workers and
protocol, with Polars expressions instead of Python functions.  The schema of every
frame is known while the flow is being built, so a wrong column fails there.

Imported only when a flow uses frames: Polars takes a while to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from millstream.api.building import checked_count, located, user_location
from millstream.api.foreign_verbs import refuse_foreign
from millstream.api.frame_columns import ColumnVerbs
from millstream.api.frame_grouped import GroupedFrame
from millstream.api.frame_io import FrameSinkVerbs
from millstream.api.frame_iteration import FrameRoundVerbs
from millstream.api.frame_joining import join_spec
from millstream.api.frame_keys import group_keys
from millstream.api.frame_names import check_names
from millstream.api.frame_stream_joins import FrameStreamJoinVerbs
from millstream.api.frame_windows import FrameTimeVerbs, late_frame
from millstream.api.graph import input_of
from millstream.api.handles import ResultHandle
from millstream.api.polars_trees import check_polars
from millstream.columns.kernels.columns import KeyColumn
from millstream.errors import UsageError
from millstream.plan import frames as specs
from millstream.plan import nodes
from millstream.plan.grouping import Broadcast, Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars._typing import IntoExpr

    from millstream.api.graph import Graph
    from millstream.api.stream import Stream
    from millstream.plan.logical import Node

__all__ = ["Frame", "WindowFrame"]

_ELSEWHERE = {
    "bottom_k": "use .sort(...).limit(...)",
    "count": "use .group_by(...).agg(pl.len())",
    "describe": "aggregate what you need with .group_by(...).agg(...)",
    "group_by_dynamic": (
        "use .event_time(...).group_by(...).window(windows.tumbling(...)).agg(...)"
    ),
    "interpolate": "use .to_rows().key_by(...).map_with_state(...)",
    "join_asof": "give both event time and use .asof_join(...)",
    "join_where": "use .join(...) on equal columns, and .filter(...) after it",
    "lazy": "it is lazy already",
    "max": "use .group_by(...).agg(pl.all().max())",
    "mean": "use .group_by(...).agg(pl.all().mean())",
    "min": "use .group_by(...).agg(pl.all().min())",
    "pivot": "use .group_by(...).agg(...) with one filtered aggregate for each column",
    "reverse": "use .sort(..., descending=True)",
    "rolling": (
        "use .event_time(...).group_by(...).window(windows.sliding(...)).agg(...)"
    ),
    "sample": "use .filter(pl.col(...).hash() % 10 == 0) for one row of ten",
    "shift": "use .to_rows().key_by(...).map_with_state(...)",
    "slice": "use .limit(...) for the first rows",
    "sum": "use .group_by(...).agg(pl.all().sum())",
    "tail": "use .sort(..., descending=True).limit(...)",
    "top_k": "use .sort(..., descending=True).limit(...)",
    "with_row_count": "use a column that tells rows apart, or .hash() of several",
    "with_row_index": "use a column that tells rows apart, or .hash() of several",
}
"""Verbs of Polars that see all rows at once, or their order, and what to use."""


class Frame(
    ColumnVerbs, FrameSinkVerbs, FrameRoundVerbs, FrameTimeVerbs, FrameStreamJoinVerbs
):
    """A dataset of rows with named, typed columns."""

    def __init__(self, graph: Graph, node: Node, schema: pl.Schema) -> None:
        check_polars()
        super().__init__(graph, node, schema)

    # By key

    def group_by(
        self,
        *keys: str | pl.Expr | Sequence[str | pl.Expr],
        name: str | None = None,
        **named: IntoExpr,
    ) -> GroupedFrame:
        """Bring rows with equal keys together; null is a key.

        A key is a column, or what an expression makes of a row.

        moves data: yes, or only partial aggregates · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("count")
        >>> words = flow.from_frame(pl.DataFrame({"word": ["mill", "stream", "mill"]}))
        >>> counts = words.group_by("word").agg(pl.len()).collect()
        >>> first = pl.col("word").str.head(1).alias("letter")
        >>> letters = words.group_by(first).agg(pl.len()).collect()
        >>> _ = flow.run(on="local")
        >>> counts.result().sort("word").rows()
        [('mill', 2), ('stream', 1)]
        >>> letters.result().sort("letter").rows()
        [('m', 2), ('s', 1)]
        """
        by = group_keys(self.schema, keys, named)
        rows = self._node.id
        if computed := by.computed:
            query = specs.Transform(lambda frame: frame.with_columns(**computed))
            base = name or self._graph.plan.free_name("group_by")
            made = self._graph.add(
                "group_by", query, (rows,), name=f"{base}.keys", makes_frames=True
            )
            rows = made.id
        node = self._graph.add(
            "group_by",
            nodes.Regroup(),
            (rows,),
            name=name,
            makes_frames=True,
            regroups=Columns(by.columns),
        )
        return GroupedFrame(self._graph, node, self.schema, by)

    def unique(
        self, subset: str | Sequence[str] | None = None, *, name: str | None = None
    ) -> Frame:
        """Keep one row, the first to arrive, of those that are equal.

        Equal are rows with the same values in all columns, or in those of `subset`; null
        equals null.  Which of them arrives first, if they came from many tasks, is not
        defined.

        moves data: yes, of every batch one row per key · state: all keys · waits: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("unique")
        >>> words = flow.from_frame(pl.DataFrame({"word": ["mill", "stream", "mill"]}))
        >>> different = words.unique().collect()
        >>> _ = flow.run(on="local", workers=2)
        >>> sorted(different.result()["word"])
        ['mill', 'stream']
        """
        keys = _names(subset) if subset is not None else tuple(self.schema)
        self._check_columns("unique", keys)
        with located("unique"):
            for key in keys:
                KeyColumn.of(key, self.schema[key])
        base = name or self._graph.plan.free_name("unique")
        first = lambda f: f.unique(list(keys), keep="first", maintain_order=True)  # noqa: E731 - a query
        in_batch = self._then(
            "unique",
            specs.Transform(first),
            f"{base}.batch",
            self.schema,
            regroups=Columns(keys),
        )
        spec = specs.UniqueFrame(keys, pl.Schema({k: self.schema[k] for k in keys}))
        return in_batch._then("unique", spec, base, self.schema)  # noqa: SLF001 - same class

    # Crossing over, meeting, ending

    def to_rows(self, *, name: str | None = None) -> Stream[dict[str, Any]]:
        """Go on with rows, which are dicts, and keep their event time.

        moves data: no · state: none · waits for the end: no
        """
        inputs, is_timed = (self._node.id,), self._is_timed
        times = {"takes_times": is_timed, "makes_times": is_timed}
        node = self._graph.add("to_rows", specs.ToRows(), inputs, name=name, **times)
        return self._graph.stream(node)

    def drop_time(self, *, name: str | None = None) -> Frame:
        """Go on without event time; what goes round a loop would keep it.

        moves data: no · state: none · waits for the end: no
        """
        untimed = self._graph.untimed(self._node.id, name)
        return Frame(self._graph, self._graph.plan.nodes[untimed], self.schema)

    def union(self, *others: Frame, name: str | None = None) -> Frame:
        """Put the rows of several frames of the same schema into one.

        moves data: no · state: none · waits for the end: no
        """
        for other in others:
            if other.schema != self.schema:
                msg = (
                    f"`union` at {user_location()} joins frames of two schemas, "
                    f"{dict(self.schema)} and {dict(other.schema)}; select the same "
                    "columns in both"
                )
                raise UsageError(msg)
        inputs = tuple(
            input_of("union", self._graph, frame) for frame in (self, *others)
        )
        node = self._graph.add(
            "union", nodes.Merge(), inputs, name=name, makes_frames=True
        )
        return Frame(self._graph, node, self.schema)

    def limit(self, rows: int, *, name: str | None = None) -> Frame:
        """Keep the first `rows` rows; the sources stop once they have passed.

        moves data: yes, to one task · state: a number · waits for the end: no
        """
        checked_count("limit", "rows", rows, least=0)
        return self._then("limit", nodes.Limit(rows), name, self.schema, width=1)

    def head(self, rows: int = 5, *, name: str | None = None) -> Frame:
        """Keep the first `rows` rows; another name of `limit`.

        moves data: yes, to one task · state: a number · waits for the end: no
        """
        checked_count("head", "rows", rows, least=0)
        return self._then("head", nodes.Limit(rows), name, self.schema, width=1)

    def collect(self, *, name: str | None = None) -> ResultHandle[pl.DataFrame]:
        """Bring all rows to the driver as one data frame.

        The order of rows that many tasks made is not defined; `sort` defines it.

        moves data: to the driver · state: none
        """
        inputs = (self._node.id,)
        node = self._graph.add(
            "collect", specs.CollectFrames(self.schema), inputs, name=name
        )
        schema = self.schema
        handle = ResultHandle(
            self._graph,
            node.id,
            node.name,
            lambda parts: pl.concat(
                [pl.DataFrame(schema=schema), *(part.select(*schema) for part in parts)]
            ),
        )
        self._graph.remember(handle)
        return handle

    def to_spark(
        self, *, path: str | None = None, name: str | None = None
    ) -> ResultHandle[Any]:
        """Give the rows to Spark: the result is a Spark DataFrame.

        The output is committed as Parquet in `path`, or in a temporary directory of
        this machine that goes with the flow; on a cluster name one that all share.

        moves data: to files · state: none
        """
        from millstream.api.frame_spark import spark_from_frame  # noqa: PLC0415

        return spark_from_frame(self, self._graph, self._node.id, path, name)

    def sort(
        self,
        *by: str,
        descending: bool | Sequence[bool] = False,
        nulls_last: bool | Sequence[bool] = False,
        name: str | None = None,
    ) -> Frame:
        """Put all rows of a bounded frame in order, in one task; nulls come first.

        Rows that do not fit into the task's memory (``sort_memory_bytes``) wait on disk.
        Followed by `limit`, only the first rows of every task travel.

        moves data: yes, to one task · state: all rows · waits for the end: yes

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("sort")
        >>> frame = flow.from_frame(pl.DataFrame({"x": [2, 3, 1]}))
        >>> top = frame.sort("x", descending=True).limit(2).collect()
        >>> _ = flow.run(on="local", workers=2)
        >>> top.result()["x"].to_list()
        [3, 2]
        """
        if not by:
            msg = f"`sort` at {user_location()} takes names of columns, got none"
            raise UsageError(msg)
        self._check_columns("sort", by)
        spec = specs.SortFrame(
            by,
            _for_each("descending", descending, len(by)),
            _for_each("nulls_last", nulls_last, len(by)),
            schema=self.schema,
        )
        return self._then("sort", spec, name, self.schema, width=1)

    def join(
        self,
        other: Frame | pl.DataFrame,
        on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        suffix: str = "_right",
        nulls_equal: bool = False,
        name: str | None = None,
    ) -> Frame:
        """Join every row with those of a smaller frame that have the same keys.

        The smaller one is a frame of this flow or a static data frame; every task has
        all of it (``join_right_bytes_max``).  Rows wait until a frame of the flow is
        complete, so it must be bounded.

        moves data: the right side, to all tasks · state: the right side · waits: for it

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("join")
        >>> names = pl.DataFrame({"id": [1, 2], "name": ["ada", "bob"]})
        >>> visits = flow.from_frame(pl.DataFrame({"id": [2, 3, 2]}))
        >>> counts = visits.group_by("id").agg(pl.len().alias("visits"))
        >>> known = visits.join(names, "id").join(counts, "id").collect()
        >>> _ = flow.run(on="local")
        >>> known.result().rows()
        [(2, 'bob', 2), (2, 'bob', 2)]
        """
        with located("join"):
            keys = (on, left_on, right_on)
            spec, schema = join_spec(
                self, other, keys, how=how, suffix=suffix, nulls_equal=nulls_equal
            )
            if self._is_timed:
                check_names(schema)
        if isinstance(other, pl.DataFrame):
            return self._then("join", specs.JoinStatic(spec, other), name, schema)
        base = name or self._graph.plan.free_name("join")
        right = self._graph.add(
            "join",
            nodes.Regroup(),
            (input_of("join", self._graph, other),),
            name=f"{base}.right",
            makes_frames=True,
            regroups=Broadcast(),
        )
        inputs = (self._node.id, right.id)
        node = self._graph.add("join", spec, inputs, name=base, makes_frames=True)
        return Frame(self._graph, node, schema)

    # Inside

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {dtype}" for name, dtype in self.schema.items())
        node = self._node
        return f"<Frame from {node.verb!r} at {node.location} with {columns}>"

    def __dir__(self) -> list[str]:
        """List `schema`, which is no attribute of the class, too."""
        return sorted({*super().__dir__(), "schema"})

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Any:
            """Explain why a verb of Polars, pandas or PySpark is not here."""
            refuse_foreign("Frame", verb)
            if verb not in _ELSEWHERE:
                msg = f"a Frame has no verb {verb!r}"
                raise AttributeError(msg)
            msg = (
                f"`{verb}` at {user_location()} needs all rows at once or in order, and a "
                f"stream comes in batches cut anywhere; {_ELSEWHERE[verb]}"
            )
            raise UsageError(msg)


class WindowFrame(Frame):
    """What `agg` or `map_window` makes of a frame that is cut into windows."""

    def __init__(
        self, graph: Graph, node: Node, schema: pl.Schema, made: Node, given: pl.Schema
    ) -> None:
        super().__init__(graph, node, schema)
        self._windowed = made
        self._given = given

    def late(self, *, name: str | None = None) -> Frame:
        """Return the rows that came when all their windows were gone.

        They have the columns of the frame that was cut into windows.  Where somebody
        reads them, all rows move, not only parts of panes.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("late")
        >>> timed = flow.from_frame(pl.DataFrame({"at": [25, 3]})).event_time("at")
        >>> counts = timed.window(ms.windows.tumbling(10)).agg(n=pl.len())
        >>> in_time, late = counts.collect(), counts.late().collect()
        >>> _ = flow.run(on="local")
        >>> in_time.result().rows(), late.result().rows()
        ([(20, 30, 1)], [(3,)])
        """
        return late_frame(self._graph, self._windowed, self._given, name)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _for_each(option: str, value: Any, count: int) -> tuple[bool, ...]:
    """Return an option of `sort`, one or several truth values, for every column."""
    each = (value,) * count if isinstance(value, bool) else tuple(value)
    if len(each) != count:
        msg = (
            f"`sort` at {user_location()} takes one {option} for all columns or one for "
            f"each of the {count}, got {len(each)}"
        )
        raise UsageError(msg)
    return each
