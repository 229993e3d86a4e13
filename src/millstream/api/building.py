"""Check what a user hands to a verb, and remember where the verb was written."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import cloudpickle

import millstream
from millstream.errors import UsageError
from millstream.plan.nodes import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["checked_count", "checked_function", "user_location"]

_OWN_FILES = os.path.dirname(millstream.__file__) + os.sep  # noqa: PTH120 - a prefix


def user_location() -> Location:
    """Return the innermost line of the call stack that is not Millstream's."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads source files
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def checked_function(verb: str, function: object) -> Any:
    """Return `function` if workers can get and call it, else explain why not."""
    if not callable(function):
        msg = (
            f"`{verb}` at {user_location()} takes a function, got "
            f"{type(function).__name__} {function!r}"
        )
        raise UsageError(msg)
    try:
        cloudpickle.dumps(function)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        culprit = _culprit(function)
        what = f"captures {culprit}, which" if culprit else "that"
        msg = (
            f"`{verb}` at {user_location()} has a function that {what} cannot be sent to "
            f"workers ({_first_line(error)}); create it inside the function or pass "
            "plain data instead"
        )
        raise UsageError(msg.replace("that that", "that")) from None
    return function


def checked_count(verb: str, name: str, value: object, *, least: int = 1) -> int:
    """Return `value` if it is a whole number that is large enough."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        msg = (
            f"`{verb}` at {user_location()} takes a whole number of at least {least} as "
            f"{name}, got {value!r}"
        )
        raise UsageError(msg)
    return value


def _culprit(function: Callable[..., Any]) -> str:
    """Name the captured variable that cannot be pickled."""
    for name, value in _captured(function):
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 - pickling may raise anything
            return f"{name!r} (a {type(value).__name__})"
    return ""


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(function, "__self__"):
        yield "self", function.__self__
        function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        yield from vars(function).items() if hasattr(function, "__dict__") else ()
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for value in function.__defaults__ or ():
        yield "a default argument", value


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
