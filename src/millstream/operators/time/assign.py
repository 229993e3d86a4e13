"""Where event time begins: timestamps, watermarks, and order by them.

A `TimestampAssigner` remembers the watermark of each *origin* of its rows: a split of the
source, or a channel.  It does not know how watermarks travel.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

import cloudpickle

from millstream.operators.base import OneInputOperator, Rows, TimedOperator
from millstream.operators.due import DueKeys
from millstream.operators.rows.by_key import KeyedOperator
from millstream.plan.time import (
    TIME_LIMIT,
    AssignTime,
    LateRow,
    LateTimestamp,
    timestamp,
)
from millstream.protocol.former_times import earliest_time
from millstream.protocol.watermark import (
    BEGINNING,
    END_OF_TIME,
    EventTime,
    Watermark,
)
from millstream.state.row_codec import unstorable
from millstream.state.task_state import TaskState
from millstream.values import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.ports import Clock
    from millstream.state.table import Table
    from millstream.values import Key, TimedRow

__all__ = ["AssignTimestampsOperator", "SortByTimeOperator", "TimestampAssigner"]

_LEAVING_ROWS = 1024

Rule = Callable[[Row, int], int | None]
"""The watermark that a row and its timestamp make; None for none."""

Kept = tuple[dict[str, int], dict[str, bytes], int]
"""Watermarks of origins, their rules, and the last watermark sent."""

_timestamp_of = itemgetter(0)


class TimestampAssigner(OneInputOperator):
    """What `event_time` does for rows and for frames: it keeps a watermark for each origin.

    Parameters
    ----------
    every_ms
        Watermarks are at least this far apart.
    idle_after_ms
        After this long without a row an origin holds nobody back; None for never.
    splits_in_order
        Whether only those splits count that are being read.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        every_ms: float,
        clock: Clock,
        idle_after_ms: int | None,
        *,
        splits_in_order: bool = False,
    ) -> None:
        super().__init__(nodes)
        self.splits_in_order = splits_in_order
        #: Where the rows come from that are processed next.
        self.origin = ""
        #: How many timestamps were too far ahead to move time.
        self.ahead_count = 0
        self.state = TaskState(self._kept, self._put, is_shared=True)
        #: The watermark of each origin.
        self.watermarks: dict[str, int] = {}
        #: The user's own rules, by origin, and those of a snapshot that nobody needed yet.
        self._rules: dict[str, Rule] = {}
        self._stored_rules: dict[str, bytes] = {}
        self._clock = clock
        self._every_ns = round(every_ms * 1_000_000)
        self._idle_after_ns = (
            None if idle_after_ms is None else idle_after_ms * 1_000_000
        )
        self._heard_ns: dict[str, int] = {}
        self._told = Watermark(BEGINNING)
        #: How far time had come in the former run.
        self._told_before = BEGINNING
        self._next_ns = 0

    def advance_origin(self, time: int) -> None:
        """Let nothing of `time` or earlier follow from the present origin."""
        if time > self.watermarks.get(self.origin, BEGINNING):
            self.watermarks[self.origin] = time
        self._heard_ns[self.origin] = self._clock.monotonic_ns()

    def rule(self, make: Callable[[], Rule]) -> Rule:
        """Return the user's own rule of the present origin; it may remember things."""
        rule = self._rules.get(self.origin)
        if rule is None:
            stored = self._stored_rules.pop(self.origin, None)
            # The store has checked that it is ours.
            rule = make() if stored is None else pickle.loads(stored)  # noqa: S301
            self._rules[self.origin] = rule
        return rule

    def due(self, origins: Iterable[str], now_ns: int) -> Watermark | None:
        """Return the watermark to send now, if there is a new one.

        `origins` are those that have not ended, whether or not anything came from them.
        """
        if now_ns < self._next_ns:
            return None
        origins = list(origins)
        if not origins:
            return None
        time: EventTime[str] = EventTime(origins)
        for origin in origins:
            reached = self.watermarks.get(origin, BEGINNING)
            time.note(origin, Watermark(reached, self._is_idle(origin, now_ns)))
        least = time.watermark
        found = Watermark(max(least.time, self._told.time), least.is_idle)
        if found == self._told:
            return None
        self._next_ns = now_ns + self._every_ns
        self._told = found
        return found

    def wake_ns(self, now_ns: int) -> int | None:
        """Return when `due` should be asked again though nothing has come."""
        if now_ns < self._next_ns:
            return self._next_ns
        after_ns = self._idle_after_ns
        if after_ns is None or not self._heard_ns:
            return None
        later = [ns + after_ns for ns in self._heard_ns.values()]
        return min((ns for ns in later if ns > now_ns), default=None)

    def begin_undo(self, rows: Rows) -> Callable[[], None]:  # noqa: ARG002 - a rule sees all
        """Return what undoes a `process` that raised: rules remember what they saw."""
        origin, ahead_count = self.origin, self.ahead_count
        stored = self._stored_rules.get(origin)
        if origin in self._rules:
            stored = self._pickled(self._rules[origin])

        def undo() -> None:
            self.ahead_count = ahead_count
            self._rules.pop(origin, None)
            if stored is not None:
                self._stored_rules[origin] = stored

        return undo

    def forget_others(self, origins: Iterable[str]) -> None:
        """Keep nothing of a former run but the watermarks of these origins.

        Others go on elsewhere, and what is known of them here would be out of date.
        """
        own = set(origins)
        for known in (self.watermarks, self._stored_rules):
            for origin in known.keys() - own:
                del known[origin]

    def begin_anew(self, origins: Iterable[str]) -> None:
        """Let none of these origins be one of a former run, as where channels changed.

        Each has the watermark that all of them had together; rules remember nothing.
        """
        self.watermarks = dict.fromkeys(origins, self._told_before)
        self._stored_rules.clear()

    def reset(self) -> None:
        """Begin at the beginning of time."""
        self.watermarks.clear()
        self._rules.clear()
        self._stored_rules.clear()
        self._heard_ns.clear()
        self._told, self._next_ns = Watermark(BEGINNING), 0
        self._told_before = BEGINNING

    def reset_after_flush(self) -> None:
        """Keep the watermarks: time does not go back where a loop goes on."""

    def _is_idle(self, origin: str, now_ns: int) -> bool:
        if self._idle_after_ns is None:
            return False
        since_ns = self._heard_ns.setdefault(origin, now_ns)
        return now_ns - since_ns >= self._idle_after_ns

    def _kept(self) -> Kept:
        rules = {origin: self._pickled(rule) for origin, rule in self._rules.items()}
        told = max(self._told.time, self._told_before)
        return dict(self.watermarks), self._stored_rules | rules, told

    def _pickled(self, rule: Rule) -> bytes:
        try:
            # Functions that remember something are not found by a name.
            made: bytes = cloudpickle.dumps(rule, protocol=5)
        except Exception as error:
            owner = f"what watermark= of {self.nodes[0].user_name!r} returned"
            raise unstorable(owner, error) from error
        return made

    def _put(self, values: list[Kept]) -> None:
        """Take the watermarks of former tasks; where two differ, the safer one counts."""
        self._told_before = earliest_time(told for _, _, told in values)
        for watermarks, rules, _ in values:
            for origin, time in watermarks.items():
                if time <= self.watermarks.get(origin, time):
                    self.watermarks[origin] = time
                    if origin in rules:
                        self._stored_rules[origin] = rules[origin]
            others = {o: rule for o, rule in rules.items() if o not in watermarks}
            self._stored_rules |= others


