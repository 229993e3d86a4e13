"""Stateful functions: a class with state handles, called for the records of a key.

What the handles are is in `api.state_handles`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from millstream.api.state_handles import Handle, ValueState
from millstream.plan.state_fields import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.operators.rows.timers import Timer, Timers

__all__ = ["StatefulFunction"]

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output


class StatefulFunction(ABC, Generic[K, V, O]):
    """A function that remembers something for every key.

    Where records have timestamps (`event_time`), what `on_record` returns has the
    timestamp of the record, and what `on_timer` returns the time of the timer.

    Attributes
    ----------
    timers
        Sets timers for the current key, see `Timers`; `on_timer` is called for them.
    timestamp
        Timestamp of the record in milliseconds, in `on_timer` the time of the timer;
        None where records have no timestamps, and in `on_end`.
    watermark
        How far event time has come; None before the first watermark.  It depends on
        how fast the input was read, so nothing should follow from it that must be the
        same in every run.
    is_at_end
        Whether the input has ended: `on_timer` is called for what is left.

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

    timers: Timers
    timestamp: int | None = None
    watermark: int | None = None
    is_at_end: bool = False

    #: State of the key that is being processed; the handles read and write it.
    key_state: dict[Any, Any]

    @abstractmethod
    def on_record(self, key: K, value: V) -> Iterable[O] | None:
        """Take one record and return, or yield, what follows from it."""

    def on_timer(self, key: K, timer: Timer) -> Iterable[O] | None:
        """Return what follows from the time of a timer having come.

        Timers of a key fire in the order of their times.  Those of event time fire when
        the watermark comes to them, and at the end of the input all that are left; those
        of processing time by the clock, and not at the end.
        """

    def on_end(self, key: K) -> Iterable[O] | None:
        """Return what follows from the end of the input, for a key that has state.

        A timer of processing time that has not fired is state, too.
        """

    def open(self) -> None:
        """Prepare one instance; called on the worker, once per task."""

    def close(self) -> None:
        """Give back what `open` took."""

    @property
    def has_on_timer(self) -> bool:
        """Whether it says what follows from a timer."""
        return type(self).on_timer is not StatefulFunction.on_timer

    @property
    def has_times(self) -> bool:
        """Whether something may follow from time alone: a timer, or the end of a ttl."""
        names = dir(type(self))
        handles = [getattr(type(self), name, None) for name in names]
        return self.has_on_timer or any(
            isinstance(handle, Handle) and handle.ttl_ms is not None
            for handle in handles
        )

    def _declared_state(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return what is kept of a key, for the fingerprint of the operator."""
        found = [(name, getattr(type(self), name, None)) for name in dir(type(self))]
        handles = [(name, h) for name, h in found if isinstance(h, Handle)]
        kinds = tuple(f"{name}: {type(handle).__name__}" for name, handle in handles)
        return [
            ("state", kinds),
            *((f"ttl of {name}", (_ttl(handle),)) for name, handle in handles),
        ]

    def _instance(self) -> Self:
        """Return a copy for one task."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Handle):  # bound to the original
                del made.__dict__[name]
        made.key_state = {}
        made.open()
        return made


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

    def _declared_state(self) -> list[tuple[str, tuple[str, ...]]]:
        kind = type(self._initial).__qualname__
        return [*super()._declared_state(), ("begins with", (f"a {kind}",))]


def _ttl(handle: Handle) -> str:
    return FOR_EVER if handle.ttl_ms is None else f"{handle.ttl_ms} ms"
