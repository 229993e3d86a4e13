"""Sinks: rows for the driver, a function for each row, or a connector's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.base import OneInputOperator, Rows, SealingOperator
from millstream.plan.nodes import ForEach
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.connectors.base import SinkWriter
    from millstream.plan.logical import Node
    from millstream.protocol.ids import Epoch

__all__ = ["CollectOperator", "ForEachOperator", "WriteOperator"]


class CollectOperator(OneInputOperator):
    """Hands rows to the worker, which sends them to the driver."""

    def __init__(self, nodes: tuple[Node, ...], emit: Callable[[Rows], None]) -> None:
        super().__init__(nodes)
        self._emit = emit

    def process(self, rows: Rows) -> Rows:
        self._emit(rows)
        return []


class ForEachOperator(OneInputOperator):
    """Calls the user's function for every row; what that did cannot be undone."""

    is_guarded = True

    def process(self, rows: Rows) -> Rows:
        spec = self.nodes[0].spec
        assert isinstance(spec, ForEach)
        function = spec.function
        rows_iterator = iter(rows)
        for row in rows_iterator:
            function(row)
        return []


class WriteOperator(OneInputOperator, SealingOperator):
    """Writes to the connector's writer of this task."""

    def __init__(self, nodes: tuple[Node, ...], writer: SinkWriter[Any]) -> None:
        super().__init__(nodes)
        self._writer = writer
        if writer.is_keeping:
            self.state = TaskState(writer.kept, writer.take_back)

    def process(self, rows: Rows) -> Rows:
        self._writer.write(rows)
        return []

    def finish(self) -> Iterable[Rows]:
        self.roll()
        return ()

    def roll(self) -> None:
        self._writer.roll()

    def seal(self, epoch: Epoch) -> Any:
        return self._writer.seal(epoch)

    def close(self) -> None:
        self._writer.close()
