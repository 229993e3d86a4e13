"""Where event time begins for data frames, and where it goes over to rows.

A frame with event time has the hidden columns of `plan.frame_windows`; rows have pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.time.assign import TimestampAssigner
from millstream.plan.frame_windows import (
    HIDDEN,
    ORIGIN_WATERMARK,
    TIME,
    AssignFrameTime,
)
from millstream.plan.time import TIME_LIMIT, LateTimestamp, out_of_time
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.ports import Clock

__all__ = ["FrameAssignTimestampsOperator", "timed_frame", "timed_rows"]


class FrameAssignTimestampsOperator(TimestampAssigner):
    """Adds the timestamp of every row, and the watermark of its origin where it is late."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...], every_ms: float, clock: Clock) -> None:
        spec = nodes[0].spec
        assert isinstance(spec, AssignFrameTime)
        super().__init__(
            nodes,
            every_ms,
            clock,
            spec.idle_after_ms,
            splits_in_order=spec.splits_in_order,
        )
        self._spec = spec

    def process(self, rows: Any) -> Any:
        timed: pl.DataFrame = rows.with_columns(self._spec.time.alias(TIME))
        times = timed[TIME]
        if times.null_count():
            row = timed.row(int(times.is_null().arg_true()[0]), named=True)
            del row[TIME]
            msg = f"the row {row} has no timestamp; filter or fill such rows before"
            raise ValueError(msg)
        least, most = times.min(), times.max()
        assert isinstance(least, int), "a batch has rows"
        assert isinstance(most, int), "a batch has rows"
        if most > TIME_LIMIT or least < -TIME_LIMIT:
            raise ValueError(out_of_time(most if most > TIME_LIMIT else least))
        before = self.watermarks.get(self.origin, BEGINNING)
        made = self._watermarks_of(rows, self._moving(times))
        latest = made.max()
        after = max(before, latest) if isinstance(latest, int) else before
        self.advance_origin(min(after, TIME_LIMIT))
        if least > after:
            return timed.with_columns(pl.lit(None, pl.Int64).alias(ORIGIN_WATERMARK))
        return timed.with_columns(_origin_watermarks(times, made, before))

    def _moving(self, times: pl.Series) -> pl.Series:
        """Return the timestamps that move time; null for those too far ahead."""
        if self._spec.max_future_skew_ms is None:
            return times
        ahead = self._clock.wall_ms() + self._spec.max_future_skew_ms
        is_ahead = times > ahead
        count = int(is_ahead.sum())
        if not count:
            return times
        self.ahead_count += count
        return times.set(is_ahead, None)

    def _watermarks_of(self, rows: pl.DataFrame, moving: pl.Series) -> pl.Series:
        """Return the watermark that every row makes; null for none."""
        watermark = self._spec.watermark
        if watermark is None:
            return moving - (self._spec.out_of_order_ms + 1)
        if isinstance(watermark, pl.Expr):
            made = rows.select(watermark).to_series()
            return made.set(moving.is_null(), None)
        return pl.Series(self._called(rows, moving), dtype=pl.Int64)

    def _called(self, rows: pl.DataFrame, moving: pl.Series) -> list[int | None]:
        """Call the user's own function of this origin for the rows that move time."""
        rule = self.rule(self._spec.watermark)
        rows_iterator = iter(rows.to_dicts())
        return [
            None if time is None else rule(row, time)
            for row, time in zip(rows_iterator, moving.to_list(), strict=True)
        ]


def _origin_watermarks(times: pl.Series, made: pl.Series, before: int) -> pl.Series:
    """Return the watermark when each row came, where that is not before it."""
    first = pl.Series([before], dtype=pl.Int64)
    moves = made.fill_null(BEGINNING)
    watermark = pl.concat([first, moves]).cum_max().head(len(times))
    nothing = pl.Series([None], dtype=pl.Int64)
    return watermark.zip_with(watermark >= times, nothing).alias(ORIGIN_WATERMARK)


def timed_rows(frame: pl.DataFrame) -> Rows:
    """Return every row as a dict, paired with its timestamp."""
    times: list[int] = frame[TIME].to_list()
    if frame[ORIGIN_WATERMARK].null_count() < frame.height:
        behind = frame[ORIGIN_WATERMARK].to_list()
        times = [
            time if watermark is None else LateTimestamp(time, watermark)
            for time, watermark in zip(times, behind, strict=True)
        ]
    return list(zip(times, frame.drop(*HIDDEN).to_dicts(), strict=True))


def timed_frame(rows: Rows, frame: pl.DataFrame) -> pl.DataFrame:
    """Give a frame that was made of the values of timed rows their timestamps."""
    times = [int(time) for time, _ in rows]
    behind = [t.watermark if isinstance(t, LateTimestamp) else None for t, _ in rows]
    return frame.with_columns(
        pl.Series(TIME, times, dtype=pl.Int64),
        pl.Series(ORIGIN_WATERMARK, behind, dtype=pl.Int64),
    )
