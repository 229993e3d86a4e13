"""Values as columns that msgpack can hold, with nothing lost, the types of all parts too.

Many values are taken apart at once, a type at a time, as Parquet does it with records: the
first entries of all tuples are one column, the values of all dicts under one key another,
until there are only numbers, texts and bytes left.  So a value costs no step in Python, and
what msgpack does not tell apart, tuples and lists among them, is said once for a column.

A column is a list that begins with what it is:

========  ================================================================================
SCALARS   the values as they are
MIXED     for each value the number of its column; these columns
ROWS      how many tuples, all of one length; a column for each place in them
TUPLES    how long each tuple is; a column of all that is in them
LISTS     how long each list is; a column of all that is in them
RECORDS   how many dicts, all with the same texts as keys; the keys; a column for each
DICTS     how long each dict is; a column of keys; a column of values
NAMED     what makes them, by its name in `state.stored_types`; a column of tuples to call
          it with; a column of lists and one of lists of pairs to add, each may be nil
SINGLE    how many times the one object of that name
SHARED    for each value its place in a column of different ones
========  ================================================================================

Nothing here becomes bytes, and nothing is pickled: who gets an `UnshreddableError` may.
"""

from __future__ import annotations

from copyreg import __newobj__ as new_object  # type: ignore[attr-defined]
from itertools import chain, islice, starmap
from typing import TYPE_CHECKING, Any