class AssignTimestampsOperator(TimestampAssigner):
    """Pairs every row with its timestamp."""

    is_guarded = True

    def __init__(self, nodes: tuple[Node, ...], every_ms: float, clock: Clock) -> None:
        spec = nodes[0].spec
        assert isinstance(spec, AssignTime)
        super().__init__(
            nodes,
            every_ms,
            clock,
            spec.idle_after_ms,
            splits_in_order=spec.splits_in_order,
        )
        self._spec = spec

    def process(self, rows: Rows) -> Rows:
        times = self._times(rows)
        spec = self._spec
        before = self.watermarks.get(self.origin, BEGINNING)
        latest = max(times)
        is_ahead = spec.max_future_skew_ms is not None and latest > self._ahead()
        after = max(before, latest - spec.out_of_order_ms - 1)
        if spec.watermark is not None or is_ahead or min(times) <= after:
            times = self._checked(times, rows, before)
        else:
            self.advance_origin(after)
        return list(zip(times, rows, strict=True))

    def _times(self, rows: Rows) -> list[int]:
        function = self._spec.function
        rows_iterator = iter(rows)
        times = [function(row) for row in rows_iterator]
        if set(map(type, times)) == {int} and _are_in_time(times):
            return times
        rows_iterator = iter(rows)
        return [timestamp(function(row)) for row in rows_iterator]

    def _ahead(self) -> int:
        assert self._spec.max_future_skew_ms is not None
        return self._clock.wall_ms() + self._spec.max_future_skew_ms

    def _checked(self, times: list[int], rows: Rows, watermark: int) -> list[int]:
        """Return the timestamps, marking those that are behind the watermark."""
        ahead = END_OF_TIME if self._spec.max_future_skew_ms is None else self._ahead()
        rule = self._rule()
        checked: list[int] = []
        rows_iterator = iter(rows)
        for time, row in zip(times, rows_iterator, strict=True):
            checked.append(time if time > watermark else LateTimestamp(time, watermark))
            if time > ahead:
                self.ahead_count += 1
                continue
            made = rule(row, time)
            watermark = watermark if made is None else max(watermark, made)
        self.advance_origin(min(watermark, TIME_LIMIT))
        return checked

    def _rule(self) -> Rule:
        make, out_of_order_ms = self._spec.watermark, self._spec.out_of_order_ms
        if make is None:
            return lambda _row, time: time - out_of_order_ms - 1
        return self.rule(make)


