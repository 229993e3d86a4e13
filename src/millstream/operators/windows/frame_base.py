"""What operators on windows of data frames have in common: a spec, and state by key.

Nothing here knows when a window is over.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from millstream.operators.base import OneInputOperator
from millstream.state.frame_log import FrameLogState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.columns.kernels import loading
    from millstream.plan.logical import Node
    from millstream.state.base import State
    from millstream.state.frame_log import LogDelta
    from millstream.state.settings import StateSettings

__all__ = ["FrameWindowOperator", "LoggedWindowOperator"]


class _Aggregating(Protocol):
    @property
    def aggregation(self) -> Any: ...


SpecT = TypeVar("SpecT", bound=_Aggregating)


class FrameWindowOperator(OneInputOperator, Generic[SpecT]):
    """Rows of keys in windows, and an aggregate of each.

    Parameters
    ----------
    settings
        How state is stored; None where nobody takes snapshots.
    engine
        What keys are found by.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None = None,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        super().__init__(nodes)
        spec: Any = nodes[0].spec
        self.spec: SpecT = spec
        self.engine = engine
        self.begin()
        if settings is not None:
            self.state = self.stored(spec.aggregation.keys, settings.shard_count)

    @abstractmethod
    def begin(self) -> None:
        """Begin without any rows."""

    @abstractmethod
    def stored(self, keys: tuple[str, ...], shard_count: int) -> State:
        """Return what snapshots see of it."""

    def reset(self) -> None:
        """Forget all windows, and the time."""
        self.begin()


class LoggedWindowOperator(FrameWindowOperator[SpecT]):
    """Windows whose state is a log: rows that are added."""

    def stored(self, keys: tuple[str, ...], shard_count: int) -> State:
        return FrameLogState(self, keys, shard_count)

    @abstractmethod
    def delta(self, since: int) -> LogDelta:
        """Return what came after the stamp `since`; all of it after 0."""

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Count what comes from now on under this stamp; up to `stored` all is safe.

        By default nothing: everything is told every time.
        """

    @abstractmethod
    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Become what the logs of former tasks say."""
