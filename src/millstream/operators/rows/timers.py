"""Timers of stateful functions: how they are kept, and which keys have one due.

A timer is an entry of its key's state, under the name ``(kind, time)``; so it is stored,
restored and moved with the key, and there is one for each time.  What is here besides
follows from those entries.  Nothing here calls a function of the user.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from millstream.errors import UsageError
from millstream.plan.time import milliseconds, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from millstream.plan.time import Duration
    from millstream.ports import Clock

__all__ = [
    "EVENT",
    "PROCESSING",
    "WAITING",
    "Kind",
    "Timer",
    "TimerIndex",
    "Timers",
    "due_times_of",
    "times_of",
]

Kind = Literal["event", "processing"]

EVENT: Kind = "event"
PROCESSING: Kind = "processing"

WAITING = "waiting"
"""Under ``(WAITING, timestamp)`` stand the records that wait for event time."""

_STALE_MIN = 64


@dataclass(frozen=True, slots=True)
class Timer:
    """What `StatefulFunction.on_timer` is called for.

    Attributes
    ----------
    time
        When it was due, in milliseconds since 1970.
    kind
        ``"event"`` or ``"processing"``: whose time has come.
    """

    time: int
    kind: Kind


def times_of(state: dict[Any, Any], kind: Kind) -> Iterable[int]:
    """Return the times of a key's timers, in no order."""
    return (n[1] for n in state if type(n) is tuple and n[0] == kind)


def due_times_of(state: dict[Any, Any], kind: Kind) -> Iterable[int]:
    """Return when something of a key is due: its timers, and the records that wait."""
    due = (EVENT, WAITING) if kind == EVENT else (kind,)
    return (n[1] for n in state if type(n) is tuple and n[0] in due)


class TimedFunction(Protocol):
    """What timers ask of the function they belong to."""

    @property
    def has_on_timer(self) -> bool:
        """Whether it says what follows from a timer."""
        ...

    @property
    def key_state(self) -> dict[Any, Any]:
        """The state of the key that is being processed."""
        ...


class Timers:
    """The timers of the key that is being processed; `self.timers` of a function.

    A key has at most one timer of each kind for each time: setting it again changes
    nothing.  Times are milliseconds since 1970 or a `datetime`, where a naive one means
    UTC.

    Examples
    --------
    >>> import millstream as ms
    >>> class Echo(ms.StatefulFunction):
    ...     def on_record(self, key, value):
    ...         self.timers.at_event_time(self.timestamp + 5)
    ...
    ...     def on_timer(self, key, timer):
    ...         yield f"echo at {timer.time}"
    >>> flow = ms.Flow("echo")
    >>> calls = flow.from_iterable([("a", 1), ("a", 9)])
    >>> timed = calls.event_time(lambda call: call[1])
    >>> echoes = timed.key_by(lambda call: call[0]).process(Echo()).collect()
    >>> _ = flow.run(on="local")
    >>> echoes.result()
    [('a', 'echo at 6'), ('a', 'echo at 14')]
    """

    __slots__ = ("_clock", "_is_timed", "_owner", "_place", "added", "is_over")

    def __init__(
        self, owner: TimedFunction, clock: Clock, place: str, *, is_timed: bool
    ) -> None:
        self._owner = owner
        self._clock = clock
        #: The verb and where it was written.
        self._place = place
        self._is_timed = is_timed
        #: Whether no timer fires any more.
        self.is_over = False
        #: When something of the key will be due that was not before, by kind.
        self.added: list[tuple[Kind, int]] = []

    @property
    def now(self) -> int:
        """Processing time in milliseconds since 1970."""
        return self._clock.wall_ms()

    def at_event_time(self, time: int | datetime) -> int:
        """Call `on_timer` when the watermark has come to `time`; return the time.

        If it has already, that is when the next watermark comes.
        """
        if not self._is_timed:
            msg = (
                f"{self._place} sets a timer of event time, but its records have no "
                "timestamps; call `event_time` before it, or use `at_processing_time`"
            )
            raise UsageError(msg)
        return self._set(EVENT, int(timestamp(time)))

    def at_processing_time(self, time: int | datetime) -> int:
        """Call `on_timer` when the clock shows `time`, or as soon after; return the time."""
        return self._set(PROCESSING, int(timestamp(time)))

    def after(self, duration: Duration) -> int:
        """Call `on_timer` that long from now, by the clock; return the time."""
        return self._set(PROCESSING, self.now + milliseconds(duration))

    def cancel_event_time(self, time: int | datetime) -> None:
        """Forget the timer for `time`, if there is one."""
        self._owner.key_state.pop((EVENT, timestamp(time)), None)

    def cancel_processing_time(self, time: int | datetime) -> None:
        """Forget the timer for `time`, if there is one."""
        self._owner.key_state.pop((PROCESSING, timestamp(time)), None)

    def note_expiry(self, time: int) -> None:
        """Have the key looked at when something of its state is too old."""
        self.added.append((PROCESSING, time))

    def _set(self, kind: Kind, time: int) -> int:
        if not self._owner.has_on_timer:
            name = type(self._owner).__qualname__
            msg = (
                f"{self._place} sets a timer, but {name} has no `on_timer`; define "
                "`on_timer(self, key, timer)`"
            )
            raise UsageError(msg)
        if self.is_over:
            msg = (
                f"{self._place} sets a timer in `on_end`, when none fires any more; do "
                "there what would follow from it"
            )
            raise UsageError(msg)
        self._owner.key_state[kind, time] = None
        self.added.append((kind, time))
        return time


class TimerIndex:
    """The keys with timers, each with a time at which to look at it.

    That is when its earliest timer is due, or before: timers that are cancelled leave it
    as it is.  So setting a timer anew with every record costs no more than a look.

    Examples
    --------
    >>> index = TimerIndex()
    >>> index.put("a", 7), index.put("b", 5), index.put("a", 5), index.put("b", 9)
    (None, None, None, None)
    >>> index.first
    5
    >>> sorted(index.take()), index.first
    (['a', 'b'], None)
    """

    __slots__ = ("_heap", "_pushed", "_times")

    def __init__(self) -> None:
        self._times: dict[Any, int] = {}
        #: Time, number, key; stale where `_times` says otherwise.
        self._heap: list[tuple[int, int, Any]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._times)

    def put(self, key: Any, time: int) -> None:
        """Look at the key at `time`, or before if that was agreed."""
        known = self._times.get(key)
        if known is not None and known <= time:
            return
        self._times[key] = time
        self._pushed += 1
        heapq.heappush(self._heap, (time, self._pushed, key))
        if len(self._heap) > 2 * len(self._times) + _STALE_MIN:
            self._rebuild()

    @property
    def first(self) -> int | None:
        """The earliest time, if there is one."""
        heap, times = self._heap, self._times
        while heap:
            time, _, key = heap[0]
            if times.get(key) == time:
                return time
            heapq.heappop(heap)
        return None

    def take(self) -> list[Any]:
        """Remove and return the keys of the earliest time."""
        first, taken = self.first, []
        while self._heap and self.first == first:
            _, _, key = heapq.heappop(self._heap)
            del self._times[key]
            taken.append(key)
        return taken

    def clear(self) -> None:
        """Forget all keys."""
        self._times.clear()
        self._heap.clear()

    def _rebuild(self) -> None:
        """Drop what is stale, before it outweighs the rest."""
        entries = enumerate(self._times.items())
        self._heap = [(time, number, key) for number, (key, time) in entries]
        self._pushed = len(self._heap)
        heapq.heapify(self._heap)
