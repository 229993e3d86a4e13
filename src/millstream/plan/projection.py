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
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from millstream.plan import frames as specs
from millstream.plan.frame_windows import (
    HIDDEN,
    AssignFrameTime,
    CombinePanes,
    CountFrame,
    FrameWindowSpec,
    OrderFrame,
    SessionFrame,
    TimeWindowFrame,
    TriggerFrame,
)
from millstream.plan.grouping import Columns
from millstream.plan.nodes import Limit, Node, Read, Regroup
from millstream.plan.time import LateRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.plan.nodes import Spec

    Needed = frozenset[str] | None

__all__ = ["ColumnSource", "NarrowQuery", "with_needed_columns"]

ALL: Needed = None
"""What needs every column, those included that nobody knows of."""


@runtime_checkable
class ColumnSource(Protocol):
    """A source of data frames that can leave columns out."""

    @property
    def schema(self) -> Any:
        """Names and types of the columns that it reads."""

    def reading(self, columns: Sequence[str]) -> Any:
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

    function: Callable[[Any], Any]
    given: tuple[Any, ...] | None = None
    columns: tuple[str, ...] | None = None

    def __call__(self, frame: Any) -> Any:
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

    def _needed_of(self, node: Node, schema: Any) -> Needed:
        """Return what is needed of the output of a node, which has this schema."""
        needs = [self._needed_by(reader, schema) for reader in self._readers[node.id]]
        if isinstance(node.regroups, Columns):
            needs.append(frozenset(node.regroups.names))
        return _union(needs)

    def _needed_by(  # noqa: PLR0911 - one per kind
        self, node: Node, schema: Any
    ) -> Needed:
        """Return what a node needs of its input, which has this schema."""
        if isinstance(node.spec, FrameWindowSpec):
            return self._needed_by_windows(node, schema)
        match node.spec:
            case specs.Transform():
                return self._needed_by_query(node, schema)
            case specs.CombineFrame(aggregation) | specs.AggregateFrame(aggregation):
                return _aggregated(aggregation)
            case specs.JoinStatic():
                return self._needed_by_join(node, schema, node.spec)
            case specs.Tokens(column):
                return frozenset([column, *HIDDEN])
            case specs.SortFrame():
                return self._needed_by_sort(node, schema, node.spec)
            case specs.UniqueFrame(names):
                return _union([frozenset(names), self._needed_of(node, schema)])
            case Regroup() | Limit() | specs.MapFrames(needs="the same"):
                return self._needed_of(node, schema)
            case specs.MapFrames(needs="nothing"):
                return frozenset()
            case _:
                return ALL

    def _needed_by_sort(self, node: Node, schema: Any, spec: specs.SortFrame) -> Needed:
        """Return what it sorts by, and what goes through."""
        needed = _union([frozenset(spec.by), self._needed_of(node, schema)])
        if needed is not None:
            self.changed[node.id] = replace(spec, is_narrowed=True)
        return needed

    def _needed_by_windows(self, node: Node, schema: Any) -> Needed:
        """Return what is aggregated, and time; all where late rows are read."""
        spec = node.spec
        if isinstance(spec, AssignFrameTime):
            return self._needed_by_time(node, schema, spec)
        readers = [reader.spec for reader in self._readers[node.id]]
        is_late_read = any(isinstance(reader, LateRows) for reader in readers)
        if is_late_read or isinstance(spec, TriggerFrame):
            return ALL
        if isinstance(spec, OrderFrame):
            own = frozenset([*spec.keys, *HIDDEN])
            return _union([own, self._needed_of(node, schema)])
        if isinstance(spec, CombinePanes):
            spec = spec.windows
        assert isinstance(spec, TimeWindowFrame | SessionFrame | CountFrame)
        return _union([_aggregated(spec.aggregation), frozenset(HIDDEN)])

    def _needed_by_time(self, node: Node, schema: Any, spec: AssignFrameTime) -> Needed:
        """Return what a timestamp is made of, and what is needed beside it."""
        import polars as pl  # noqa: PLC0415 - see above

        exprs = [e for e in (spec.time, spec.watermark) if e is not None]
        if not all(isinstance(expr, pl.Expr) for expr in exprs):
            return ALL
        hidden = dict.fromkeys(HIDDEN, pl.Int64())
        needed = self._needed_of(node, type(schema)({**schema, **hidden}))
        own = frozenset(name for expr in exprs for name in expr.meta.root_names())
        return ALL if needed is None else own | needed - frozenset(HIDDEN)

    def _needed_by_query(self, node: Node, schema: Any) -> Needed:
        run = self._run(node)
        query = _composed(run)
        try:
            answer = query(_empty(schema)).collect_schema()
            columns = _chosen(answer, self._needed_of(run[-1], answer))
            needed = _columns_read(NarrowQuery(query, columns=columns), schema)
        except Exception:  # noqa: BLE001 - a user's function inside may raise anything
            return ALL
        if needed is not None and len(needed) < len(schema):
            self._change(run[0], given=_given(schema, needed))
        if columns is not None:
            self._change(run[-1], columns=columns)
        return needed

    def _change(self, node: Node, **ends: Any) -> None:
        """Let a query have other columns at one of its ends.

        What it does with those it was given is the same; what comes out is not.
        """
        spec = self.changed.get(node.id, node.spec)
        assert isinstance(spec, specs.Transform)
        query = spec.function
        if not isinstance(query, NarrowQuery):
            query = NarrowQuery(query)
        query = replace(query, **ends)
        step = None if query.columns is not None else spec.step
        self.changed[node.id] = specs.Transform(query, step)

    def _needed_by_join(
        self, node: Node, schema: Any, spec: specs.JoinStatic
    ) -> Needed:
        """Return the keys, what goes through, and what gives others their names."""
        on_right = spec.right.lazy()
        answer = spec.join.query(_empty(schema), on_right).collect_schema()
        needed = self._needed_of(node, answer)
        if needed is None:
            return ALL
        names = needed | {*spec.join.left_on} | {*spec.join.right_schema}
        return names.intersection(schema)

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


