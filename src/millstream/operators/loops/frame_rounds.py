"""The solution set of a delta iteration of data frames: the best row of every key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from millstream.operators.frames.keyed_state import FrameState
from millstream.operators.loops.rounds import ReturningRound, RoundPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.plan.iteration import Iteration
    from millstream.protocol.rounds import Decision
    from millstream.values import Batch

__all__ = ["FrameDeltaRound"]

_BATCH_ROWS = 65_536


class FrameDeltaRound(ReturningRound):
    """A row per key; a round begins with the rows that became better.

    Candidates are compared with what is known when somebody wants to know, all at once.
    """

    def __init__(self, iteration: Iteration, shard_count: int) -> None:
        self._known = _Solution(iteration)
        self.state = FrameState(self._known, iteration.keys, shard_count)

    def resume(self, number: int, begun: int) -> None:
        self._known.resume(number, begun)

    def collect(self, batch: pl.DataFrame) -> None:
        self._known.candidates.append(batch)

    def begin(self, decision: Decision) -> Iterator[Batch]:
        changed = self._known.changed()
        self._known.number = decision.number
        return iter(() if changed is None else changed.iter_slices(_BATCH_ROWS))

    def take_back(self, batch: pl.DataFrame) -> None:
        self._known.candidates.append(batch)

    def part(self) -> RoundPart:
        changed = self._known.changed()
        return 0 if changed is None else changed.height, []

    def result(self, decision: Decision) -> Iterator[Batch]:
        rows = self._known.taken()
        self._known.number = decision.number
        return iter(() if rows is None else rows.iter_slices(_BATCH_ROWS))


class _Solution:
    """Rows with the number of the decision and the epoch in which they became so good."""

    def __init__(self, iteration: Iteration) -> None:
        self._keys = list(iteration.keys)
        self._best = iteration.best
        self._columns = list(iteration.columns)
        self._number_name = _another_name("number", self._columns)
        self._epoch_name = _another_name("epoch", self._columns)
        self._rows: pl.DataFrame | None = None
        #: Batches that nobody has compared yet.
        self.candidates: list[pl.DataFrame] = []
        self._epoch = 0
        #: Of the last decision.
        self.number = 0

    def _compare(self) -> None:
        """Keep what is better than what is known."""
        if not self.candidates:
            return
        candidates, self.candidates = pl.concat(self.candidates), []
        changed = candidates.group_by(self._keys).agg(self._best)
        if self._rows is not None:
            known = self._matching(self._rows, changed, "semi").select(self._columns)
            both = pl.concat([known, changed.select(self._columns)])
            best = both.group_by(self._keys).agg(self._best)
            changed = best.join(known, on=self._columns, how="anti", nulls_equal=True)
        fresh = changed.select(
            *self._columns,
            pl.lit(self.number, pl.Int64).alias(self._number_name),
            pl.lit(self._epoch, pl.Int64).alias(self._epoch_name),
        )
        self._replace(fresh)

    def changed(self) -> pl.DataFrame | None:
        """Return the rows that became better after the last decision."""
        self._compare()
        if self._rows is None:
            return None
        is_new = pl.col(self._number_name) == self.number
        return self._rows.filter(is_new).select(self._columns)

    def taken(self) -> pl.DataFrame | None:
        """Return all rows, and forget them."""
        self._compare()
        rows, self._rows = self._rows, None
        return None if rows is None else rows.select(self._columns)

    def resume(self, number: int, begun: int) -> None:
        """Go on behind a decision, with what has become so since the one `begun`."""
        self.number = number
        if self._rows is not None:
            self._rows = self._rows.filter(pl.col(self._number_name) >= begun)

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch."""
        self._epoch = epoch

    def delta(self, since: int) -> pl.DataFrame:
        """Return the rows that became better after epoch `since`; all of them after 0."""
        self._compare()
        if self._rows is None:
            return pl.DataFrame()
        is_new = pl.col(self._epoch_name) > since
        rows = self._rows.filter(is_new) if since else self._rows
        return rows.drop(self._epoch_name)

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Apply deltas in the order in which they were taken."""
        epoch = pl.lit(self._epoch, pl.Int64).alias(self._epoch_name)
        for frame in deltas:
            if not frame.is_empty():
                self._replace(frame.with_columns(epoch))

    def _replace(self, fresh: pl.DataFrame) -> None:
        """Put rows in the place of those of the same keys."""
        if self._rows is None:
            self._rows = fresh
        elif not fresh.is_empty():
            others = self._matching(self._rows, fresh, "anti")
            self._rows = pl.concat([others, fresh.select(others.columns)])

    def _matching(
        self, rows: pl.DataFrame, others: pl.DataFrame, how: Literal["semi", "anti"]
    ) -> pl.DataFrame:
        keys = others.select(self._keys)
        return rows.join(keys, on=self._keys, how=how, nulls_equal=True)


def _another_name(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name
