"""Make the operators of one task from the nodes of its stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from millstream.operators.aggregation import (
    Aggregated,
    AggregatedAll,
    Combined,
    CountedKeys,
    Scanned,
)
from millstream.operators.deciding import decider_of
from millstream.operators.event_time import TimeAssigned, TimeOrdered
from millstream.operators.joins_build import join_operator
from millstream.operators.keyed import DistinctKeys
from millstream.operators.letters import CountedLetters
from millstream.operators.ordering import Limited, Sorted, SortKeys, Zipped
from millstream.operators.output import CalledForEach, Emitter, Written
from millstream.operators.processing import Processed
from millstream.operators.rowwise import FusedRows, MapWholeBatches
from millstream.operators.user_state import has_user_state, own_function
from millstream.operators.windows import window_operator
from millstream.operators.windows_combine import CombinedPanes
from millstream.plan import nodes as specs
from millstream.plan.frames import CombineFrame, FrameSpec, Transform
from millstream.plan.iteration import BodyInput, Decide, LoopHead, LoopResult
from millstream.plan.joins import (
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)
from millstream.plan.text_steps import text_splits
from millstream.plan.time import AssignTime, DropTime, InTimeOrder, LateRows
from millstream.plan.windows import CombineWindows, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from millstream.config import Config
    from millstream.operators.base import Operator, Rows
    from millstream.plan.nodes import Node
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings
    from millstream.state.table import Table

__all__ = ["TaskContext", "build_chain", "build_run", "runs_of"]

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
    DropTime,
)
_TRANSPARENT = (
    specs.Read,
    specs.DeadLetters,
    specs.Regroup,
    specs.Merge,
    LateRows,
    LoopHead,
    BodyInput,
    LoopResult,
)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the operators of a task may ask for.

    Attributes
    ----------
    emit
        Sends rows of a sink node, given by its id, to the driver.
    state
        How state by key is kept; None if no snapshots are taken of it.
    has_letters
        Whether records that make a function raise become dead letters.
    generation
        Goes up with every recovery.
    clock
        What time it is.
    """

    job: str
    task_index: int
    config: Config
    emit: Callable[[int, Rows], None]
    state: StateSettings | None = None
    has_letters: bool = False
    worker_count: int = 1
    generation: int = 0
    clock: Clock = field(kw_only=True)

    def make_table(self) -> Table | None:
        """Return an empty table for state by key, or None if a dict will do."""
        return None if self.state is None else self.state.make_table()


def build_chain(nodes: Sequence[Node], context: TaskContext) -> list[Operator]:
    """Return the operators of a stage, fused where they can be."""
    runs = runs_of(nodes, has_letters=context.has_letters)
    return [operator for run in runs for operator in build_run(run, context)]


def runs_of(nodes: Sequence[Node], *, has_letters: bool) -> list[tuple[Node, ...]]:
    """Cut a stage into what becomes one operator each."""
    working = [node for node in nodes if not isinstance(node.spec, _TRANSPARENT)]
    return _runs(working, has_letters=has_letters)


def _runs(nodes: list[Node], *, has_letters: bool) -> list[tuple[Node, ...]]:
    """Cut the chain into runs of operators that become one, and single others.

    A combiner of counts joins what is before it, row operators or text that is cut into
    pieces: it needs only the keys.

    Where a record may be left out it does not, and a run ends where one row becomes
    several, so that the others need not be left out with it.
    """
    runs: list[tuple[Node, ...]] = []
    texts = {
        node.id: f"text {split.nodes[0].id}"
        for split in text_splits(nodes)
        for node in split.nodes
    }
    for kind, group in groupby(nodes, lambda n: texts.get(n.id, _fusible(n))):
        members = tuple(group)
        if kind is not None:
            runs += _cut(members) if has_letters else [members]
            continue
        for node in members:
            if runs and _joins(runs[-1], node, has_letters=has_letters):
                runs[-1] = (*runs[-1], node)
            else:
                runs.append((node,))
    return runs


