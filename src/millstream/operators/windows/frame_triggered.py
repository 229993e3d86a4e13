"""One window with all rows of a key of a data frame, and the user's trigger.

The trigger is called for one row after the other, as it is on rows; what it says only cuts
the rows of a key into pieces, which are aggregated a batch at a time.

Nothing here knows how pieces are kept, or how snapshots are stored.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl

from millstream.columns.index import KeyIndex
from millstream.columns.table import latest
from millstream.operators.base import TickingOperator, TimedOperator
from millstream.operators.windows.frame_base import LoggedWindowOperator
from millstream.operators.windows.frame_pieces import NEVER, Pieces
from millstream.operators.windows.trigger_calls import (
    CALL_AT,
    COUNT,
    KEPT,
    STATE,
    TriggerCalls,
)
from millstream.plan.frame_windows import (
    NUMBER,
    PANE,
    SLOT,
    TIME,
    WINDOW,
    TriggerFrame,
)
from millstream.protocol.former_times import latest_time
from millstream.protocol.watermark import BEGINNING
from millstream.state.frame_log import LogDelta
from millstream.state.plain import decode, encode
from millstream.state.row_codec import unstorable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.columns.kernels import loading
    from millstream.operators.windows.frame_pieces import ProbeKeys
    from millstream.operators.windows.trigger_calls import Entry
    from millstream.plan.logical import Node
    from millstream.plan.windows import Trigger
    from millstream.ports import Clock
    from millstream.state.settings import StateSettings
    from millstream.values import Batch, Key, Value

    Integers = NDArray[np.int64]

__all__ = ["FrameTriggeredOperator"]

RESULTS_MAX = 65_536
"""Results that are made at once, at most."""

PIECES_MAX = 1 << 18
"""Results are made when they are of so many pieces, which may be in many of them."""

SLOTS_MAX = 65_536
"""Keys without rows that keep their numbers, at most, beside as many as have rows."""

_REMEMBERED, _WANTED_AT = "__remembered", "__wanted_at"
_NAME, _FIRST, _PIECE = range(3)


class FrameTriggeredOperator(
    LoggedWindowOperator[TriggerFrame], TimedOperator, TickingOperator
):
    """Calls the trigger for every row, when its time has come, and at the end."""

    #: What comes now is told under this stamp; all was forgotten under that.
    _stamp = _anew = 0

    def __init__(
        self,
        nodes: tuple[Node, ...],
        settings: StateSettings | None,
        clock: Clock,
        *,
        engine: loading.Engine = "auto",
    ) -> None:
        self._clock = clock
        super().__init__(nodes, settings, engine=engine)

    def begin(self) -> None:
        self._keys: tuple[str, ...] = self.spec.aggregation.keys
        self._index: KeyIndex | None = None
        self._entries: dict[int, Entry] = {}
        self._calls = _PieceCalls(self.spec.window.trigger)
        self._pieces = Pieces(self.spec.aggregation)
        self._reached = BEGINNING
        self.tick_at_ms = None
        #: When slots were touched last, and how much was told since all was.
        self._touched: dict[int, int] = {}
        self._told_count = 0
        self._anew = self._stamp

    def process(self, rows: pl.DataFrame) -> Batch:
        calls, entries = self._calls, self._entries
        slots = self._slots(rows)
        self._touch(np.unique(slots))
        rows = rows.with_columns(pl.Series(SLOT, slots))
        times = rows[TIME].to_list() if self.spec.is_timed else repeat(self._now())
        made: list[pl.DataFrame] = []
        wanted: list[ProbeKeys] = []
        done = 0
        calls.begin()
        rows_iterator = iter(rows.select(self.spec.columns).to_dicts())
        following = zip(rows_iterator, slots.tolist(), times, strict=False)
        for number, (value, slot, now) in enumerate(following, 1):
            wanted += calls.row(slot, value, now, entries)
            if calls.pieces_wanted > PIECES_MAX:
                self._add(rows.slice(done, number - done))
                made += self._results(wanted)
                wanted, done = [], number
                calls.begin()
        self._add(rows.slice(done))
        made += self._results(wanted)
        self._settle()
        return pl.concat(made) if made else []

    def advance(self, time: int) -> Iterator[Batch]:
        """Call the triggers that wanted to be called up to a time."""
        if self.spec.is_timed:
            self._reached = max(self._reached, time)
            yield from self._fire(time)

    def tick(self, now_ms: int) -> Iterator[Batch]:
        yield from self._fire(now_ms)

    def finish(self) -> Iterator[Batch]:
        now, calls, entries = self._now(), self._calls, self._entries
        ends = (calls.end(slot, now, entries) for slot in list(entries))
        yield from self._sliced(ends)
        self.reset()

    def _fire(self, time: int) -> Iterator[pl.DataFrame]:
        calls, entries = self._calls, self._entries
        taken = cast("Iterator[tuple[int, list[int]]]", calls.due.taken(time))
        due = [slot for _, slots in taken for slot in slots]
        for slot in due:
            self._touched[slot] = self._stamp
        yield from self._sliced(calls.up_to(slot, time, entries) for slot in due)
        self._settle()

    def _sliced(self, found: Iterable[list[ProbeKeys]]) -> Iterator[pl.DataFrame]:
        """Yield the results that calls without rows want."""
        self._calls.begin()
        wanted: list[ProbeKeys] = []
        for more in found:
            wanted += more
            if len(wanted) >= RESULTS_MAX:
                yield from self._results(wanted)
                wanted = []
        yield from self._results(wanted)

    def _add(self, rows: pl.DataFrame) -> None:
        """Aggregate rows by the pieces that the trigger has made of them."""
        places = pl.Series(PANE, self._calls.places, dtype=pl.Int64)
        self._pieces.add_rows(rows.with_columns(places))

    def _results(self, wanted: list[ProbeKeys]) -> Iterator[pl.DataFrame]:
        if not wanted:
            return
        assert self._index is not None
        made = self._pieces.results(wanted, self._calls.recent)
        slots = np.array([slot for slot, _, _ in wanted], dtype=np.int64)
        yield self._index.keys(slots).hstack(made.drop(WINDOW))

    def _now(self) -> int:
        return self._reached if self.spec.is_timed else self._clock.wall_ms()

    def _settle(self) -> None:
        """Ask to be called, and forget what nobody needs."""
        if not self.spec.is_timed:
            self.tick_at_ms = self._calls.due.first
        count = 0 if self._index is None else len(self._index)
        has_idle_slots = count > 2 * len(self._entries) + SLOTS_MAX
        if self._pieces.is_large or has_idle_slots:
            self._tidy(has_idle_slots=has_idle_slots)

    def _tidy(self, *, has_idle_slots: bool) -> None:
        assert self._index is not None
        renumbered = np.arange(len(self._index))
        begins = self._begins(self._entries)
        if has_idle_slots:
            live = np.array(sorted(self._entries), dtype=np.int64)
            keys = self._index.keys(live)
            self._index = KeyIndex(dict(keys.schema), engine=self.engine)
            renumbered[live] = self._index.slots(keys)
            numbers = renumbered.tolist()
            self._entries = {numbers[s]: e for s, e in self._entries.items()}
            self._calls.find_due(self._entries.items())
            self._touched, self._anew = {}, self._stamp
        self._pieces.tidy(begins, renumbered)

    def _begins(self, slots: Iterable[int]) -> Integers:
        """Return from which number on the pieces of these slots count."""
        assert self._index is not None
        begins = np.full(len(self._index), NEVER)
        for slot in slots:
            entry = self._entries.get(slot)
            if entry is not None:
                begins[slot] = entry[KEPT][_FIRST]
        return begins

    # Keys

    def _slots(self, rows: pl.DataFrame) -> Integers:
        if self._index is None:
            schema = {name: rows.schema[name] for name in self._keys}
            self._index = KeyIndex(schema, engine=self.engine)
        return self._index.slots(rows)

    def _touch(self, slots: Integers) -> None:
        """Note that slots change, and what their keys are called."""
        assert self._index is not None
        numbers = slots.tolist()
        self._touched.update(dict.fromkeys(numbers, self._stamp))
        names = self._names(self._index.keys(slots))
        self._calls.names = dict(zip(numbers, names, strict=True))

    def _names(self, keys: pl.DataFrame) -> Sequence[Key]:
        """Return keys as triggers see them."""
        if not self.spec.has_keys:
            return [None] * keys.height
        return keys.rows() if keys.width > 1 else keys.to_series().to_list()

    # What snapshots know of it

    def delta(self, since: int) -> LogDelta:
        """Return the keys that were touched after a stamp; all if that is not much more."""
        is_all = since == 0 or self._anew > since
        is_all = is_all or self._told_count > 2 * len(self._entries)
        touched = [slot for slot, stamp in self._touched.items() if stamp > since]
        slots = list(self._entries) if is_all else touched
        self._told_count = len(slots) + (0 if is_all else self._told_count)
        rows = self._told_rows(slots) if slots else None
        return LogDelta(rows, is_all, {"reached": self._reached})

    def _told_rows(self, slots: list[int]) -> pl.DataFrame:
        """Return the entries of slots; one that is gone has no number of rows."""
        assert self._index is not None
        entries = [self._entries.get(slot) for slot in slots]
        counts = [None if entry is None else entry[COUNT] for entry in entries]
        states = [None if entry is None else _encoded(entry) for entry in entries]
        wishes = [None if entry is None else entry[CALL_AT] for entry in entries]
        told = self._index.keys(np.array(slots, dtype=np.int64)).with_columns(
            pl.Series(SLOT, slots, dtype=pl.Int64),
            pl.Series(NUMBER, counts, dtype=pl.Int64),
            pl.Series(_REMEMBERED, states, dtype=pl.Binary),
            pl.Series(_WANTED_AT, wishes, dtype=pl.Int64),
        )
        parts = self._pieces.merged(self._begins(slots))
        return told.join(parts, on=SLOT, how="left", maintain_order="left").drop(SLOT)

    def begin_stamp(self, stamp: int, stored: int) -> None:
        """Count what comes from now on under this stamp."""
        self._stamp = stamp
        kept = {slot: own for slot, own in self._touched.items() if own > stored}
        self._touched = kept

    def restore_log(self, logs: Sequence[LogDelta]) -> None:
        """Take the keys of former tasks; what was told last of a key counts."""
        self._reached = latest_time(log.facts["reached"] for log in logs)
        found = [log.rows for log in logs if log.rows is not None]
        if not found:
            return
        rows = latest([f.select(found[0].columns) for f in found], self._keys)
        rows = rows.filter(pl.col(NUMBER).is_not_null())
        slots = self._slots(rows)
        names = self._names(rows.select(self._keys))
        told = zip(slots.tolist(), names, rows.select(*_TOLD).rows(), strict=True)
        for slot, name, (count, state, wanted_at) in told:
            remembered = {} if state is None else decode(state)
            self._entries[slot] = [[name, 0, 0], count, remembered, wanted_at]
        parts = rows.drop(*self._keys, *_TOLD).with_columns(
            pl.Series(SLOT, slots), pl.lit(0, pl.Int64).alias(PANE)
        )
        self._pieces.add(parts.filter(rows[NUMBER] > 0))
        self._calls.find_due(self._entries.items())
        self._settle()


_TOLD = (NUMBER, _REMEMBERED, _WANTED_AT)


class _PieceCalls(TriggerCalls[int]):
    """Finds out which piece every row belongs to, and of which pieces results are.

    Kept of a key are its name, its first piece that counts, and the piece that its next
    row belongs to.
    """

    def __init__(self, trigger: Trigger) -> None:
        super().__init__(trigger)
        #: The keys of a batch, as triggers see them.
        self.names: dict[int, Key] = {}
        self._last = 0
        self.begin()

    def begin(self) -> None:
        """Begin with rows whose pieces are later than all that there are."""
        self.recent = self._last + 1
        #: The piece of every row that came since then.
        self.places: list[int] = []
        #: How many pieces the results are of that are wanted since then.
        self.pieces_wanted = 0
        self._purged: dict[int, int] = {}

    def kept_anew(self, key: int) -> list[Value]:
        first = self._purged.get(key, self.recent)
        return [self.names[key], first, first]

    def put(self, key: int, entry: Entry, value: Value) -> None:  # noqa: ARG002
        kept = entry[KEPT]
        kept[_PIECE] = max(kept[_PIECE], self.recent)
        self._last = max(self._last, kept[_PIECE])
        self.places.append(kept[_PIECE])

    def result(self, key: int, entry: Entry) -> ProbeKeys:
        _, first, last = entry[KEPT]
        self._next_piece(entry[KEPT])
        self.pieces_wanted += 2 + max(last - max(first, self.recent), 0)
        return key, first, last

    def purge(self, key: int, entry: Entry) -> None:
        kept = entry[KEPT]
        self._next_piece(kept)
        kept[_FIRST] = self._purged[key] = kept[_PIECE]

    def shown(self, key: int, entry: Entry) -> Key:  # noqa: ARG002 - it is a number
        name: Key = entry[KEPT][_NAME]
        return name

    def _next_piece(self, kept: list[Value]) -> None:
        kept[_PIECE] += 1
        self._last = max(self._last, kept[_PIECE])


def _encoded(entry: Entry) -> bytes | None:
    """Return what a trigger remembers for a key."""
    if not entry[STATE]:
        return None
    try:
        return encode(entry[STATE])
    except Exception as error:
        owner = f"what the trigger remembers for key {entry[KEPT][_NAME]!r}"
        raise unstorable(owner, error) from error
