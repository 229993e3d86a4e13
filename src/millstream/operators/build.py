"""Make the operators of one task from the nodes of its stage."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from millstream.operators.aggregation import (
    Aggregated,
    AggregatedAll,
    Combined,
    CountedKeys,
    Scanned,
)
from millstream.operators.keyed import DistinctKeys, Processed
from millstream.operators.ordering import Limited, Sorted, Zipped
from millstream.operators.output import CalledForEach, Emitter, Written
from millstream.operators.rowwise import FusedRows, MapWholeBatches
from millstream.plan import nodes as specs
from millstream.plan.frames import FrameSpec, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.config import Config
    from millstream.operators.base import Operator, Rows
    from millstream.plan.nodes import Node

__all__ = ["TaskContext", "build_chain"]

_ROW_SPECS = (
    specs.Map,
    specs.Filter,
    specs.FlatMap,
    specs.FilterMap,
    specs.Flatten,
    specs.Inspect,
    specs.KeyBy,
    specs.DropKey,
    specs.Unkey,
)
_TRANSPARENT = (specs.Read, specs.Regroup, specs.Merge)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the operators of a task may ask for.

    Attributes
    ----------
    emit
        Sends rows of a sink node, given by its id, to the driver.
    """

    job: str
    task_index: int
    config: Config
    emit: Callable[[int, Rows], None]


def build_chain(nodes: Sequence[Node], context: TaskContext) -> list[Operator]:
    """Return the operators of a stage, fused where they can be."""
    working = [node for node in nodes if not isinstance(node.spec, _TRANSPARENT)]
    return [_operator(run, context) for run in _runs(working)]


def _runs(nodes: list[Node]) -> list[tuple[Node, ...]]:
    """Cut the chain into runs of operators that become one, and single others.

    A combiner of counts joins the run of row operators before it: it needs only the
    keys.
    """
    runs: list[tuple[Node, ...]] = []
    for kind, group in groupby(nodes, _fusible):
        members = tuple(group)
        if kind is not None:
            runs.append(members)
            continue
        for node in members:
            follows_rows = bool(runs) and _fusible(runs[-1][-1]) == "rows"
            if _is_combined_count(node) and follows_rows:
                runs[-1] = (*runs[-1], node)
            else:
                runs.append((node,))
    return runs


def _fusible(node: Node) -> str | None:
    """Return the kind of function that the operator can become a part of."""
    if isinstance(node.spec, _ROW_SPECS):
        return "rows"
    return "query" if isinstance(node.spec, Transform) else None


def _is_combined_count(node: Node) -> bool:
    return isinstance(node.spec, specs.Combine) and node.spec.aggregate.name == "count"


def _operator(  # noqa: PLR0911 - one per kind
    run: tuple[Node, ...], context: TaskContext
) -> Operator:
    """Return the operator that carries out the last node of a run."""
    spec: Any = run[-1].spec
    if isinstance(spec, _ROW_SPECS):
        return FusedRows(run)
    if isinstance(spec, FrameSpec):
        return _frame_operator(run, context)
    if isinstance(spec, specs.Combine):
        combiner = CountedKeys if len(run) > 1 else Combined
        return combiner(run, context.config.combine_keys_max)
    if isinstance(spec, specs.SortBy):
        return Sorted(run, context.config.sort_memory_rows)
    if isinstance(spec, specs.Zip):
        return Zipped(run, context.config.zip_ahead_rows_max)
    if isinstance(spec, specs.Write):
        return Written(run, spec.sink.open(context.job, context.task_index))
    if isinstance(spec, specs.Collect | specs.Result):
        sink = run[-1].id
        return Emitter(run, lambda rows: context.emit(sink, rows))
    return _PLAIN[type(spec)](run)


def _frame_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return an operator on data frames; Polars is imported only where it is used."""
    from millstream.operators import frame_build  # noqa: PLC0415 - see above

    return frame_build.frame_operator(run, context)


_PLAIN: dict[type[Any], Callable[[tuple[Node, ...]], Operator]] = {
    specs.MapBatches: MapWholeBatches,
    specs.AggregateByKey: Aggregated,
    specs.AggregateAll: AggregatedAll,
    specs.CombineAll: AggregatedAll,
    specs.Scan: Scanned,
    specs.Process: Processed,
    specs.Unique: DistinctKeys,
    specs.Limit: Limited,
    specs.ForEach: CalledForEach,
}
"""Operators that need nothing but their nodes."""
