"""The as-of join of two frames: each left row with the right row nearest in time.

A left row waits until the watermark says that no nearer right row can come; that moment
follows from the timestamps alone, and is the time of the result.  Looking backward it is
the row's own time; looking forward it depends on the right rows, so left rows whose time
has come may still wait.

A right row that is behind its watermark serves only left rows after that watermark.  So
right rows are in the order in which they begin to serve, and each knows the best one that
serves by then; the rest is a search in time.  Of right rows of the same time the largest
counts, column by column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from millstream.operators.frames.join_buffer import ProbeKeys
from millstream.operators.joins.frame_base import (
    NO_WATERMARK,
    FrameStreamJoinOperator,
    minmax,
)
from millstream.plan.frame_windows import ORIGIN_WATERMARK, TIME
from millstream.plan.joins import LEFT, RIGHT, Direction, How, JoinAsof
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.logical import Node
    from millstream.state.settings import StateSettings
    from millstream.values import Batch

__all__ = ["FrameAsofJoinOperator"]

THIN_ROWS = 4096
"""Fewer right rows are not looked through for those that nobody needs."""

_ROWS_MAX = 65_536
_KEY, _RANK, _SINCE = "__key", "__rank", "__since"
_BEFORE, _AFTER, _CERTAIN, _FOUND = "__before", "__after", "__certain", "__found"
_BEFORE_TIME, _AFTER_TIME = "__before_time", "__after_time"


class FrameAsofJoinOperator(FrameStreamJoinOperator):
    """Left rows until they are decided, and right rows that may be needed."""

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None = None
    ) -> None:
        super().__init__(nodes, settings, has_waiting=True)
        spec = self._spec.by
        assert isinstance(spec, JoinAsof)
        self._direction = spec.direction
        self._tolerance = spec.tolerance
        #: How many right rows there were when they were looked through.
        self._thinned = 0
        #: Nothing is decided before, unless right rows come.
        self._quiet_until = END_OF_TIME

    def process(self, rows: pl.DataFrame, port: int) -> Batch:
        rows = self.on_time(self.placed(rows), port, self._is_late(port))
        if port == RIGHT or self._how is How.INNER:
            rows = self.output.can_meet(rows, port)
        self.sides[port].add(rows)
        if port == RIGHT and rows.height:
            self._quiet_until = BEGINNING
        return []

    def _is_late(self, port: int) -> pl.Expr:
        if port == LEFT or self._direction is Direction.FORWARD:
            return pl.col(ORIGIN_WATERMARK).is_not_null()
        if self._tolerance is None:
            return pl.lit(value=False)
        return pl.col(TIME) + self._tolerance <= pl.col(ORIGIN_WATERMARK)

    def advance(self, time: int) -> Iterator[Batch]:
        """Yield the left rows of which the partner is certain."""
        yield from self.pending_output()
        self.reached = max(self.reached, time)
        come = self.sides[LEFT].between(BEGINNING, self.reached)
        if come is not None or self._quiet_until <= self.reached:
            yield from self._settled(come)
        self._forget()

    def _settled(self, come: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
        """Yield what is decided of left rows whose time has come, and keep the others."""
        parts = come, self.waiting.between(BEGINNING, END_OF_TIME)
        rows = [some for part in parts if part is not None for some in _sliced(part)]
        self.sides[LEFT].forget(min(self.reached, END_OF_TIME - 1) + 1)
        waiting: list[pl.DataFrame] = []
        self._quiet_until = END_OF_TIME
        for some in rows:
            decided, right = self._decided(some)
            is_certain = decided[_CERTAIN] <= self.reached
            rest = decided.filter(~is_certain)
            if rest.height:
                waiting.append(rest.select(some.columns))
                self._quiet_until = min(self._quiet_until, minmax(rest[_CERTAIN])[0])
            made = self._made(decided.filter(is_certain), right)
            if made.height:
                yield made
        if waiting:
            self.waiting.replace(pl.concat(waiting))
        elif len(self.waiting):
            self.waiting.clear()

    def _made(self, decided: pl.DataFrame, right: pl.DataFrame | None) -> pl.DataFrame:
        """Return decided left rows with their right rows, as they leave."""
        hidden = pl.col(_CERTAIN).alias(TIME), NO_WATERMARK
        if self._how is How.INNER:
            decided = decided.filter(pl.col(_FOUND).is_not_null())
        if right is None:
            return self.output.unmatched(decided, LEFT, *hidden)
        names = self.output.right_names
        found = right.select(
            pl.col(_RANK).alias(_FOUND),
            *(pl.col(name).alias(new) for name, new in names.items()),
        )
        rows = decided.join(found, on=_FOUND, how="left")
        return self.output.selected(rows, *hidden)

    def _decided(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Say of left rows when it is certain what they get, and which right row it is."""
        right = self._near(rows)
        if right is None:
            nothing = pl.lit(None, pl.Int64)
            return self._certain(
                rows.with_columns(
                    nothing.alias(name)
                    for name in (_BEFORE, _BEFORE_TIME, _AFTER, _AFTER_TIME)
                )
            ), None
        right = right.sort(TIME, *self._spec.columns.right_schema, nulls_last=False)
        right = right.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_RANK))
        rows, right = self._numbered(rows.sort(TIME, maintain_order=True), right)
        rows = self._with_before(rows, right)
        return self._certain(self._with_after(rows, right)).drop(_KEY), right

    def _near(self, rows: pl.DataFrame) -> pl.DataFrame | None:
        """Return the right rows of which some may be the nearest."""
        first, last = minmax(rows[TIME])
        reach = END_OF_TIME if self._tolerance is None else self._tolerance
        is_backward = self._direction is Direction.BACKWARD
        is_forward = self._direction is Direction.FORWARD
        begin = first if is_forward else first - reach
        end = last if is_backward else last + reach
        wanted = ProbeKeys(rows, self.sides[LEFT].keys)
        return self.sides[RIGHT].candidates(wanted, begin, end)

    def _numbered(
        self, left: pl.DataFrame, right: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Give equal keys the same number; a null equals a null here."""
        keys = self.output.left_on
        names = dict(zip(self.output.right_on, keys, strict=True))
        both = pl.concat(
            [left.select(keys), right.select(*names).rename(names)]
        ).with_row_index(_KEY)
        numbers = both.select(pl.col(_KEY).first().over(keys).cast(pl.Int64))[_KEY]
        return (
            left.with_columns(numbers.head(left.height)),
            right.with_columns(numbers.tail(right.height)),
        )

    def _with_before(self, rows: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Say which is the last right row until the time of each left row."""
        if self._direction is Direction.FORWARD:
            nothing = pl.lit(None, pl.Int64)
            return rows.with_columns(
                nothing.alias(_BEFORE), nothing.alias(_BEFORE_TIME)
            )
        rows = rows.join_asof(
            _serving(right),
            left_on=TIME,
            right_on=_SINCE,
            by=_KEY,
            strategy="backward",
            check_sortedness=False,
        )
        rows = _with_time(rows, right, _BEFORE, _BEFORE_TIME)
        if self._tolerance is None:
            return rows
        is_near = pl.col(TIME) - pl.col(_BEFORE_TIME) <= self._tolerance
        return rows.with_columns(
            pl.when(is_near).then(name).alias(name) for name in (_BEFORE, _BEFORE_TIME)
        )

    def _with_after(self, rows: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Say which is the first right row from the time of each left row on."""
        if self._direction is Direction.BACKWARD:
            nothing = pl.lit(None, pl.Int64)
            return rows.with_columns(nothing.alias(_AFTER), nothing.alias(_AFTER_TIME))
        following = right.filter(pl.col(ORIGIN_WATERMARK).is_null()).sort(_KEY, _RANK)
        is_other = [pl.col(c) != pl.col(c).shift(-1) for c in (_KEY, TIME)]
        is_last = pl.any_horizontal(is_other).fill_null(value=True)
        following = following.filter(is_last)
        following = following.select(
            _KEY, pl.col(TIME).alias(_AFTER_TIME), pl.col(_RANK).alias(_AFTER)
        )
        return rows.join_asof(
            following,
            left_on=TIME,
            right_on=_AFTER_TIME,
            by=_KEY,
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        )

    def _certain(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Say when what a left row gets is certain, if no other right rows come."""
        time, before = pl.col(TIME), pl.col(_BEFORE_TIME)
        if self._direction is Direction.BACKWARD:
            return rows.with_columns(
                time.alias(_CERTAIN), pl.col(_BEFORE).alias(_FOUND)
            )
        tolerance = self._tolerance
        horizon = pl.lit(END_OF_TIME) if tolerance is None else time + tolerance
        as_near = pl.max_horizontal(time, 2 * time - before - 1)
        nearer = pl.when(before.is_not_null()).then(as_near)
        horizon = pl.min_horizontal(horizon, nearer)
        is_after = (
            pl.col(_AFTER_TIME).is_not_null()
            & (pl.col(_AFTER_TIME) <= horizon)
            & (before != time).fill_null(value=True)
        )
        return rows.with_columns(
            pl.when(is_after).then(_AFTER_TIME).otherwise(horizon).alias(_CERTAIN),
            pl.when(is_after).then(_AFTER).otherwise(_BEFORE).alias(_FOUND),
        )

    def _forget(self) -> None:
        """Drop the right rows that no left row can get any more."""
        right, tolerance = self.sides[RIGHT], self._tolerance
        if self._direction is Direction.FORWARD:
            right.forget(min(self.reached, END_OF_TIME - 1) + 1)
            return
        if tolerance is not None and self.reached > BEGINNING:
            waits = 0 if self._direction is Direction.BACKWARD else tolerance
            right.forget(self.reached - tolerance - waits + 1)
        if len(right) > max(2 * self._thinned, THIN_ROWS):
            self._thin_out()
            self._thinned = len(right)

    def _thin_out(self) -> None:
        """Keep of the right rows that all left rows may get only the last of each key."""
        right = self.sides[RIGHT]
        rows = right.between(BEGINNING, END_OF_TIME)
        assert rows is not None
        first = self.waiting.first()
        until = self.reached if first is None else min(self.reached, first - 1)
        serves = pl.max_horizontal(TIME, ORIGIN_WATERMARK) <= until
        last = pl.col(TIME).filter(serves).max().over(self.output.right_on)
        right.thin_out(rows.filter((pl.col(TIME) >= last).fill_null(value=True)))

    def _restored(self) -> None:
        super()._restored()
        self._quiet_until = BEGINNING


def _serving(right: pl.DataFrame) -> pl.DataFrame:
    """Say since when right rows serve, and which is the best of a key by then."""
    if right[ORIGIN_WATERMARK].null_count() == right.height:
        return right.select(
            _KEY, pl.col(TIME).alias(_SINCE), pl.col(_RANK).alias(_BEFORE)
        )
    since = pl.max_horizontal(TIME, pl.col(ORIGIN_WATERMARK) + 1).alias(_SINCE)
    serving = right.select(_KEY, _RANK, since).sort(_SINCE, maintain_order=True)
    best = pl.col(_RANK).cum_max().over(_KEY).alias(_BEFORE)
    return serving.select(_KEY, _SINCE, best)


def _sliced(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    return rows.iter_slices(_ROWS_MAX)


def _with_time(
    rows: pl.DataFrame, right: pl.DataFrame, rank: str, time: str
) -> pl.DataFrame:
    """Add the time of the right row of a rank."""
    return rows.with_columns(right[TIME].gather(rows[rank]).alias(time))
