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

from millstream.operators.base import Operator
from millstream.operators.frame_panes import pane_of, windows_of
from millstream.operators.frame_state import FrameState
from millstream.operators.frame_table import PartialTable, latest
from millstream.plan.frame_windows import NUMBER, PANE, SLOT, WINDOW, CountFrame
from millstream.state.frame_log import FrameLogState, Told
from millstream.state.keyindex import KeyIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.operators.frame_table import FrameAggregation
    from millstream.plan.frame_windows import Panes
    from millstream.plan.nodes import Node
    from millstream.state.kernels import loading
    from millstream.state.settings import StateSettings

    Integers = NDArray[np.int64]

__all__ = ["CountWindowed", "RowsCounted"]

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


class RowsCounted(Operator):
    """A row per full window, where it is only counted how many rows that has."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None = None,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, CountFrame)
        self._spec = spec
        self._engine = engine
        self._aggregation: FrameAggregation = spec.aggregation
        self._numbers = KeyNumbers(spec.aggregation.keys, engine=engine)
        self._state: FrameState | None = None
        if settings is not None:
            keys, count = spec.aggregation.keys, settings.shard_count
            self.state = self._state = FrameState(self._numbers, keys, count)

    def process(self, rows: Any, port: int) -> Any:  # noqa: ARG002 - one input
        slots = self._numbers.slots(rows)
        if self._spec.is_combined:
            name = self._aggregation.columns[0].names[0]
            numbers = rows[name].to_numpy()
        else:
            numbers = np.ones(rows.height, dtype=np.int64)
        touched, before = self._numbers.add(slots, numbers)
        panes, after = self._spec.panes, self._numbers.counts[touched]
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
        if self._spec.is_exact or not count:
            return
        panes, counts = self._spec.panes, self._numbers.counts[:count]
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

    def go_on(self) -> None:
        self._numbers.forget()

    def restart(self, ended: frozenset[int]) -> None:  # noqa: ARG002 - one input
        """Forget all keys."""
        self._numbers = KeyNumbers(self._aggregation.keys, engine=self._engine)
        if self._state is not None:
            self._state.begin_anew(self._numbers)


class CountWindowed(Operator):
    """A row per full window, with anything that is computed of its rows."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None = None,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        super().__init__(nodes)
        spec = nodes[0].spec
        assert isinstance(spec, CountFrame)
        self._spec = spec
        self._engine = engine
        self._by_pane = replace(spec.aggregation, keys=(SLOT, PANE))
        self._by_window = replace(spec.aggregation, keys=(SLOT, WINDOW))
        self._begin()
        if settings is not None:
            keys, count = spec.aggregation.keys, settings.shard_count
            self.state = FrameLogState(self, keys, count)

    def _begin(self) -> None:
        self._numbers = KeyNumbers(self._spec.aggregation.keys, engine=self._engine)
        self._held = PartialTable(self._by_pane)

    def process(self, rows: Any, port: int) -> Any:  # noqa: ARG002 - one input
        slots = self._numbers.slots(rows)
        numbered = rows.with_columns(pl.Series(SLOT, slots))
        base = pl.Series(NUMBER, self._numbers.counts[slots])
        number = pl.int_range(pl.len(), dtype=pl.Int64).over(SLOT) + base
        panes = self._spec.panes
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
        if self._spec.is_exact or not len(self._numbers):
            return
        counts = self._numbers.counts[: len(self._numbers)]
        panes = self._spec.panes
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
        first, last = windows_of(self._spec.panes, pl.col(PANE))
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
        keys = self._numbers.keys(made[SLOT].to_numpy())
        return keys.hstack(made.drop(SLOT, WINDOW))

    def _hold(self, others: pl.DataFrame, chosen: pl.DataFrame, done: Integers) -> None:
        """Keep the parts that windows still need."""
        needed = pl.Series(done * self._spec.panes.step)
        rest = chosen.filter(chosen[PANE] >= needed).drop(_LEAST, _MOST)
        self._held = PartialTable(self._by_pane)
        for rows in (others, rest):
            self._held.add(rows)

    def go_on(self) -> None:
        self._begin()

    def restart(self, ended: frozenset[int]) -> None:  # noqa: ARG002 - one input
        """Forget all keys."""
        self._begin()

    # What snapshots know of it

    def told(self, since: int) -> Told:  # noqa: ARG002 - parts go when they are used
        """Return all keys with their numbers, and the parts that are held."""
        if not len(self._numbers):
            return Told(None, is_all=True)
        counts = pl.Series(NUMBER, self._numbers.counts[: len(self._numbers)])
        keys = self._numbers.keys().with_columns(counts)
        held = self._held.merged()
        if held is None:
            return Told(keys, is_all=True)
        parts = self._numbers.keys(held[SLOT].to_numpy()).hstack(held.drop(SLOT))
        return Told(pl.concat([keys, parts], how="diagonal"), is_all=True)

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Do nothing: everything is told every time."""

    def retell(self, logs: Sequence[Told]) -> None:
        """Take the keys of former tasks."""
        for log in logs:
            if log.rows is None or log.rows.is_empty():
                continue
            counted = log.rows.filter(pl.col(NUMBER).is_not_null())
            names = [*self._spec.aggregation.keys, NUMBER]
            self._numbers.restore([counted.select(names)])
            if PANE not in log.rows.columns:
                continue
            parts = log.rows.filter(pl.col(PANE).is_not_null()).drop(NUMBER)
            if parts.is_empty():
                continue
            slots = pl.Series(SLOT, self._numbers.slots(parts))
            rest = parts.drop(self._spec.aggregation.keys)
            self._held.add(rest.insert_column(0, slots))
