"""Windows of processing time on data frames: rows have the time at which they come.

All rows of a batch come at the same time.  Time never goes back, not even where the clock
does, so that no row is ever late.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.time.frame_clock import ByClock
from millstream.operators.windows.frame_session import FrameSessionOperator
from millstream.operators.windows.frame_time import FrameTimeWindowOperator
from millstream.plan.frame_windows import END, PANE, WINDOW
from millstream.protocol.watermark import END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.frame_log import LogDelta
    from millstream.state.settings import StateSettings

__all__ = ["FrameClockSessionOperator", "FrameClockTimeWindowOperator"]


class FrameClockTimeWindowOperator(ByClock, FrameTimeWindowOperator):
    """A row per key and window, when the clock has come to its end."""

    def begin(self) -> None:
        super().begin()
        self.tick_at_ms = None

    def process(self, rows: Any) -> Any:
        panes = self.spec.panes
        pane = panes.of(self.now_ms)
        if panes.first_window(pane) <= panes.last_window(pane):
            self.runs.add_rows(rows.with_columns(pl.lit(pane, pl.Int64).alias(PANE)))
            if self.tick_at_ms is None:
                self.tick_at_ms = self._end_of_first(pane)
        return self.flush()

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        super().restore_log(logs)
        self.set_tick()

    def set_tick(self) -> None:
        first = self.runs.first_pane()
        self.tick_at_ms = None if first is None else self._end_of_first(first)
        if self.pending_output:
            self.tick_at_ms = self.reached + 1

    def _end_of_first(self, pane: int) -> int:
        """Return when the first window of a pane is over that was not told."""
        panes = self.spec.panes
        window = max(panes.first_window(pane), self.fired + 1)
        return panes.start(window) + panes.size


class FrameClockSessionOperator(ByClock, FrameSessionOperator):
    """A row per key and session, when nothing has come for the gap.

    Parameters
    ----------
    every_ms
        Sessions are looked at this often at most, as all are looked at together.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None,
        clock: Clock,
        every_ms: float,
    ) -> None:
        super().__init__(nodes, settings, clock)
        self._every_ms = ceil(every_ms)
        #: Before this time they are not looked at again.
        self._rest_until = 0

    def process(self, rows: Any) -> Any:
        now_ms = self.now_ms
        times = {WINDOW: now_ms, END: now_ms + self.spec.gap_ms}
        self.take(
            rows.with_columns(
                pl.lit(time, pl.Int64).alias(name) for name, time in times.items()
            )
        )
        self.set_tick()
        return []

    def tick(self, now_ms: int) -> Iterator[Any]:
        self._rest_until = now_ms + self._every_ms
        return super().tick(now_ms)

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        super().restore_log(logs)
        self.set_tick()

    def set_tick(self) -> None:
        until = self.next_due
        is_quiet = until == END_OF_TIME
        self.tick_at_ms = None if is_quiet else max(until + 1, self._rest_until)
