"""The loggers of the engine, and how they are switched on.

Everything is logged under ``millstream``: ``millstream.job`` and ``millstream.snapshots``
say what was decided, ``millstream.worker`` what a worker did.  A library is silent, so
nothing is shown until the program configures `logging`, or somebody asks with
``MILLSTREAM_LOG`` or ``--verbose``.

What every handler gets, also one that the program has attached itself, holds no credential
and is one line of printable letters, the text of an exception apart.  What is logged is
not known here.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import Any

from millstream.credentials import without_credentials
from millstream.errors import UsageError
from millstream.observe.printable import printable

__all__ = ["LOG_VARIABLE", "log_level", "logger", "show_log", "show_log_as_asked"]

LOG_VARIABLE = "MILLSTREAM_LOG"
_LEVELS = ("debug", "info", "warning", "error")
_ROOT = logging.getLogger("millstream")
_ROOT.addHandler(logging.NullHandler())


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever `sys.stderr` is just then; a progress line makes way for it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _Harmless(logging.Filter):
    """Lets no name in a message begin another line, or command a terminal.

    At the logger, as it is before all handlers.  An exception goes as text: a handler
    would format it anew, and show what it tells.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        safe = printable(without_credentials(text))
        if safe != text:
            record.msg, record.args = safe, ()
        if record.exc_info:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = printable(without_credentials(told), keep="\n\t")
            record.exc_info = None
        return True


_HARMLESS = _Harmless()
_HANDLER = _Stderr()
_HANDLER.setFormatter(
    logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
)


def logger(area: str) -> logging.Logger:
    r"""Return the logger ``millstream.<area>``; the only way to one.

    Examples
    --------
    >>> log = logger("job")
    >>> record = log.makeRecord("", 20, "", 0, "flow %s", ("a\x1b[2J",), None)
    >>> log.filter(record) and record.getMessage()
    'flow a\\x1b[2J'
    """
    made = logging.getLogger(f"millstream.{area}")
    made.addFilter(_HARMLESS)
    return made


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
