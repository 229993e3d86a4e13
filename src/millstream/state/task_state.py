"""State without keys: one value per task, stored whole at every cut.

Nothing here knows what the value is, or how several become one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.plain import decode, encode
from millstream.state.row_codec import unstorable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.protocol.ids import Epoch
    from millstream.state.base import ShardRange
    from millstream.values import Value

__all__ = ["VALUES", "TaskCapture", "TaskState", "values_of"]

VALUES = (SegmentKind.TASK, SegmentKind.SHARED)
"""How values are stored; those of before a value was shared are that of a task."""


class TaskState:
    """Whatever an operator keeps, through two functions of the operator.

    Parameters
    ----------
    get
        Returns the value.
    put
        Takes the values of one or more tasks of a former run, in the order of tasks;
        not called where there is none.
    is_shared
        Whether every task takes the values of all, where there were more or fewer tasks.

    Examples
    --------
    >>> from millstream.protocol.ids import Epoch
    >>> kept = TaskState(lambda: 7, print).capture(Epoch(1), since=Epoch(0))
    >>> TaskState(lambda: 0, print).restore(kept.segments("limit", 0), (0, 1024))
    [7]
    """

    def __init__(
        self,
        get: Callable[[], object],
        put: Callable[[list[Value]], None],
        *,
        is_shared: bool = False,
    ) -> None:
        self._get = get
        self._put = put
        self._kind = SegmentKind.SHARED if is_shared else SegmentKind.TASK

    def capture(self, epoch: Epoch, since: Epoch) -> TaskCapture:  # noqa: ARG002
        """Encode the value as it is now; a delta would have to know what it is."""
        value = self._get()
        try:
            return TaskCapture(encode(value), self._kind)
        except Exception as error:
            owner = "the state of the task"
            raise unstorable(owner, error) from error

    def complete(self, epoch: Epoch) -> None:
        """Do nothing: every capture stands for itself."""

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:  # noqa: ARG002
        """Hand over the newest value of each former task."""
        values = values_of(segments)
        if values:
            self._put([values[task] for task in sorted(values)])

    def begin_undo(self) -> Callable[[], None]:
        """Return what puts the value back as it is now."""
        value = copy.deepcopy(self._get())
        return lambda: self._put([value])

    def close(self) -> None:
        """Do nothing: the operator owns the value."""


def values_of(segments: Iterable[Segment]) -> dict[int, Value]:
    """Return the newest value of each former task."""
    newest: dict[int, bytes] = {}
    for segment in segments:
        assert segment.kind in VALUES, f"segment of kind {segment.kind}"
        newest[segment.task] = segment.payload
    # The store has checked that the payloads are ours.
    return {task: decode(payload) for task, payload in newest.items()}


@dataclass(frozen=True, slots=True)
class TaskCapture:
    """An encoded value."""

    payload: bytes
    kind: SegmentKind

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        """Return it as the one segment it is."""
        return iter([Segment(operator, task, self.kind, ALL_SHARDS, self.payload)])
