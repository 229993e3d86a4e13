"""Stateful functions: a class with state handles, called for every record of a key.

The handles are declared on the class and always stand for the state of the key that is
being processed; the names are Spark's.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from millstream.plan.aggregate import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["ListState", "MapState", "StatefulFunction", "ValueState"]

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")


class StatefulFunction(ABC, Generic[K, V, O]):
    """A function that remembers something for every key.

    Examples
    --------
    >>> import millstream as ms
    >>> class Deduplicate(ms.StatefulFunction):
    ...     seen = ms.ValueState(default=False)
    ...
    ...     def on_record(self, key, value):
    ...         if not self.seen.get():
    ...             self.seen.update(True)
    ...             yield value
    >>> flow = ms.Flow("deduplicate")
    >>> visits = flow.from_iterable([("a", 1), ("b", 2), ("a", 3)])
    >>> first = visits.key_by(lambda visit: visit[0]).process(Deduplicate()).collect()
    >>> _ = flow.run(on="local")
    >>> sorted(first.result())
    [('a', ('a', 1)), ('b', ('b', 2))]
    """

    #: State of the key that is being processed; the handles read and write it.
    key_state: dict[str, Any]

    @abstractmethod
    def on_record(self, key: K, value: V) -> Iterable[O] | None:
        """Take one record and return, or yield, what follows from it."""

    def on_end(self, key: K) -> Iterable[O] | None:
        """Return what follows from the end of the input, for a key that has state."""

    def open(self) -> None:
        """Prepare one instance; called on the worker, once per task."""

    def close(self) -> None:
        """Give back what `open` took."""

    def instance(self) -> Self:
        """Return a copy for one task."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, _Handle):  # bound to the original
                del made.__dict__[name]
        made.key_state = {}
        made.open()
        return made

    def enter(self, state: dict[str, Any]) -> None:
        """Let the handles stand for this state from now on."""
        self.key_state = state


class _Handle:
    """A named part of the state of the current key."""

    _name: str = ""
    #: The function whose state it is a part of.
    owner: StatefulFunction[Any, Any, Any]

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

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
        return self._name in self.owner.key_state

    def clear(self) -> None:
        """Forget the value; a key without any value costs nothing."""
        self.owner.key_state.pop(self._name, None)


class ValueState(_Handle, Generic[T]):
    """One value per key; `default` is what `get` returns before the first update.

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

    def __init__(self, default: T | None = None) -> None:
        self._default = default

    def get(self) -> T:
        """Return the value of the current key."""
        value = self.owner.key_state.get(self._name, MISSING)
        return self._default if value is MISSING else value  # type: ignore[return-value]

    def update(self, value: T) -> None:
        """Set the value of the current key."""
        self.owner.key_state[self._name] = value


class ListState(_Handle, Generic[T]):
    """A list of values per key.

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
        return list(self.owner.key_state.get(self._name, ()))

    def append(self, value: T) -> None:
        """Add a value at the end."""
        self.owner.key_state.setdefault(self._name, []).append(value)

    def extend(self, values: Iterable[T]) -> None:
        """Add values at the end."""
        self.owner.key_state.setdefault(self._name, []).extend(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the list."""
        self.owner.key_state[self._name] = list(values)

    def __len__(self) -> int:
        return len(self.owner.key_state.get(self._name, ()))

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(_Handle, Generic[K, V]):
    """A map per key.

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
        values: dict[K, V] = self.owner.key_state.get(self._name, {})
        return values.get(key, default)

    def update(self, key: K, value: V) -> None:
        """Set the value under `key`."""
        self.owner.key_state.setdefault(self._name, {})[key] = value

    def remove(self, key: K) -> None:
        """Forget the value under `key`, if there is one."""
        values: dict[K, V] = self.owner.key_state.get(self._name, {})
        values.pop(key, None)
        if not values:
            self.clear()

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values."""
        return list(self.owner.key_state.get(self._name, {}).items())

    def __contains__(self, key: object) -> bool:
        return key in self.owner.key_state.get(self._name, {})

    def __len__(self) -> int:
        return len(self.owner.key_state.get(self._name, {}))


class MapWithState(StatefulFunction[Any, Any, Any]):
    """What `map_with_state` runs: one value, and a function that changes it."""

    current: ValueState[Any] = ValueState()

    def __init__(
        self, initial: object, function: Callable[[Any, Any], tuple[Any, Any]]
    ) -> None:
        self._initial = initial
        self._function = function

    def on_record(self, key: object, value: object) -> Iterable[Any]:  # noqa: ARG002
        exists = self.current.exists()
        before = self.current.get() if exists else copy.deepcopy(self._initial)
        after, output = self._function(before, value)
        self.current.update(after)
        return (output,)