def _cut(run: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    """Cut a run behind whatever makes several rows of one."""
    pieces: list[tuple[Node, ...]] = [()]
    for node in run:
        pieces[-1] = (*pieces[-1], node)
        if isinstance(node.spec, specs.FlatMap | specs.Flatten):
            pieces.append(())
    return [piece for piece in pieces if piece]


def _joins(run: tuple[Node, ...], node: Node, *, has_letters: bool) -> bool:
    if isinstance(node.spec, CombineFrame):
        is_joined: bool = _frame_build().joins(run, node)
        return is_joined
    is_free = not has_letters and _fusible(run[-1]) == "rows"
    return is_free and _is_combined_count(node)


def _fusible(node: Node) -> str | None:
    """Return the kind of function that the operator can become a part of."""
    if has_user_state(node):
        return None
    if isinstance(node.spec, _ROW_SPECS):
        return "rows"
    return "query" if isinstance(node.spec, Transform) else None


def _is_combined_count(node: Node) -> bool:
    return isinstance(node.spec, specs.Combine) and node.spec.aggregate.kind == "count"


def build_run(run: tuple[Node, ...], context: TaskContext) -> list[Operator]:
    """Return the operator of a run, behind what finds the failing records for it."""
    operator = _operator(run, context)
    if context.has_letters and isinstance(operator, Sorted):
        return [SortKeys(run), operator]
    return [operator]


def _operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that carries out a run."""
    if not has_user_state(run[-1]):
        return _bare_operator(run, context)
    node, state = own_function(run[-1])
    operator = _bare_operator((node,), context)
    operator.state = state
    return operator


def _bare_operator(  # noqa: PLR0911 - one per kind
    run: tuple[Node, ...], context: TaskContext
) -> Operator:
    spec: Any = run[-1].spec
    if isinstance(spec, _ROW_SPECS):
        return FusedRows(run)
    if isinstance(spec, FrameSpec):
        return _frame_operator(run, context)
    if isinstance(spec, specs.Combine):
        combiner = CountedKeys if len(run) > 1 else Combined
        return combiner(run, context.config, context.clock)
    if isinstance(spec, specs.Write):
        writer = spec.sink.open(context.job, context.task_index)
        writer.generation = context.generation
        return Written(run, writer)
    if isinstance(spec, specs.Collect | specs.Result):
        sink = run[-1].id
        return Emitter(run, lambda rows: context.emit(sink, rows))
    if type(spec) in _IN_CONTEXT:
        return _IN_CONTEXT[type(spec)](run, context)
    if type(spec) in _KEYED:
        return _KEYED[type(spec)](run, context.make_table())
    return _PLAIN[type(spec)](run)


def _frame_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    operator: Operator = _frame_build().frame_operator(run, context)
    return operator


def _frame_build() -> ModuleType:
    """Return what makes operators on data frames; Polars is imported only for them."""
    from millstream.operators import frame_build  # noqa: PLC0415 - see above

    return frame_build


_PLAIN: dict[type[Any], Callable[[tuple[Node, ...]], Operator]] = {
    specs.MapBatches: MapWholeBatches,
    specs.AggregateAll: AggregatedAll,
    specs.CombineAll: AggregatedAll,
    specs.Limit: Limited,
    specs.ForEach: CalledForEach,
    specs.LetterBudget: CountedLetters,
    CombineWindows: CombinedPanes,
}
"""Operators that need nothing but their nodes."""

_KEYED: dict[type[Any], Callable[[tuple[Node, ...], Table | None], Operator]] = {
    specs.AggregateByKey: Aggregated,
    specs.Scan: Scanned,
    specs.Unique: DistinctKeys,
    InTimeOrder: TimeOrdered,
}
"""Operators that remember something for every key."""

_IN_CONTEXT: dict[type[Any], Callable[[tuple[Node, ...], TaskContext], Operator]] = {
    AssignTime: lambda run, context: TimeAssigned(
        run, context.config.watermark_every_ms, context.clock
    ),
    Decide: lambda run, context: decider_of(run, context.worker_count),
    **dict.fromkeys(
        (Join, JoinAsof, JoinInterval, JoinTable, JoinWindow), join_operator
    ),
    specs.Process: lambda run, context: Processed(
        run, context.make_table(), context.clock
    ),
    specs.SortBy: lambda run, context: Sorted(run, context.config.sort_memory_rows),
    specs.Zip: lambda run, context: Zipped(run, context.config.zip_ahead_rows_max),
    Windowed: lambda run, context: window_operator(
        run, context.make_table(), context.clock
    ),
}
"""Operators that need something of their task."""
