"""Dead letters: records that made a function raise, and how many are too many.

Nothing here knows how they are found or where they go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.operators.base import OneInputOperator, Rows
from millstream.plan.nodes import DeadLetterLimit
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from millstream.plan.logical import Node

__all__ = ["DeadLetter", "DeadLetterLimitOperator"]

_SHOWN_MAX = 200
"""Characters of a record that a message shows."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that made a function raise.

    Attributes
    ----------
    record
        The record as it came to the function, or to the first of a run of functions of
        one row; of a frame, the row as a dict.
    cause
        The exception, and the line of your own that it was raised in.
    operator
        Name of the operator whose function raised.
    position
        Which record it was: source split and number, or task and number, or the batch.
    """

    record: Any
    cause: str
    operator: str
    position: str

    def __str__(self) -> str:
        """Return all of it in one line, a large record cut short."""
        text = repr(self.record)
        if len(text) > _SHOWN_MAX:
            text = f"{text[:_SHOWN_MAX]}…"
        return f"{self.operator} raised {self.cause}; {self.position}, value {text}"


class DeadLetterLimitOperator(OneInputOperator):
    """Fails when there are more letters than the whole job may have."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, DeadLetterLimit)
        self._letters_max = spec.dead_letters_max
        self._count = 0
        self.state = TaskState(lambda: self._count, self._put)

    def process(self, rows: Rows) -> Rows:
        self._count += len(rows)
        if self._count > self._letters_max:
            msg = (
                f"there are more than max_dead_letters={self._letters_max} dead letters; the "
                f"last: {rows[-1]}"
            )
            raise ValueError(msg)
        return []

    def _put(self, values: list[int]) -> None:
        self._count = sum(values)
