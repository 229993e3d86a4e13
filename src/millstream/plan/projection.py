"""Find out which columns of its files a flow needs, and read only those.

What an operator needs of its input follows from what is needed of its output.  For a run of
row-wise queries Polars itself says it: the run is optimized over a source without rows that
notes which columns it is asked for.  Operators that may look at anything - functions of whole
data frames, rows, sinks - need all columns, and so do streams that meet.

A query still sees the schema it was written for: columns that were not read stand in it as
nulls, of which Polars, by the same reasoning, makes nothing that is needed.

Polars is imported only once there is a source with columns to leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.plan import frames as specs
from millstream.plan.grouping import Columns
from millstream.plan.needed_columns import no_rows, united
from millstream.plan.nodes import Read
from millstream.plan.spec import ALL_COLUMNS
from millstream.plan.time import LateRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    from millstream.connectors.base import Source
    from millstream.plan.logical import Node
    from millstream.plan.spec import Needed, Spec

    Query = Callable[[pl.LazyFrame], pl.LazyFrame]

__all__ = ["ColumnSource", "NarrowQuery", "with_needed_columns"]


@runtime_checkable
class ColumnSource(Protocol):
    """A source of data frames that can leave columns out."""

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns that it reads."""

    def reading(self, columns: Sequence[str]) -> Source[pl.DataFrame]:
        """Return a source of the same rows with only these columns."""


@dataclass(frozen=True, slots=True)
class NarrowQuery:
    """A row-wise query between frames that have only the columns that are needed.

    Attributes
    ----------
    given
        The columns that the query was written for, as far as they are needed, and nulls
        for the others; None where nothing is missing.
    columns
        What is needed of its answer; None for all of it.
    """

    function: Query
    given: tuple[pl.Expr, ...] | None = None
    columns: tuple[str, ...] | None = None

    def __call__(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return the query of a lazy frame."""
        if self.given is not None:
            frame = frame.select(self.given)
        answer = self.function(frame)
        return answer if self.columns is None else answer.select(self.columns)


def with_needed_columns(nodes: list[Node]) -> list[Node]:
    """Return the nodes with sources that read no column in vain."""
    projection = _Projection(nodes)
    for node in nodes:
        if isinstance(node.spec, Read) and isinstance(node.spec.source, ColumnSource):
            projection.narrow(node, node.spec.source)
    return [
        replace(node, spec=projection.changed.get(node.id, node.spec)) for node in nodes
    ]


class _Projection:
    def __init__(self, nodes: list[Node]) -> None:
        self.changed: dict[int, Spec] = {}
        self._readers: dict[int, list[Node]] = {node.id: [] for node in nodes}
        for node in nodes:
            for source in node.inputs:
                self._readers[source].append(node)

    def narrow(self, node: Node, source: ColumnSource) -> None:
        """Let a source read what its readers need."""
        before = dict(self.changed)
        columns = _chosen(source.schema, self._needed_of(node, source.schema))
        if columns is None:
            self.changed = before
            return
        self.changed[node.id] = Read(source.reading(columns), len(source.schema))

    def _needed_of(self, node: Node, schema: pl.Schema) -> Needed:
        """Return what is needed of the output of a node, which has this schema."""
        needs = [self._needed_by(reader, schema) for reader in self._readers[node.id]]
        if isinstance(node.regroups, Columns):
            needs.append(frozenset(node.regroups.names))
        return united(needs)

    def _needed_by(self, node: Node, schema: pl.Schema) -> Needed:
        """Return what a node needs of its input, which has this schema."""
        if isinstance(node.spec, specs.Transform):
            return self._needed_by_query(node, schema)
        if self._are_late_rows_read(node):
            return ALL_COLUMNS
        needed = node.spec.columns_needed(
            schema, lambda answer: self._needed_of(node, answer)
        )
        narrowed = node.spec.narrowed()
        if needed is not None and narrowed is not node.spec:
            self.changed[node.id] = narrowed
        return needed

    def _are_late_rows_read(self, node: Node) -> bool:
        """Whether rows leave a node as they came, because they came too late."""
        return any(isinstance(r.spec, LateRows) for r in self._readers[node.id])

    def _needed_by_query(self, node: Node, schema: pl.Schema) -> Needed:
        run = self._run(node)
        query = _composed(run)
        try:
            answer = query(no_rows(schema)).collect_schema()
            columns = _chosen(answer, self._needed_of(run[-1], answer))
            needed = _columns_read(NarrowQuery(query, columns=columns), schema)
        except Exception:  # noqa: BLE001 - a user's function inside may raise anything
            return ALL_COLUMNS
        if needed is not None and len(needed) < len(schema):
            given = _given(schema, needed)
            self._change(run[0], lambda query: replace(query, given=given))
        if columns is not None:
            self._change(run[-1], lambda query: replace(query, columns=columns))
        return needed

    def _change(self, node: Node, change: Callable[[NarrowQuery], NarrowQuery]) -> None:
        """Let a query have other columns at one of its ends.

        What it does with those it was given is the same; what comes out is not.
        """
        spec = self.changed.get(node.id, node.spec)
        assert isinstance(spec, specs.Transform)
        query = spec.function
        if not isinstance(query, NarrowQuery):
            query = NarrowQuery(query)
        query = change(query)
        step = None if query.columns is not None else spec.step
        self.changed[node.id] = specs.Transform(query, step)

    def _run(self, node: Node) -> list[Node]:
        """Return the queries from a node on that are one query when they run."""
        run = [node]
        while len(readers := self._readers[run[-1].id]) == 1:
            if not _is_one_query(run[-1], readers[0]):
                break
            run.append(readers[0])
        return run


def _is_one_query(node: Node, reader: Node) -> bool:
    """Whether nothing stands between two queries; a step may be taken otherwise."""
    if not isinstance(reader.spec, specs.Transform) or reader.width is not None:
        return False
    assert isinstance(node.spec, specs.Transform)
    is_step = [spec.step is not None for spec in (node.spec, reader.spec)]
    return node.regroups is None and is_step[0] == is_step[1]


def _composed(run: list[Node]) -> Query:
    """Return the queries of a run as one."""
    functions = [n.spec.function for n in run if isinstance(n.spec, specs.Transform)]

    def query(frame: pl.LazyFrame) -> pl.LazyFrame:
        for function in functions:
            frame = function(frame)
        return frame

    return query


def _chosen(schema: pl.Schema, needed: Needed) -> tuple[str, ...] | None:
    """Return the needed columns in order, None for all; one is always left to count."""
    if needed is None:
        return None
    names = tuple(name for name in schema if name in needed) or tuple(schema)[:1]
    return None if len(names) == len(schema) else names


def _columns_read(query: Query, schema: pl.Schema) -> Needed:
    """Return the columns that Polars asks a source for to answer a query."""
    from polars.io.plugins import register_io_source  # noqa: PLC0415 - see above

    asked: list[Needed] = []

    def source(columns: list[str] | None, *_: object) -> Iterator[pl.DataFrame]:
        asked.append(ALL_COLUMNS if columns is None else frozenset(columns))
        rows = no_rows(schema).collect()
        yield rows if columns is None else rows.select(columns)

    query(register_io_source(source, schema=schema)).collect()
    return united(asked)


def _given(schema: pl.Schema, needed: frozenset[str]) -> tuple[pl.Expr, ...]:
    """Return the columns of a schema, of which those that nobody needs are null."""
    import polars as pl  # noqa: PLC0415 - see above

    return tuple(
        pl.col(name) if name in needed else pl.lit(None, dtype=kind).alias(name)
        for name, kind in schema.items()
    )
