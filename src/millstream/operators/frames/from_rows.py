"""Rows, which are dicts or tuples, as a frame of a schema, and nothing that does not fit.

Polars itself reads "1" as 1, 1.5 as 1, and takes what it does not know for null.

Nothing here knows operators or time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polars.datatypes import DataType, DataTypeClass

    from millstream.operators.base import Rows
    from millstream.values import Row, Value

__all__ = ["frame_of_rows"]

_INTEGERS = (int, np.integer)
_NUMBERS = (int, float, np.integer, np.floating)
_LISTS = (list, tuple, np.ndarray, pl.Series)


def frame_of_rows(rows: Rows, schema: pl.Schema) -> pl.DataFrame:
    """Return the rows as a frame; raise a `TypeError` for one that does not fit.

    Examples
    --------
    >>> schema = pl.Schema({"key": pl.String, "n": pl.Int64})
    >>> frame_of_rows([("a", 1), ("b", None)], schema).rows()
    [('a', 1), ('b', None)]
    >>> frame_of_rows([{"key": "a", "m": 1}], schema)
    Traceback (most recent call last):
    ...
    TypeError: the row has the key 'm', and the schema has 'key', 'n'; rename it or leave it out
    """
    if next(_problems(rows, schema), None) is not None:
        _raise_first(rows, schema)
    columns = _columns(rows, list(schema))
    return pl.DataFrame(
        [
            pl.Series(name, values, dtype=dtype, strict=True)
            for (name, dtype), values in zip(schema.items(), columns, strict=True)
        ]
    )


def _raise_first(rows: Rows, schema: pl.Schema) -> None:
    """Raise for the first row that has a problem; `failure` finds it by the iterator."""
    rows_iterator = iter(rows)
    for row in rows_iterator:
        problem = next(_problems([row], schema), None)
        if problem is not None:
            msg = f"the row {problem}"
            raise TypeError(msg)


def _problems(
    rows: Rows, schema: Mapping[str, DataType | DataTypeClass]
) -> Iterator[str]:
    """Yield what does not fit, to follow the words "the row"."""
    kinds = set(map(type, rows))
    names = list(schema)
    is_known = all(map(_is_mapping, kinds)) or all(map(_is_tuple, kinds))
    if not is_known:
        odd = next(kind for kind in kinds if not _is_tuple(kind))
        yield f"is a {odd.__name__}; expected a dict, a tuple or a dataclass"
        return
    if all(map(_is_tuple, kinds)):
        for length in set(map(len, rows)) - {len(names)}:
            yield f"has {length} values, and the schema has {_listed(names)}"
            return
    else:
        for key in set(chain.from_iterable(map(_keys, rows))).difference(names):
            yield (
                f"has the key {key!r}, and the schema has {_listed(names)}; rename it or "
                "leave it out"
            )
    for (name, dtype), values in zip(
        schema.items(), _columns(rows, names), strict=True
    ):
        yield from _misfits(values, _instance(dtype), f"column {name!r}")


def _misfits(values: list[Value], dtype: DataType, where: str) -> Iterator[str]:
    """Yield what is wrong with the values of a column, or of a field of it."""
    kinds = set(map(type, values)) - {type(None)}
    takes = _taken(dtype)
    for kind in kinds:
        if takes is not None and not takes(kind):
            value = next(value for value in values if type(value) is kind)
            yield (
                f"has {value!r} ({kind.__name__}) in {where}, which is {dtype}; convert it "
                "before, or say another type"
            )
            return
    if isinstance(dtype, pl.Struct):
        structs = [value for value in values if value is not None]
        for problem in _problems(structs, dtype.to_schema()):
            yield f"has a value in {where} that {problem}"
    elif isinstance(dtype, pl.List | pl.Array):
        items = [item for value in values if value is not None for item in value]
        yield from _misfits(items, _instance(dtype.inner), f"the lists of {where}")


def _taken(dtype: DataType) -> Callable[[type], bool] | None:
    """Return which types of Python a column takes; None for any."""
    if dtype.is_integer():
        return lambda kind: issubclass(kind, _INTEGERS) and kind is not bool
    if dtype.is_float():
        return lambda kind: issubclass(kind, _NUMBERS) and kind is not bool
    if isinstance(dtype, pl.Date):
        return lambda kind: issubclass(kind, date) and not issubclass(kind, datetime)
    for known, types in _TYPES.items():
        if isinstance(dtype, known):
            return lambda kind: issubclass(kind, types)
    return None


_TYPES: dict[type[DataType], tuple[type, ...]] = {
    pl.String: (str,),
    pl.Categorical: (str,),
    pl.Enum: (str,),
    pl.Boolean: (bool, np.bool_),
    pl.Datetime: (datetime, np.datetime64),
    pl.Duration: (timedelta, np.timedelta64),
    pl.Time: (time,),
    pl.Binary: (bytes,),
    pl.Decimal: (Decimal, int),
    pl.List: _LISTS,
    pl.Array: _LISTS,
    pl.Null: (),
}


def _columns(rows: Rows, names: list[str]) -> Iterator[list[Value]]:
    """Yield the values of each column; what a dict has not is null."""
    if not rows or _is_tuple(type(rows[0])):
        yield from (list(map(itemgetter(i), rows)) for i in range(len(names)))
        return
    dicts = rows if isinstance(rows[0], Mapping) else [_as_dict(row) for row in rows]
    for name in names:
        try:
            yield list(map(itemgetter(name), dicts))
        except KeyError:
            yield [row.get(name) for row in dicts]


def _is_mapping(kind: type) -> bool:
    return issubclass(kind, Mapping) or is_dataclass(kind)


def _is_tuple(kind: type) -> bool:
    return issubclass(kind, tuple | list)


def _keys(row: Row) -> Iterable[str]:
    return row if isinstance(row, Mapping) else _as_dict(row)


def _as_dict(row: Row) -> dict[str, Value]:
    if isinstance(row, Mapping):
        return dict(row)
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _instance(dtype: DataType | DataTypeClass) -> DataType:
    made: DataType = dtype() if isinstance(dtype, type) else dtype
    return made
