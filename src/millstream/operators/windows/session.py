"""Session windows: a row joins the session that it is near, and two sessions that it is
between become one.

The entry of a key is a list of its sessions in order.  A row is as long as the gap; where
it is behind the watermark of its origin, only the part of it counts that was still to come
then.  So which rows make a session depends on the rows alone, and not on what was over
when they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.due import DueKeys, chunks
from millstream.operators.windows.base import ByTheClock, TimedWindowOperator
from millstream.operators.windows.content import content_of
from millstream.plan.time import LateTimestamp
from millstream.plan.windows import SessionWindows, Window
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.table import Table

    Session = list[Any]
    """Start, end, whether its result was given, and what is stored of its rows."""

__all__ = ["ClockSessionOperator", "EventTimeSessionOperator"]

_START, _END, _IS_GIVEN, _STORED = range(4)
_BATCH_ROWS = 1024


class _SessionOperator(TimedWindowOperator):
    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        window = self.spec.window
        assert isinstance(window, SessionWindows)
        self._gap = window.gap_ms
        self._lateness = self.spec.lateness_ms
        self._content = content_of(
            self.spec,
            is_timed=window.time == "event",
            is_merging=True,
            is_kept=self._lateness > 0,
        )
        #: When the next session of each key is over, or dropped, at the earliest.
        self._due = DueKeys()

    def fire(self, time: int) -> Iterator[Rows]:
        rows: Rows = []
        for _, keys in self._due.taken(time):
            for chunk in chunks(keys):
                rows += self._results(time, chunk)
            if len(rows) >= _BATCH_ROWS:
                yield rows
                rows = []
        if rows:
            yield rows

    def finish(self) -> Iterable[Rows]:
        return self.fire(END_OF_TIME)

    def find_due(self) -> None:
        self._due.clear()
        for key, sessions in self.table.items():
            self._wait(key, sessions)

    def join(self, sessions: list[Session], start: int, end: int, item: Any) -> None:
        """Put an item that reaches from `start` to `end` into the session it is near."""
        first = len(sessions)
        while first and sessions[first - 1][_END] > start:
            first -= 1
        last = first
        while last < len(sessions) and sessions[last][_START] < end:
            last += 1
        near = sessions[first:last]
        session: Session = near[0] if near else [start, end, False, {}]
        for other in near[1:]:
            self._unite(session, other)
        session[_START] = min(start, session[_START])
        session[_END] = max(end, session[_END])
        sessions[first:last] = [session]
        self._content.put(session[_STORED], 0, item, self.reached)
        session[_IS_GIVEN] = False

    def _unite(self, session: Session, later: Session) -> None:
        stored = session[_STORED]
        stored[0] = self._content.joined(stored[0], later[_STORED][0])
        session[_END] = max(session[_END], later[_END])

    def _results(self, time: int, keys: list[Any]) -> Rows:
        """Return the rows of sessions that are over, and drop those nobody can join."""
        entries = self.entries_of(keys)
        rows = self.given(entries, keys, time)
        for key in keys:
            sessions = entries.get(key, [])
            left = [s for s in sessions if s[_END] - 1 + self._lateness > time]
            if left:
                entries[key] = left
                self._wait(key, left)
            else:
                entries.pop(key, None)
        return rows

    def given(self, entries: dict[Any, Any], keys: Iterable[Any], time: int) -> Rows:
        """Return the rows of sessions that are over at a time and have changed."""
        rows: Rows = []
        for key in keys:
            for session in entries.get(key, ()):
                if session[_END] - 1 <= time and not session[_IS_GIVEN]:
                    session[_IS_GIVEN] = True
                    window = Window(session[_START], session[_END])
                    stored = [session[_STORED][0]]
                    result = self._content.result(window, stored)
                    rows.append(self.row(key, window, result))
        return rows

    def _wait(self, key: Any, sessions: list[Session]) -> None:
        for session in sessions:
            last = session[_END] - 1
            self._due.add(key, last + self._lateness if session[_IS_GIVEN] else last)


class EventTimeSessionOperator(_SessionOperator):
    """Sessions by the timestamps of rows."""

    def process(self, rows: Rows) -> Rows:
        entries, gap, reached = self.touched(rows), self._gap, self.reached
        changed: dict[Any, None] = {}
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            time = item[0]
            if time <= reached or type(time) is not int:
                self._take_behind(entries, key, item)
                changed[key] = None
                continue
            sessions = entries.get(key)
            if sessions is None:
                entries[key] = sessions = []
            self.join(sessions, time, time + gap, item)
            self._due.add(key, time + gap - 1)
        made = self.given(entries, changed, reached)
        for key in changed:
            self._wait(key, entries.get(key, []))
        return made

    def _take_behind(self, entries: dict[Any, Any], key: Any, item: Any) -> None:
        """Take a row that may be late."""
        time = int(item[0])
        watermark = item[0].watermark if type(item[0]) is LateTimestamp else BEGINNING
        gone = max(self.reached, watermark) - self._lateness
        start, end = max(time, gone + 1), time + self._gap
        if start >= end:
            self.be_late(key, item)
            return
        self.join(entries.setdefault(key, []), start, end, (time, item[1]))


class ClockSessionOperator(ByTheClock, _SessionOperator):
    """Sessions by the wall clock when rows come."""

    def process(self, rows: Rows) -> Rows:
        now = self.now()
        end = now + self._gap
        entries = self.touched(rows)
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            self.join(entries.setdefault(key, []), now, end, value)
            self._due.add(key, end - 1)
        self.set_tick()
        return []

    def due_ms(self) -> int | None:
        first = self._due.first
        return None if first is None else first + 1
