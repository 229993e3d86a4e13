"""How values are stored: as columns in msgpack, or as pickles where that cannot be.

The first byte of stored values says how the others are to be read:

- ``c``: msgpack, a column (`state.shredding`) for each list of values;
- ``p``: a pickle that refers to nothing but names of the table `state.stored_types`, for
  values that are no trees: an object lies in them twice, or in itself;
- ``o``: a pickle with objects of the user's own classes, which it names by their paths.

All of them give back exactly the types that there were.

Nothing here knows whose values they are, or where they are stored; whoever decodes must
have checked that nobody else wrote the bytes.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

import msgpack

from millstream.errors import SnapshotError
from millstream.state.shredding import Column, UnshreddableError, assembled, shredded
from millstream.state.stored_arrays import BY_PYTHON
from millstream.state.stored_types import OWN, TAG, reducer_of, stored_object

if TYPE_CHECKING:
    from millstream.values import Value

__all__ = ["OBJECTS", "decode", "decode_lists", "encode", "encode_lists", "form_of"]

COLUMNS, PLAIN, OBJECTS = b"c", b"p", b"o"

_LARGE = 1
"""The extension type of msgpack for numbers that 64 bits do not hold."""


def encode(value: object) -> bytes:
    """Return a value as bytes; raises what pickle raises.

    Examples
    --------
    >>> decode(encode({"part": (1, 2.5, ["x"])}))
    {'part': (1, 2.5, ['x'])}
    """
    return encode_lists([value])


def encode_lists(*lists: list[Value]) -> bytes:
    """Return lists of values as bytes.

    Examples
    --------
    >>> decode_lists(encode_lists(["a", "b"], [(1, 2), [3]]))
    [['a', 'b'], [(1, 2), [3]]]
    """
    try:
        return COLUMNS + _packed(shredded(*lists))
    except (UnshreddableError, ValueError):
        # The second is a text or a list that is too long for msgpack.
        return _pickled(list(lists))


def decode(data: bytes) -> Value:
    """Return the value of bytes that were checked to be ours."""
    [[value]] = decode_lists(data)
    return value


def decode_lists(data: bytes) -> list[list[Value]]:
    """Return what `encode_lists` made bytes of."""
    form = form_of(data)
    if form == COLUMNS:
        columns = msgpack.unpackb(
            memoryview(data)[1:], ext_hook=_large, unicode_errors="surrogatepass"
        )
        return list(map(assembled, columns))
    stream = io.BytesIO(data)
    stream.seek(1)
    lists: list[list[Value]] = _UNPICKLERS[form](stream).load()
    return lists


def form_of(data: bytes) -> bytes:
    """Return the first byte of stored values; raises `SnapshotError` if they are none."""
    form = data[:1]
    if form != COLUMNS and form not in _UNPICKLERS:
        msg = (
            f"a stored value begins with {form!r}, which this Millstream does not know; "
            "go on with the release that wrote it, or a newer one"
        )
        raise SnapshotError(msg)
    return form


def _packed(document: list[Column]) -> bytes:
    try:
        return bytes(msgpack.packb(document, default=_extension))
    except UnicodeEncodeError:
        # Half a pair of surrogates, which texts from outside may have.
        return bytes(
            msgpack.packb(document, default=_extension, unicode_errors="surrogatepass")
        )


def _extension(number: int) -> msgpack.ExtType:
    size = number.bit_length() // 8 + 1
    return msgpack.ExtType(_LARGE, number.to_bytes(size, "big", signed=True))


def _large(code: int, data: bytes) -> int:
    if code != _LARGE:
        msg = (
            f"a stored value has a part of type {code}, which this Millstream does not "
            "know; go on with the release that wrote it, or a newer one"
        )
        raise SnapshotError(msg)
    return int.from_bytes(data, "big", signed=True)


def _pickled(value: object) -> bytes:
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

    def reducer_override(self, obj: object) -> Any:
        reduce = reducer_of(type(obj))  # type: ignore[arg-type]  # types are hashable
        if reduce is NotImplemented:
            return BY_PYTHON
        made = None if reduce is None else reduce(obj)
        if made is None:
            self.has_objects = True
            return BY_PYTHON
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
