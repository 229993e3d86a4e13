"""What joins of two frames have in common: sides, times, who is late, and result columns.

Rows of a side keep their two hidden columns of time, and the watermark when a row
came that is behind it stays with it.  Whom a row meets, and whether it comes out alone,
follows from the rows that are kept; nothing is noted in them.  So a side only grows at
its end and is forgotten by time, which is what snapshots store with little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import TimedOperator, TwoInputOperator
from millstream.operators.frames.join_buffer import JoinBuffer
from millstream.operators.time.late import with_late
from millstream.plan.frame_joins import LATE_SIDE, JoinFrameStreams, late_name
from millstream.plan.frame_windows import HIDDEN, ORIGIN_WATERMARK, TIME
from millstream.plan.joins import LEFT, RIGHT, How
from millstream.protocol.former_times import take_over
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.frame_logs import FrameLogsState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.plan.logical import Node
    from millstream.state.frame_log import LogDelta
    from millstream.state.settings import StateSettings
    from millstream.values import Batch

__all__ = [
    "NO_WATERMARK",
    "OWN_TIMES",
    "RIGHT_HIDDEN",
    "FrameStreamJoinOperator",
    "Output",
    "joined_time",
    "minmax",
]

OWN_TIMES = {TIME: "__own_time", ORIGIN_WATERMARK: "__own_origin_watermark"}
"""What the hidden columns are called where the clock gives rows another time."""

RIGHT_HIDDEN = {name: f"__right{name}" for name in (*HIDDEN, *OWN_TIMES.values())}
"""What the hidden columns of right rows are called beside those of left rows."""

NO_WATERMARK = pl.lit(None, pl.Int64).alias(ORIGIN_WATERMARK)
"""Results of windows, and rows that come out alone, are never behind."""

_REACHED = "reached"


def minmax(times: pl.Series) -> tuple[int, int]:
    """Return the first and the last one of some times."""
    first, last = times.min(), times.max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    return first, last


def joined_time(
    time: str = TIME, behind: str = ORIGIN_WATERMARK
) -> tuple[pl.Expr, pl.Expr]:
    """Return the time of a pair: the larger one, late if a watermark says so."""
    later = pl.max_horizontal(time, RIGHT_HIDDEN[time])
    watermark = pl.max_horizontal(behind, RIGHT_HIDDEN[behind])
    return later.alias(TIME), pl.when(watermark >= later).then(watermark).alias(
        ORIGIN_WATERMARK
    )


class Output:
    """The columns that come out of a join, and how rows of either side fill them."""

    def __init__(self, spec: JoinFrameStreams) -> None:
        self._spec, columns = spec, spec.columns
        self.left_on, self.right_on = list(columns.left_on), list(columns.right_on)
        self._is_nulls_equal = columns.nulls_equal
        left, suffix = spec.left_schema, columns.suffix
        #: What columns of the right side are called beside those of the left one.
        self.right_names = {
            name: f"{name}{suffix}" if name in left else name
            for name in columns.right_schema
            if name not in columns.right_on
        }

    def pairs(
        self, left: pl.DataFrame, right: pl.DataFrame, *more: str
    ) -> pl.DataFrame:
        """Return left rows with right rows of the same keys; both have hidden columns.

        `more` are keys that both have under the same name.
        """
        return left.join(
            right.rename({**RIGHT_HIDDEN, **self.right_names}, strict=False),
            left_on=[*self.left_on, *more],
            right_on=[*self.right_on, *more],
            how="inner",
            nulls_equal=self._is_nulls_equal,
            coalesce=True,
        )

    def chosen(
        self,
        rows: pl.DataFrame,
        others: pl.DataFrame,
        side: int,
        *more: str,
        is_met: bool,
    ) -> pl.DataFrame:
        """Return the rows of a side for which there are others of the same keys, or not."""
        own, other = (self.left_on, self.right_on)[:: 1 if side == LEFT else -1]
        return rows.join(
            others.select(*other, *more),
            left_on=[*own, *more],
            right_on=[*other, *more],
            how="semi" if is_met else "anti",
            nulls_equal=self._is_nulls_equal,
        )

    def unmatched(
        self, rows: pl.DataFrame, side: int, *hidden: pl.Expr | str
    ) -> pl.DataFrame:
        """Return rows of a side without partners as the join says them."""
        left, right = self._spec.left_schema, self._spec.columns.right_schema
        if not self.makes_pairs:
            return rows.select(*left, *hidden)
        if side == LEFT:
            nulls = [
                pl.lit(None, right[name]).alias(new)
                for name, new in self.right_names.items()
            ]
            return rows.select(*left, *nulls, *hidden)
        keys = dict(zip(self.left_on, self.right_on, strict=True))
        own = [
            pl.col(keys[name]).alias(name)
            if name in keys
            else pl.lit(None, kind).alias(name)
            for name, kind in left.items()
        ]
        named = [pl.col(name).alias(new) for name, new in self.right_names.items()]
        return rows.select(*own, *named, *hidden)

    def selected(self, pairs: pl.DataFrame, *hidden: pl.Expr) -> pl.DataFrame:
        """Return pairs with the columns that come out."""
        return pairs.select(
            *self._spec.left_schema, *self.right_names.values(), *hidden
        )

    @property
    def makes_pairs(self) -> bool:
        """Whether results have columns of both sides."""
        return self._spec.by.how.makes_pairs

    def can_meet(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Leave out the rows that meet nobody because of their keys."""
        keys = self.left_on if side == LEFT else self.right_on
        return rows if self._is_nulls_equal else rows.drop_nulls(keys)


