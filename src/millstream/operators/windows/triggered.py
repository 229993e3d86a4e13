"""One window with all rows of a key, and the user's trigger that says what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.base import TickingOperator
from millstream.operators.due import chunks
from millstream.operators.windows.base import TimedWindowOperator
from millstream.operators.windows.content import content_of
from millstream.operators.windows.trigger_calls import KEPT, TriggerCalls
from millstream.plan.windows import GlobalWindow, Window
from millstream.protocol.watermark import BEGINNING, END_OF_TIME
from millstream.values import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.operators.windows.content import Content
    from millstream.operators.windows.trigger_calls import Entry
    from millstream.plan.logical import Node
    from millstream.plan.windows import Trigger
    from millstream.ports import Clock
    from millstream.state.table import Table
    from millstream.values import Pair, Value

__all__ = ["TriggeredWindowOperator"]

_ALL = Window(BEGINNING, END_OF_TIME)


class TriggeredWindowOperator(TimedWindowOperator, TickingOperator):
    """Calls the trigger for every row, when its time has come, and at the end.

    Rows are pairs of key and value; in event time of key, timestamp and value, and come in
    the order of timestamps.
    """

    def __init__(self, nodes: tuple[Node, ...], table: Table, clock: Clock) -> None:
        super().__init__(nodes, table)
        window = self.spec.window
        assert isinstance(window, GlobalWindow)
        self._is_timed = nodes[-1].takes_times
        self._clock = clock
        content = content_of(self.spec, is_timed=False, is_merging=False, is_kept=True)
        self._calls = _RowCalls(window.trigger, content, self.row)

    def process(self, rows: Rows) -> Rows:
        entries, is_timed, take = self.touched(rows), self._is_timed, self._calls.row
        now = self._now()
        made: Rows = []
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            now, value = item if is_timed else (now, item)
            made += take(key, value, now, entries)
        self.set_tick()
        return made

    def advance(self, time: int) -> Iterable[Rows]:
        return super().advance(time) if self._is_timed else ()

    def tick(self, now_ms: int) -> Iterator[Rows]:
        yield from self.fire(now_ms)
        self.set_tick()

    def fire(self, time: int) -> Iterator[Rows]:
        calls = self._calls
        for _, keys in calls.due.taken(time):
            for chunk in chunks(keys):
                entries = self.entries_of(chunk)
                yield [r for key in chunk for r in calls.up_to(key, time, entries)]

    def finish(self) -> Iterator[Rows]:
        for batch in self.batches():
            keys = [key for key, _ in batch]
            entries, now = self.entries_of(keys), self._now()
            yield [r for key in keys for r in self._calls.end(key, now, entries)]
        self.reset_after_flush()

    def index(self) -> None:
        self._calls.find_due(self.table.items())
        self.set_tick()

    def begin_anew(self) -> None:
        self._calls.due.clear()
        self.tick_at_ms = None

    def _now(self) -> int:
        return self.reached if self._is_timed else self._clock.wall_ms()

    def set_tick(self) -> None:
        """Ask to be called by the clock, where that is what counts."""
        if not self._is_timed:
            self.tick_at_ms = self._calls.due.first


class _RowCalls(TriggerCalls[Key]):
    """Keeps what the aggregate needs, under one number as if it were a pane."""

    def __init__(
        self,
        trigger: Trigger,
        content: Content,
        row: Callable[[Key, Window, Value], Pair],
    ) -> None:
        super().__init__(trigger)
        self._content = content
        self._row = row

    def kept_anew(self, key: Key) -> dict[int, Value]:  # noqa: ARG002 - the same for all
        return {}

    def put(self, key: Key, entry: Entry, value: Value) -> None:  # noqa: ARG002
        self._content.put(entry[KEPT], 0, value, 0)

    def result(self, key: Key, entry: Entry) -> Pair:
        made = self._content.result(_ALL, [entry[KEPT][0]])
        return self._row(key, _ALL, made)

    def purge(self, key: Key, entry: Entry) -> None:  # noqa: ARG002 - its own
        entry[KEPT] = {}

    def shown(self, key: Key, entry: Entry) -> Key:  # noqa: ARG002 - it is the key
        return key
