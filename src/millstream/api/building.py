"""Check what a user hands to a verb, and remember where the verb was written.

Nothing here knows what a verb does or what the plan looks like.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from millstream.errors import UsageError
from millstream.plan.nodes import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "checked_callable",
    "checked_count",
    "checked_flow",
    "checked_function",
    "located",
    "user_location",
]

_OWN_FILES = f"{Path(__file__).parents[1]}{os.sep}"


def user_location() -> Location:
    """Return the innermost line of the call stack that is not Millstream's."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads source files
    while frame.f_back is not None and _is_engine(frame.f_code.co_filename):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def _is_engine(file: str) -> bool:
    """Whether code of this file runs between the user's line and ours."""
    return file.startswith(_OWN_FILES) or file == contextlib.__file__


@contextlib.contextmanager
def located(verb: str) -> Iterator[None]:
    """Say in every usage error raised inside which verb it is about, and where."""
    try:
        yield
    except UsageError as error:
        msg = f"`{verb}` at {user_location()}: {error}"
        raise UsageError(msg) from None


def checked_callable(verb: str, function: object) -> None:
    """Refuse what cannot be called."""
    if not callable(function):
        msg = (
            f"`{verb}` at {user_location()} takes a function, got "
            f"{type(function).__name__} {function!r}"
        )
        raise UsageError(msg)


def checked_function(verb: str, function: object) -> Any:
    """Return `function` if workers can get and call it, else explain why not."""
    checked_callable(verb, function)
    try:
        cloudpickle.dumps(function)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        culprit = _culprit(function)
        what = f"captures {culprit}, which cannot" if culprit else "cannot"
        msg = (
            f"`{verb}` at {user_location()} has a function that {what} be sent to "
            f"workers ({_first_line(error)}); create it inside the function or pass "
            "plain data instead"
        )
        raise UsageError(msg) from None
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


def checked_flow(verb: str, flow: Any, other: Any) -> None:
    """Refuse to put together what belongs to two flows."""
    if other is not flow:
        msg = (
            f"`{verb}` at {user_location()} puts together what belongs to two flows, "
            f"{flow.name!r} and {other.name!r}; build both from one flow"
        )
        raise UsageError(msg)


def _culprit(function: Any) -> str:
    """Name the captured variable that cannot be pickled."""
    for name, value in _captured(function):
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001 - pickling may raise anything
            return f"{name!r} (a {type(value).__name__})"
    return ""


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that travel with a function."""
    if isinstance(function, functools.partial):
        yield from ((f"argument {i}", v) for i, v in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func
    if hasattr(function, "__self__"):
        yield "self", function.__self__
        function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        yield from vars(function).items() if hasattr(function, "__dict__") else ()
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    yield from _defaults(function)
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _defaults(function: Any) -> Iterator[tuple[str, Any]]:
    values = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(positional[len(positional) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
