"""Timers of stateful functions: how they are kept.

A timer is an entry of its key's state, under the name ``(kind, time)``; so it is stored,
restored and moved with the key, and there is one for each time.  What is here besides
follows from those entries.  Nothing here calls a function of the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from millstream.errors import UsageError
from millstream.plan.time import milliseconds, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from millstream.plan.time import Duration
    from millstream.ports import Clock
    from millstream.values import Value

__all__ = [
    "EVENT",
    "PROCESSING",
    "WAITING",
    "Kind",
    "Timer",
    "Timers",
    "due_times_of",
    "times_of",
]

Kind = Literal["event", "processing"]

if TYPE_CHECKING:
    KeyState = dict[str | tuple[str, Any], Value]
    """What a function keeps of a key, by name; by kind and time, or name, what it owes."""

EVENT: Kind = "event"
PROCESSING: Kind = "processing"

WAITING = "waiting"
"""Under ``(WAITING, timestamp)`` stand the records that wait for event time."""


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


def times_of(state: KeyState, kind: Kind) -> Iterable[int]:
    """Return the times of a key's timers, in no order."""
    return (n[1] for n in state if type(n) is tuple and n[0] == kind)


def due_times_of(state: KeyState, kind: Kind) -> Iterable[int]:
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
    def key_state(self) -> KeyState:
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
