"""Turn whatever ended a command into a message and an exit code.

=====  =======================================================================
code   meaning
=====  =======================================================================
0      the command did what it was asked
1      the job failed, or the job file raised
2      the command line, the configuration or the flow is wrong; nothing ran
130    interrupted from the keyboard
=====  =======================================================================

An error of Millstream is one sentence; an error of the user's own file is Python's
usual traceback, from the user's first line on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

import millstream
from millstream.credentials import without_credentials
from millstream.errors import (
    JobCancelledError,
    MillstreamError,
    OperatorError,
    UsageError,
)
from millstream.observe.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["FAILED", "INTERRUPTED", "MISUSED", "SUCCEEDED", "exit_code"]

SUCCEEDED, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
_OWN_FILES = (
    os.path.dirname(millstream.__file__) + os.sep,  # noqa: PTH120 - a prefix
    contextlib.__file__,
)


def exit_code(command: Callable[[], int], *, shows_traceback: bool) -> int:
    """Carry out a command and return its exit code; say why it failed, if it did.

    `SystemExit` passes: a job file may choose its own code.
    """
    try:
        return command()
    except KeyboardInterrupt:
        _say("error: interrupted")
        return INTERRUPTED
    except MillstreamError as error:
        _say(f"error: {error}")
        if shows_traceback:
            _say(_worker_traceback(error))
        return _code(error)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - a job file may raise anything
        theirs = _without_our_frames(error)
        _say("".join(traceback.format_exception(type(error), error, theirs)))
        return FAILED


def _code(error: MillstreamError) -> int:
    if isinstance(error, UsageError):
        return MISUSED
    was_interrupted = isinstance(error.__context__, KeyboardInterrupt)
    if isinstance(error, JobCancelledError) and was_interrupted:
        return INTERRUPTED
    return FAILED


def _worker_traceback(error: MillstreamError) -> str:
    if isinstance(error, OperatorError) and error.details:
        return error.details
    return "".join(traceback.format_exception(error))


def _without_our_frames(error: Exception) -> TracebackType | None:
    """Drop what led from the command to the user's file.

    An error with no other frames is ours, and keeps them, unless the file could not
    even be compiled.
    """
    theirs = error.__traceback__
    while theirs and theirs.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        theirs = theirs.tb_next
    return theirs if theirs or isinstance(error, SyntaxError) else error.__traceback__


def _say(text: str) -> None:
    text = printable(without_credentials(text.rstrip("\n")), keep="\n\t")
    print(text, file=sys.stderr)  # noqa: T201 - the command line speaks
