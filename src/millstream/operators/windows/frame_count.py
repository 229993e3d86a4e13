"""Count windows on data frames: so many rows of a key, in the order in which they come.

Keys are numbered by a `KeyIndex`, and beside it stands how many rows each has had.  Where
all that is asked for is how many rows a window has, that is all there is: rows are
counted before they move.  Else parts of panes are kept, as for windows of time.

Nothing here knows how snapshots are stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.columns.table import PartialTable, latest
from millstream.operators.frames.keyed_state import FrameState
from millstream.operators.windows.frame_base import (
    FrameWindowOperator,
    LoggedWindowOperator,
)
from millstream.operators.windows.frame_panes import pane_of, windows_of
from millstream.plan.frame_windows import NUMBER, PANE, SLOT, WINDOW, CountFrame
from millstream.state.frame_log import LogDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.columns.kernels import loading
    from millstream.columns.table import FrameAggregation
    from millstream.plan.windows import Panes
    from millstream.state.base import State

    Integers = NDArray[np.int64]

__all__ = ["FrameCountWindowOperator", "FrameRowCountOperator"]

_ROWS_MAX = 65_536
_LEAST, _MOST = "__least", "__most"


class KeyNumbers:
    """How many rows every key has had; tells its state by the epochs of changes."""

    def __init__(
        self, keys: tuple[str, ...], *, engine: loading.Engine = "auto"
    ) -> None:
        self._keys = keys
        self._engine = engine
        self._index: KeyIndex | None = None
        self.counts: Integers = np.zeros(0, dtype=np.int64)
        self._epochs: Integers = np.zeros(0, dtype=np.int64)
        self._epoch = 0

    def slots(self, frame: pl.DataFrame) -> Integers:
        """Return the numbers of the keys in every row, and make room for new ones."""
        if self._index is None:
            schema = {name: frame.schema[name] for name in self._keys}
            self._index = KeyIndex(schema, engine=self._engine)
        slots = self._index.slots(frame)
        if len(self._index) > self.counts.size:
            room = max(1024, 2 * len(self._index)) - self.counts.size
            more = np.zeros(room, dtype=np.int64)
            self.counts = np.concatenate([self.counts, more])
            self._epochs = np.concatenate([self._epochs, more])
        return slots

    def add(self, slots: Integers, numbers: Integers) -> tuple[Integers, Integers]:
        """Add numbers of rows; return the slots that changed and what they had before."""
        touched, places = np.unique(slots, return_inverse=True)
        before = self.counts[touched]
        added = np.zeros(touched.size, dtype=np.int64)
        np.add.at(added, places, numbers)
        self.counts[touched] = before + added
        self._epochs[touched] = self._epoch
        return touched, before

    def keys(self, slots: Integers | None = None) -> pl.DataFrame:
        """Return the keys of slots; of all in order."""
        assert self._index is not None, "no slot was given"
        return self._index.keys(None if slots is None else np.array(slots))

    def __len__(self) -> int:
        return 0 if self._index is None else len(self._index)

    def forget(self) -> None:
        """Let all keys have had no rows."""
        self.counts[:] = 0
        self._epochs[:] = self._epoch

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch."""
        self._epoch = epoch

    def delta(self, since: int) -> pl.DataFrame:
        """Return the keys touched after epoch `since`, with their numbers; all after 0."""
        if not len(self):
            return pl.DataFrame()
        is_new = self._epochs[: len(self)] > since
        slots = np.flatnonzero(is_new) if since else np.arange(len(self))
        return self.keys(slots).with_columns(pl.Series(NUMBER, self.counts[slots]))

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Take over what deltas say, in the order in which they were taken."""
        told = [delta for delta in deltas if not delta.is_empty()]
        if told:
            rows = latest(told, self._keys)
            slots = self.slots(rows)
            self.counts[slots] = rows[NUMBER].to_numpy()


def full(panes: Panes, counts: Integers) -> Integers:
    """Return how many windows of a key are full after so many rows."""
    return np.maximum((counts - panes.size) // panes.slide + 1, 0)


def begun(panes: Panes, counts: Integers) -> Integers:
    """Return how many windows of a key have begun after so many rows."""
    return -(-counts // panes.slide)


class FrameRowCountOperator(FrameWindowOperator[CountFrame]):
    """A row per full window, where it is only counted how many rows that has."""

    def begin(self) -> None:
        self._aggregation: FrameAggregation = self.spec.aggregation
        self._numbers = KeyNumbers(self._aggregation.keys, engine=self.engine)

    def stored(self, keys: tuple[str, ...], shard_count: int) -> State:
        return FrameState(self._numbers, keys, shard_count)

    def process(self, rows: Any) -> Any:
        slots = self._numbers.slots(rows)
        if self.spec.is_combined:
            name = self._aggregation.columns[0].names[0]
            numbers = rows[name].to_numpy()
        else:
            numbers = np.ones(rows.height, dtype=np.int64)
        touched, before = self._numbers.add(slots, numbers)
        panes, after = self.spec.panes, self._numbers.counts[touched]
        made = full(panes, after) - full(panes, before)
        is_made = made > 0
        if not is_made.any():
            return []
        keys = self._numbers.keys(touched[is_made])
        places = np.repeat(np.arange(keys.height), made[is_made])
        return self._told(keys, places, np.full(places.size, panes.size))

    def finish(self) -> Iterator[Any]:
        """Yield the windows that are not full, if they are wanted."""
        count = len(self._numbers)
        if self.spec.drops_incomplete or not count:
            return
        panes, counts = self.spec.panes, self._numbers.counts[:count]
        done = full(panes, counts)
        left = np.maximum(begun(panes, counts) - done, 0)
        places = np.repeat(np.arange(count), left)
        if not places.size:
            return
        firsts = np.cumsum(left) - left
        windows = done[places] + np.arange(places.size) - firsts[places]
        sizes = np.minimum(counts[places] - windows * panes.slide, panes.size)
        told = self._told(self._numbers.keys(), places, sizes)
        yield from told.iter_slices(_ROWS_MAX)

    def _told(
        self, keys: pl.DataFrame, places: Integers, sizes: Integers
    ) -> pl.DataFrame:
        parts = [
            pl.Series(name, sizes)
            for part in self._aggregation.columns
            for name in part.names
        ]
        rows = keys[places].with_columns(parts)
        names = self._aggregation.keys
        rows = rows.select(*names, *(p.finish for p in self._aggregation.columns))
        return rows.select(*names, *self._aggregation.results)

    def reset_after_flush(self) -> None:
        self._numbers.forget()

    def reset(self) -> None:
        """Forget all keys."""
        self.begin()
        if isinstance(self.state, FrameState):
            self.state.begin_anew(self._numbers)


class FrameCountWindowOperator(LoggedWindowOperator[CountFrame]):
    """A row per full window, with anything that is computed of its rows."""

    def begin(self) -> None:
        aggregation: FrameAggregation = self.spec.aggregation
        self._by_pane = replace(aggregation, keys=(SLOT, PANE))
        self._by_window = replace(aggregation, keys=(SLOT, WINDOW))
        self._numbers = KeyNumbers(aggregation.keys, engine=self.engine)
        self._held = PartialTable(self._by_pane)

    def process(self, rows: Any) -> Any:
        slots = self._numbers.slots(rows)
        numbered = rows.with_columns(pl.Series(SLOT, slots))
        base = pl.Series(NUMBER, self._numbers.counts[slots])
        number = pl.int_range(pl.len(), dtype=pl.Int64).over(SLOT) + base
        panes = self.spec.panes
        placed = numbered.with_columns(pane_of(panes, number).alias(PANE))
        if panes.has_gaps:
            placed = placed.filter(pl.col(PANE) % panes.step < panes.count)
        self._held.add_rows(placed)
        ones = np.ones(slots.size, dtype=np.int64)
        touched, before = self._numbers.add(slots, ones)
        after = self._numbers.counts[touched]
        done = np.zeros((2, len(self._numbers)), dtype=np.int64)
        done[0, touched], done[1, touched] = full(panes, before), full(panes, after)
        made = self._windows(*done) if (done[1] > done[0]).any() else None
        return [] if made is None else made

    def finish(self) -> Iterator[Any]:
        """Yield the windows that are not full, if they are wanted."""
        if self.spec.drops_incomplete or not len(self._numbers):
            return
        counts = self._numbers.counts[: len(self._numbers)]
        panes = self.spec.panes
        made = self._windows(full(panes, counts), begun(panes, counts))
        if made is not None:
            yield from made.iter_slices(_ROWS_MAX)

    def _windows(self, begin: Integers, end: Integers) -> pl.DataFrame | None:
        """Return the windows of every slot from one number to before another."""
        rows = self._held.merged()
        if rows is None:
            return None
        slots = rows[SLOT].to_numpy()
        fired = end > begin
        is_fired = pl.Series(fired[slots])
        chosen, places = rows.filter(is_fired), slots[fired[slots]]
        first, last = windows_of(self.spec.panes, pl.col(PANE))
        chosen = chosen.with_columns(
            pl.max_horizontal(first, pl.Series(begin[places])).alias(_LEAST),
            pl.min_horizontal(last, pl.Series(end[places] - 1)).alias(_MOST),
        )
        self._hold(rows.filter(~is_fired), chosen, end[places])
        chosen = chosen.filter(pl.col(_LEAST) <= pl.col(_MOST)).sort(PANE)
        if chosen.is_empty():
            return None
        numbers = pl.int_ranges(_LEAST, pl.col(_MOST) + 1).alias(WINDOW)
        table = PartialTable(self._by_window)
        table.add(
            chosen.with_columns(numbers).drop(_LEAST, _MOST, PANE).explode(WINDOW)
        )
        made = table.finished()
        assert made is not None
        made = made.sort(WINDOW)
        slots = made[SLOT].to_numpy()
        rest = made.drop(SLOT, WINDOW)
        bounds = self._bounds(made[WINDOW].to_numpy(), slots)
        return self._numbers.keys(slots).hstack(bounds).hstack(rest)

    def _bounds(self, windows: Integers, slots: Integers) -> list[pl.Series]:
        """Return from which row of its key to before which windows go, if that is asked."""
        if self.spec.bounds is None:
            return []
        panes, (first, beyond) = self.spec.panes, self.spec.bounds
        starts = windows * panes.slide
        ends = np.minimum(starts + panes.size, self._numbers.counts[slots])
        return [pl.Series(first, starts), pl.Series(beyond, ends)]

    def _hold(self, others: pl.DataFrame, chosen: pl.DataFrame, done: Integers) -> None:
        """Keep the parts that windows still need."""
        needed = pl.Series(done * self.spec.panes.step)
        rest = chosen.filter(chosen[PANE] >= needed).drop(_LEAST, _MOST)
        self._held = PartialTable(self._by_pane)
        for rows in (others, rest):
            self._held.add(rows)

    # What snapshots know of it

    def delta(self, since: int) -> LogDelta:  # noqa: ARG002 - parts go when they are used
        """Return all keys with their numbers, and the parts that are held."""
        if not len(self._numbers):
            return LogDelta(None, is_all=True)
        # A series shares the memory of an array, and these numbers go on.
        counts = self._numbers.counts[: len(self._numbers)].copy()
        keys = self._numbers.keys().with_columns(pl.Series(NUMBER, counts))
        held = self._held.merged()
        if held is None:
            return LogDelta(keys, is_all=True)
        parts = self._numbers.keys(held[SLOT].to_numpy()).hstack(held.drop(SLOT))
        return LogDelta(pl.concat([keys, parts], how="diagonal"), is_all=True)

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Take the keys of former tasks."""
        for log in logs:
            if log.rows is None or log.rows.is_empty():
                continue
            counted = log.rows.filter(pl.col(NUMBER).is_not_null())
            names = [*self.spec.aggregation.keys, NUMBER]
            self._numbers.restore([counted.select(names)])
            if PANE not in log.rows.columns:
                continue
            parts = log.rows.filter(pl.col(PANE).is_not_null()).drop(NUMBER)
            if parts.is_empty():
                continue
            slots = pl.Series(SLOT, self._numbers.slots(parts))
            rest = parts.drop(self.spec.aggregation.keys)
            self._held.add(rest.insert_column(0, slots))
