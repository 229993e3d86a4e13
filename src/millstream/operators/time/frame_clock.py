"""Event time that is the wall clock's, for operators on data frames.

All rows of a batch come at the same time.  Time never goes back, not even where the clock
does, so that no row is ever late.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.operators.base import TickingOperator, TimedOperator
from millstream.protocol.watermark import END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings

__all__ = ["ByClock"]


class ByClock(TimedOperator, TickingOperator):
    """Lets windows of event time go by the wall clock; it is inherited in front of them."""

    #: Nothing of this time or earlier follows.
    reached: int

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None, clock: Clock
    ) -> None:
        self._clock = clock
        super().__init__(nodes, settings)  # type: ignore[call-arg]  # as windows do

    @property
    def now_ms(self) -> int:
        """The time of rows that come now; it is in no window that is over."""
        return max(self._clock.wall_ms(), self.reached + 1)

    def advance(self, time: int) -> Iterator[Any]:  # noqa: ARG002 - not our time
        return iter(())

    def tick(self, now_ms: int) -> Iterator[Any]:
        """Yield the windows that are over."""
        yield from super().advance(now_ms - 1)
        self.set_tick()

    def finish(self) -> Iterable[Any]:
        return super().advance(END_OF_TIME)

    def reset_after_flush(self) -> None:
        super().reset_after_flush()
        self.tick_at_ms = None

    @abstractmethod
    def set_tick(self) -> None:
        """Ask to be called when a window that has rows may be over."""
