"""Calls of the user's trigger: for rows, for times, and at the end of the input.

The entry of a key is a list: what its owner keeps, how many rows there are, what the
trigger remembers, and when it wants to be called.  What is kept of rows, and what a result
is, is not known here; it is the same for rows and for data frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.operators.due import DueKeys
from millstream.plan.windows import Action, TriggerContext

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from millstream.plan.windows import Trigger
    from millstream.values import Key, Row, Rows, Value

    Entry = list[Any]
    """By `KEPT`, `COUNT`, `STATE` and `CALL_AT`."""


__all__ = ["CALL_AT", "COUNT", "KEPT", "STATE", "TriggerCalls"]

K = TypeVar("K", bound="Key")

KEPT, COUNT, STATE, CALL_AT = range(4)


class TriggerCalls(ABC, Generic[K]):
    """Does what a trigger wants; its owner keeps the entries, by key or by its number."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        #: When the trigger of each key wants to be called.
        self.due = DueKeys()

    @abstractmethod
    def kept_anew(self, key: K) -> Value:
        """Return what is kept of a key without rows."""

    @abstractmethod
    def put(self, key: K, entry: Entry, value: Value) -> None:
        """Keep a row."""

    @abstractmethod
    def result(self, key: K, entry: Entry) -> Row:
        """Return what becomes of the rows of a key."""

    @abstractmethod
    def purge(self, key: K, entry: Entry) -> None:
        """Forget the rows of a key."""

    @abstractmethod
    def shown(self, key: K, entry: Entry) -> Key:
        """Return the key as users know it."""

    def row(
        self, key: K, value: Value, now: int, entries: MutableMapping[K, Entry]
    ) -> Rows:
        """Return the results of a row, and of the times before it."""
        made: Rows = []
        entry = entries.get(key)
        if entry is not None and entry[CALL_AT] is not None:
            made = self.up_to(key, now - 1, entries)
            entry = entries.get(key)
        if entry is None:
            entries[key] = entry = [self.kept_anew(key), 0, {}, None]
        self.put(key, entry, value)
        entry[COUNT] += 1
        context = self._context(key, now, entry)
        action = self._trigger.on_row(value, context)
        if action is Action.CONTINUE and context.wanted_at is None:
            return made
        return made + self._done(action, key, context, entries)

    def up_to(self, key: K, time: int, entries: MutableMapping[K, Entry]) -> Rows:
        """Call the trigger of a key as often as it wants to be called up to a time."""
        made: Rows = []
        entry = entries.get(key)
        while entry is not None and entry[CALL_AT] is not None:
            at = entry[CALL_AT]
            if at > time:
                self.due.add(key, at)
                break
            entry[CALL_AT] = None
            context = self._context(key, at, entry)
            action = self._trigger.on_time(at, context)
            if context.wanted_at is not None and context.wanted_at <= at:
                msg = (
                    f"{type(self._trigger).__name__}.on_time was called for {at} and asks "
                    f"to be called at {context.wanted_at}; ask for a later time"
                )
                raise ValueError(msg)
            made += self._done(action, key, context, entries)
            entry = entries.get(key)
        return made

    def end(self, key: K, now: int, entries: MutableMapping[K, Entry]) -> Rows:
        """Return the result of a key at the end of the input, if it has one."""
        entry = entries[key]
        context = self._context(key, now, entry)
        action = self._trigger.on_end(context)
        return self._done(action, key, context, {key: entry})

    def find_due(self, entries: Iterable[tuple[K, Entry]]) -> None:
        """Find out when the triggers of all keys want to be called."""
        self.due.clear()
        for key, entry in entries:
            if entry[CALL_AT] is not None:
                self.due.add(key, entry[CALL_AT])

    def _done(
        self,
        action: Action,
        key: K,
        context: TriggerContext,
        entries: MutableMapping[K, Entry],
    ) -> Rows:
        """Do what the trigger wants."""
        entry, made = entries[key], []
        if Action.FIRE in action and entry[COUNT]:
            made.append(self.result(key, entry))
        if Action.PURGE in action:
            self.purge(key, entry)
            entry[COUNT] = 0
        if context.wanted_at is not None:
            entry[CALL_AT] = context.wanted_at
            self.due.add(key, context.wanted_at)
        if not entry[COUNT] and not entry[STATE] and entry[CALL_AT] is None:
            del entries[key]
        return made

    def _context(self, key: K, now: int, entry: Entry) -> TriggerContext:
        return TriggerContext(self.shown(key, entry), now, entry[COUNT], entry[STATE])
