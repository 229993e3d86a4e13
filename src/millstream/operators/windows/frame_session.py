"""Session windows on data frames: rows of a key that are not far apart in time.

A session is a row of parts with the time of its first row and that at which it is over.
New rows become sessions of their own, and sessions that touch become one when time says
that some may be over.

Nothing here knows how snapshots are stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from millstream.columns.partials import ScalarPartial
from millstream.columns.table import PartialTable
from millstream.operators.base import TimedOperator
from millstream.operators.time.late import with_late
from millstream.operators.windows.frame_base import LoggedWindowOperator
from millstream.operators.windows.frame_time import emitted_windows
from millstream.plan.frame_windows import (
    END,
    ORIGIN_WATERMARK,
    TIME,
    WINDOW,
    SessionFrame,
)
from millstream.protocol.former_times import latest_time
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.frame_log import LogDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.columns.table import FrameAggregation
    from millstream.values import Batch

__all__ = ["FrameSessionOperator"]

_ROWS_MAX = 65_536
_FRESH_ROWS = 65_536
_IS_FRESH, _IS_DUE = "__is_fresh", "__is_due"


class FrameSessionOperator(LoggedWindowOperator[SessionFrame], TimedOperator):
    """A row per key and session, when the session is over and whenever it changes then."""

    def begin(self) -> None:
        self._keys = list(self.spec.aggregation.keys)
        self._aggregation = _by_session(self.spec.aggregation)
        self._sessions = PartialTable(self._aggregation)
        #: Rows that came since all sessions that touch were made one, and how many
        #: there were then.
        self._fresh_rows = self._joined_rows = 0
        #: Nothing of this time or earlier follows, except what is late.
        self.reached = BEGINNING
        #: No session is over before this time.
        self._until = END_OF_TIME

    def process(self, rows: pl.DataFrame) -> Batch:
        rows = self._on_time(rows)
        if rows.height:
            self._take(self._begun(rows.sort(WINDOW, maintain_order=True)))
        return []

    def process_at(self, rows: pl.DataFrame, time: int) -> Batch:
        """Take rows that all come at a time after what was reached."""
        times = {WINDOW: time, END: time + self.spec.gap_ms}
        columns = [pl.lit(at, pl.Int64).alias(name) for name, at in times.items()]
        self._take(rows.with_columns(columns))
        return []

    def _take(self, rows: pl.DataFrame) -> None:
        """Keep rows that know when their sessions begin, and how far they reach."""
        least = rows[END].min()
        assert isinstance(least, int)
        self._until = min(self._until, least - 1)
        self._sessions.add_rows(rows)
        self._fresh_rows += rows.height
        if self._fresh_rows > max(_FRESH_ROWS, self._joined_rows):
            self._join()

    def _join(self) -> None:
        """Make one session of those that touch, so that long ones stay small."""
        rows = self._sessions.merged()
        self._sessions = PartialTable(self._aggregation)
        if rows is not None:
            joined = self._joined(rows)
            self._sessions.add(joined)
            self._fresh_rows, self._joined_rows = 0, joined.height

    def _on_time(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return from when to when every row reaches; leave out rows of which that is gone.

        A row reaches as far as the gap; of one that is behind what its origin had
        its watermark, what was still to come then counts.
        """
        lateness_ms = self.spec.lateness_ms
        floor = max(self.reached, BEGINNING + lateness_ms)
        told = (
            pl.max_horizontal(ORIGIN_WATERMARK, pl.lit(floor, pl.Int64)) - lateness_ms
        )
        rows = rows.with_columns(
            pl.max_horizontal(TIME, told + 1).alias(WINDOW),
            (pl.col(TIME) + self.spec.gap_ms).alias(END),
        )
        is_late = rows[WINDOW] >= rows[END]
        if not is_late.any():
            return rows
        late = rows.filter(is_late).select(self.spec.columns)
        self.late_count += late.height
        self.late = with_late(self.late, late)
        return rows.filter(~is_late)

    def _begun(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Let rows in the order of their beginning have that of their session."""
        before = pl.col(END).cum_max().shift(1).over(self._keys)
        is_first = (pl.col(WINDOW) >= before).fill_null(value=True)
        start = pl.when(is_first).then(WINDOW).forward_fill()
        return rows.with_columns(start.over(self._keys).alias(WINDOW))

    def advance(self, time: int) -> Iterator[Batch]:
        """Yield the sessions that are over by now."""
        self.reached = max(self.reached, time)
        if self.reached < self._until:
            return
        rows = self._sessions.merged()
        self._sessions = PartialTable(self._aggregation)
        self._until = END_OF_TIME
        if rows is None:
            return
        is_due = pl.col(END).min().over(self._keys) - 1 <= self.reached
        rows = rows.with_columns(is_due.alias(_IS_DUE))
        self._keep(rows.filter(~pl.col(_IS_DUE)).drop(_IS_DUE))
        rows = rows.filter(_IS_DUE).drop(_IS_DUE)
        if rows.is_empty():  # sessions have become longer than was known
            return
        rows = self._joined(rows)
        is_over = pl.col(END) - 1 <= self.reached
        is_kept = pl.col(END) - 1 > self.reached - self.spec.lateness_ms
        is_fresh = pl.when(is_over).then(pl.lit(0, pl.Int8)).otherwise(_IS_FRESH)
        self._keep(rows.filter(is_kept).with_columns(is_fresh.alias(_IS_FRESH)))
        over = rows.filter(is_over & (pl.col(_IS_FRESH) > 0))
        if over.height:
            yield from self._told(over).iter_slices(_ROWS_MAX)

    def _told(self, over: pl.DataFrame) -> pl.DataFrame:
        table = PartialTable(self._aggregation)
        table.add(over)
        made = table.finished()
        assert made is not None
        return emitted_windows(made, pl.col(WINDOW), pl.col(END), self.spec)

    def _joined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Make one session of those that overlap."""
        table = PartialTable(self._aggregation)
        table.add(self._begun(rows.sort(WINDOW, maintain_order=True)))
        joined = table.merged()
        assert joined is not None
        return joined

    def _keep(self, rows: pl.DataFrame) -> None:
        """Hold sessions, and find out when there is something to do with them."""
        if rows.is_empty():
            return
        self._sessions.add(rows)
        lateness_ms = self.spec.lateness_ms
        wait_ms = pl.when(pl.col(_IS_FRESH) > 0).then(0).otherwise(lateness_ms)
        until = rows.select((pl.col(END) - 1 + wait_ms).min()).item()
        self._until = min(self._until, until)

    def next_due(self) -> int | None:
        """Return when a session may be over."""
        return None if self._until == END_OF_TIME else self._until

    def finish(self) -> Iterable[Batch]:
        return self.advance(END_OF_TIME)

    # What snapshots know of it

    def delta(self, since: int) -> LogDelta:  # noqa: ARG002 - a session changes as a whole
        """Return all sessions, and how far time has come."""
        return LogDelta(self._sessions.merged(), True, {"reached": self.reached})  # noqa: FBT003

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Take the sessions of former tasks, which know whether they were told."""
        self.reached = latest_time(log.facts["reached"] for log in logs)
        for log in logs:
            if log.rows is not None:
                self._keep(log.rows)


def _by_session(aggregation: FrameAggregation) -> FrameAggregation:
    """Let sessions also know when they are over, and whether that was told."""
    end = ScalarPartial(
        (pl.col(END).max(),),
        (pl.col(END).max(),),
        pl.col(END),
    )
    fresh = ScalarPartial(
        (pl.lit(1, pl.Int8).first().alias(_IS_FRESH),),
        (pl.col(_IS_FRESH).max(),),
        pl.col(_IS_FRESH),
    )
    return replace(
        aggregation,
        keys=(*aggregation.keys, WINDOW),
        columns=(*aggregation.columns, end, fresh),
        results=(pl.col(END), *aggregation.results),
    )
