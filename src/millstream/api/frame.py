"""Frames: columnar streams, whose batches are Polars data frames.

`Frame` is to `Stream` what a DataFrame is to an RDD: the same flow, plan, workers and
protocol, with Polars expressions instead of Python functions.  The schema of every
frame is known while the flow is being built, so a wrong column fails there.

Imported only when a flow uses frames: Polars takes a while to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api.building import checked_count, checked_function, user_location
from millstream.api.frame_aggregates import GroupedFrame, checked_keys
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


class Frame:
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

    # Inside

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
