"""Tables against plain dicts: whatever is restored is what was there at the cut.

Method: a machine works on a table and a dict at once, in batches that set, change in
place and delete.  It cuts epochs, encodes captures long after the cut or never, completes
some epochs and abandons others, begins anew with a base, and recovers from the last
complete epoch.  Any complete epoch, restored into a table of either kind with any range
of shards, must give exactly the entries of these shards at that cut.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from millstream.protocol.ids import Epoch
from millstream.state.compaction import Merging, merged
from millstream.state.keyhash import shard_of
from millstream.state.row_codec import decode_rows
from millstream.state.settings import StateSettings

if TYPE_CHECKING:
    from millstream.state.base import Capture, Segment, ShardRange
    from millstream.state.table import Table

Backend = Literal["memory", "rocksdb"]

SHARDS = 16

# Numbers that share their whole hash with a small one, and equals of another type.
COLLIDING = [1 << 32 | number ^ 0x9E37_79B1 for number in range(4)]
KEYS = st.sampled_from(
    [*range(12), *COLLIDING, 1.0, True, "", "mill", None, ("a", 1), ("a", 1.0), b"x"]
)
VALUES = st.one_of(
    st.integers(0, 9),
    st.text(max_size=2),
    st.none(),
    st.lists(st.integers(0, 9), max_size=2),
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=1)),
)
DELETE = object()
CHANGES = st.dictionaries(KEYS, st.one_of(VALUES, st.just(DELETE)), max_size=6)
RANGES = st.tuples(st.integers(0, SHARDS), st.integers(0, SHARDS))


class TableMachine(RuleBasedStateMachine):
    """A task with one table, and what the store has of it."""

    backend: Backend = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self.table = self.made(self.backend)
        self.expected: dict[Any, Any] = {}
        self.epoch = self.complete = Epoch(0)
        #: Captures that are not encoded yet, with the epoch before them.
        self.pending: tuple[Capture, Epoch] | None = None
        self.at_cut: dict[Epoch, dict[Any, Any]] = {Epoch(0): {}}
        self.segments: dict[Epoch, list[Segment]] = {Epoch(0): []}

    def made(self, backend: Backend) -> Table:
        table = StateSettings(SHARDS, backend, cache_entries=4).make_table()
        self.tables.append(table)
        return table

    def teardown(self) -> None:
        for table in self.tables:
            table.close()

    @rule(changes=CHANGES)
    def work(self, changes: dict[Any, Any]) -> None:
        entries = self.table.touch(iter(changes))
        for key, value in changes.items():
            if value is DELETE:
                entries.pop(key, None)
                self.expected.pop(key, None)
            else:
                entries[key] = copy.deepcopy(value)
                self.expected[key] = copy.deepcopy(value)

    @rule(keys=st.sets(KEYS, max_size=4))
    def change_in_place(self, keys: set[Any]) -> None:
        for entries in (self.table.touch(keys), self.expected):
            for key in keys:
                if isinstance(entries.get(key), list):
                    entries[key].append(len(entries[key]))

    @rule(keys=st.sets(KEYS, max_size=4))
    def look(self, keys: set[Any]) -> None:
        entries = self.table.peek(keys)
        for key in keys:
            assert (key in entries) == (key in self.expected)

    @precondition(lambda self: self.pending is None)
    @rule(begins_anew=st.booleans())
    def cut(self, begins_anew: bool) -> None:  # noqa: FBT001 - Hypothesis calls it
        since = Epoch(0) if begins_anew else self.complete
        self.epoch = Epoch(self.epoch + 1)
        self.pending = self.table.capture(self.epoch, since), since
        self.at_cut[self.epoch] = copy.deepcopy(self.expected)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def abandon(self) -> None:
        self.pending = None

    @precondition(lambda self: self.pending is not None)
    @rule()
    def store(self) -> None:
        assert self.pending is not None
        capture, since = self.pending
        before = self.segments[since]
        self.segments[self.epoch] = before + list(capture.segments("sum", 0))
        self.table.complete(self.epoch)
        self.complete, self.pending = self.epoch, None

    @rule()
    def recover(self) -> None:
        """Go back to the last complete epoch, in a new process."""
        self.table = self.restored(self.backend, self.complete, (0, SHARDS))
        self.expected = copy.deepcopy(self.at_cut[self.complete])
        self.pending = None

    @rule(data=st.data(), ends=RANGES)
    def restore(self, data: st.DataObject, ends: ShardRange) -> None:
        """Resume from any complete epoch, as one of any number of tasks."""
        epoch = data.draw(st.sampled_from(sorted(self.segments)))
        first, end = min(ends), max(ends)

        backend = data.draw(st.sampled_from(sorted({"memory", self.backend})))
        table = self.restored(backend, epoch, (first, end))

        expected = {
            key: value
            for key, value in self.at_cut[epoch].items()
            if first <= shard_of(key, SHARDS) < end
        }
        assert dict(table.items()) == expected
        table.close()

    @rule()
    def merge(self) -> None:
        """Make a base of all that the last complete epoch needs."""
        if self.segments[self.complete]:
            merging = Merging(SHARDS, is_base=True)
            base = list(merged(self.segments[self.complete], merging))
            rows = [row for segment in base for row in decode_rows(segment.payload)]
            assert dict(rows) == self.at_cut[self.complete]
            self.segments[self.complete] = base

    @rule()
    def walk(self) -> None:
        """Not after every step: a walk writes everything back."""
        assert dict(self.table.items()) == self.expected

    def restored(self, backend: Backend, epoch: Epoch, shards: ShardRange) -> Table:
        table = self.made(backend)
        table.restore(self.segments[epoch], shards)
        return table


class RocksMachine(TableMachine):
    """The same with RocksDB."""

    backend: Backend = "rocksdb"


TestMemoryTable = TableMachine.TestCase
TestMemoryTable.settings = settings(stateful_step_count=30)
TestRocksTable = RocksMachine.TestCase
TestRocksTable.settings = settings(max_examples=5, stateful_step_count=30)


class LongRocksMachine(RocksMachine):
    """The same for longer."""


TestRocksTableForLong = pytest.mark.slow(LongRocksMachine.TestCase)
TestRocksTableForLong.settings = settings(max_examples=40, stateful_step_count=40)