from millstream.state.stored_types import (
    is_immutable,
    name_of,
    reducer_of,
    single_of,
    stored_object,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.state.stored_types import Reduced, Reducer
    from millstream.values import Pair, Value

__all__ = ["Column", "UnshreddableError", "assembled", "shredded"]

Column = list[Any]

(
    SCALARS, MIXED, ROWS, TUPLES, LISTS, RECORDS, DICTS, NAMED, SINGLE, SHARED,
) = range(10)  # fmt: skip

_SCALAR_TYPES = frozenset({bool, bytes, float, int, str, type(None)})
"""What msgpack gives back as it was; of these exactly, as it flattens subclasses."""
_DEPTH_MAX = 64
_WIDTH_MAX = 32
"""How many columns a tuple or a dict may need for itself."""
_COLUMNS_MAX = 10_000
_KINDS_MAX = 256
_TUPLES_MANY = 64
"""Among so many it is asked whether most are the same ones, met over and over."""
_PROTOCOL = 4


class UnshreddableError(Exception):
    """A value is no tree, or has parts whose types are not in the table."""


def shredded(*lists: list[Value]) -> list[Column]:
    """Return columns that hold these values; no value may have a part of another one."""
    shredder = _Shredder()
    return [shredder.column(each, 0) for each in lists]


def assembled(column: Column) -> list[Value]:
    """Return the values of a column.

    Examples
    --------
    >>> assembled(*shredded([(1, [2]), (3, [])]))
    [(1, [2]), (3, [])]
    """
    kind, *parts = column
    return _ASSEMBLERS[kind](*parts)


class _Shredder:
    """Takes values apart; it knows what it has met, so it is for one time."""

    def __init__(self) -> None:
        #: The ids of all parts that can change, each of which must be met once.
        self._met: set[int] = set()
        self._met_count = 0
        self._column_count = 0
        #: What was made on the way: nothing else may get its id.
        self._made: list[object] = []

    def column(self, values: list[Value], depth: int) -> Column:
        """Return the column of values of any types."""
        kinds = set(map(type, values))
        if kinds <= _SCALAR_TYPES:
            return [SCALARS, values]
        self._column_count += 1
        if depth > _DEPTH_MAX or self._column_count > _COLUMNS_MAX:
            msg = f"it needs more than {_COLUMNS_MAX} columns, or is too deep"
            raise UnshreddableError(msg)
        if len(kinds) > 1:
            return self._mixed(values, kinds - _SCALAR_TYPES, depth)
        return self._alike(kinds.pop(), values, depth)

    def _mixed(self, values: list[Value], kinds: set[type], depth: int) -> Column:
        """All scalars are one column, and each other type is one."""
        if len(kinds) >= _KINDS_MAX:
            msg = f"it has parts of {len(kinds)} types"
            raise UnshreddableError(msg)
        groups: dict[type, list[Value]] = {kind: [] for kind in kinds}
        scalars: list[Value] = []
        places = {kind: place for place, kind in enumerate(groups, 1)}
        for each in values:
            groups.get(type(each), scalars).append(each)
        numbers = bytes([places.get(type(each), 0) for each in values])
        columns = [[SCALARS, scalars]]
        columns += [self._alike(kind, groups[kind], depth) for kind in groups]
        return [MIXED, numbers, columns]

    def _alike(self, kind: type, values: list[Value], depth: int) -> Column:
        if kind is tuple:
            return self._tuples(values, depth)
        if is_immutable(kind):
            return self._immutable(kind, values, depth)
        self._meet(values)
        if kind is list:
            return [LISTS, list(map(len, values)), self._flat(values, depth)]
        if kind is dict:
            return self._dicts(values, depth)
        return self._named(kind, values, depth)

    def _meet(self, values: list[Value]) -> None:
        self._met.update(map(id, values))
        self._met_count += len(values)
        if len(self._met) < self._met_count:
            msg = "an object lies in it twice"
            raise UnshreddableError(msg)

    def _flat(self, values: list[Value], depth: int) -> Column:
        return self.column(list(chain.from_iterable(values)), depth + 1)

    def _tuples(self, values: list[Value], depth: int) -> Column:
        count = len(values)
        if count > _TUPLES_MANY and 2 * len(set(map(id, values))) < count:
            numbers, different = _numbered(values)
            return [SHARED, numbers, self._tuples(different, depth)]
        width = len(values[0])
        if width > _WIDTH_MAX or len(set(map(len, values))) > 1:
            return [TUPLES, list(map(len, values)), self._flat(values, depth)]
        columns = map(list, zip(*values, strict=True))
        return [ROWS, count, [self.column(each, depth + 1) for each in columns]]

    def _dicts(self, values: list[Value], depth: int) -> Column:
        keys = list(chain.from_iterable(values))
        entries = list(chain.from_iterable(map(dict.values, values)))
        names = list(values[0])
        width = len(names)
        is_record = (
            0 < width <= _WIDTH_MAX
            and len(keys) == width * len(values)
            and set(map(type, keys)) == {str}
            and keys == names * len(values)
        )
        if is_record:
            columns = [self.column(entries[n::width], depth + 1) for n in range(width)]
            return [RECORDS, len(values), names, columns]
        lengths = list(map(len, values))
        return [
            DICTS, lengths, self.column(keys, depth + 1), self.column(entries, depth + 1),
        ]  # fmt: skip

    def _immutable(self, kind: type, values: list[Value], depth: int) -> Column:
        """Many of them are often few: time zones, names of types."""
        single = single_of(kind)
        if single is not None:
            return [SINGLE, len(values), single]
        numbers, different = _numbered(values)
        if len(different) == len(values):
            return self._named(kind, values, depth)
        return [SHARED, numbers, self._named(kind, different, depth)]

    def _named(self, kind: type, values: list[Value], depth: int) -> Column:
        parts = list(starmap(_padded, map(_reducer(kind), values)))
        self._made.append(parts)
        makers, arguments, states, items, entries = map(list, zip(*parts, strict=True))
        if set(map(id, states)) != {id(None)} or len(set(map(id, makers))) > 1:
            msg = f"it has parts of type {kind.__name__}, which are not alike"
            raise UnshreddableError(msg)
        name = "" if makers[0] is stored_object else name_of(makers[0])
        if name is None:
            msg = f"it has parts of type {kind.__name__}"
            raise UnshreddableError(msg)
        return [
            NAMED, name, self.column(arguments, depth + 1),
            self._added(items, depth), self._added(entries, depth),
        ]  # fmt: skip

    def _added(
        self, iterators: Sequence[Iterable[Value] | None], depth: int
    ) -> Column | None:
        if set(map(type, iterators)) == {type(None)}:
            return None
        lists = [list(each or ()) for each in iterators]
        self._made.append(lists)
        return self.column(lists, depth + 1)


def _numbered(values: list[Value]) -> tuple[list[int], list[Value]]:
    """Return for each value its place among those that are not the same, and these."""
    different = {id(each): each for each in values}
    places = dict(zip(different, range(len(different)), strict=True))
    return [places[id(each)] for each in values], list(different.values())


def _reducer(kind: type) -> Callable[[Value], Reduced]:
    found = reducer_of(kind)
    if found is None:
        msg = f"it has parts of type {kind.__name__}"
        raise UnshreddableError(msg)
    if found is NotImplemented:
        return _reduced_by_python
    return lambda value: _reduced(found, value)


def _reduced(reduce: Reducer, value: Value) -> Reduced:
    made = reduce(value)
    if made is None:
        msg = f"it has parts of type {type(value).__name__}"
        raise UnshreddableError(msg)
    return _reduced_by_python(value) if made is NotImplemented else made


def _reduced_by_python(value: Value) -> Reduced:
    made: Reduced = value.__reduce_ex__(_PROTOCOL)
    return made


def _padded(
    make: Callable[..., object],
    arguments: tuple[Value, ...],
    state: object = None,
    items: Iterator[Value] | None = None,
    entries: Iterator[Pair] | None = None,
) -> tuple[object, ...]:
    if make is new_object:
        make, *rest = arguments
        arguments = tuple(rest)
    return make, arguments, state, items, entries


def _scalars(values: list[Value]) -> list[Value]:
    return values


def _parted(numbers: bytes, columns: list[Column]) -> list[Value]:
    parts = [iter(assembled(each)) for each in columns]
    return [next(parts[number]) for number in numbers]


def _rows(count: int, columns: list[Column]) -> list[Value]:
    if not columns:
        return [()] * count
    return list(zip(*map(assembled, columns), strict=True))


def _tuples(lengths: list[int], column: Column) -> list[Value]:
    entries = iter(assembled(column))
    return [tuple(islice(entries, length)) for length in lengths]


def _lists(lengths: list[int], column: Column) -> list[Value]:
    entries = iter(assembled(column))
    return [list(islice(entries, length)) for length in lengths]


def _records(count: int, names: list[str], columns: list[Column]) -> list[Value]:
    del count
    rows = zip(*map(assembled, columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _dicts(lengths: list[int], keys: Column, values: Column) -> list[Value]:
    entries = zip(assembled(keys), assembled(values), strict=True)
    return [dict(islice(entries, length)) for length in lengths]


def _named(
    name: str, arguments: Column, items: Column | None, entries: Column | None
) -> list[Value]:
    make = stored_object(name) if name else stored_object
    made = list(starmap(make, assembled(arguments)))
    if items is not None:
        for each, more in zip(made, assembled(items), strict=True):
            each.extend(more)
    if entries is not None:
        for each, more in zip(made, assembled(entries), strict=True):
            each.update(more)
    return made


def _single(count: int, name: str) -> list[Value]:
    return [stored_object(name)] * count


def _shared(numbers: list[int], column: Column) -> list[Value]:
    return list(map(assembled(column).__getitem__, numbers))


_ASSEMBLERS: dict[int, Callable[..., list[Value]]] = {
    SCALARS: _scalars,
    MIXED: _parted,
    ROWS: _rows,
    TUPLES: _tuples,
    LISTS: _lists,
    RECORDS: _records,
    DICTS: _dicts,
    NAMED: _named,
    SINGLE: _single,
    SHARED: _shared,
}
