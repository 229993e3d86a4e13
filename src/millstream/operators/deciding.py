"""The decider of an iteration, as the one operator of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.base import Operator, Rows
from millstream.operators.rounds import judge_of
from millstream.plan.iteration import Decide, Port
from millstream.protocol.barrier import Barrier
from millstream.protocol.rounds import Decider, HeadReady, HeadUnread, RoundsSoFar
from millstream.state.batches import joined
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.nodes import Node

__all__ = ["FROM_OUTSIDE", "Decided"]

FROM_OUTSIDE = -1
"""The port of epochs, and of the beginning, which come from no other task."""

_HISTORY_MAX = 100


class Decided(Operator):
    """Hears heads and results, and tells heads how to go on."""

    def __init__(self, nodes: tuple[Node, ...], head_count: int) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, Decide)
        self._iteration = iteration = spec.iteration
        self._judge = judge_of(iteration)
        self._decider = Decider(
            head_count,
            iteration.rounds_max,
            iteration.initial,
            self._judged,
            is_free=not iteration.has_rounds,
        )
        self._results: list[Any] = []
        if iteration.has_rounds:
            self.rounds = RoundsSoFar()
            self.state = TaskState(self._kept, self._put)

    def process(self, rows: Rows, port: int) -> Rows:
        """Take what heads say, what the body made, or what comes from outside."""
        if port == Port.RETURNED:
            self._results.append(rows)
            return []
        told: Rows = []
        for message in rows:
            if isinstance(message, HeadReady):
                told += self._decider.hear(message)
            elif isinstance(message, HeadUnread):
                told += self._decider.note_unread(message)
            elif isinstance(message, Barrier):
                told += self._decider.announce(message)
            else:
                told += self._decider.repeat()
        return self._noted(told)

    def finish(self) -> Iterable[Rows]:
        """Judge a round whose results have all come."""
        results, self._results = self._results, []
        told = self._decider.end_round(self._joined(results))
        return [self._noted(told)]

    def _joined(self, results: list[Any]) -> Any:
        if results or not self._iteration.makes_frames:
            return joined(results) if results else []
        import polars as pl  # noqa: PLC0415 - only where there are data frames

        return pl.DataFrame()

    def _judged(self, value: Any, results: Any) -> tuple[Any, bool]:
        made, is_enough = self._judge(value, results)
        show = self._iteration.show
        if self.rounds is not None:
            self.rounds.note(made if show is None else show(made), _HISTORY_MAX)
        return made, is_enough

    def _noted(self, told: Rows) -> Rows:
        if self.rounds is not None:
            self.rounds.round = self._decider.round
        return told

    def _kept(self) -> tuple[Any, ...]:
        decider = self._decider
        return decider.round, decider.value, decider.last, self.rounds

    def _put(self, values: list[tuple[Any, ...]]) -> None:
        decider = self._decider
        decider.round, decider.value, decider.last, self.rounds = values[0]
