"""Work beside the stepping thread: on a thread of its own, or at once.

Pieces run one after the other in the order in which they came; results wait until
they are asked for.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from millstream.ports import Done

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Inline", "Threaded", "for_driver"]

_DRIVER_LAST_S = 2.0

_Piece = tuple[object, "Callable[[], object]"]


class Inline:
    """Runs each piece when it is submitted; for work that is never long."""

    def __init__(self) -> None:
        self._done: list[Done] = []

    def submit(self, tag: object, work: Callable[[], object]) -> None:
        """Run the piece now."""
        self._done.append(_run(tag, work))

    def poll(self) -> list[Done]:
        """Return what has ended since the last time."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Nothing is left to give up."""


class Threaded:
    """Runs pieces on one thread, which is started with the first of them.

    Parameters
    ----------
    last_s
        How long `close` waits for the piece that runs.  A driver gives the lock of its
        directory back next, and the piece may be a manifest that counts there.
    """

    def __init__(self, name: str, *, last_s: float = 0.0) -> None:
        self._name = name
        self._last_s = last_s
        self._pieces: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def submit(self, tag: object, work: Callable[[], object]) -> None:
        """Run the piece after those before it."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._loop, name=self._name, daemon=True
            )
            self._thread.start()
        self._pieces.put((tag, work))

    def poll(self) -> list[Done]:
        """Return what has ended since the last time."""
        done = []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def close(self) -> None:
        """Begin no more pieces; one that runs for long is waited for by nobody."""
        self._is_closed.set()
        self._pieces.put(None)
        if self._thread is not None:
            self._thread.join(self._last_s)

    def _loop(self) -> None:
        while not self._is_closed.is_set():
            piece = self._pieces.get()
            if piece is None or self._is_closed.is_set():
                return
            self._done.put(_run(*piece))


def for_driver() -> Threaded:
    """Return who writes the files of a driver."""
    return Threaded("millstream-driver-files", last_s=_DRIVER_LAST_S)


def _run(tag: object, work: Callable[[], object]) -> Done:
    try:
        return Done(tag, work())
    except BaseException as error:  # noqa: BLE001 - handed to whoever polls
        return Done(tag, error=error)
