"""Aggregates: what `reduce`, `count`, `mean` and the others have in common.

An aggregate builds an accumulator from values and can say how two accumulators
merge; one that can is combined on the sending side, before rows are moved.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.values import Value

    _Mean = tuple[Value, int]
    """Sum and count."""

__all__ = ["MISSING", "Aggregate", "builtin", "fold", "reduce"]


class _Missing:
    """The accumulator of an aggregate that has not seen a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How a group of values becomes one.

    Parameters
    ----------
    name
        What the plan shows.
    first
        Accumulator of a single value.
    update
        Accumulator after one more value.
    merge
        Accumulator of two parts, or None where parts cannot be merged.
    finish
        Result of an accumulator, or None where it is the accumulator itself.
    empty
        Result over no values at all; `MISSING` means there is none.
    """

    name: str
    first: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None
    empty: Any = MISSING

    @property
    def kind(self) -> str | None:
        """Which of Millstream's own aggregates it is; some of them have a faster loop."""
        return None


@dataclass(frozen=True, slots=True)
class _Builtin(Aggregate):
    """An aggregate of Millstream's own."""

    @property
    def kind(self) -> str:
        """Which one it is."""
        return self.name


def reduce(function: Callable[[Value, Value], Value]) -> Aggregate:
    """Combine values two by two with an associative function."""
    return Aggregate("reduce", _identity, function, function)


def fold(
    initial: object,
    function: Callable[[Value, Value], Value],
    merge: Callable[[Value, Value], Value] | None = None,
) -> Aggregate:
    """Update a copy of `initial` with each value in turn."""
    start = _Start(initial)

    def first(value: object) -> object:
        return function(start(), value)

    return Aggregate("fold", first, function, merge, empty=initial)


def builtin(name: str) -> Aggregate:
    """Return the aggregate behind the verb of that name."""
    return _BUILTINS[name]


@dataclass(frozen=True, slots=True)
class _Start:
    """Hands out a fresh copy of an initial value; immutable ones as they are."""

    value: object

    def __call__(self) -> object:
        if isinstance(self.value, int | float | str | bytes | bool | None):
            return self.value
        return copy.deepcopy(self.value)


def _identity(value: object) -> object:
    return value


def _one(_value: object) -> int:
    return 1


def _plus_one(count: int, _value: object) -> int:
    return count + 1


def _keep_left(left: object, _right: object) -> object:
    return left


def _keep_right(_left: object, right: object) -> object:
    return right


def _mean_first(value: Value) -> _Mean:
    return value, 1


def _mean_update(part: _Mean, value: Value) -> _Mean:
    return part[0] + value, part[1] + 1


def _mean_merge(left: _Mean, right: _Mean) -> _Mean:
    return left[0] + right[0], left[1] + right[1]


def _mean_finish(part: _Mean) -> Value:
    return part[0] / part[1]


def _set_first(value: object) -> set[object]:
    return {value}


def _set_update(values: set[object], value: object) -> set[object]:
    values.add(value)
    return values


def _set_finish(values: set[object]) -> set[object]:
    """Leave one NaN, as there is one where they are keys."""
    others = {value for value in values if value == value}  # noqa: PLR0124 - no NaN is
    return others | set(list(values - others)[:1])


def _set_merge(left: set[object], right: set[object]) -> set[object]:
    return left | right


_BUILTINS = {
    aggregate.name: aggregate
    for aggregate in (
        _Builtin("count", _one, _plus_one, add, empty=0),
        _Builtin("sum", _identity, add, add, empty=0),
        _Builtin("min", _identity, min, min),
        _Builtin("max", _identity, max, max),
        _Builtin("mean", _mean_first, _mean_update, _mean_merge, _mean_finish),
        _Builtin("first", _identity, _keep_left, _keep_left),
        _Builtin("last", _identity, _keep_right, _keep_right),
        _Builtin(
            "unique", _set_first, _set_update, _set_merge, _set_finish, frozenset()
        ),
    )
}