def _composed(run: list[Node]) -> Callable[[Any], Any]:
    """Return the queries of a run as one."""
    functions = [n.spec.function for n in run if isinstance(n.spec, specs.Transform)]

    def query(frame: Any) -> Any:
        for function in functions:
            frame = function(frame)
        return frame

    return query


def _union(needs: Iterable[Needed]) -> Needed:
    united: frozenset[str] = frozenset()
    for need in needs:
        if need is None:
            return ALL
        united |= need
    return united


def _chosen(schema: Any, needed: Needed) -> tuple[str, ...] | None:
    """Return the needed columns in order, None for all; one is always left to count."""
    if needed is None:
        return None
    names = tuple(name for name in schema if name in needed) or tuple(schema)[:1]
    return None if len(names) == len(schema) else names


def _aggregated(aggregation: Any) -> Needed:
    """Return the columns that an aggregation by key looks at."""
    parts = aggregation.columns
    exprs = [
        *(expr for part in parts for expr in part.partials),
        *(term for part in parts if part.fold is not None for term in part.fold.terms),
        *(part.values for part in aggregation.longs),
    ]
    if any(expr.meta.has_multiple_outputs() for expr in exprs):
        return ALL
    roots = (name for expr in exprs for name in expr.meta.root_names())
    return frozenset([*aggregation.keys, *roots])


def _columns_read(query: Callable[[Any], Any], schema: Any) -> Needed:
    """Return the columns that Polars asks a source for to answer a query."""
    from polars.io.plugins import register_io_source  # noqa: PLC0415 - see above

    asked: list[Needed] = []

    def source(columns: list[str] | None, *_: object) -> Any:
        asked.append(ALL if columns is None else frozenset(columns))
        rows = _empty(schema).collect()
        yield rows if columns is None else rows.select(columns)

    query(register_io_source(source, schema=schema)).collect()
    return _union(asked)


def _empty(schema: Any) -> Any:
    import polars as pl  # noqa: PLC0415 - see above

    return pl.LazyFrame(schema=schema)


def _given(schema: Any, needed: frozenset[str]) -> tuple[Any, ...]:
    """Return the columns of a schema, of which those that nobody needs are null."""
    import polars as pl  # noqa: PLC0415 - see above

    return tuple(
        pl.col(name) if name in needed else pl.lit(None, dtype=kind).alias(name)
        for name, kind in schema.items()
    )
