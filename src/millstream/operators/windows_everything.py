"""One window with all rows of a key, and the user's trigger that says what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.windows_base import WindowedInTime, chunks
from millstream.operators.windows_content import content_of
from millstream.operators.windows_due import DueKeys
from millstream.plan.windows import Action, Everything, TriggerContext, Window
from millstream.protocol.watermark import BEGINNING, END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.base import Rows
    from millstream.plan.nodes import Node
    from millstream.ports import Clock
    from millstream.state.table import Table

    Entry = list[Any]
    """What is stored of its rows, how many, what the trigger remembers, its next call."""

__all__ = ["Triggered"]

_STORED, _COUNT, _STATE, _CALL_AT = range(4)
_ALL = Window(BEGINNING, END_OF_TIME)


class Triggered(WindowedInTime):
    """Calls the trigger for every row, when its time has come, and at the end.

    Rows are pairs of key and value; in event time of key, timestamp and value, and come in
    the order of timestamps.
    """

    def __init__(
        self, nodes: tuple[Node, ...], table: Table | None, clock: Clock
    ) -> None:
        super().__init__(nodes, table)
        window = self.spec.window
        assert isinstance(window, Everything)
        self._trigger = window.trigger
        self._is_timed = nodes[-1].takes_times
        self._clock = clock
        self._content = content_of(
            self.spec, is_timed=False, is_merging=False, is_kept=True
        )
        self._due = DueKeys()

    def process(self, rows: Rows, port: int) -> Rows:  # noqa: ARG002 - one input
        entries, is_timed, put = self.touched(rows), self._is_timed, self._content.put
        on_row = self._trigger.on_row
        now = self._now()
        made: Rows = []
        rows_iterator = iter(rows)
        for key, item in rows_iterator:
            now, value = item if is_timed else (now, item)
            entry = entries.get(key)
            if entry is not None and entry[_CALL_AT] is not None:
                made += self._called(key, now - 1, entries)
                entry = entries.get(key)
            if entry is None:
                entries[key] = entry = [{}, 0, {}, None]
            put(entry[_STORED], 0, value, 0)
            entry[_COUNT] += 1
            context = _context(key, now, entry)
            action = on_row(value, context)
            made += self._done(action, entry, context, entries)
        self.set_tick()
        return made

    def advance(self, time: int) -> Iterable[Rows]:
        return super().advance(time) if self._is_timed else ()

    def tick(self, now_ms: int) -> Iterator[Rows]:
        yield from self.fire(now_ms)
        self.set_tick()

    def fire(self, time: int) -> Iterator[Rows]:
        for _, keys in self._due.taken(time):
            for chunk in chunks(keys):
                entries = self.entries_of(chunk)
                yield [r for key in chunk for r in self._called(key, time, entries)]

    def _called(self, key: Any, time: int, entries: dict[Any, Any]) -> Rows:
        """Call the trigger of a key as often as it wants to be called up to a time."""
        made: Rows = []
        entry = entries.get(key)
        while entry is not None and entry[_CALL_AT] is not None:
            at = entry[_CALL_AT]
            if at > time:
                self._due.add(key, at)
                break
            entry[_CALL_AT] = None
            context = _context(key, at, entry)
            action = self._trigger.on_time(at, context)
            if context.wanted_at is not None and context.wanted_at <= at:
                msg = (
                    f"{type(self._trigger).__name__}.on_time was called for {at} and asks "
                    f"to be called at {context.wanted_at}; ask for a later time"
                )
                raise ValueError(msg)
            made += self._done(action, entry, context, entries)
            entry = entries.get(key)
        return made

    def finish(self) -> Iterator[Rows]:
        for batch in self.batches():
            keys = [key for key, _ in batch]
            entries, made = self.entries_of(keys), list[Any]()
            for key in keys:
                context = _context(key, self._now(), entries[key])
                action = self._trigger.on_end(context)
                made += self._done(action, entries[key], context, {})
            yield made
        self.go_on()

    def find_due(self) -> None:
        self._due.clear()
        kept = self.entries if self.table is None else self.table
        for key, entry in kept.items():
            if entry[_CALL_AT] is not None:
                self._due.add(key, entry[_CALL_AT])

    def _done(
        self,
        action: Action,
        entry: Entry,
        context: TriggerContext,
        entries: dict[Any, Any],
    ) -> Rows:
        """Do what the trigger wants."""
        made: Rows = []
        key = context.key
        if Action.FIRE in action and entry[_COUNT]:
            stored = [entry[_STORED][0]]
            made = [self.row(key, _ALL, self._content.result(_ALL, stored))]
        if Action.PURGE in action:
            entry[_STORED], entry[_COUNT] = {}, 0
        if context.wanted_at is not None:
            entry[_CALL_AT] = context.wanted_at
            self._due.add(key, context.wanted_at)
        if not entry[_COUNT] and not entry[_STATE] and entry[_CALL_AT] is None:
            entries.pop(key, None)
        return made

    def _now(self) -> int:
        return self.reached if self._is_timed else self._clock.wall_ms()

    def set_tick(self) -> None:
        if not self._is_timed:
            self.tick_at_ms = self._due.first


def _context(key: Any, now: int, entry: Entry) -> TriggerContext:
    return TriggerContext(key, now, entry[_COUNT], entry[_STATE])
