"""Tumbling and sliding windows in event time and in processing time.

The entry of a key is a dict of panes.  A row changes one pane; when a window is over, its
panes are put together, and those that no later window needs are dropped.  Only windows
that have panes are ever looked at, so time may jump over any number of empty ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.due import DueKeys, chunks
from millstream.operators.windows.base import ByTheClock, TimedWindowOperator
from millstream.operators.windows.content import Accumulators, content_of
from millstream.operators.windows.panes import FEW_PANES, TwoStacks, present, stored_in
from millstream.plan.aggregate import MISSING
from millstream.plan.time import LateTimestamp
from millstream.plan.windows import Panes, TimeWindows, Window
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.logical import Node
    from millstream.state.table import Table

    Stored = dict[int, Any]
    """What is stored in each pane of a key."""

    Again = dict[tuple[Any, int], None]
    """Keys, and windows of theirs that were over and have changed."""

__all__ = ["ClockTimeWindowOperator", "EventTimeWindowOperator"]

_BATCH_ROWS = 1024


class _PanesAndBehind(dict[int, Any]):
    """The panes of a key with rows that are too late for the first windows of a pane.

    Attributes
    ----------
    behind
        What is stored of such rows, by pane and the first window that has them.
    """

    def __init__(
        self, panes: Stored, behind: dict[tuple[int, int], Any] | None = None
    ) -> None:
        super().__init__(panes)
        self.behind: dict[tuple[int, int], Any] = {} if behind is None else behind

    @property
    def panes(self) -> Stored:
        """The others."""
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _PanesAndBehind, (self.panes, self.behind)


class _PanesTold(dict[int, Any]):
    """The panes of a key that are left from a window by the clock.

    Tasks look at their clocks at different moments, so that after a change of width the
    keys of one may have been told further than those of another.

    Attributes
    ----------
    told
        The last window of the key that was told.
    """

    def __init__(self, panes: Stored, told: int) -> None:
        super().__init__(panes)
        self.told = told

    @property
    def panes(self) -> Stored:
        """What is left."""
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _PanesTold, (self.panes, self.told)


class _TimeWindowOperator(TimedWindowOperator):
    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        window = self.spec.window
        assert isinstance(window, TimeWindows)
        self._lateness = self.spec.lateness_ms
        self._layout = Panes(window.size_ms, window.slide_ms, window.offset_ms)
        #: What it takes to find the pane of a time.
        self._cuts = (
            window.offset_ms,
            window.slide_ms,
            window.size_ms % window.slide_ms,
        )
        has_overlaps = window.size_ms > window.slide_ms
        self._content = content_of(
            self.spec,
            is_timed=window.time == "event",
            is_merging=has_overlaps,
            is_kept=has_overlaps or self._lateness > 0,
        )
        #: Panes from one window to the next, and of a window.
        self._step, self._count = self._layout.step, self._layout.count
        is_merged = isinstance(self._content, Accumulators)
        #: Whether windows share more than panes.
        self._shares = is_merged and self._count > FEW_PANES
        #: The next window of each key that is not over.
        self._due = DueKeys()
        #: The last window that needs the first pane of a key, where it is not dropped
        #: when that window is over.
        self._leaving = DueKeys()
        self._slides: dict[Any, TwoStacks] = {}

    def fire(self, time: int) -> Iterator[Rows]:
        layout, rows = self._layout, []
        for window, keys in self._due.taken(layout.over(time)):
            for chunk in chunks(keys):
                rows += self._results(window, chunk)
                if len(rows) >= _BATCH_ROWS:
                    yield rows
                    rows = []
        if rows:
            yield rows
        gone = layout.over(time - self._lateness)
        for window, keys in self._leaving.taken(gone):
            for chunk in chunks(keys):
                self._drop(window, chunk)

    def finish(self) -> Iterable[Rows]:
        return self.fire(END_OF_TIME)

    def find_due(self) -> None:
        self._due.clear()
        self._leaving.clear()
        self._slides.clear()
        over = self._layout.over(self.reached)
        for key, panes in self.table.items():
            told = max(over, panes.told) if type(panes) is _PanesTold else over
            for pane in panes:
                self._open_after(told, key, pane)
            if type(panes) is _PanesAndBehind:
                for pane, start in panes.behind:
                    self._open_after(max(over, start - 1), key, pane)

    def _open(self, key: Any, pane: int) -> None:
        """Let a key wait for the first window with a new pane, which is not over."""
        self._due.add(key, -((self._count - 1 - pane) // self._step))
        if self._lateness:
            self._leaving.add(key, self._layout.last_window(pane))

    def _open_after(self, over: int, key: Any, pane: int) -> None:
        """Let a key wait for the first window with a pane that is not over."""
        layout = self._layout
        last = layout.last_window(pane)
        if last > over:
            self._due.add(key, max(layout.first_window(pane), over + 1))
        if self._lateness:
            self._leaving.add(key, last)

    def _results(self, window: int, keys: list[Any]) -> Rows:
        """Return the rows of a window that is over, and let its keys wait for the next."""
        bounds, begin, step = self._bounds(window), window * self._step, self._step
        entries, rows, due = self.entries_of(keys), [], self._due
        for key in keys:
            panes = entries.get(key)
            if panes is None:
                continue
            result = self._result(key, panes, window, bounds)
            if result is not MISSING:
                rows.append(self.row(key, bounds, result))
            if not self._lateness and type(panes) is dict:
                for pane in range(begin, begin + step):
                    panes.pop(pane, None)
                if begin + step in panes:
                    due.add(key, window + 1)
                    continue
            self._settle(key, panes, window, entries)
        return rows

    def _settle(
        self, key: Any, panes: Stored, window: int, entries: dict[Any, Any]
    ) -> None:
        """Drop what no window after this one has, and wait for the next that has any."""
        if not self._lateness:
            self._prune(key, panes, window, entries)
        self._wait(key, panes, window + 1)

    def _bounds(self, window: int) -> Window:
        start = self._layout.start(window)
        return Window(start, start + self._layout.size)

    def _result(self, key: Any, panes: Stored, window: int, bounds: Window) -> Any:
        content, begin = self._content, window * self._step
        if type(panes) is _PanesAndBehind:
            stored = self._stored(panes, window)
        elif self._shares:
            assert isinstance(content, Accumulators)
            slides = self._slides.get(key) or TwoStacks(self._count, content.merged)
            if len(panes) > FEW_PANES:
                self._slides[key] = slides
            parts = slides.put_together(panes, begin, content.part)
            return content.finished(parts) if parts else MISSING
        else:
            stored = stored_in(panes, begin, begin + self._count)
        return content.result(bounds, stored) if stored else MISSING

    def _stored(self, panes: _PanesAndBehind, window: int) -> list[Any]:
        """Return what is stored for a window, with those behind that it still gets."""
        begin, end = self._layout.begin(window), self._layout.end(window)
        found = [(pane, panes[pane]) for pane in present(panes, begin, end)]
        found += [
            (pane, stored)
            for (pane, start), stored in panes.behind.items()
            if begin <= pane < end and start <= window
        ]
        return [stored for _, stored in sorted(found, key=_pane_of)]

    def _prune(
        self, key: Any, panes: Stored, window: int, entries: dict[Any, Any]
    ) -> None:
        """Drop the panes that no window after this one has."""
        end = (window + 1) * self._step
        for pane in [pane for pane in panes if pane < end]:
            del panes[pane]
        if type(panes) is _PanesAndBehind:
            panes.behind = {p: s for p, s in panes.behind.items() if p[0] >= end}
            if not panes.behind:
                entries[key] = panes = dict(panes)
        if not panes and type(panes) is not _PanesAndBehind:
            del entries[key]
            self._slides.pop(key, None)

    def _wait(self, key: Any, panes: Stored, window: int) -> None:
        """Let a key wait for `window`, or for the next one that has panes."""
        layout = self._layout
        if type(panes) is _PanesAndBehind:
            for pane, start in panes.behind:
                if layout.last_window(pane) >= window:
                    first = max(window, start, layout.first_window(pane))
                    self._due.add(key, first)
        begin = window * self._step
        if begin in panes or begin + self._count - 1 in panes:
            self._due.add(key, window)
            return
        later = [pane for pane in panes if pane >= begin]
        if later:
            self._due.add(key, max(window, layout.first_window(min(later))))

    def _drop(self, window: int, keys: list[Any]) -> None:
        """Drop the panes that windows up to this one had."""
        layout, entries = self._layout, self.entries_of(keys)
        for key in keys:
            panes = entries.get(key)
            if panes is None:
                continue
            self._prune(key, panes, window, entries)
            left = entries.get(key, {})
            numbers = [*left, *(pane for pane, _ in getattr(left, "behind", ()))]
            if numbers:
                self._leaving.add(key, layout.last_window(min(numbers)))


class EventTimeWindowOperator(_TimeWindowOperator):
    """Windows by the timestamps of rows."""

    def __init__(self, nodes: tuple[Node, ...], table: Table) -> None:
        super().__init__(nodes, table)
        content = self._content
        self._take = self._take_items
        if type(content) is Accumulators and content.is_pair:
            is_count = content.aggregate.kind == "count"
            self._take = self._take_counts if is_count else self._take_values
        if self._layout.has_gaps:
            self._take = self._take_each

    def process(self, rows: Rows) -> Rows:
        entries = self.touched(rows)
        again: Again = {}
        self._take(entries, rows, again)
        made = []
        for key, window in again:
            bounds = self._bounds(window)
            result = self._result(key, entries[key], window, bounds)
            made.append(self.row(key, bounds, result))
        return made

    def _take_counts(self, entries: dict[Any, Any], rows: Rows, again: Again) -> None:
        offset, slide, rest, reached = *self._cuts, self.reached
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            time = item[0]
            if time <= reached or type(time) is not int:
                self._take_one(entries, key, item, again)
                continue
            pane = (time - offset) // slide
            if rest:
                pane = 2 * pane + ((time - offset) % slide >= rest)
            panes = entries.get(key)
            if panes is None:
                entries[key] = {pane: 1}
                self._open(key, pane)
            elif pane in panes:
                panes[pane] += 1
            else:
                panes[pane] = 1
                self._open(key, pane)

    def _take_values(self, entries: dict[Any, Any], rows: Rows, again: Again) -> None:
        offset, slide, rest, reached = *self._cuts, self.reached
        assert isinstance(self._content, Accumulators)
        aggregate = self._content.aggregate
        first, update = aggregate.first, aggregate.update
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            time, value = item
            if time <= reached or type(time) is not int:
                self._take_one(entries, key, item, again)
                continue
            pane = (time - offset) // slide
            if rest:
                pane = 2 * pane + ((time - offset) % slide >= rest)
            panes = entries.get(key)
            if panes is None:
                entries[key] = {pane: first(value)}
                self._open(key, pane)
            elif pane in panes:
                panes[pane] = update(panes[pane], value)
            else:
                panes[pane] = first(value)
                self._open(key, pane)

    def _take_items(self, entries: dict[Any, Any], rows: Rows, again: Again) -> None:
        offset, slide, rest, reached = *self._cuts, self.reached
        put = self._content.put
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            time = item[0]
            if time <= reached or type(time) is not int:
                self._take_one(entries, key, item, again)
                continue
            pane = (time - offset) // slide
            if rest:
                pane = 2 * pane + ((time - offset) % slide >= rest)
            panes = entries.get(key)
            if panes is None:
                entries[key] = panes = {}
            if pane not in panes:
                self._open(key, pane)
            put(panes, pane, item, reached)

    def _take_each(self, entries: dict[Any, Any], rows: Rows, again: Again) -> None:
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            self._take_one(entries, key, item, again)

    def _take_one(
        self, entries: dict[Any, Any], key: Any, item: Any, again: Again
    ) -> None:
        """Take a row that may be late for some windows, for all, or be in none."""
        layout, lateness = self._layout, self._lateness
        time = int(item[0])
        watermark = item[0].watermark if type(item[0]) is LateTimestamp else BEGINNING
        pane = layout.of(time)
        first, last = layout.first_window(pane), layout.last_window(pane)
        if first > last:  # between two windows
            return
        gone = layout.over(max(self.reached, watermark) - lateness)
        if last <= gone:
            self.be_late(key, item)
            return
        start = max(first, gone + 1)
        dropped = layout.over(self.reached - lateness)
        panes = entries.setdefault(key, {})
        if start > max(first, dropped + 1):
            if type(panes) is not _PanesAndBehind:
                entries[key] = panes = _PanesAndBehind(panes)
            place: Any = (pane, start)
            self._content.put(panes.behind, place, (time, item[1]), self.reached)
        else:
            self._content.put(panes, pane, (time, item[1]), self.reached)
        self._slides.pop(key, None)
        over = layout.over(self.reached)
        self._open_after(max(over, start - 1), key, pane)
        windows = range(start, min(last, over) + 1)
        again.update(((key, window), None) for window in windows)


class ClockTimeWindowOperator(ByTheClock, _TimeWindowOperator):
    """Windows by the wall clock when rows come."""

    def process(self, rows: Rows) -> Rows:
        now = self.now()
        pane = self._layout.of(now)
        if self._layout.first_window(pane) > self._layout.last_window(pane):
            return []
        entries, put = self.touched(rows), self._content.put
        rows_iterator = iter(rows)
        for key, value in rows_iterator:
            panes = entries.get(key)
            if panes is None:
                entries[key] = panes = {}
            if pane not in panes:
                self._open(key, pane)
            put(panes, pane, value, now)
        self.set_tick()
        return []

    def _results(self, window: int, keys: list[Any]) -> Rows:
        rows = super()._results(window, keys)
        if self._count > self._step:
            entries = self.entries_of(keys)
            left = ((key, entries[key]) for key in keys if key in entries)
            entries |= {key: _PanesTold(panes, window) for key, panes in left}
        return rows

    def due_ms(self) -> int | None:
        first = self._due.first
        return None if first is None else self._bounds(first).end


def _pane_of(pair: tuple[int, Any]) -> int:
    return pair[0]
