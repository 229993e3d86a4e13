"""One NaN for all keys: the NaN of every row and process is the same key.

Python calls no NaN equal to another one, but a dict, a set and a tuple take an object for
equal to itself.  So a key that is or holds a NaN is exchanged for one that holds `NAN`,
which is a single object in every process: pickle stores it by name.

Nothing here knows how keys are hashed or where they travel.
"""

from __future__ import annotations

import copy
import dataclasses
from datetime import date, datetime, time, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

if TYPE_CHECKING:
    from typing import Any

    from _typeshed import DataclassInstance

    from millstream.values import Key, Pair

__all__ = ["NAN", "PLAIN", "NotANumber", "one_nan", "rows_with_one_nan"]


class NotANumber(float):
    """The type of `NAN`; all else about it is that of a float."""

    __slots__ = ()

    def __new__(cls) -> Self:  # noqa: D102 - a NaN
        return super().__new__(cls, "nan")

    def __reduce__(self) -> str:
        return "NAN"

    def __copy__(self) -> NotANumber:
        return self

    def __deepcopy__(self, memo: object) -> NotANumber:
        return self


NAN: Final = NotANumber()
"""What stands for NaN in keys, whatever its type was."""

PLAIN: Final = frozenset(
    {bool, bytes, date, datetime, int, str, time, timedelta, type(None), UUID}
)
"""Types whose values hold no NaN, and can be keys."""

_key = itemgetter(0)


def one_nan(key: Key) -> Any:
    """Return a key with `NAN` for every NaN in it; the key itself if there is none.

    Examples
    --------
    >>> one_nan(("a", float("nan"))) == one_nan(("a", float("nan")))
    True
    >>> key = ("a", 1.5)
    >>> one_nan(key) is key
    True
    """
    if type(key) in PLAIN:
        return key
    if isinstance(key, tuple):
        return _of_tuple(key)
    if isinstance(key, frozenset):
        parts = [one_nan(part) for part in key]
        is_same = all(map(_is_same, parts, key))
        return key if is_same else frozenset(parts)
    record: object = key
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return _of_record(record)
    return NAN if _is_nan(key) else key


def rows_with_one_nan(rows: list[Pair]) -> list[Pair]:
    """Return pairs of key and value with `NAN` for every NaN in their keys."""
    if set(map(type, map(_key, rows))) <= PLAIN:
        return rows
    return [(one_nan(key), value) for key, value in rows]


def _is_nan(key: Key) -> bool:
    """Whether a value says that it is no number; NaT, which is a single object, stays."""
    try:
        return bool(key != key) and hasattr(key, "real")  # noqa: PLR0124 - so is NaN
    except Exception:  # noqa: BLE001 - a comparison of somebody else's
        return False


def _is_same(left: object, right: object) -> bool:
    return left is right


def _of_tuple(key: tuple[Key, ...]) -> tuple[Key, ...]:
    parts = [one_nan(part) for part in key]
    if all(map(_is_same, parts, key)):
        return key
    make = getattr(type(key), "_make", tuple)
    made: tuple[Key, ...] = make(parts)
    return made


def _of_record(key: DataclassInstance) -> DataclassInstance:
    changed = {}
    for field in dataclasses.fields(key):
        value = getattr(key, field.name)
        one = one_nan(value)
        if one is not value:
            changed[field.name] = one
    if not changed:
        return key
    made = copy.copy(key)
    for name, value in changed.items():
        object.__setattr__(made, name, value)
    if made != made:  # noqa: PLR0124 - from Python 3.13 on, fields are compared by value
        msg = (
            f"{made!r} is not equal to itself, so no state could be found by it; use a "
            "tuple of its fields as key, or another value than NaN"
        )
        raise TypeError(msg)
    return made
