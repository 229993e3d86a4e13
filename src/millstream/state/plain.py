"""How values are stored: as msgpack, or as pickles that can name nothing but what they may.

The first byte of a stored value says how the others are to be read:

- ``l``: msgpack, all of whose arrays are lists;
- ``t``: msgpack, all of whose arrays are tuples;
- ``p``: a pickle that refers to nothing but names of the table `state.stored_types`;
- ``o``: a pickle with objects of the user's own classes, which it names by their paths.

All of them give back exactly the types that there were, so msgpack is for values without
subclasses, and without an object in them twice.  To find that out costs time: a small value
is looked through, of many rows only scalars and flat tuples are told from the others, by
the set of their types and without a loop in Python.

Nothing here knows whose values they are, or where they are stored; whoever decodes must
have checked that nobody else wrote the bytes.
"""

from __future__ import annotations

import io
import pickle
from itertools import chain
from typing import Any

import msgpack

from millstream.errors import SnapshotError
from millstream.state.stored_types import (
    OWN,
    TAG,
    reducer_of,
    stored_object,
)

__all__ = ["OBJECTS", "decode", "decode_lists", "encode", "encode_lists", "form_of"]

LISTS, TUPLES, PLAIN, OBJECTS = b"l", b"t", b"p", b"o"

_SCALARS = frozenset({bool, bytes, float, int, str, type(None)})
"""What msgpack gives back as it was; of these exactly, as it flattens subclasses."""

_HOLDERS = frozenset({dict, list, tuple})
_PARTS_MAX = 4096
"""It takes longer to look at more parts of a value than to pickle them."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; raises what pickle raises.

    Examples
    --------
    >>> decode(encode({"part": (1, 2.5, ("x",))}))
    {'part': (1, 2.5, ('x',))}
    """
    return _packed(value, _array_kind(value)) or _pickled(value)


def encode_lists(*lists: list[Any]) -> bytes:
    """Return lists of values as bytes: they are lists whatever is in them.

    Examples
    --------
    >>> decode_lists(encode_lists(["a", "b"], [(1, 2), (3, 4)]))
    [['a', 'b'], [(1, 2), (3, 4)]]
    """
    kinds = set(map(_kind_of_rows, lists))
    # Tuples among the values of one list make no difference to scalars in another one.
    kind = tuple if kinds == {list, tuple} else kinds.pop() if len(kinds) == 1 else None
    return _packed(lists, kind) or _pickled(list(lists))


def decode(data: bytes) -> Any:
    """Return the value of bytes that were checked to be ours."""
    form = form_of(data)
    if form in {LISTS, TUPLES}:
        return msgpack.unpackb(
            memoryview(data)[1:], use_list=form == LISTS, strict_map_key=False
        )
    stream = io.BytesIO(data)
    stream.seek(1)
    return _UNPICKLERS[form](stream).load()


def decode_lists(data: bytes) -> list[list[Any]]:
    """Return what `encode_lists` made bytes of."""
    found = decode(data)
    return list(map(list, found)) if data[:1] == TUPLES else found


def form_of(data: bytes) -> bytes:
    """Return the first byte of a stored value; raises `SnapshotError` if it is none."""
    form = data[:1]
    if form not in {LISTS, TUPLES, *_UNPICKLERS}:
        msg = (
            f"a stored value begins with {form!r}, which this Millstream does not know; "
            "go on with the release that wrote it, or a newer one"
        )
        raise SnapshotError(msg)
    return form


def _packed(value: Any, array_kind: type | None) -> bytes | None:
    if array_kind is None:
        return None
    try:
        packed = msgpack.packb(value)
    except (ValueError, OverflowError):
        # A text that is no Unicode, or a number beyond 64 bits, is for pickle.
        return None
    return (TUPLES if array_kind is tuple else LISTS) + bytes(packed)


def _kind_of_rows(rows: list[Any]) -> type | None:
    """Return the same of many values, without looking at more than flat tuples."""
    kinds = set(map(type, rows)) - _SCALARS
    if not kinds:
        return list
    if kinds != {tuple}:
        return None
    tuples = [each for each in rows if type(each) is tuple]
    return (
        tuple if _SCALARS.issuperset(map(type, chain.from_iterable(tuples))) else None
    )


def _array_kind(value: Any) -> type | None:
    """Return what all arrays in a value are, list or tuple; None if msgpack will not do."""
    level = [value]
    arrays: set[type] = set()
    seen: list[int] = []
    count = 0
    while count < _PARTS_MAX:
        holders = [each for each in level if type(each) not in _SCALARS]
        if not holders:
            return arrays.pop() if arrays else list
        kinds = set(map(type, holders))
        arrays |= kinds - {dict}
        seen += [id(each) for each in holders if type(each) is not tuple]
        if len(arrays) > 1 or not kinds <= _HOLDERS or len(set(seen)) < len(seen):
            return None
        level = list(chain.from_iterable(holders))
        for each in holders:
            if type(each) is dict:
                level += each.values()
        count += len(level) + 1
    return None


def _pickled(value: Any) -> bytes:
    stream = io.BytesIO()
    stream.write(PLAIN)
    pickler = _Pickler(stream, 5)
    pickler.dump(value)
    if pickler.has_objects:
        stream.seek(0)
        stream.write(OBJECTS)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    """Writes names of the table where it can; asked only about what is no builtin."""

    has_objects = False

    def reducer_override(self, obj: Any) -> Any:
        reduce = reducer_of(type(obj))  # type: ignore[arg-type]  # types are hashable
        if reduce is NotImplemented:
            return NotImplemented
        made = None if reduce is None else reduce(obj)
        if made is None:
            self.has_objects = True
            return NotImplemented
        return made


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles that refer to the table alone: they can run nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == TAG:
            return stored_object
        msg = (
            f"a stored value refers to {module}.{name}, which a plain one must not; it "
            "was not written by Millstream"
        )
        raise SnapshotError(msg)


class _ObjectUnpickler(_PlainUnpickler):
    """Reads pickles with objects of the user's classes: they run what these need."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == OWN:
            return super().find_class(module, name)
        return pickle.Unpickler.find_class(self, module, name)


_UNPICKLERS = {PLAIN: _PlainUnpickler, OBJECTS: _ObjectUnpickler}