class FrameStreamJoinOperator(TwoInputOperator, TimedOperator):
    """A join of two frames; what it keeps is dropped when time has come so far.

    Parameters
    ----------
    has_waiting
        Whether left rows whose time has come are kept apart from the others.
    """

    #: Which fact says up to when all was emitted.
    emitted_fact = _REACHED

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None = None,
        *,
        has_waiting: bool = False,
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, JoinFrameStreams)
        self._spec = spec
        self._how: How = spec.by.how
        self.output = Output(spec)
        self.facts = {_REACHED: BEGINNING}
        keys = spec.columns.left_on, spec.columns.right_on
        self.sides = (
            JoinBuffer(keys[LEFT], self.facts),
            JoinBuffer(keys[RIGHT], self.facts),
        )
        self.waiting = JoinBuffer(keys[LEFT], self.facts)
        self._logs = (*self.sides, self.waiting) if has_waiting else self.sides
        #: What former tasks have not said though others were as far.
        self._pending_output: list[pl.DataFrame] = []
        if settings is not None:
            logs = [(log, log.keys) for log in self._logs]
            self.state = FrameLogsState(logs, settings.shard_count, self._restored)

    @property
    def reached(self) -> int:
        """Nothing of this time or earlier follows, except what is late."""
        return self.facts[_REACHED]

    @reached.setter
    def reached(self, time: int) -> None:
        self.facts[_REACHED] = time

    def finish(self) -> Iterable[Batch]:
        return self.advance(END_OF_TIME)

    def reset(self, ended: frozenset[int]) -> None:
        """Forget all rows, and the time."""
        if ended:
            msg = (
                f"one side of {self.nodes[-1].user_name!r} comes from outside the loop, "
                "and its rows are dropped after the first round; compute both "
                "inputs inside the loop body, or use keyed_join"
            )
            raise RuntimeError(msg)
        for log in self._logs:
            log.clear()
        self.facts.update(dict.fromkeys(self.facts, BEGINNING))

    @property
    def has_pending_output(self) -> bool:
        """Whether something is to be said before anything else."""
        return bool(self._pending_output)

    def pending_output(self) -> list[pl.DataFrame]:
        """Take out what is to be said before anything else."""
        pending_output, self._pending_output = self._pending_output, []
        return pending_output

    def flush(self) -> Any:
        """Return what is to be said before anything else: snapshots do not have it."""
        pending_output = self.pending_output()
        return pl.concat(pending_output) if pending_output else []

    def _restored(self) -> None:
        """Take the rows of former tasks."""
        former = list(zip(*(log.former for log in self._logs), strict=True))
        for log in self._logs:
            log.former = []

        def take(parts: list[tuple[LogDelta, ...]]) -> None:
            for logs in parts:
                for name, time in logs[0].facts.items():
                    self.facts[name] = max(self.facts[name], time)
                for log, told in zip(self._logs, logs, strict=True):
                    log.take(told)

        times = [logs[0].facts[self.emitted_fact] for logs in former]
        take_over(zip(times, former, strict=True), self._catch_up, take)

    def _catch_up(self, time: int) -> None:
        """Bring what was restored so far to a time; what follows from it is pending."""
        self._pending_output = list(self.emit_until(time))

    def emit_until(self, time: int) -> Iterable[Any]:
        """Yield what is pending, and what follows from time having come to `time`."""
        return self.advance(time)

    # Rows that have just come

    def placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Let the rows be behind that are behind what has been reached."""
        if self.reached == BEGINNING or minmax(rows[TIME])[0] > self.reached:
            return rows
        is_behind = pl.col(TIME) <= self.reached
        watermark = pl.max_horizontal(ORIGIN_WATERMARK, pl.lit(self.reached, pl.Int64))
        behind = pl.when(is_behind).then(watermark).otherwise(ORIGIN_WATERMARK)
        return rows.with_columns(behind.alias(ORIGIN_WATERMARK))

    def on_time(self, rows: pl.DataFrame, port: int, is_late: pl.Expr) -> pl.DataFrame:
        """Put the rows aside that are late; only rows that are behind can be."""
        if rows[ORIGIN_WATERMARK].null_count() == rows.height:
            return rows
        rows = rows.with_columns(is_late.fill_null(value=False).alias(LATE_SIDE))
        late = rows.filter(LATE_SIDE)
        if late.height:
            self.late_count += late.height
            self.late = with_late(self.late, self._late_rows(late, port))
        return rows.filter(~pl.col(LATE_SIDE)).drop(LATE_SIDE)

    def _late_rows(self, late: pl.DataFrame, port: int) -> pl.DataFrame:
        """Give late rows of either side the same columns."""
        columns: list[pl.Expr] = [pl.lit(port, pl.Int8).alias(LATE_SIDE)]
        schemas = self._spec.left_schema, self._spec.columns.right_schema
        for side, schema in enumerate(schemas):
            columns += [
                (pl.col(name) if side == port else pl.lit(None, kind)).alias(
                    late_name(side, name)
                )
                for name, kind in schema.items()
            ]
        return late.select(columns)
