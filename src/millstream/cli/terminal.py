"""One line at the bottom of a terminal that is redrawn, and never in the way.

Knows escape codes and widths; what the line says comes from elsewhere.
"""

from __future__ import annotations

import shutil
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from millstream.observe.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["StatusLine"]

_CLEAR = "\r\x1b[K"


class StatusLine:
    """A line of text on a terminal that makes way for whatever else is printed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._is_drawn = False

    def draw(self, text: str) -> None:
        """Replace the line."""
        width = shutil.get_terminal_size().columns - 1
        text = printable(text)
        shown = text if len(text) <= width else f"{text[: width - 1]}…"
        with self._lock:
            self._write(f"{_CLEAR}{shown}")
            self._is_drawn = True

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._is_drawn:
                self._write(_CLEAR)
                self._is_drawn = False

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self.clear()
            self._write(f"{printable(text)}\n")

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Clear the line whenever the program prints; clear it at the end."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Beside(stream, self) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            self.clear()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Beside(TextIO if TYPE_CHECKING else object):  # type: ignore[misc]
    """A standard stream that clears the status line before it writes."""

    def __init__(self, stream: TextIO, line: StatusLine) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        self._line.clear()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
