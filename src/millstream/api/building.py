"""Check what a user hands to a verb, and remember where the verb was written.

Nothing here knows what a verb does or what the plan looks like.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.api.captures import changed_by, check_sendable, culprit, has_open_file
from millstream.errors import LostChangesWarning, UsageError
from millstream.plan.aggregate import Aggregate
from millstream.plan.logical import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "checked_aggregate",
    "checked_callable",
    "checked_connector",
    "checked_count",
    "checked_flow",
    "checked_function",
    "checked_sink_function",
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
        check_sendable(function)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        found = culprit(function)
        what = f"captures {found}, which cannot" if found else "cannot"
        msg = (
            f"`{verb}` at {user_location()} has a function that {what} be sent to "
            f"workers ({_first_line(error)}); create it inside the function or pass "
            "plain data instead"
        )
        raise UsageError(msg) from None
    return function


def checked_connector(verb: str, given: object, kind: type[Any]) -> None:
    """Refuse what is no source or sink, and one with an open file.

    Every worker would get a copy of the file.  Of anything else that does not leave the
    process pickle says so, and `local` does not ask it.
    """
    here, word = user_location(), kind.__name__
    if not isinstance(given, kind):
        msg = f"`{verb}` at {here} takes a {word}, got {given!r}"
        raise UsageError(msg)
    if has_open_file(given):
        msg = (
            f"`{verb}` at {here} has a {word} that holds {culprit(given)}, which cannot "
            "be sent to workers; keep its path, and open it in what `open` returns"
        )
        raise UsageError(msg)


def checked_sink_function(verb: str, function: object) -> Any:
    """Return `function` as `checked_function` does; warn of what it changes in vain."""
    checked_function(verb, function)
    changed = changed_by(function)
    if changed:
        here = user_location()
        msg = (
            f"`{verb}` at {here} has a function that changes {changed}, of which every "
            "worker has a copy, so that elsewhere than on local this program does not "
            "see it; use collect() and its result()"
        )
        warnings.warn_explicit(msg, LostChangesWarning, here.file, here.line)
    return function


def checked_aggregate(aggregate: object) -> Any:
    """Return an aggregate of the user's if workers can get its functions."""
    if not isinstance(aggregate, Aggregate):
        msg = (
            f"`aggregate` at {user_location()} takes an Aggregate, got {aggregate!r}; "
            "for a plain function use reduce or fold"
        )
        raise UsageError(msg)
    parts = aggregate.first, aggregate.update, aggregate.merge, aggregate.finish
    for function in parts:
        if function is not None:
            checked_function("aggregate", function)
    return aggregate


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


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
