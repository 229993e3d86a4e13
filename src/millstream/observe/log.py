"""Switch the log of the engine on.

Everything is logged under ``millstream``: ``millstream.job`` and ``millstream.snapshots``
say what was decided, ``millstream.worker`` what a worker did.  A library is silent, so
nothing is shown until the program configures `logging`, or somebody asks with
``MILLSTREAM_LOG`` or ``--verbose``.  What is logged is not known here.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from millstream.errors import UsageError
from millstream.observe.printable import printable

__all__ = ["LOG_VARIABLE", "log_level", "show_log", "show_log_as_asked"]

LOG_VARIABLE = "MILLSTREAM_LOG"
_LEVELS = ("debug", "info", "warning", "error")
_ROOT = logging.getLogger("millstream")
_ROOT.addHandler(logging.NullHandler())


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever `sys.stderr` is just then; a progress line makes way for it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _OneLine(logging.Formatter):
    """Lets no name in a message begin another line, or command a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        record.message = printable(record.message)
        return super().formatMessage(record)


_HANDLER = _Stderr()
_HANDLER.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))


def show_log(level: str) -> None:
    """Show the log from this level on, ``""`` for no longer; on standard error.

    A program that has handlers of its own at the root gets the records there instead.

    Raises
    ------
    UsageError
        If there is no such level.
    """
    name = level.strip().lower()
    if name not in ("", *_LEVELS):
        msg = f"{LOG_VARIABLE}={level} is not a level of the log; use {', '.join(_LEVELS)}"
        raise UsageError(msg)
    _ROOT.removeHandler(_HANDLER)
    _ROOT.setLevel(name.upper() or logging.NOTSET)
    if name and not logging.getLogger().handlers:
        _ROOT.addHandler(_HANDLER)


def show_log_as_asked() -> None:
    """Show the log if ``MILLSTREAM_LOG`` says so and nobody has asked for a level yet."""
    level = os.environ.get(LOG_VARIABLE, "")
    if level and not _ROOT.level:
        show_log(level)


def log_level() -> str:
    """Return the level that workers of this program's jobs log at, or ``""``."""
    name = logging.getLevelName(_ROOT.level).lower()
    return name if name in _LEVELS else ""
