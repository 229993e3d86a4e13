"""Make the operators of one task from the nodes of its stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from millstream.operators.dead_letters import DeadLetterLimitOperator
from millstream.operators.joins.choice import join_operator
from millstream.operators.loops.deciding import decider_of
from millstream.operators.rows.aggregation import (
    AggregateOperator,
    CombineOperator,
    CountCombineOperator,
    GlobalAggregateOperator,
    ScanOperator,
)
from millstream.operators.rows.distinct import DistinctOperator
from millstream.operators.rows.ordering import (
    LimitOperator,
    SortKeyOperator,
    SortOperator,
    ZipOperator,
)
from millstream.operators.rows.output import (
    CollectOperator,
    ForEachOperator,
    WriteOperator,
)
from millstream.operators.rows.processing import ProcessOperator
from millstream.operators.rows.rowwise import FusedRowOperator, MapBatchesOperator
from millstream.operators.rows.user_state import has_user_state, own_function
from millstream.operators.time.assign import (
    AssignTimestampsOperator,
    SortByTimeOperator,
)
from millstream.operators.windows.choice import window_operator
from millstream.operators.windows.combine import CombinePanesOperator
from millstream.plan import nodes as specs
from millstream.plan.frames import CombineFrame
from millstream.plan.iteration import Decide
from millstream.plan.joins import (
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)
from millstream.plan.text_steps import text_splits
from millstream.plan.time import AssignTime, InTimeOrder
from millstream.plan.windows import CombineWindows, Windowed
from millstream.state.table import PlainTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from millstream.config import Config
    from millstream.operators.base import Operator, Rows
    from millstream.plan.logical import Node
    from millstream.plan.spec import Spec
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings
    from millstream.state.table import Table

    Factory = Callable[[tuple[Node, ...], "TaskContext"], Operator]

__all__ = ["OPERATORS", "TaskContext", "build_chain", "build_run", "runs_of"]


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

    def make_table(self) -> Table:
        """Return an empty table for state by key."""
        return PlainTable() if self.state is None else self.state.make_table()


def build_chain(nodes: Sequence[Node], context: TaskContext) -> list[Operator]:
    """Return the operators of a stage, fused where they can be."""
    runs = runs_of(nodes, has_letters=context.has_letters)
    return [operator for run in runs for operator in build_run(run, context)]


def runs_of(nodes: Sequence[Node], *, has_letters: bool) -> list[tuple[Node, ...]]:
    """Cut a stage into what becomes one operator each."""
    working = [node for node in nodes if node.spec.traits.has_operator]
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
        if node.spec.traits.makes_many:
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
    return None if has_user_state(node) else node.spec.traits.fuses


def _is_combined_count(node: Node) -> bool:
    return isinstance(node.spec, specs.Combine) and node.spec.aggregate.kind == "count"


def build_run(run: tuple[Node, ...], context: TaskContext) -> list[Operator]:
    """Return the operator of a run, behind what finds the failing records for it."""
    operator = _operator(run, context)
    if context.has_letters and isinstance(operator, SortOperator):
        return [SortKeyOperator(run), operator]
    return [operator]


def _operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    """Return the operator that carries out a run."""
    if not has_user_state(run[-1]):
        return _bare_operator(run, context)
    node, state = own_function(run[-1])
    operator = _bare_operator((node,), context)
    operator.state = state
    return operator


def _bare_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    if spec.traits.fuses == "rows":
        return FusedRowOperator(run)
    if spec.traits.takes_frames:
        return _frame_operator(run, context)
    return OPERATORS[type(spec)](run, context)


def _frame_operator(run: tuple[Node, ...], context: TaskContext) -> Operator:
    operator: Operator = _frame_build().frame_operator(run, context)
    return operator


def _frame_build() -> ModuleType:
    """Return what makes operators on data frames; Polars is imported only for them."""
    from millstream.operators import frame_build  # noqa: PLC0415 - see above

    return frame_build


def _alone(kind: Callable[[tuple[Node, ...]], Operator]) -> Factory:
    """Return how to make an operator that needs nothing but its nodes."""
    return lambda run, _: kind(run)


def _by_key(kind: Callable[[tuple[Node, ...], Table], Operator]) -> Factory:
    """Return how to make an operator that keeps something for every key."""
    return lambda run, context: kind(run, context.make_table())


def _combined(run: tuple[Node, ...], context: TaskContext) -> Operator:
    combiner = CountCombineOperator if len(run) > 1 else CombineOperator
    return combiner(run, context.config, context.clock)


def _written(run: tuple[Node, ...], context: TaskContext) -> Operator:
    spec = run[-1].spec
    assert isinstance(spec, specs.Write)
    writer = spec.sink.open(context.job, context.task_index)
    writer.generation = context.generation
    return WriteOperator(run, writer)


def _emitted(run: tuple[Node, ...], context: TaskContext) -> Operator:
    sink = run[-1].id
    return CollectOperator(run, lambda rows: context.emit(sink, rows))


OPERATORS: dict[type[Spec], Factory] = {
    specs.MapBatches: _alone(MapBatchesOperator),
    specs.Combine: _combined,
    specs.AggregateByKey: _by_key(AggregateOperator),
    specs.AggregateAll: _alone(GlobalAggregateOperator),
    specs.CombineAll: _alone(GlobalAggregateOperator),
    specs.Scan: _by_key(ScanOperator),
    specs.Process: lambda run, context: ProcessOperator(
        run, context.make_table(), context.clock
    ),
    specs.Unique: _by_key(DistinctOperator),
    specs.Limit: _alone(LimitOperator),
    specs.SortBy: lambda run, context: SortOperator(
        run, context.config.sort_memory_rows
    ),
    specs.Zip: lambda run, context: ZipOperator(run, context.config.zip_ahead_rows_max),
    AssignTime: lambda run, context: AssignTimestampsOperator(
        run, context.config.watermark_every_ms, context.clock
    ),
    InTimeOrder: _by_key(SortByTimeOperator),
    Windowed: lambda run, context: window_operator(
        run, context.make_table(), context.clock
    ),
    CombineWindows: _alone(CombinePanesOperator),
    **dict.fromkeys(
        (Join, JoinAsof, JoinInterval, JoinTable, JoinWindow), join_operator
    ),
    Decide: lambda run, context: decider_of(run, context.worker_count),
    specs.Collect: _emitted,
    specs.Result: _emitted,
    specs.ForEach: _alone(ForEachOperator),
    specs.DeadLetterLimit: _alone(DeadLetterLimitOperator),
    specs.Write: _written,
}
"""How the operators on rows are made that do not fuse; those on frames: `frame_build`."""
