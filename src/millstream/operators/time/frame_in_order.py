"""Rows of a data frame in the order of their timestamps; each waits until its time has come.

What counts rows, or calls a trigger for them, then sees the same order whoever was quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from millstream.operators.base import OneInputOperator, TimedOperator
from millstream.operators.frames.join_buffer import JoinBuffer
from millstream.operators.time.late import with_late
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME, OrderFrame
from millstream.protocol.former_times import latest_time
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.frame_logs import FrameLogsState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.state.settings import StateSettings
    from millstream.values import Batch

__all__ = ["FrameSortByTimeOperator"]

_ROWS_MAX = 65_536
_REACHED = "reached"


class FrameSortByTimeOperator(OneInputOperator, TimedOperator):
    """Keeps rows until no earlier ones can come; what comes later than that is late."""

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None = None
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, OrderFrame)
        self._columns = spec.columns
        self._facts = {_REACHED: BEGINNING}
        self._waiting = JoinBuffer(spec.keys, self._facts)
        if settings is not None:
            logs = [(self._waiting, spec.keys)]
            self.state = FrameLogsState(logs, settings.shard_count, self._restored)

    def process(self, rows: pl.DataFrame) -> Batch:
        is_early = pl.col(ORIGIN_WATERMARK).is_null() & (
            pl.col(TIME) > self._facts[_REACHED]
        )
        in_time = rows.filter(is_early)
        if in_time.height < rows.height:
            late = rows.filter(~is_early).select(self._columns)
            self.late_count += late.height
            self.late = with_late(self.late, late)
        self._waiting.add(in_time)
        return []

    def advance(self, time: int) -> Iterator[Batch]:
        """Yield the rows whose time has come, in order."""
        self._facts[_REACHED] = max(self._facts[_REACHED], time)
        ready = self._waiting.between(BEGINNING, time)
        if ready is not None:
            self._waiting.forget(time + 1)
            yield from ready.sort(TIME, maintain_order=True).iter_slices(_ROWS_MAX)

    def finish(self) -> Iterable[Batch]:
        return self.advance(END_OF_TIME)

    def reset(self) -> None:
        """Forget all rows, and the time."""
        self._waiting.clear()
        self._facts[_REACHED] = BEGINNING

    def _restored(self) -> None:
        former, self._waiting.former = self._waiting.former, []
        self._facts[_REACHED] = latest_time(log.facts[_REACHED] for log in former)
        for log in former:
            self._waiting.take(log)
