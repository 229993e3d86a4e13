"""A user's stateful function, called for the records and the timers of every key.

Timers and the expiry of values are part of a key's state (`operators.rows.timers`,
`operators.rows.expiry`).  Which key has something due when is found in it again after a
restore, and known in memory from then on.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from millstream.errors import UsageError
from millstream.operators.base import TickingOperator, TimedOperator, do_nothing
from millstream.operators.due import DueKeys, chunks
from millstream.operators.rows.by_key import KeyedOperator
from millstream.operators.rows.expiry import expire, next_expiry
from millstream.operators.rows.timers import (
    EVENT,
    PROCESSING,
    WAITING,
    Timer,
    Timers,
    due_times_of,
)
from millstream.plan.aggregate import MISSING
from millstream.plan.nodes import Process
from millstream.plan.time import LateRow, LateTimestamp
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.state.keyhash import key_hash
from millstream.state.table_and_time import TableAndTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.operators.rows.timers import KeyState, Kind
    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table
    from millstream.values import Key, Pair, Value

__all__ = ["ProcessOperator"]

_LEAVING_ROWS = 1024

_TIMERS_AFTER_END_MAX = 100_000
"""Timers that one key may set one after the other when the input has ended."""


class ProcessOperator(KeyedOperator, TimedOperator, TickingOperator):
    """A user's stateful function, called with the state of the row's key."""

    late: list[LateRow]
    is_guarded = True
    keeps_keys = False

    def __init__(self, nodes: tuple[Node, ...], table: Table, clock: Clock) -> None:
        super().__init__(nodes, table)
        node = nodes[0]
        spec = node.spec
        assert isinstance(spec, Process)
        self._is_timed = node.takes_times
        self._clock = clock
        self._function = spec.function._instance()  # noqa: SLF001 - private to users alone
        self._timers = Timers(
            self._function,
            clock,
            f"`{node.verb}` at {node.location}",
            is_timed=node.takes_times,
        )
        self._function.timers = self._timers
        self._process = self._timed if self._is_timed else self._untimed
        if spec.in_time_order:
            self._process, self.is_guarded = self._put_aside, False
        #: When to look at each key: at its earliest timer, or before.
        self._indexes: dict[Kind, DueKeys] = {EVENT: DueKeys(), PROCESSING: DueKeys()}
        if self._is_timed:
            self.state = TableAndTime(
                table, lambda: self._function.watermark, self._put_reached, do_nothing
            )
        self._has_times = self._function.has_times or spec.in_time_order
        self._is_indexed = not self._has_times
        if not self._is_indexed:
            self.tick_at_ms = 0  # At once: it is not known yet what will be restored.

    def process(self, rows: Rows) -> Rows:
        self._find_restored()
        self._timers.added.clear()
        made = self._process(rows)
        self._set_tick()
        return made

    def _untimed(self, rows: Rows) -> Rows:
        function, states = self._function, self.touched(rows)
        on_record, added = function.on_record, self._timers.added
        result: Rows = []
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            state = states.get(key)
            if state is None:
                states[key] = state = {}
            function.key_state = state
            made = on_record(key, value)
            if made is not None:
                result += [(key, item) for item in made]
            if added:
                self._note_added(key)
            if not state:
                del states[key]
        return result

    def _timed(self, rows: Rows) -> Rows:
        function, states = self._function, self.touched(rows)
        on_record, added = function.on_record, self._timers.added
        result: Rows = []
        rows_iterator = iter(rows)
        for key, (timestamp, value) in rows_iterator:
            state = states.get(key)
            if state is None:
                states[key] = state = {}
            function.key_state = state
            function.timestamp = timestamp
            made = on_record(key, value)
            if made is not None:
                result += [(key, (timestamp, item)) for item in made]
            if added:
                self._note_added(key)
            if not state:
                del states[key]
        return result

    def _put_aside(self, rows: Rows) -> Rows:
        """Let rows wait until no earlier one can come; leave out those that are late."""
        states, index = self.touched(rows), self._indexes[EVENT]
        reached = self._function.watermark
        for key, (timestamp, value) in rows:
            is_passed = reached is not None and timestamp <= reached
            if is_passed or type(timestamp) is LateTimestamp:
                self.late.append(LateRow(key, value, int(timestamp)))
                self.late_count += 1
                continue
            state = states.setdefault(key, {})
            state.setdefault((WAITING, timestamp), []).append(value)
            index.add(key, timestamp)
        return []

    def advance(self, time: int) -> Iterator[Rows]:
        """Call `on_timer` for the timers of event time up to `time`."""
        self._find_restored()
        self._function.watermark = time
        yield from self._fired(EVENT, time)

    def tick(self, now_ms: int) -> Iterator[Rows]:
        """Call `on_timer` for the timers of processing time; remove what has expired."""
        self._find_restored()
        yield from self._fired(PROCESSING, now_ms)

    def finish(self) -> Iterator[Rows]:
        """Let event time come to its end, then call `on_end` for every key with state.

        Timers of processing time do not fire: their time has not come.
        """
        self._find_restored()
        function = self._function
        function.watermark, function.is_at_end = END_OF_TIME, True
        yield from self._fired(EVENT, END_OF_TIME)
        self._timers.is_over = True
        function.timestamp = None
        now_ms = self._clock.wall_ms()
        for states in self.batches():
            result: Rows = []
            for key, state in states:
                if self._has_times:
                    expire(state, now_ms)
                    if not state:
                        continue
                function.key_state = state
                result += self._stamped(key, END_OF_TIME, function.on_end(key))
            yield result

    def close(self) -> None:
        super().close()
        self._function.close()

    def begin_anew(self) -> None:
        for index in self._indexes.values():
            index.clear()
        self._timers.is_over = self._function.is_at_end = False
        self._function.watermark = None
        self._set_tick()

    def _stamped(
        self, key: Key, timestamp: int, made: Iterable[Value] | None
    ) -> Iterable[Pair]:
        if made is None:
            return ()
        if self._is_timed:
            return [(key, (timestamp, item)) for item in made]
        return [(key, item) for item in made]

    def _fired(self, kind: Kind, until: int) -> Iterator[Rows]:
        """Call `on_timer` for all timers up to a time, in the order of time.

        Keys with timers for the same time have their turn in the order of their hashes,
        which is the same whatever happened before.
        """
        firing = _Firing(self._indexes[kind], until)
        made: Rows = []
        while (time := firing.first) is not None:
            for some in chunks(firing.take()):
                for rows in self._fired_at(time, kind, some, firing):
                    made += rows
                    if len(made) >= _LEAVING_ROWS:
                        yield made
                        made = []
        self._set_tick()
        if made:
            yield made

    def _fired_at(
        self, time: int, kind: Kind, keys: list[Key], firing: _Firing
    ) -> Iterator[Iterable[Pair]]:
        """Call `on_timer` for keys that may have a timer for this time."""
        function, states = self._function, self.entries_of(keys)
        for key in keys:
            state = states.get(key)
            if state is None:
                continue
            firing.look_at(key, state, time, kind)
            function.key_state = state
            function.timestamp = time if self._is_timed else None
            if kind == EVENT and (WAITING, time) in state:
                for value in state.pop((WAITING, time)):
                    yield self._stamped(key, time, function.on_record(key, value))
                self._note_set(key, state, kind, firing)
            if state.pop((kind, time), MISSING) is not MISSING:
                made = function.on_timer(key, Timer(time, kind))
                yield self._stamped(key, time, made)
                self._check_end(key, firing)
                self._note_set(key, state, kind, firing)
            if not state:
                del states[key]

    def _note_added(self, key: Key) -> None:
        """Take note of what will be due that was not before."""
        for kind, time in self._timers.added:
            self._indexes[kind].add(key, time)
        self._timers.added.clear()

    def _note_set(self, key: Key, state: KeyState, kind: Kind, firing: _Firing) -> None:
        """Do the like for what `on_timer` set, which may be due at once."""
        for added_kind, time in self._timers.added:
            if added_kind != kind or time > firing.until:
                self._indexes[added_kind].add(key, time)
            elif (kind, time) in state:
                firing.put(key, time)
            else:  # The clock was set back, and a value expires.
                self._indexes[kind].add(key, firing.until + 1)
        self._timers.added.clear()

    def _check_end(self, key: Key, firing: _Firing) -> None:
        """Refuse timers that set others again and again when the input has ended."""
        if not self._function.is_at_end or not self._timers.added:
            return
        count = firing.counted(key)
        if count > _TIMERS_AFTER_END_MAX:
            node = self.nodes[0]
            msg = (
                f"{count} timers of key {key!r} of `{node.verb}` at {node.location} have "
                "set others after the end of the input; a timer that sets itself anew "
                "must stop when `self.is_at_end`"
            )
            raise UsageError(msg)

    def _put_reached(self, time: int) -> None:
        self._function.watermark = None if time == BEGINNING else time

    def _find_restored(self) -> None:
        """Find out, once, what is due of what was restored."""
        if self._is_indexed:
            return
        self._is_indexed = True
        for key, state in self.table.items():
            for kind, index in self._indexes.items():
                for time in due_times_of(state, kind):
                    index.add(key, time)
            if (expiry := next_expiry(state)) is not None:
                self._indexes[PROCESSING].add(key, expiry)

    def _set_tick(self) -> None:
        self.tick_at_ms = self._indexes[PROCESSING].first


class _Firing:
    """What is due up to a time, while it is being worked off."""

    def __init__(self, index: DueKeys, until: int) -> None:
        self.until = until
        self._index = index
        #: Times of keys that have been looked at; a key may have many.
        self._known: dict[int, set[Key]] = {}
        self._times: list[int] = []
        #: Keys of the earliest time that have not been looked at.
        self._unknown: set[Key] = set()
        self._counts: dict[Key, int] = {}

    @property
    def first(self) -> int | None:
        """The earliest time at which something is due."""
        times = [t for t in (self._index.first, *self._times[:1]) if t is not None]
        first = min(times, default=None)
        return None if first is None or first > self.until else first

    def take(self) -> list[Key]:
        """Return the keys that may have a timer for the earliest time, in order."""
        first = self.first
        assert first is not None
        known: set[Key] = set()
        if self._times[:1] == [first]:
            heapq.heappop(self._times)
            known = self._known.pop(first)
        self._unknown = set(self._index.take() if self._index.first == first else ())
        keys = known | self._unknown
        return sorted(keys, key=key_hash) if len(keys) > 1 else list(keys)

    def look_at(self, key: Key, state: KeyState, time: int, kind: Kind) -> None:
        """Remove what has expired of a key, and find its timers after `time`."""
        if key not in self._unknown:
            return
        later = expire(state, self.until) if kind == PROCESSING else None
        for due_time in due_times_of(state, kind):
            if time < due_time <= self.until:
                self.put(key, due_time)
            elif due_time > self.until and (later is None or due_time < later):
                later = due_time
        if later is not None:
            self._index.add(key, later)

    def counted(self, key: Key) -> int:
        """Count a timer that has set another; return how many did."""
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count

    def put(self, key: Key, time: int) -> None:
        """Add a time at which something of a key is due."""
        keys = self._known.get(time)
        if keys is None:
            self._known[time] = keys = set()
            heapq.heappush(self._times, time)
        keys.add(key)
