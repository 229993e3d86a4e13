"""Values as msgpack, and as pickles inside it only where nothing else keeps their types.

None, truth values, numbers of 64 bits, texts, bytes, and lists, tuples and dicts of these
come back with exactly the types that they had.  So do records: dataclasses that the
caller lists by name.  Everything else, such as a subclass of one of these, an object that
lies in a value twice, or one that holds itself, is pickled.

It takes a call for each object in a value, so it is not for rows.
"""

from __future__ import annotations

import pickle
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["PlainCodec"]

_TUPLE, _PICKLE, _RECORD = 1, 2, 3
_SCALARS = frozenset({bool, bytes, float, str, type(None)})
_LEAST, _END = -(1 << 63), 1 << 64
_ERRORS = "surrogatepass"


class PlainCodec:
    """Turns values into bytes and back.

    Parameters
    ----------
    records
        Dataclasses, each as ``module.name``, that are stored field by field.

    Examples
    --------
    >>> codec = PlainCodec()
    >>> codec.decode(codec.encode({"part": (1, [2.5, b"x"])}))
    {'part': (1, [2.5, b'x'])}
    """

    def __init__(self, records: Collection[str] = ()) -> None:
        self._records = frozenset(records)

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; raises what pickle raises."""
        try:
            return _packed(self._plain(value, set()))
        except (RecursionError, ValueError):
            return _packed(_pickled(value))

    def decode(self, data: bytes) -> Any:
        """Return the value of bytes that were checked to be ours."""
        return msgpack.unpackb(
            data, ext_hook=self._extension, strict_map_key=False, unicode_errors=_ERRORS
        )

    def _plain(self, value: Any, seen: set[int]) -> Any:
        kind = type(value)
        if kind in _SCALARS or (kind is int and _LEAST <= value < _END):
            return value
        if kind is not tuple:
            if id(value) in seen:
                msg = "it lies in the value twice"
                raise ValueError(msg)
            seen.add(id(value))
        plain: Callable[[Any], Any] = lambda each: self._plain(each, seen)  # noqa: E731
        if kind is list:
            return list(map(plain, value))
        if kind is dict:
            return {plain(key): plain(each) for key, each in value.items()}
        if kind is tuple:
            return msgpack.ExtType(_TUPLE, _packed(list(map(plain, value))))
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in self._records:
            parts = [plain(getattr(value, field.name)) for field in fields(value)]
            return msgpack.ExtType(_RECORD, _packed([name, *parts]))
        return _pickled(value)

    def _extension(self, code: int, data: bytes) -> Any:
        if code == _TUPLE:
            return tuple(self.decode(data))
        if code == _RECORD:
            name, *parts = self.decode(data)
            if name not in self._records:
                msg = f"{name!r} is no record that is read here"
                raise ValueError(msg)
            module, _, kind = name.rpartition(".")
            return getattr(import_module(module), kind)(*parts)
        if code == _PICKLE:
            return pickle.loads(data)  # noqa: S301 - whoever calls has verified it
        msg = f"there is no extension {code}"
        raise ValueError(msg)


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors=_ERRORS))


def _pickled(value: Any) -> msgpack.ExtType:
    return msgpack.ExtType(_PICKLE, pickle.dumps(value, protocol=5))
