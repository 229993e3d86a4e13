"""The decider of a loop, as the one operator of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.base import OneInputOperator, Rows, TwoInputOperator
from millstream.operators.loops.rounds import judge_of
from millstream.plan.iteration import Decide, Port
from millstream.protocol.barrier import Barrier
from millstream.protocol.rounds import (
    Decider,
    HeadReady,
    HeadUnread,
    RoundsSoFar,
    SidesEnded,
)
from millstream.protocol.termination import TerminationDetector
from millstream.state.batches import joined
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.operators.base import Operator
    from millstream.plan.iteration import Iteration
    from millstream.plan.logical import Node
    from millstream.protocol.rounds import LoopDecider
    from millstream.values import Batch, Value

__all__ = ["CONTROL_PORT", "RoundDecider", "decider_of"]

CONTROL_PORT = -1
"""The port of epochs, and of the beginning, which come from no other task."""

_HISTORY_MAX = 100


def _told(decider: LoopDecider, messages: Rows) -> Rows:
    """Return what follows from what heads say, or what comes from outside."""
    told: Rows = []
    for message in messages:
        if isinstance(message, HeadReady):
            told += decider.hear(message)
        elif isinstance(message, HeadUnread):
            told += decider.note_unread(message)
        elif isinstance(message, Barrier):
            told += decider.announce(message)
        elif isinstance(message, SidesEnded):
            told += decider.end_sides()
        else:
            told += decider.repeat()
    return told


class FreeLoopDecider(OneInputOperator):
    """Hears the heads of a free loop, and tells them when to look."""

    def __init__(self, nodes: tuple[Node, ...], decider: LoopDecider) -> None:
        super().__init__(nodes)
        self._decider = decider

    def process(self, rows: Rows) -> Rows:
        """Take what heads say, or what comes from outside."""
        return _told(self._decider, rows)

    def validate(self) -> None:
        """Assert what its core promises; asked by tests and by the simulator."""
        self._decider.validate()


class RoundDecider(TwoInputOperator):
    """Hears heads and results of an iteration, and tells heads how to go on."""

    def __init__(
        self, nodes: tuple[Node, ...], iteration: Iteration, head_count: int
    ) -> None:
        super().__init__(nodes)
        rounds = iteration.rounds_max, iteration.initial
        self._decider = Decider(head_count, *rounds, self._judged, has_open_sides=True)
        self._iteration = iteration
        self._judge = judge_of(iteration)
        self._results: list[Batch] = []
        #: How far the iteration has come.
        self.rounds = RoundsSoFar()
        self.state = TaskState(self._kept, self._put)

    def process(self, rows: Rows, port: int) -> Rows:
        """Take what heads say, what the body made, or what comes from outside."""
        if port == Port.RETURNED:
            self._results.append(rows)
            return []
        return self._noted(_told(self._decider, rows))

    def finish(self) -> Iterable[Rows]:
        """Judge a round whose results have all come."""
        results, self._results = self._results, []
        told = self._decider.end_round(self._joined(results))
        return [self._noted(told)]

    def _joined(self, results: list[Batch]) -> Batch:
        spec = self.nodes[0].spec
        assert isinstance(spec, Decide)
        if results or spec.schema is None:
            return joined(results) if results else []
        import polars as pl  # noqa: PLC0415 - only where there are data frames

        return pl.DataFrame(schema=spec.schema)

    def _judged(self, value: Value, results: Value) -> tuple[Value, bool]:
        made, is_enough = self._judge(value, results)
        show = self._iteration.show
        self.rounds.note(made if show is None else show(made), _HISTORY_MAX)
        return made, is_enough

    def _noted(self, told: Rows) -> Rows:
        self.rounds.round = self._decider.round
        return told

    def _kept(self) -> tuple[Value, ...]:
        decider = self._decider
        return decider.round, decider.value, decider.last, self.rounds

    def _put(self, values: list[tuple[Value, ...]]) -> None:
        decider = self._decider
        decider.round, decider.value, decider.last, rounds = values[0]
        self.rounds = rounds


def decider_of(nodes: tuple[Node, ...], head_count: int) -> Operator:
    """Return what decides over a loop."""
    spec = nodes[0].spec
    assert isinstance(spec, Decide)
    if spec.iteration.has_rounds:
        return RoundDecider(nodes, spec.iteration, head_count)
    return FreeLoopDecider(nodes, TerminationDetector(head_count))
