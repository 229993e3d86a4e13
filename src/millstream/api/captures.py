"""What travels with a function: what cannot be sent, and what changes where nobody sees it.

A function is pickled with all it captured: closures, defaults, arguments of a partial, the
object of a bound method, the globals that it uses; and so is an object with methods, such
as a source or a sink of the user's.  Files, sockets, locks and connections
belong to the process that opened them; some of them pickle would copy without a word.  A
list that a function adds to is another list in every worker.

Nothing here knows verbs or plans.
"""

from __future__ import annotations

import dis
import functools
import io
import socket
import sys
import threading
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["changed_by", "check_sendable", "culprit", "has_open_file"]

_MUTABLE = (list, dict, set, bytearray, deque)
_CHANGING = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "subtract",
        "symmetric_difference_update",
        "update",
        "__delitem__",
        "__iadd__",
        "__ior__",
        "__setitem__",
    ]
)
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_DEREF"})
_KEPT_HERE = (
    io.IOBase,
    socket.socket,
    threading.Thread,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
)
_CONNECTIONS = frozenset({"sqlite3", "psycopg", "psycopg2", "asyncpg", "pymysql"})


class _KeptHereError(TypeError):
    """Something cannot leave this process."""

    def __init__(self, value: object) -> None:
        kind = type(value)
        super().__init__(f"cannot pickle {kind.__module__}.{kind.__qualname__} objects")
        self.value = value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles into nothing, and refuses what belongs to this process."""

    def reducer_override(self, value: Any) -> Any:
        if _is_kept_here(value):
            raise _KeptHereError(value)
        return super().reducer_override(value)


def _is_kept_here(value: object) -> bool:
    if isinstance(value, io.StringIO | io.BytesIO):
        return False
    if isinstance(value, io.IOBase):
        return value not in (sys.stdin, sys.stdout, sys.stderr)
    module = type(value).__module__.partition(".")[0]
    is_connection = module in _CONNECTIONS and hasattr(value, "close")
    return isinstance(value, _KEPT_HERE) or is_connection


def check_sendable(function: object) -> None:
    """Raise what pickle raises about what cannot be sent with all it needs."""
    _Pickler(io.BytesIO()).dump(function)


def has_open_file(value: object) -> bool:
    """Whether a file of this process would be copied with a value."""
    try:
        check_sendable(value)
    except _KeptHereError as error:
        return isinstance(error.value, io.IOBase)
    except Exception:  # noqa: BLE001 - it does not leave this process at all
        return False
    return False


def culprit(function: Any) -> str:
    """Name the captured variable that cannot be sent, or that holds what cannot."""
    for name, value in captured(function):
        try:
            check_sendable(value)
        except _KeptHereError as error:
            if error.value is value:
                return f"{name!r} (a {type(error.value).__name__})"
            return f"{name!r} (a {type(value).__name__} with a {type(error.value).__name__} in it)"
        except Exception:  # noqa: BLE001 - pickling may raise anything
            return f"{name!r} (a {type(value).__name__})"
    return ""


def captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that travel with a function, or with an object."""
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
        for method in vars(type(function)).values():
            if isinstance(method, types.FunctionType):
                yield from captured(method)
        return
    yield from _closure(function)
    yield from _defaults(function)
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue


def _defaults(function: Any) -> Iterator[tuple[str, Any]]:
    values = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(positional[len(positional) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def changed_by(function: Any) -> str:
    """Name what a function captured and changes, such as a list it appends to; or ""."""
    if isinstance(function, functools.partial):
        name = getattr(function.func, "__name__", "")
        first = function.args[0] if function.args else None
        if name in _CHANGING and isinstance(first, _MUTABLE):
            return f"a {type(first).__name__}"
        return changed_by(function.func)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, _MUTABLE):
        is_changing = getattr(function, "__name__", "") in _CHANGING
        return f"a {type(owner).__name__}" if is_changing else ""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return ""
    known = {**function.__globals__, **dict(_closure(function))}
    return _changed_in(function.__code__, known, set(function.__code__.co_freevars))


def _changed_in(code: types.CodeType, known: dict[str, Any], outer: set[str]) -> str:
    """Name what a piece of code changes of what is known outside of it; or ""."""
    steps = [s for s in dis.get_instructions(code) if s.opname != "CACHE"]
    for place, step in enumerate(steps):
        if step.opname in _STORES and _is_outer(step, outer):
            return repr(step.argval)
        loaded = None
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            loaded = _container(steps[: place + 1])
        elif step.argval in _CHANGING and place and step.opname in _ATTRIBUTES:
            loaded = steps[place - 1]
        if loaded is not None and loaded.opname in _LOADS:
            value = known.get(loaded.argval)
            if isinstance(value, _MUTABLE):
                return f"{loaded.argval!r}, a {type(value).__name__}"
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found = _changed_in(inner, known, outer & set(inner.co_freevars))
            if found:
                return found
    return ""


_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def _is_outer(step: dis.Instruction, outer: set[str]) -> bool:
    return step.opname == "STORE_GLOBAL" or step.argval in outer


def _container(steps: list[dis.Instruction]) -> dis.Instruction | None:
    """Return what loaded the container of which the last step changes an item."""
    height = 2 if steps[-1].opname == "DELETE_SUBSCR" else 3
    if steps[-2].opname == "SWAP":  # of an augmented assignment, which copies both
        copies = [i for i, s in enumerate(steps) if s.opname == "COPY"]
        return _pushed(steps[: copies[-2]], 2, 1) if len(copies) > 1 else None
    return _pushed(steps[:-1], height, height - 1)


def _pushed(
    steps: list[dis.Instruction], height: int, wanted: int
) -> dis.Instruction | None:
    """Return the step that pushed what lies at `wanted` of a stack of some height."""
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        before = height - dis.stack_effect(step.opcode, step.arg, jump=False)
        if before < wanted <= height:
            return step
        height = before
    return None
