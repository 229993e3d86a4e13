"""Turn a run of stateless row operators into one generated function.

A chain of operator objects that call each other costs several hundred nanoseconds a
row.  Here ``map(f).filter(p).flat_map(g)`` becomes ::

    list(
        chain_from_iterable(
            (f2(v1) for v0 in (rows_iterator) for v1 in (f0(v0),) if f1(v1))
        )
    )

so that a row costs the user's own calls and little else: Python functions are called
from one comprehension, functions written in C from `map` or `filter`, and what a
`flat_map` returns is walked by `itertools`, not by bytecode.

Two rules let a traceback name the operator and the row.  Every call of a Python function
stands on a line of its own; a line that pulls rows through several functions written in C
names them all, and these can be tried again (see `FusedFunction.nodes_of_line`).  And
nothing is materialized before the end, so `rows_iterator` stands where the failing row
was.

Rows with keys are pairs of key and value; where a stream has timestamps, the value is a
pair of timestamp and value in turn.  User functions see the value alone.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, assert_never, runtime_checkable

from millstream.plan.nodes import (
    DropKey,
    Filter,
    FilterMap,
    FlatMap,
    Flatten,
    Inspect,
    KeyBy,
    Map,
    Unkey,
)
from millstream.plan.time import DropTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.plan.logical import Node

__all__ = ["GENERATED", "FusedFunction", "RunsFused", "fuse"]

GENERATED = "<millstream stage>"
"""File name of generated code in tracebacks."""

_C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


@dataclass(frozen=True, slots=True)
class FusedFunction:
    """A generated function over a batch, with what is needed to explain its errors."""

    function: Callable[[list[Any]], Any]
    source: str
    nodes_of_line: dict[int, tuple[Node, ...]]


@runtime_checkable
class RunsFused(Protocol):
    """What an operator has that runs a generated function."""

    fused: FusedFunction


def fuse(
    nodes: Sequence[Node], *, take_keys: Callable[[Iterable[Any]], None] | None = None
) -> FusedFunction:
    """Generate one function for `nodes`, all of which carry row operators.

    Parameters
    ----------
    nodes
        The operators, first to last.
    take_keys
        Gets the keys alone, instead of a list of rows being returned; for counting.
    """
    writer = _Writer(
        has_key=bool(nodes) and nodes[0].takes_pairs,
        has_time=bool(nodes) and nodes[0].takes_times,
    )
    for node in nodes:
        writer.add(node)
    return writer.finished(take_keys)


class _Writer:
    """Writes the expression step by step.

    It is in one of two states.  *Closed*: `_source` is an iterable expression over
    rows.  *Open*: a comprehension over `_source` has begun; `_value` (and `_key`) are
    the lines of the expression for the row at this point, `_clauses` its clauses, and
    `_time` is the variable with its timestamp.
    """

    def __init__(self, *, has_key: bool, has_time: bool) -> None:
        self._names: dict[str, Any] = {"chain_from_iterable": chain.from_iterable}
        self._variables = 0
        self._source: list[_Line] = [_Line("rows_iterator")]
        #: The operators that work whenever a row is pulled out of `_source`.
        self._lazy: tuple[Node, ...] = ()
        self._value: list[_Line] | None = None
        self._key: list[_Line] | None = None
        self._time: str | None = None
        self._clauses: list[_Line] = []
        self._has_key = has_key
        self._has_time = has_time
        #: The last operator, if it computes keys that could as well be pulled.
        self._key_by: Node | None = None

    def add(self, node: Node) -> None:
        spec = node.spec
        assert isinstance(
            spec,
            Map
            | Filter
            | FlatMap
            | FilterMap
            | Flatten
            | Inspect
            | KeyBy
            | DropKey
            | Unkey
            | DropTime,
        )
        self._key_by = None
        match spec:
            case Map():
                self._add_map(node, spec.function)
            case Filter():
                self._add_filter(node, spec.function)
            case FlatMap():
                self._add_flat_map(node, spec.function)
            case Flatten():
                self._add_flat_map(node, None)
            case FilterMap():
                self._open(node)
                variable = self._assign(self._call(node, spec.function))
                self._clauses.append(_Line(f"if {variable} is not None"))
            case Inspect():
                argument = self._variable(node)
                call = _inline(self._call(node, spec.function, argument))
                self._clauses.append(_Line(f"if ({call},)", (node,)))
            case KeyBy():
                self._key_by = node if self._can_pull(spec.function) else None
                argument = self._variable(node)
                self._key = self._call(node, spec.function, argument)
                self._has_key = True
            case DropKey() | Unkey() | DropTime():
                self._add_drop(node, spec)
            case _:
                assert_never(spec)

    def finished(
        self, take_keys: Callable[[Iterable[Any]], None] | None
    ) -> FusedFunction:
        if take_keys is not None:
            self._names["take_keys"] = take_keys
            body = self._keys_taken()
        elif self._value is not None:
            body = [_Line("[", self._lazy), *self._comprehension(), _Line("]")]
        else:
            body = [_Line("list(", self._lazy), *self._source, _Line(")")]
        lines = [
            _Line("def stage(rows):"),
            _Line(" rows_iterator = iter(rows)"),
            _Line(" return ("),
            *body,
            _Line(" )"),
        ]
        source = "\n".join(line.text for line in lines)
        namespace = dict(self._names)
        exec(compile(source, GENERATED, "exec"), namespace)  # noqa: S102 - our own text
        nodes_of_line = {
            number: line.nodes for number, line in enumerate(lines, 1) if line.nodes
        }
        return FusedFunction(namespace["stage"], source, nodes_of_line)

    def _keys_taken(self) -> list[_Line]:
        """Hand the keys over, from C to C where the key function allows it."""
        assert self._key is not None
        if self._key_by is not None:
            name = self._key[0].text
            self._pull(f"map({name.removesuffix('(')},", self._key_by)
            return [_Line("take_keys(", self._lazy), *self._source, _Line(")")]
        self._value, self._key, self._has_key = self._key, None, False
        keys = [_Line("[", self._lazy), *self._comprehension(), _Line("]")]
        return [_Line("take_keys("), *keys, _Line(")")]

    def _add_map(self, node: Node, function: Callable[[Any], Any]) -> None:
        if self._can_pull(function):
            name = self._name(function)
            self._pull(f"map({name},", node)
            return
        self._open(node)
        self._value = self._call(node, function)

    def _add_filter(self, node: Node, function: Callable[[Any], object]) -> None:
        if self._can_pull(function):
            name = self._name(function)
            self._pull(f"filter({name},", node)
            return
        argument = self._variable(node)
        call = _inline(self._call(node, function, argument))
        self._clauses.append(_Line(f"if {call}", (node,)))

    def _add_drop(self, node: Node, spec: DropKey | Unkey | DropTime) -> None:
        self._open(node)
        if isinstance(spec, DropTime):
            self._time, self._has_time = None, False
            return
        if isinstance(spec, Unkey):
            self._value = self._pair(self._key, self._require_value())
        self._key, self._has_key = None, False

    def _add_flat_map(
        self, node: Node, function: Callable[[Any], Iterable[Any]] | None
    ) -> None:
        if self._has_key or self._has_time:
            self._add_kept_flat_map(node, function)
            return
        if function is not None:
            self._add_map(node, function)
        elif not self._is_replayable:
            self._open(node)
        if self._value is not None:
            self._close()
        self._pull("chain_from_iterable(", node)

    def _add_kept_flat_map(
        self, node: Node, function: Callable[[Any], Iterable[Any]] | None
    ) -> None:
        if self._lazy:
            self._close()
        self._open(node)
        items = self._call(node, function) if function else self._require_value()
        if self._has_key:
            self._key = [_Line(self._key_variable())]
        variable = self._fresh()
        self._clauses += [_Line(f"for {variable} in (", (node,)), *items, _Line(")")]
        self._value = [_Line(variable)]
        self._lazy = (node,)
        self._close()

    @property
    def _is_replayable(self) -> bool:
        """Whether all that works when a row is pulled is written in C."""
        functions = [getattr(node.spec, "function", len) for node in self._lazy]
        return all(_is_c(function) for function in functions)

    def _can_pull(self, function: object) -> bool:
        """Whether `map` or `filter` may call the function as rows are pulled."""
        is_free = self._value is None and not self._has_key and not self._has_time
        return is_free and self._is_replayable and _is_c(function)

    def _pull(self, call: str, node: Node) -> None:
        self._source = [_Line(call), *self._source, _Line(")")]
        if node not in self._lazy:
            self._lazy = (*self._lazy, node)

    def _open(self, node: Node) -> None:
        """Begin a comprehension for `node` unless one has begun."""
        if self._value is not None:
            return
        value = self._fresh()
        target = value
        if self._has_time:
            self._time = self._fresh()
            target = f"({self._time}, {value})"
        if self._has_key:
            key = self._fresh()
            target = f"{key}, {target}"
            self._key = [_Line(key)]
        begin = _Line(f"for {target} in (", (node,))
        self._clauses = [begin, *self._source, _Line(")")]
        self._value = [_Line(value)]

    def _close(self) -> None:
        """End the comprehension; it becomes the source of what follows."""
        self._source = [_Line("(", self._lazy), *self._comprehension(), _Line(")")]
        self._value, self._key, self._clauses, self._lazy = None, None, [], ()
        self._time = None

    def _comprehension(self) -> list[_Line]:
        row = self._require_value()
        if self._time is not None:
            row = self._pair([_Line(self._time)], row)
        if self._has_key:
            row = self._pair(self._key, row)
        return [*row, *self._clauses]

    @staticmethod
    def _pair(first: list[_Line] | None, second: list[_Line]) -> list[_Line]:
        assert first is not None
        return [_Line("("), *first, _Line(","), *second, _Line(")")]

    def _require_value(self) -> list[_Line]:
        assert self._value is not None
        return self._value

    def _variable(self, node: Node) -> str:
        """Return a variable that holds the value, assigning it where there is none."""
        self._open(node)
        value = self._require_value()
        if len(value) == 1 and value[0].text.isidentifier():
            return value[0].text
        return self._assign(value)

    def _key_variable(self) -> str:
        key = self._key
        assert key is not None
        if len(key) == 1 and key[0].text.isidentifier():
            return key[0].text
        variable = self._fresh()
        self._clauses += [_Line(f"for {variable} in ("), *key, _Line(",)")]
        return variable

    def _assign(self, value: list[_Line]) -> str:
        if self._key is not None:
            self._key = [_Line(self._key_variable())]
        variable = self._fresh()
        self._clauses += [_Line(f"for {variable} in ("), *value, _Line(",)")]
        self._value = [_Line(variable)]
        return variable

    def _call(
        self, node: Node, function: Callable[..., Any], argument: str | None = None
    ) -> list[_Line]:
        inner = [_Line(argument)] if argument else self._require_value()
        return [_Line(f"{self._name(function)}(", (node,)), *inner, _Line(")")]

    def _name(self, function: Callable[..., Any]) -> str:
        name = f"f{len(self._names) - 1}"
        self._names[name] = function
        return name

    def _fresh(self) -> str:
        self._variables += 1
        return f"v{self._variables - 1}"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of generated code, and the operators whose functions it calls."""

    text: str
    nodes: tuple[Node, ...] = ()


def _inline(lines: list[_Line]) -> str:
    return "".join(line.text for line in lines)


def _is_c(function: object) -> bool:
    """Whether calling the function from C is cheaper than from bytecode."""
    return isinstance(function, _C_FUNCTIONS) or function in (str, int, float, len)
