"""Frames: columnar streams, whose batches are Polars data frames.

`Frame` is to `Stream` what a DataFrame is to an RDD: the same flow, plan, workers and
protocol, with Polars expressions instead of Python functions.  The schema of every
frame is known while the flow is being built, so a wrong column fails there.

Imported only when a flow uses frames: Polars takes a while to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from millstream.api.building import (
    checked_count,
    checked_function,
    located,
    user_location,
)
from millstream.api.frame_aggregates import GroupedFrame, checked_keys
from millstream.api.frame_io import FrameSinkVerbs
from millstream.api.handles import ResultHandle
from millstream.api.rowwise import checked_query
from millstream.errors import UsageError
from millstream.plan import frames as specs
from millstream.plan import nodes
from millstream.plan.grouping import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars._typing import IntoExpr

    from millstream.api.flow import Flow
    from millstream.api.stream import Stream
    from millstream.plan.nodes import Node, Spec

__all__ = ["Frame"]

Query = "Callable[[pl.LazyFrame], pl.LazyFrame]"


class Frame(FrameSinkVerbs):
    """A dataset of rows with named, typed columns."""

    def __init__(self, flow: Flow, node: Node, schema: pl.Schema) -> None:
        self.schema = schema
        self._flow = flow
        self._node = node

    # Row by row

    def select(
        self, *exprs: IntoExpr, name: str | None = None, **named: IntoExpr
    ) -> Frame:
        """Keep or compute columns, row by row; as `polars.LazyFrame.select`.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("select")
        >>> prices = flow.from_frame(pl.DataFrame({"net": [10, 20]}))
        >>> gross = prices.select(gross=pl.col("net") * 1.2).collect()
        >>> _ = flow.run(on="local")
        >>> gross.result()["gross"].to_list()
        [12.0, 24.0]
        """
        return self._query("select", lambda f: f.select(*exprs, **named), name)

    def with_columns(
        self, *exprs: IntoExpr, name: str | None = None, **named: IntoExpr
    ) -> Frame:
        """Add or replace columns, row by row; as `polars.LazyFrame.with_columns`.

        moves data: no · state: none · waits for the end: no
        """
        make = lambda f: f.with_columns(*exprs, **named)  # noqa: E731 - a query
        return self._query("with_columns", make, name)

    def filter(self, *predicates: Any, name: str | None = None) -> Frame:
        """Keep the rows for which the predicates are true.

        moves data: no · state: none · waits for the end: no
        """
        return self._query("filter", lambda f: f.filter(*predicates), name)

    def drop(self, *columns: str, name: str | None = None) -> Frame:
        """Leave columns out.

        moves data: no · state: none · waits for the end: no
        """
        return self._query("drop", lambda f: f.drop(*columns), name)

    def rename(self, mapping: dict[str, str], *, name: str | None = None) -> Frame:
        """Give columns other names.

        moves data: no · state: none · waits for the end: no
        """
        return self._query("rename", lambda f: f.rename(mapping), name)

    def explode(self, *columns: str, name: str | None = None) -> Frame:
        """Turn every item of the list columns into a row.

        moves data: no · state: none · waits for the end: no
        """
        return self._query("explode", lambda f: f.explode(*columns), name)

    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        schema: Any = None,
        name: str | None = None,
    ) -> Frame:
        """Turn every batch, a data frame, into a data frame.

        How rows are cut into batches is up to the engine.  `schema` is that of the
        result, where it is not the same as before.

        moves data: no · state: none · waits for the end: no
        """
        checked_function("map_batches", function)
        after = self.schema if schema is None else pl.Schema(schema)
        return self._then("map_batches", specs.MapFrames(function), name, after)

    # By key

    def group_by(self, *keys: str, name: str | None = None) -> GroupedFrame:
        """Bring rows with equal values in the key columns together; null is a key.

        moves data: yes, or only partial aggregates · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("count")
        >>> words = flow.from_frame(pl.DataFrame({"word": ["mill", "stream", "mill"]}))
        >>> counts = words.group_by("word").agg(pl.len()).collect()
        >>> _ = flow.run(on="local")
        >>> counts.result().sort("word").rows()
        [('mill', 2), ('stream', 1)]
        """
        checked_keys(keys, self.schema)
        node = self._flow.add(
            "group_by",
            nodes.Regroup(),
            (self._node.id,),
            name=name,
            makes_frames=True,
            regroups=Columns(keys),
        )
        return GroupedFrame(self._flow, node, self.schema, keys)

    # Crossing over, meeting, ending

    def to_rows(self, *, name: str | None = None) -> Stream[dict[str, Any]]:
        """Go on with rows, which are dicts.

        moves data: no · state: none · waits for the end: no
        """
        from millstream.api.stream import Stream  # noqa: PLC0415 - mutual

        node = self._flow.add("to_rows", specs.ToRows(), (self._node.id,), name=name)
        return Stream(self._flow, node)

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
        inputs = tuple(frame.as_input("union", self._flow) for frame in (self, *others))
        node = self._flow.add(
            "union", nodes.Merge(), inputs, name=name, makes_frames=True
        )
        return Frame(self._flow, node, self.schema)

    def limit(self, rows: int, *, name: str | None = None) -> Frame:
        """Keep the first `rows` rows; the sources stop once they have passed.

        moves data: yes, to one task · state: a number · waits for the end: no
        """
        checked_count("limit", "rows", rows, least=0)
        return self._then("limit", nodes.Limit(rows), name, self.schema, width=1)

    def collect(self, *, name: str | None = None) -> ResultHandle[pl.DataFrame]:
        """Bring all rows to the driver as one data frame.

        The order of rows that many tasks made is not defined; `sort` defines it.

        moves data: to the driver · state: none
        """
        inputs = (self._node.id,)
        node = self._flow.add("collect", specs.CollectFrames(), inputs, name=name)
        schema = self.schema
        handle = ResultHandle(
            self._flow,
            node.id,
            node.name,
            lambda parts: pl.concat([pl.DataFrame(schema=schema), *parts]),
        )
        self._flow.remember(handle)
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

        return spark_from_frame(self, self._flow, self._node.id, path, name)

    def sort(
        self,
        *by: str,
        descending: bool | tuple[bool, ...] = False,
        name: str | None = None,
    ) -> Frame:
        """Put all rows of a bounded frame in order, in one task; nulls come first.

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
        self._check_columns("sort", by)
        each = descending if isinstance(descending, tuple) else (descending,) * len(by)
        spec = specs.SortFrame(by, each)
        return self._then("sort", spec, name, self.schema, width=1)

    def join(
        self,
        other: pl.DataFrame,
        on: str | list[str],
        *,
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Frame:
        """Join every row with a static data frame, of which each task has a copy.

        moves data: no, the data frame travels with the plan · state: none · waits: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("join")
        >>> names = pl.DataFrame({"id": [1, 2], "name": ["ada", "bob"]})
        >>> visits = flow.from_frame(pl.DataFrame({"id": [2, 3]}))
        >>> known = visits.join(names, "id").collect()
        >>> _ = flow.run(on="local")
        >>> known.result().rows()
        [(2, 'bob')]
        """
        if how not in ("inner", "left", "semi", "anti"):
            msg = (
                f"`join` at {user_location()} with a static frame can be inner, left, "
                f"semi or anti, got {how!r}"
            )
            raise UsageError(msg)
        right = other.lazy()

        def query(frame: pl.LazyFrame) -> pl.LazyFrame:
            return frame.join(
                right, on=on, how=how, suffix=suffix, maintain_order="left_right"
            )

        return self._query("join", query, name)

    def tokens(
        self,
        column: str,
        *,
        pattern: str = r"\w",
        lower: bool = True,
        name: str | None = None,
    ) -> Frame:
        """Cut a text column into tokens, one row each, at native speed.

        A token is a longest run of characters of the class `pattern`, in lower case
        unless told otherwise; the frame has that one column afterwards.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("tokens")
        >>> lines = flow.from_frame(pl.DataFrame({"line": ["To be, or", "not"]}))
        >>> words = lines.tokens("line").collect()
        >>> _ = flow.run(on="local")
        >>> words.result()["line"].to_list()
        ['to', 'be', 'or', 'not']
        """
        from millstream.operators.tokenize import TokenClass  # noqa: PLC0415 - compiles

        self._check_columns("tokens", (column,))
        with located("tokens"):
            kind = TokenClass(pattern, is_lower=lower)
        spec = specs.Tokens(column, kind)
        return self._then("tokens", spec, name, pl.Schema({column: pl.String}))

    # Inside

    def _check_columns(self, verb: str, columns: tuple[str, ...]) -> None:
        for column in columns:
            if column not in self.schema:
                msg = (
                    f"`{verb}` at {user_location()} names the column {column!r}; the "
                    f"columns here are {list(self.schema)}"
                )
                raise UsageError(msg)

    def _query(self, verb: str, query: Any, name: str | None) -> Frame:
        schema = checked_query(verb, query, self.schema)
        return self._then(verb, specs.Transform(query), name, schema)

    def _then(
        self,
        verb: str,
        spec: Spec,
        name: str | None,
        schema: pl.Schema,
        **attributes: Any,
    ) -> Frame:
        node = self._flow.add(
            verb, spec, (self._node.id,), name=name, makes_frames=True, **attributes
        )
        return Frame(self._flow, node, schema)

    def as_input(self, verb: str, flow: Flow) -> int:
        """Return the id of its operator, for a verb that joins frames of one flow."""
        if self._flow is not flow:
            msg = (
                f"`{verb}` at {user_location()} joins frames of two flows, "
                f"{flow.name!r} and {self._flow.name!r}; build both from one flow"
            )
            raise UsageError(msg)
        return self._node.id

    def __repr__(self) -> str:
        return f"<Frame from {self._node.verb!r} at {self._node.location}>"
