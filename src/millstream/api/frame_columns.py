"""Verbs of a frame that look at one row at a time; rows stay where they are.

Polars says what a query makes of the columns, and a sample of rows says whether it is
row-wise (`millstream.api.rowwise`), while the flow is being built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.api import text_steps
from millstream.api.building import checked_function, located, user_location
from millstream.api.frame_names import check_names, checked_columns
from millstream.api.graph import WrappedFrame
from millstream.api.rowwise import checked_query, checked_schema, given
from millstream.api.timed_columns import beside_time, filled_columns, seen, seen_all
from millstream.errors import UsageError
from millstream.plan import frames as specs
from millstream.plan.frame_windows import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polars._typing import IntoExpr

    from millstream.api.frame import Frame
    from millstream.plan.spec import Spec

__all__ = ["ColumnVerbs"]


class ColumnVerbs(WrappedFrame):
    """What Polars does to columns, row by row."""

    def select(
        self,
        *exprs: IntoExpr | Iterable[IntoExpr],
        name: str | None = None,
        **named: IntoExpr,
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
        exprs = given(exprs)
        query = lambda f: f.select(*exprs, **named)  # noqa: E731 - a query
        step = text_steps.selected(exprs, named, self.schema)
        hidden = {column: pl.col(column) for column in HIDDEN}
        beside = {**_seen_named(named), **hidden}
        timed = lambda f: f.select(*seen_all(exprs), **beside)  # noqa: E731 - a query
        return self._query(
            "select", query, name, exprs, named.values(), step=step, timed=timed
        )

    def with_columns(
        self,
        *exprs: IntoExpr | Iterable[IntoExpr],
        name: str | None = None,
        **named: IntoExpr,
    ) -> Frame:
        """Add or replace columns, row by row; as `polars.LazyFrame.with_columns`.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("with_columns")
        >>> prices = flow.from_frame(pl.DataFrame({"net": [10, 20]}))
        >>> both = prices.with_columns(gross=pl.col("net") * 1.2).collect()
        >>> _ = flow.run(on="local")
        >>> both.result().rows()
        [(10, 12.0), (20, 24.0)]
        """
        exprs = given(exprs)
        query = lambda f: f.with_columns(*exprs, **named)  # noqa: E731 - a query
        step = text_steps.selected(exprs, named, self.schema)
        if step is not None and list(self.schema) != [step.name]:
            step = None
        beside = _seen_named(named)
        timed = lambda f: f.with_columns(*seen_all(exprs), **beside)  # noqa: E731 - a query
        return self._query(
            "with_columns", query, name, exprs, named.values(), step=step, timed=timed
        )

    def filter(self, *predicates: Any, name: str | None = None) -> Frame:
        """Keep the rows for which the predicates are true.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("filter")
        >>> numbers = flow.from_frame(pl.DataFrame({"x": [1, None, 3]}))
        >>> large = numbers.filter(pl.col("x") > 1).collect()
        >>> _ = flow.run(on="local")
        >>> large.result()["x"].to_list()
        [3]
        """
        predicates = given(predicates)
        query = lambda f: f.filter(*predicates)  # noqa: E731 - a query
        step = text_steps.filtered(predicates)
        timed = lambda f: f.filter(*seen_all(predicates))  # noqa: E731 - a query
        return self._query("filter", query, name, predicates, step=step, timed=timed)

    def drop(self, *columns: str, name: str | None = None) -> Frame:
        """Leave columns out.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("drop")
        >>> points = flow.from_frame(pl.DataFrame({"x": [1], "y": [2]}))
        >>> list(points.drop("x").schema)
        ['y']
        """
        return self._query("drop", lambda f: f.drop(*columns), name)

    def rename(self, mapping: dict[str, str], *, name: str | None = None) -> Frame:
        """Give columns other names.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("rename")
        >>> points = flow.from_frame(pl.DataFrame({"x": [1]}))
        >>> list(points.rename({"x": "y"}).schema)
        ['y']
        """
        return self._query("rename", lambda f: f.rename(mapping), name)

    def cast(
        self, dtypes: Mapping[Any, Any] | Any, *, name: str | None = None
    ) -> Frame:
        """Give columns other types: all the same, or those of a mapping by name.

        A value that has no equal in the other type fails the job.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("cast")
        >>> texts = flow.from_frame(pl.DataFrame({"x": ["1", "2"]}))
        >>> numbers = texts.cast({"x": pl.Int64}).collect()
        >>> _ = flow.run(on="local")
        >>> numbers.result()["x"].to_list()
        [1, 2]
        """
        query = lambda f: f.cast(dtypes)  # noqa: E731 - a query
        after = checked_schema("cast", query, self.schema)
        timed = lambda f: f.cast(dict(after))  # noqa: E731 - a query
        return self._query("cast", query, name, timed=timed)

    def fill_null(
        self, value: Any = None, *, strategy: str | None = None, name: str | None = None
    ) -> Frame:
        """Put a value, or that of an expression, where columns of its type have null.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("fill_null")
        >>> numbers = flow.from_frame(pl.DataFrame({"x": [1, None]}))
        >>> filled = numbers.fill_null(0).collect()
        >>> _ = flow.run(on="local")
        >>> filled.result()["x"].to_list()
        [1, 0]
        """
        if strategy is not None or value is None:
            msg = (
                f"`fill_null` at {user_location()} takes a value, got "
                f"{'none' if strategy is None else f'strategy={strategy!r}'}; rows before "
                "and after a null may be in other batches, so fill by key with "
                ".to_rows().key_by(...).map_with_state(...)"
            )
            raise UsageError(msg)
        query = lambda f: f.fill_null(value)  # noqa: E731 - a query
        columns = filled_columns(value, self.schema) if self._is_timed else []
        filled = pl.col(columns).fill_null(seen(value))
        timed = lambda f: f.with_columns(filled)  # noqa: E731 - a query
        return self._query("fill_null", query, name, (value,), timed=timed)

    def drop_nulls(
        self, subset: str | Sequence[str] | None = None, *, name: str | None = None
    ) -> Frame:
        """Leave out the rows with a null, in any column or in those of `subset`.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("drop_nulls")
        >>> rows = flow.from_frame(pl.DataFrame({"x": [1, None], "y": [None, 2]}))
        >>> known = rows.drop_nulls("x").collect()
        >>> _ = flow.run(on="local")
        >>> known.result().rows()
        [(1, None)]
        """
        step = text_steps.without_nulls(subset, self.schema)
        query = lambda f: f.drop_nulls(subset)  # noqa: E731 - a query
        within = list(self.schema) if subset is None else subset
        timed = lambda f: f.drop_nulls(within)  # noqa: E731 - a query
        return self._query("drop_nulls", query, name, step=step, timed=timed)

    def explode(self, *columns: str, name: str | None = None) -> Frame:
        """Turn every item of the list columns into a row.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("explode")
        >>> lists = flow.from_frame(pl.DataFrame({"x": [[1, 2], [3]]}))
        >>> items = lists.explode("x").collect()
        >>> _ = flow.run(on="local")
        >>> items.result()["x"].to_list()
        [1, 2, 3]
        """
        query = lambda f: f.explode(*columns)  # noqa: E731 - a query
        step = text_steps.exploded(columns)
        return self._query("explode", query, name, step=step)

    def unpivot(
        self,
        on: str | Sequence[str] | None = None,
        *,
        index: str | Sequence[str] | None = None,
        variable_name: str = "variable",
        value_name: str = "value",
        name: str | None = None,
    ) -> Frame:
        """Turn columns into rows: one of each row and column `on`, beside `index`.

        moves data: no · state: none · waits for the end: no

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("unpivot")
        >>> wide = flow.from_frame(pl.DataFrame({"id": [7], "x": [1], "y": [2]}))
        >>> long = wide.unpivot(["x", "y"], index="id").collect()
        >>> _ = flow.run(on="local")
        >>> long.result().rows()
        [(7, 'x', 1), (7, 'y', 2)]
        """

        def query(frame: pl.LazyFrame) -> pl.LazyFrame:
            return frame.unpivot(
                on, index=index, variable_name=variable_name, value_name=value_name
            )

        # Rows come by column, so one by one they come in another order.
        schema = checked_schema("unpivot", query, self.schema)
        spec = specs.Transform(query)
        if self._is_timed:
            kept = [] if index is None else [index] if isinstance(index, str) else index
            beside = [column for column in self.schema if column not in kept]

            def timed(frame: pl.LazyFrame) -> pl.LazyFrame:
                return frame.unpivot(
                    beside if on is None else on,
                    index=[*kept, *HIDDEN],
                    variable_name=variable_name,
                    value_name=value_name,
                )

            spec = specs.Transform(beside_time(timed, schema))
        return self._then("unpivot", spec, name, schema)

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

        Examples
        --------
        >>> import millstream as ms, polars as pl
        >>> flow = ms.Flow("map_batches")
        >>> numbers = flow.from_frame(pl.DataFrame({"x": [1, 2]}))
        >>> twice = numbers.map_batches(lambda batch: batch * 2).collect()
        >>> _ = flow.run(on="local")
        >>> twice.result()["x"].to_list()
        [2, 4]
        """
        checked_function("map_batches", function)
        with located("map_batches"):
            after = self.schema if schema is None else checked_columns(schema)
        spec = specs.MapFrames(function, schema=after)
        return self._then("map_batches", spec, name, after)

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
        from millstream.operators.frames.tokenize import TokenClass  # noqa: PLC0415 - compiles

        self._check_columns("tokens", (column,))
        with located("tokens"):
            kind = TokenClass(pattern, is_lower=lower)
        spec = specs.Tokens(column, kind)
        return self._then("tokens", spec, name, pl.Schema({column: pl.String}))

    # Inside

    def _check_columns(self, verb: str, columns: Iterable[Any]) -> None:
        for column in columns:
            if not isinstance(column, str):
                msg = (
                    f"`{verb}` at {user_location()} takes names of columns, got {column}; "
                    "compute a column with .with_columns(...) first"
                )
                raise UsageError(msg)
            if column not in self.schema:
                msg = (
                    f"`{verb}` at {user_location()} names the column {column!r}; the "
                    f"columns here are {list(self.schema)}"
                )
                raise UsageError(msg)

    def _query(
        self,
        verb: str,
        query: Any,
        name: str | None,
        *exprs: Iterable[Any],
        step: Any = None,
        timed: Any = None,
    ) -> Frame:
        """Append a row-wise query; `exprs` are the expressions it is made of.

        `timed` is the query where there are hidden columns, if that is another one.
        """
        flat = [expr for part in exprs for expr in part]
        schema = checked_query(verb, query, self.schema, flat)
        if self._is_timed:
            query, step = beside_time(timed or query, schema), None
        return self._then(verb, specs.Transform(query, step), name, schema)

    @property
    def _is_timed(self) -> bool:
        return self._node.makes_times

    def _then(
        self,
        verb: str,
        spec: Spec,
        name: str | None,
        schema: pl.Schema,
        **attributes: Any,
    ) -> Frame:
        if self._is_timed:
            with located(verb):
                check_names(schema)
        node = self._graph.add(
            verb, spec, (self._node.id,), name=name, makes_frames=True, **attributes
        )
        return self._graph.frame(node, schema)


def _seen_named(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: seen(value) for name, value in named.items()}
