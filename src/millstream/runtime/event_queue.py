"""Events for a core, one after the other.

What follows from an event may bring another one for the same core.  That one waits until
everything that follows from the first has been done: no core is asked while its last answer
is being carried out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EventQueue"]

_Event = TypeVar("_Event")


class EventQueue(Generic[_Event]):
    """Hands events to one handler, in the order in which they came.

    Parameters
    ----------
    handle
        Takes an event and does all that follows from it; it may `put` others.
    """

    def __init__(self, handle: Callable[[_Event], None]) -> None:
        self._handle = handle
        self._waiting: deque[_Event] = deque()
        self._is_handling = False

    def put(self, event: _Event) -> None:
        """Have an event handled: now, or behind those that came before it."""
        self._waiting.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._waiting:
                self._handle(self._waiting.popleft())
        finally:
            self._is_handling = False
