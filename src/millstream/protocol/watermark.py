"""Event time of one task: the minimum over what its inputs have promised.

This module decides what time it is.  It does not know how channels are read, what a
timestamp means, or how long nothing has come.

Theory of operation
-------------------
Every input promises, in watermarks that never fall, that nothing of that time or
earlier follows.  A task can promise the least of these.  An input that is *idle* does
not count until its next promise; when all are idle the largest counts, as if each had
become idle after it had caught up with the others.  An input that has *ended* does not
count at all; when all have ended there is nothing left to decide.

Invariant: `time` never falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = ["BEGINNING", "END_OF_TIME", "EventTime", "Watermark"]

BEGINNING = -(2**63)
"""A time before every timestamp: nothing has been promised."""

END_OF_TIME = 2**63 - 1
"""A time after every timestamp: everything has been promised."""

I = TypeVar("I", bound="Hashable")  # noqa: E741 - an input


@dataclass(frozen=True, slots=True)
class Watermark:
    """Nothing of this time or earlier follows, except what is late.

    Attributes
    ----------
    is_idle
        Whether nothing may follow for a while, so that nobody should wait for it.
    """

    time: int
    is_idle: bool = False


class EventTime(Generic[I]):
    """What a task may promise, from what its inputs promise.

    Parameters
    ----------
    inputs
        Those that are there from the beginning.

    Examples
    --------
    >>> time = EventTime(["left", "right"])
    >>> time.note("left", Watermark(5))
    >>> time.note("right", Watermark(3))
    >>> time.promise
    Watermark(time=3, is_idle=False)
    >>> time.note("right", Watermark(3, is_idle=True))
    >>> time.promise
    Watermark(time=5, is_idle=False)
    """

    def __init__(self, inputs: Iterable[I]) -> None:
        self._promised = dict.fromkeys(inputs, BEGINNING)
        self._idle: set[I] = set()
        self._time = BEGINNING

    @property
    def promise(self) -> Watermark:
        """What may be promised now."""
        is_idle = bool(self._promised) and len(self._idle) == len(self._promised)
        return Watermark(self._time, is_idle)

    def note(self, source: I, watermark: Watermark) -> None:
        """Take a promise of an input; one that says less than before says nothing new."""
        before = self._promised.get(source, BEGINNING)
        self._promised[source] = max(before, watermark.time)
        if watermark.is_idle:
            self._idle.add(source)
        else:
            self._idle.discard(source)
        self._rise()

    def end(self, source: I) -> None:
        """Note that nothing more comes from an input."""
        self._promised.pop(source, None)
        self._idle.discard(source)
        self._rise()

    def _rise(self) -> None:
        if not self._promised:
            return
        awake = [t for i, t in self._promised.items() if i not in self._idle]
        least = min(awake) if awake else max(self._promised.values())
        self._time = max(self._time, least)
