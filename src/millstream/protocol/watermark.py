"""Event time of one task: the minimum over the watermarks of its inputs.

This module decides what time it is.  It does not know how channels are read, what a
timestamp means, or how long nothing has come.

Theory of operation
-------------------
Every input says by watermarks that never fall that nothing of that time or earlier
follows.  The watermark of a task is the least of these.  An input that is *idle* does
not count until its next watermark; when all are idle the largest counts, as if each had
become idle after it had caught up with the others.  An input that has *ended* does not
count at all; when all have ended there is nothing left to decide.

Invariant (see `EventTime.validate`): `time` never falls, and has come as far as the inputs
that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = ["BEGINNING", "END_OF_TIME", "EventTime", "Watermark"]

BEGINNING = -(2**63)
"""A time before every timestamp: the watermark of who has said nothing."""

END_OF_TIME = 2**63 - 1
"""A time after every timestamp: the watermark of who has nothing more to say."""

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
    """The watermark of a task, from those of its inputs.

    Parameters
    ----------
    inputs
        Those that are there from the beginning.

    Examples
    --------
    >>> time = EventTime(["left", "right"])
    >>> time.note("left", Watermark(5))
    >>> time.note("right", Watermark(3))
    >>> time.watermark
    Watermark(time=3, is_idle=False)
    >>> time.note("right", Watermark(3, is_idle=True))
    >>> time.watermark
    Watermark(time=5, is_idle=False)
    """

    def __init__(self, inputs: Iterable[I]) -> None:
        self._watermarks = dict.fromkeys(inputs, BEGINNING)
        self._idle: set[I] = set()
        self._time = BEGINNING

    def validate(self) -> None:
        """Assert the invariant in the module docstring; called by every test."""
        assert BEGINNING <= self._time <= END_OF_TIME, f"{self._time} is no time"
        strangers = self._idle - self._watermarks.keys()
        assert not strangers, f"inputs {strangers} are idle, and have ended"
        least = self._least()
        assert least is None or self._time >= least, (
            f"it is {self._time}, and inputs have come to {least}"
        )

    @property
    def watermark(self) -> Watermark:
        """What the task may send now."""
        idle, inputs = len(self._idle), len(self._watermarks)
        assert idle <= inputs, f"{idle} of {inputs} inputs are idle"
        is_idle = inputs > 0 and idle == inputs
        return Watermark(self._time, is_idle)

    def note(self, source: I, watermark: Watermark) -> None:
        """Take a watermark of an input; one that says less than before says nothing new."""
        assert BEGINNING <= watermark.time <= END_OF_TIME, f"{watermark} is no time"
        before = self._watermarks.get(source, BEGINNING)
        self._watermarks[source] = max(before, watermark.time)
        if watermark.is_idle:
            self._idle.add(source)
        else:
            self._idle.discard(source)
        self._rise()

    def end(self, source: I) -> None:
        """Note that nothing more comes from an input."""
        self._watermarks.pop(source, None)
        self._idle.discard(source)
        self._rise()

    def _rise(self) -> None:
        least = self._least()
        if least is not None:
            self._time = max(self._time, least)

    def _least(self) -> int | None:
        """Return how far the inputs that count have come; None if all have ended."""
        awake = [t for i, t in self._watermarks.items() if i not in self._idle]
        return min(awake) if awake else max(self._watermarks.values(), default=None)
