"""Joins of two frames within an interval of time, and of all rows of the same keys.

A right row suits a left one if it is between `lower` and `upper` later.  A row waits for
partners until the watermark has come so far that none can come on time; a row that comes
out alone has that time.  An outer join keeps matched rows
after that, until no unmatched row of the other side can still depend on them.

A join without time is one in which the clock gives rows their time, and rows may be less
than the time-to-live apart; or, without one, as far apart as they like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from millstream.operators.base import TickingOperator
from millstream.operators.frames.join_buffer import ProbeKeys
from millstream.operators.joins.frame_base import (
    NO_WATERMARK,
    OWN_TIMES,
    RIGHT_HIDDEN,
    FrameStreamJoinOperator,
    joined_time,
    minmax,
)
from millstream.plan.frame_windows import HIDDEN, ORIGIN_WATERMARK, TIME
from millstream.plan.joins import LEFT, RIGHT, How, Join, JoinInterval
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings
    from millstream.values import Batch

__all__ = ["FrameIntervalJoinOperator", "FrameKeyedJoinOperator"]

_ROWS_MAX = 65_536
_INDEX = "__index"
_SAID = "said"


class FrameIntervalJoinOperator(FrameStreamJoinOperator):
    """Rows of both sides until no partner can come and no witness is needed."""

    emitted_fact = _SAID

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None = None,
        *,
        reach: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(nodes, settings)
        self.facts[_SAID] = BEGINNING
        if reach is None:
            assert isinstance(self._spec.by, JoinInterval)
            reach = self._spec.by.lower, self._spec.by.upper
        lower, upper = reach
        #: For each side, from where to where the other side's rows may lie.
        self._reach = ((lower, upper), (-upper, -lower))
        #: For each side, how long after its time it is said that a row is alone.
        self._waits = max(0, upper), max(0, -lower)
        self._stays = self._stay(LEFT), self._stay(RIGHT)

    def _stay(self, side: int) -> int:
        """Return how long after its time a row of a side is needed."""
        how, upper = self._how, self._reach[side][1]
        if how.pads(1 - side) or (side == RIGHT and how is How.SEMI):
            upper += self._waits[1 - side]
        return max(upper, self._waits[side]) if how.pads(side) else upper

    def process(self, rows: pl.DataFrame, port: int) -> Batch:
        upper = pl.col(TIME) + self._reach[port][1]
        rows = self.on_time(self.placed(rows), port, upper <= pl.col(ORIGIN_WATERMARK))
        return self.met(rows, port)

    def met(self, rows: pl.DataFrame, port: int) -> Batch:
        """Return what follows from rows that have come, and keep what has to be kept."""
        if not self._how.pads(port):
            rows = self.output.can_meet(rows, port)
        if rows.is_empty():
            return []
        if self._how.makes_pairs:
            made = self._pairs(rows, port)
            self.sides[port].add(rows)
            return [] if made is None else made
        if port == LEFT:
            return self._left_came(rows)
        keys = self.output.right_on
        return self._right_came(rows.select(*keys, *HIDDEN).unique())

    def _pairs(self, rows: pl.DataFrame, port: int) -> pl.DataFrame | None:
        """Return the pairs that rows make with those of the other side."""
        others = self._others(rows, port)
        if others is None:
            return None
        left, right = (rows, others) if port == LEFT else (others, rows)
        pairs = self._suiting(self.output.pairs(left, right))
        return self.emitted_pairs(pairs) if pairs.height else None

    def emitted_pairs(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Return pairs as they leave."""
        return self.output.selected(pairs, *joined_time())

    def _others(self, rows: pl.DataFrame, port: int) -> pl.DataFrame | None:
        """Return the rows of the other side of which some may be partners."""
        first, last = minmax(rows[TIME])
        lower, upper = self._reach[port]
        wanted = ProbeKeys(rows, self.sides[port].keys)
        return self.sides[1 - port].candidates(wanted, first + lower, last + upper)

    def _suiting(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Keep the pairs whose times suit, and of which none was too late for the other."""
        left, right = pl.col(TIME), pl.col(RIGHT_HIDDEN[TIME])
        lower, upper = self._reach[LEFT]
        is_near = (right - left).is_between(lower, upper)
        for side, until in (
            (ORIGIN_WATERMARK, right - lower),
            (RIGHT_HIDDEN[ORIGIN_WATERMARK], left + upper),
        ):
            if pairs[side].null_count() < pairs.height:
                is_near &= (until > pl.col(side)).fill_null(value=True)
        return pairs.filter(is_near)

    def _has_partner(
        self, rows: pl.DataFrame, others: pl.DataFrame | None, side: int
    ) -> pl.Series:
        """Return which rows of a side have a partner among the others."""
        index = pl.int_range(rows.height, dtype=pl.UInt32, eager=True).alias(_INDEX)
        if others is None:
            return index < 0
        keys = self.output.left_on, self.output.right_on
        own = rows.select(*keys[side], *HIDDEN).with_columns(index)
        other = others.select(*keys[1 - side], *HIDDEN)
        left, right = (own, other) if side == LEFT else (other, own)
        pairs = self._suiting(self.output.pairs(left, right))
        return index.is_in(pairs[_INDEX].unique().implode())

    def _left_came(self, rows: pl.DataFrame) -> Batch:
        """Let left rows go that have a partner already; keep the others."""
        is_met = self._has_partner(rows, self._others(rows, LEFT), LEFT)
        self.sides[LEFT].add(rows.filter(~is_met))
        if self._how is How.ANTI or not is_met.any():
            return []
        return self.emitted_unmatched(rows.filter(is_met), LEFT)

    def _right_came(self, rows: pl.DataFrame) -> Batch:
        """Return the left rows that have their first partner now."""
        waiting = self._others(rows, RIGHT) if self._how is How.SEMI else None
        if waiting is not None:
            waiting = waiting.filter(self._has_partner(waiting, rows, LEFT))
        if waiting is not None and waiting.height:
            before = self._others(waiting, LEFT)
            waiting = waiting.filter(~self._has_partner(waiting, before, LEFT))
        self.sides[RIGHT].add(rows)
        if waiting is None or waiting.is_empty():
            return []
        return self.emitted_unmatched(waiting, LEFT)

    # When time has passed

    def advance(self, time: int) -> Iterator[Batch]:
        """Yield the rows that stay alone."""
        self.reached = max(self.reached, time)
        yield from self.say(self.reached)
        self.forget()

    def say(self, until: int) -> Iterator[pl.DataFrame]:
        """Yield the rows that stay alone if none can find a partner until a time."""
        yield from self.pending_output()
        after, self.facts[_SAID] = self.facts[_SAID], max(self.facts[_SAID], until)
        for side in (LEFT, RIGHT):
            if self._how.pads(side):
                wait = self._waits[side]
                first = BEGINNING if after == BEGINNING else after - wait + 1
                rows = self.sides[side].between(first, until - wait)
                if rows is not None:
                    yield from self._lonely(rows, side)

    def _lonely(self, rows: pl.DataFrame, side: int) -> Iterator[pl.DataFrame]:
        for some in rows.iter_slices(_ROWS_MAX):
            is_met = self._has_partner(some, self._others(some, side), side)
            if not is_met.all():
                yield self.emitted_unmatched(some.filter(~is_met), side)

    def emitted_unmatched(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Return rows without partners as they leave, at the time that was certain."""
        time = pl.col(TIME) + self._waits[side]
        return self.output.unmatched(rows, side, time, NO_WATERMARK)

    def forget(self) -> None:
        """Drop what nobody needs any more."""
        for side, stays in zip(self.sides, self._stays, strict=True):
            if self.reached > BEGINNING:
                side.forget(self.reached - stays + 1)

    def emit_until(self, time: int) -> Iterator[pl.DataFrame]:
        return self.say(time)


class FrameKeyedJoinOperator(FrameIntervalJoinOperator, TickingOperator):
    """Every left row with every right row of its keys, for ever or for a time-to-live.

    The time of a row is that of the clock; without a time-to-live it is a number that goes
    up whenever all rows that are alone have been said.
    """

    def __init__(
        self, nodes: tuple[Node, ...], settings: StateSettings | None, clock: Clock
    ) -> None:
        spec: Any = nodes[0].spec
        assert isinstance(spec.by, Join)
        self._ttl_ms = spec.by.ttl_ms
        wait = 0 if self._ttl_ms is None else self._ttl_ms - 1
        self._clock = clock
        self._is_timed = nodes[0].takes_times
        self._now = 0
        super().__init__(nodes, settings, reach=(-wait, wait))

    def process(self, rows: pl.DataFrame, port: int) -> Batch:
        said: list[pl.DataFrame] = []
        if self._ttl_ms is not None:
            self._now = max(self._now, self._clock.wall_ms())
            said = list(self._passed())
        if self._is_timed:
            rows = rows.rename(OWN_TIMES)
        now = pl.lit(self._now, pl.Int64).alias(TIME)
        made = self.met(rows.with_columns(now, NO_WATERMARK), port)
        self._wake()
        if not said:
            return made
        return pl.concat([*said, made] if isinstance(made, pl.DataFrame) else said)

    def emitted_pairs(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Return pairs with the larger of their own times, if they have any."""
        times = joined_time(*OWN_TIMES.values()) if self._is_timed else ()
        return self.output.selected(pairs, *times)

    def emitted_unmatched(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Return rows without partners as they leave."""
        return self.output.unmatched(rows, side)

    def _others(self, rows: pl.DataFrame, port: int) -> pl.DataFrame | None:
        if self._ttl_ms is not None:
            return super()._others(rows, port)
        wanted = ProbeKeys(rows, self.sides[port].keys)
        return self.sides[1 - port].candidates(wanted, BEGINNING, END_OF_TIME)

    def _suiting(self, pairs: pl.DataFrame) -> pl.DataFrame:
        return pairs if self._ttl_ms is None else super()._suiting(pairs)

    def advance(self, time: int) -> Iterator[Batch]:  # noqa: ARG002 - of the clock
        return iter(())

    def tick(self, now_ms: int) -> Iterator[Batch]:
        """Yield the rows that expire without having met another."""
        self.tick_at_ms = None
        self._now = max(self._now, now_ms)
        yield from self._passed()
        self._wake()

    def _passed(self) -> Iterator[pl.DataFrame]:
        """Yield what follows from what the clock says now."""
        self.reached = max(self.reached, self._now - 1)
        yield from self.say(self.reached)
        self.forget()

    def _wake(self) -> None:
        """Find out when the next row expires, or need not be kept any more."""
        if self._ttl_ms is None:
            return
        wait = self._ttl_ms - 1
        times: list[int] = []
        for side, stays in zip(self.sides, self._stays, strict=True):
            oldest, waiting = side.first(), side.first(self.reached - wait)
            times += [] if oldest is None else [oldest + stays + 1]
            times += [] if waiting is None else [waiting + wait + 1]
        self.tick_at_ms = min(times, default=None)

    def finish(self) -> Iterator[Batch]:
        """Yield all rows that have met no other."""
        return self.say(self._now + self._reach[LEFT][1])

    def reset_after_flush(self) -> None:
        """Say nothing twice: rows that come from now on are later than what was said."""
        self._now += 1

    def reset(self, ended: frozenset[int]) -> None:
        """Forget the rows of the round; sides that came once, for all rounds, stay."""
        if LEFT in ended and not self._how.makes_pairs:
            msg = (
                f"the left side of {self.nodes[-1].user_name!r} comes from outside the "
                f"loop, and how={self._how.value!r} drops left rows in the first round "
                "that has a partner for them; let the left side be made in the round"
            )
            raise RuntimeError(msg)
        for port, side in enumerate(self.sides):
            if port not in ended:
                side.clear()
        self.facts[_SAID] = BEGINNING

    def _restored(self) -> None:
        super()._restored()
        said, wait = self.facts[_SAID], self._reach[LEFT][1]
        last = [side.last for side in self.sides if side.last is not None]
        self._now = max([0, *last, *([said - wait + 1] if said > BEGINNING else [])])
        self._wake()
