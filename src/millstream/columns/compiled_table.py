"""Aggregates by key at native speed: a slot per key, NumPy columns per part.

Where every part of an aggregation can be made row by row of a few numbers, state is a
`KeyIndex` and columns of slots, and a batch is one look-up of its keys and one pass per
column.  Until the compiled kernels are there, and for all other aggregations,
`PartialTable` does the same by grouping; what it has collected by then is taken over a
few batches' worth at a time, so that changing tables stops nothing.

Both know which keys were touched in which epoch, so that what changed since an epoch can
be stored, and put into another table.

Nothing here knows about operators, tasks, shards or the user's expressions.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.columns.kernels import loading
from millstream.columns.kernels.scatter import SlotColumn
from millstream.columns.slots import slot_part
from millstream.columns.table import PartialTable, latest
from millstream.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from numpy.typing import NDArray

    from millstream.columns.slots import Pick
    from millstream.columns.table import FrameAggregation

    Slots = NDArray[np.int64]
    _Change = Callable[["PartialTable | SlotTable"], None]

__all__ = ["SlotTable", "StateTable"]

EPOCH_MAX = 2**32 - 1

#: How many rows a call works off while tables change, and for each row that it brings.
HANDED_MIN = 1 << 16
HANDED_PER_ROW = 4


class StateTable:
    """The parts of every key: grouped by Polars first, in slots once that is faster.

    Its state is told and restored by *deltas*: frames with a row per key, of the key
    columns and those of the parts.  Columns named in `FrameAggregation.pickled` hold
    pickled objects; all others are plain data that Polars writes as Arrow.

    Parameters
    ----------
    rows_max
        Most rows put aside before they are merged, while Polars groups.
    engine
        `auto` uses slots as soon as the kernels are compiled; `native` waits for them and
        `polars` does without.
    """

    def __init__(
        self,
        aggregation: FrameAggregation,
        rows_max: int | None = None,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        self._aggregation = aggregation
        self._table: PartialTable | SlotTable = PartialTable(aggregation, rows_max)
        #: What the slots have yet to take, in order: rows of the table before, then
        #: batches that came since, each with how many rows it has.
        self._left: deque[tuple[int, Callable[[SlotTable], None]]] = deque()
        self._may_change = False
        self._epoch = 0
        if engine != "polars":
            self.prefer_slots()
        for family in ("index", "scatter"):
            loading.chosen(family, engine)

    @property
    def merged_rows(self) -> int:
        """Rows of the table, without those put aside."""
        return self._table.merged_rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the keys and their parts take, about; as `merged_rows`."""
        return self._table.nbytes

    @property
    def has_slots(self) -> bool:
        """Whether the faster table serves by now."""
        return isinstance(self._table, SlotTable)

    def prefer_slots(self) -> None:
        """Change to slots with the next batch, where they fit, once they are compiled."""
        self._may_change = self._aggregation.fits_slots and not self.has_slots

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Aggregate a batch of rows."""
        self._give(frame, lambda table: table.add_rows(frame))

    def add(self, frame: pl.DataFrame) -> None:
        """Take parts that other tables have merged."""
        self._give(frame, lambda table: table.add(frame))

    def merged(self) -> pl.DataFrame | None:
        """Return a row of parts per key; None if there is none."""
        return self._whole().merged()

    def finished(self) -> pl.DataFrame | None:
        """Return the result, a row per key; None if there is none."""
        return self._whole().finished()

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch.

        What came before the first call belongs to epoch 0.
        """
        if not self._epoch < epoch <= EPOCH_MAX:
            msg = (
                f"epoch {epoch} was begun after epoch {self._epoch}; epochs go up, to "
                f"{EPOCH_MAX} at most"
            )
            raise LocalProtocolError(msg)
        self._epoch = epoch
        if self._left:
            self._left.append((0, lambda table: table.begin_epoch(epoch)))
        else:
            self._table.begin_epoch(epoch)

    def delta(self, since: int) -> pl.DataFrame:
        """Return the state of the keys touched after epoch `since`; of all after 0.

        A key comes with all of its state, also the lists of long parts.  Where nothing
        was touched, the frame is empty and may lack columns.
        """
        return self._whole().delta(since)

    def apply(self, delta: pl.DataFrame) -> None:
        """Put the state that a delta tells in the place of what its keys have."""
        if not delta.is_empty():
            self._give(delta, lambda table: table.apply(delta))

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Apply deltas in the order in which they were taken, all at once.

        Parts that are not kept any more are left out.
        """
        own = [*self._aggregation.keys, *self._aggregation.names]
        told = [delta.select(own) for delta in deltas if not delta.is_empty()]
        if told:
            self.apply(latest(told, self._aggregation.keys))

    def _give(self, frame: pl.DataFrame, change: _Change) -> None:
        """Change the table now, or after what it has yet to take."""
        if self._may_change:
            self._change_over(frame)
        if not self._left:
            change(self._table)
            return
        self._left.append((frame.height, change))
        self._work_off(max(HANDED_MIN, HANDED_PER_ROW * frame.height))

    def _whole(self) -> PartialTable | SlotTable:
        """Return the table when it has taken everything."""
        while self._left:
            self._work_off(HANDED_MIN)
        return self._table

    def _work_off(self, rows: int) -> None:
        """Let the slots take the next rows, at least this many if there are."""
        table = self._table
        assert isinstance(table, SlotTable), "only they are given something later"
        while self._left and rows > 0:
            height, change = self._left.popleft()
            change(table)
            rows -= height

    def _change_over(self, frame: pl.DataFrame) -> None:
        kernels = loading.ready("scatter")
        if loading.ready("index") is None or kernels is None:
            return
        self._may_change = False
        assert isinstance(self._table, PartialTable), "it was made so"
        for run, epochs in self._table.dump():
            for start in range(0, run.height, HANDED_MIN):
                rows, then = (
                    run.slice(start, HANDED_MIN),
                    epochs.slice(start, HANDED_MIN),
                )
                self._left.append((rows.height, partial(_take_over, rows, then)))
        keys = {name: frame.schema[name] for name in self._aggregation.keys}
        self._table = SlotTable(self._aggregation, keys, kernels)
        epoch = self._epoch
        self._left.append((0, lambda table: table.begin_epoch(epoch)))


def _take_over(rows: pl.DataFrame, epochs: pl.Series, table: SlotTable) -> None:
    table.take_over(rows, epochs)


class SlotTable:
    """Parts in columns, one entry per slot of a key index."""

    def __init__(
        self,
        aggregation: FrameAggregation,
        keys: dict[str, pl.DataType],
        kernels: ModuleType,
    ) -> None:
        assert aggregation.fits_slots
        self._aggregation = aggregation
        self._names = [name for part in aggregation.columns for name in part.names]
        folds = [part.fold for part in aggregation.columns]
        self._terms = [term for fold in folds if fold for term in fold.terms]
        self._index = KeyIndex(keys)
        self._parts = [slot_part(part, kernels) for part in aggregation.columns]
        self._epoch = 0
        #: The epoch that last touched each slot.
        self._epochs = SlotColumn(kernels, np.uint32)

    @property
    def merged_rows(self) -> int:
        """Number of keys."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the keys and their parts take."""
        entries = sum(column.dtype.itemsize for column in self._columns())
        return self._index.nbytes + entries * len(self._index)

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Fold what every row gives into the columns of its key."""
        if not frame.is_empty():
            self._fold(self._touched(frame), frame.select(self._terms))

    def add(self, frame: pl.DataFrame) -> None:
        """Take parts that other tables have merged."""
        if not frame.is_empty():
            self._fold(self._touched(frame), frame.select(self._names))

    def merged(self) -> pl.DataFrame | None:
        """Return a row of parts per key; None if there is none."""
        count = len(self._index)
        if count == 0:
            return None
        return self._gathered(self._index.keys(), lambda column: column.head(count))

    def finished(self) -> pl.DataFrame | None:
        """Return the result, a row per key; None if there is none."""
        table = self.merged()
        if table is None:
            return None
        keys = self._aggregation.keys
        table = table.select(*keys, *(p.finish for p in self._aggregation.columns))
        return table.select(*keys, *self._aggregation.results)

    def begin_epoch(self, epoch: int) -> None:
        """Count what comes from now on as touched in this epoch."""
        self._epoch = epoch

    def delta(self, since: int) -> pl.DataFrame:
        """Return the parts of the keys touched after epoch `since`; of all after 0."""
        if since == 0:
            table = self.merged()
            return pl.DataFrame() if table is None else table
        slots = self._epochs.above(since)
        return self._gathered(self._index.keys(slots), lambda c: c.take(slots))

    def apply(self, frame: pl.DataFrame) -> None:
        """Put the parts of a delta in the place of what these keys have."""
        slots = self._touched(frame)
        for column in self._columns():
            if column is not self._epochs:
                column.put(slots, 0)
        self._fold(slots, frame.select(self._names))

    def take_over(self, frame: pl.DataFrame, epochs: pl.Series) -> None:
        """Take the parts of another table and the epochs that last touched them.

        Where a key comes several times, it comes in the order of its epochs.
        """
        slots = self._touched(frame)
        self._fold(slots, frame.select(self._names))
        for epoch in epochs.unique().sort():
            self._epochs.put(slots[(epochs == epoch).to_numpy()], epoch)

    def _touched(self, frame: pl.DataFrame) -> Slots:
        """Return the slots of a batch, after making room and noting the epoch."""
        slots = self._index.slots(frame)
        for column in self._columns():
            column.reserve(len(self._index))
        # Before the first epoch, the zeros of new entries say the right thing.
        if self._epoch:
            self._epochs.put(slots, self._epoch)
        return slots

    def _columns(self) -> list[SlotColumn]:
        return [column for part in self._parts for column in part.columns] + [
            self._epochs
        ]

    def _fold(self, slots: Slots, terms: pl.DataFrame) -> None:
        rest = terms.get_columns()
        for part, column in zip(self._parts, self._aggregation.columns, strict=True):
            count = len(column.partials)
            part.fold(slots, rest[:count])
            rest = rest[count:]

    def _gathered(self, keys: pl.DataFrame, pick: Pick) -> pl.DataFrame:
        return keys.with_columns(
            series for part in self._parts for series in part.kept(pick)
        )