class SortByTimeOperator(KeyedOperator, TimedOperator):
    """Rows in the order of their timestamps; each waits until its time has come."""

    late: list[LateRow]
    keeps_keys = False

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        self._has_keys = nodes[0].takes_pairs
        #: When the earliest row of every key is due.
        self._due = DueKeys()
        self._is_indexed = False
        self._reached = BEGINNING

    def process(self, rows: Rows) -> Rows:
        self._index()
        pairs = rows if self._has_keys else [(None, row) for row in rows]
        waiting, due, least = self.touched(pairs), self._due, self._due.time_of
        for key, row in pairs:
            time = row[0]
            if time <= self._reached or type(time) is LateTimestamp:
                self.late.append(LateRow(key, row[1], int(time)))
                self.late_count += 1
            elif key in waiting:
                waiting[key].append(row)
                if time < least[key]:
                    due.add(key, time)
            else:
                waiting[key] = [row]
                due.add(key, time)
        return []

    def advance(self, time: int) -> Iterator[Rows]:
        """Yield the rows whose time has come, in order."""
        self._index()
        self._reached = max(self._reached, time)
        keys = [key for _, due in self._due.taken(time) for key in due]
        ready = iter(sorted(self._taken(keys, time), key=_time_of_pair))
        while rows := list(islice(ready, _LEAVING_ROWS)):
            yield rows if self._has_keys else [row for _, row in rows]

    def finish(self) -> Iterable[Rows]:
        return self.advance(END_OF_TIME)

    def begin_anew(self) -> None:
        """Let time begin anew, without any rows."""
        self._due.clear()
        self._reached = BEGINNING

    def _taken(self, keys: list[Key], time: int) -> Iterator[tuple[Key, TimedRow]]:
        """Take the rows of keys up to a time out of what waits."""
        waiting = self.entries_of(keys)
        for key in keys:
            rows = waiting.pop(key)
            yield from ((key, row) for row in rows if row[0] <= time)
            rest = [row for row in rows if row[0] > time]
            if rest:
                waiting[key] = rest
                self._due.add(key, min(map(_timestamp_of, rest)))

    def _index(self) -> None:
        """Find the earliest rows of what was restored."""
        if self._is_indexed:
            return
        self._is_indexed = True
        for key, rows in self.table.items():
            self._due.add(key, min(map(_timestamp_of, rows)))


def _are_in_time(times: list[int]) -> bool:
    return min(times) >= -TIME_LIMIT and max(times) <= TIME_LIMIT


def _time_of_pair(pair: tuple[Key, TimedRow]) -> int:
    return pair[1][0]
