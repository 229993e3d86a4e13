"""What steps can be: how a verb is written, and what it means in plain Python.

A stream of rows carries records ``(k, v, t)``: any key, a whole number and a timestamp.
A frame has columns of these names: text, ``Int64`` that may be null, and ``Int64``.  Every
verb makes the same of them again, so that any verb can follow any other; where a verb
leaves something open, such as which rows a limit lets pass, what follows forgets it.

Modules of verbs add themselves to `VERBS`; `catalogue` imports them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "ALL_DISORDER",
    "FRAME",
    "PRELUDE",
    "ROWS",
    "VERBS",
    "Kind",
    "Record",
    "Verb",
    "called",
    "grouped",
    "one_nan",
    "verb",
]

Kind = Literal["rows", "frame", "rows sink", "frame sink"]
Record = tuple[Any, int, int]
Strategy = st.SearchStrategy[Any]

ROWS: Kind = "rows"
FRAME: Kind = "frame"
ALL_DISORDER = 10_000
"""More than timestamps ever differ, so that nothing is late."""

PRELUDE = '''
from math import nan

import polars as pl

import millstream as ms


class Counting(ms.StatefulFunction):
    """Says at the end how many values a key had."""

    count = ms.ValueState(default=0)

    def on_record(self, key, value):
        self.count.update(self.count.get() + 1)

    def on_end(self, key):
        yield self.count.get()


def paired(pair):
    """Make a record of what a join makes of a key."""
    key, made = pair
    left, right = made if isinstance(made, tuple) else (made, 0)
    return key, (-5 if left is None else 3 * left) + (-7 if right is None else right), 0
'''
"""What every written program begins with."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A kind of step.

    Attributes
    ----------
    text
        Writes the step, from its name, the names of its inputs and its arguments.
    means
        What becomes of the inputs' data; of a sink, what it must have got.
    arguments
        What the arguments are drawn from.
    kept
        Which arguments say what the state of the step is.
    bounded
        Which inputs must be known to end.
    is_ordered
        Whether the last argument is by how much timestamps may be out of order; unless
        the input is a source with one split, that must be `ALL_DISORDER`.
    """

    takes: tuple[Kind, ...]
    makes: Kind
    text: Callable[..., str]
    means: Callable[..., Any]
    arguments: tuple[Strategy, ...] = ()
    kept: tuple[int, ...] = ()
    bounded: tuple[int, ...] = ()
    is_ordered: bool = False

    @property
    def is_sink(self) -> bool:
        """Whether nothing can follow."""
        return self.makes.endswith("sink")


VERBS: dict[str, Verb] = {}


def verb(name: str, takes: Iterable[Kind], makes: Kind, **rest: Any) -> None:
    """Take up a verb."""
    VERBS[name] = Verb(tuple(takes), makes, **rest)


@cache
def called(text: str) -> Any:
    """Return what a text of Python stands for, as a program would see it."""
    return eval(text, _names())


@cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    return names


NAN = "the one NaN"


def one_nan(value: Any) -> Any:
    """Return a value that equals itself: all NaN are one key."""
    return NAN if value != value else value  # noqa: PLR0124 - that is how NaN is known


def grouped(records: Iterable[Record]) -> dict[Any, list[Record]]:
    """Return records by key."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(one_nan(record[0]), []).append(record)
    return groups
