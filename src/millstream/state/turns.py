"""Who has the interpreter: a cut first, long work in the background between its pieces.

Threads of Python take turns.  Work in the background that never waits takes half of the
turns, and keeps each until a call into C returns.  So such work is cut into pieces of a few
milliseconds and asks between them whether somebody makes a cut (`give_way`); a cut is
disturbed by the rest of one piece, at most.  A longer switch interval for the time of the
cut would not do: it holds for everybody, so that a thread which gets its turn all the same
keeps it for as long as that.

Nothing here knows what the work is.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collecting_no_garbage", "give_way", "undisturbed"]

_CUT_S_MAX = 1.0
"""Longer than this no cut is waited for."""

_changed = threading.Condition()
#: The threads that make a cut.
_cutting: set[int] = set()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let work in the background wait at the end of its present piece."""
    own = threading.get_ident()
    with _changed:
        _cutting.add(own)
    try:
        yield
    finally:
        with _changed:
            _cutting.discard(own)
            _changed.notify_all()


def give_way() -> None:
    """Wait until no other thread makes a cut; called between pieces of long work."""
    if _cutting:
        own = {threading.get_ident()}
        with _changed:
            _changed.wait_for(lambda: not _cutting - own, _CUT_S_MAX)


@contextmanager
def collecting_no_garbage() -> Iterator[None]:
    """Make many objects that stay; looking for garbage among them takes twice as long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
