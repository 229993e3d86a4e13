"""Handles of stateful functions: named parts of the state of the current key.

They are declared on the class of a function and always stand for the state of the key
that is being processed; the names are Spark's.  A handle with a time to live keeps when
its value expires beside the value (`operators.rows.expiry`).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from millstream.errors import UsageError
from millstream.operators.rows.expiry import expire_entries, expiry_name
from millstream.plan.aggregate import MISSING
from millstream.plan.time import milliseconds
from millstream.state.copies import own_copy
from millstream.state.nan import one_nan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.api.functions import StatefulFunction
    from millstream.plan.time import Duration

    Refresh = Literal["write", "read"]

__all__ = ["Handle", "ListState", "MapState", "ValueState"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Handle:
    """A named part of the state of the current key."""

    _name: str = ""
    #: The function whose state it is a part of.
    owner: StatefulFunction[Any, Any, Any]

    def __init__(
        self, *, ttl: Duration | None = None, refresh: Refresh = "write"
    ) -> None:
        if refresh not in ("write", "read"):
            msg = f"state is refreshed by 'write' or 'read', got refresh={refresh!r}"
            raise UsageError(msg)
        #: How long a value is kept, in milliseconds; None for ever.
        self.ttl_ms = None if ttl is None else milliseconds(ttl, least=1)
        self._is_refreshed_by_reading = refresh == "read"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self._expiry_name = expiry_name(name)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Self: ...

    def __get__(self, instance: object, owner: type) -> Self:
        if instance is None:
            return self
        bound = copy.copy(self)
        bound.owner = instance  # type: ignore[assignment]  # declared on a function
        instance.__dict__[self._name] = bound
        return bound

    def exists(self) -> bool:
        """Whether the key has a value here."""
        if self.ttl_ms is not None:
            self._expire()
        return self._name in self.owner.key_state

    def clear(self) -> None:
        """Forget the value; a key without any value costs nothing."""
        self.owner.key_state.pop(self._name, None)
        self.owner.key_state.pop(self._expiry_name, None)

    def _age(self) -> None:
        """Forget the value before it is read, if it is too old, or refresh it."""
        self._expire()
        if self._is_refreshed_by_reading and self._name in self.owner.key_state:
            self._refresh()

    def _expire(self) -> None:
        """Forget the value if it is too old."""
        expiry = self.owner.key_state.get(self._expiry_name)
        if expiry is not None and expiry <= self.owner.timers.now:
            self.clear()

    def _refresh(self) -> None:
        """Let the life of the value begin anew."""
        assert self.ttl_ms is not None
        expiry = self.owner.timers.now + self.ttl_ms
        if self.owner.key_state.get(self._expiry_name, expiry + 1) > expiry:
            self.owner.timers.note_expiry(expiry)
        self.owner.key_state[self._expiry_name] = expiry


class ValueState(Handle, Generic[T]):
    """One value per key.

    Parameters
    ----------
    default
        What `get` returns before the first update; every call gets a copy of it.
    ttl
        How long a value is kept, by the clock, such as ``"1h"``; by default for ever.
    refresh
        What makes its time begin anew: ``"write"``, or ``"read"`` for both.

    Examples
    --------
    >>> import millstream as ms
    >>> class Largest(ms.StatefulFunction):
    ...     best = ms.ValueState(default=0)
    ...
    ...     def on_record(self, key, value):
    ...         if value > self.best.get():
    ...             self.best.update(value)
    ...             yield value
    >>> flow = ms.Flow("records")
    >>> rows = flow.from_iterable([3, 1, 5]).key_by(lambda i: "all")
    >>> records = rows.process(Largest()).drop_key().collect()
    >>> _ = flow.run(on="local")
    >>> records.result()
    [3, 5]
    """

    def __init__(
        self,
        default: T | None = None,
        *,
        ttl: Duration | None = None,
        refresh: Refresh = "write",
    ) -> None:
        super().__init__(ttl=ttl, refresh=refresh)
        self._default = default

    def get(self) -> T:
        """Return the value of the current key."""
        if self.ttl_ms is not None:
            self._age()
        value = self.owner.key_state.get(self._name, MISSING)
        return own_copy(self._default) if value is MISSING else value  # type: ignore[no-any-return]

    def update(self, value: T) -> None:
        """Set the value of the current key."""
        self.owner.key_state[self._name] = value
        if self.ttl_ms is not None:
            self._refresh()


class ListState(Handle, Generic[T]):
    """A list of values per key.

    Parameters
    ----------
    ttl
        How long the list is kept, by the clock, such as ``"1h"``; by default for ever.
    refresh
        What makes its time begin anew: ``"write"``, or ``"read"`` for both.

    Examples
    --------
    >>> import millstream as ms
    >>> class InPairs(ms.StatefulFunction):
    ...     waiting = ms.ListState()
    ...
    ...     def on_record(self, key, value):
    ...         self.waiting.append(value)
    ...         if len(self.waiting) == 2:
    ...             yield self.waiting.get()
    ...             self.waiting.clear()
    ...
    ...     def on_end(self, key):
    ...         yield self.waiting.get()
    >>> flow = ms.Flow("pairs")
    >>> rows = flow.from_iterable("abc").key_by(lambda letter: 0)
    >>> pairs = rows.process(InPairs()).drop_key().collect()
    >>> _ = flow.run(on="local")
    >>> pairs.result()
    [['a', 'b'], ['c']]
    """

    def get(self) -> list[T]:
        """Return a copy of the list."""
        if self.ttl_ms is not None:
            self._age()
        return list(self.owner.key_state.get(self._name, ()))

    def append(self, value: T) -> None:
        """Add a value at the end."""
        if self.ttl_ms is not None:
            self._expire()
            self._refresh()
        self.owner.key_state.setdefault(self._name, []).append(value)

    def extend(self, values: Iterable[T]) -> None:
        """Add values at the end."""
        if self.ttl_ms is not None:
            self._expire()
            self._refresh()
        self.owner.key_state.setdefault(self._name, []).extend(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the list."""
        self.owner.key_state[self._name] = list(values)
        if self.ttl_ms is not None:
            self._refresh()

    def __len__(self) -> int:
        return len(self.owner.key_state[self._name]) if self.exists() else 0

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(Handle, Generic[K, V]):
    """A map per key.

    Parameters
    ----------
    ttl
        How long each entry is kept, by the clock, such as ``"1h"``; by default for ever.
    refresh
        What makes the time of an entry begin anew: ``"write"``, or ``"read"`` for both.

    Examples
    --------
    >>> import millstream as ms
    >>> class Visits(ms.StatefulFunction):
    ...     pages = ms.MapState()
    ...
    ...     def on_record(self, user, page):
    ...         self.pages.update(page, self.pages.get(page, 0) + 1)
    ...
    ...     def on_end(self, user):
    ...         return self.pages.items()
    >>> flow = ms.Flow("visits")
    >>> pages = flow.from_iterable(["/", "/a", "/"]).key_by(lambda page: "ann")
    >>> visits = pages.process(Visits()).collect()
    >>> _ = flow.run(on="local")
    >>> visits.result()
    [('ann', ('/', 2)), ('ann', ('/a', 1))]
    """

    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value under `key`, or `default`."""
        key = one_nan(key)
        if self.ttl_ms is not None and key in self and self._is_refreshed_by_reading:
            self._refresh_entry(key)
        values: dict[K, V] = self.owner.key_state.get(self._name, {})
        return values.get(key, default)

    def update(self, key: K, value: V) -> None:
        """Set the value under `key`."""
        key = one_nan(key)
        self.owner.key_state.setdefault(self._name, {})[key] = value
        if self.ttl_ms is not None:
            self._refresh_entry(key)

    def remove(self, key: K) -> None:
        """Forget the value under `key`, if there is one."""
        key = one_nan(key)
        for name in (self._name, self._expiry_name):
            entries = self.owner.key_state.get(name, {})
            entries.pop(key, None)
            if not entries:
                self.owner.key_state.pop(name, None)

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values."""
        if self.ttl_ms is not None:
            self._expire()
        items = list(self.owner.key_state.get(self._name, {}).items())
        if self.ttl_ms is not None and self._is_refreshed_by_reading:
            for key, _ in items:
                self._refresh_entry(key)
        return items

    def __contains__(self, key: object) -> bool:
        key = one_nan(key)
        if self.ttl_ms is not None:
            expiries = self.owner.key_state.get(self._expiry_name, {})
            if key in expiries and expiries[key] <= self.owner.timers.now:
                self.remove(key)  # type: ignore[arg-type]  # it is one of ours
        return key in self.owner.key_state.get(self._name, {})

    def __len__(self) -> int:
        return len(self.owner.key_state[self._name]) if self.exists() else 0

    def _expire(self) -> None:
        expire_entries(self.owner.key_state, self._name, self.owner.timers.now)

    def _refresh_entry(self, key: K) -> None:
        assert self.ttl_ms is not None
        expiry = self.owner.timers.now + self.ttl_ms
        expiries = self.owner.key_state.setdefault(self._expiry_name, {})
        if expiries.get(key, expiry + 1) > expiry:
            self.owner.timers.note_expiry(expiry)
        expiries[key] = expiry
