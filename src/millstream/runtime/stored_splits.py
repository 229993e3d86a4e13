"""How the sources of a job were cut, as the bytes of a file in its state directory.

Splits of Millstream's own sources, and all whose payload is plain, are stored as msgpack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors.base import Split
from millstream.state.plain import decode, encode
from millstream.state.stored_types import record_of, stored_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["decoded_splits", "encoded_splits"]


def encoded_splits(splits: Mapping[str, Sequence[Split]]) -> bytes:
    """Return the splits of all sources, by their names, as bytes.

    Examples
    --------
    >>> from millstream.connectors.base import Split
    >>> splits = {"read": (Split("rank 0 of 2", (0, 2)),)}
    >>> decoded_splits(encoded_splits(splits)) == splits
    True
    """
    return encode({name: tuple(map(_plain, parts)) for name, parts in splits.items()})


def decoded_splits(data: bytes) -> dict[str, tuple[Split, ...]]:
    """Return the splits of a file that was checked to be ours."""
    return {name: tuple(map(_split, parts)) for name, parts in decode(data).items()}


def _plain(split: Split) -> Any:
    """Return a split as its name and its payload, or what that is and its fields."""
    if type(split) is not Split:
        return split
    record = record_of(split.payload)
    return (split.name, split.payload) if record is None else (split.name, *record)


def _split(plain: Any) -> Split:
    if isinstance(plain, Split):
        return plain
    name, payload, *fields = plain
    return Split(name, stored_object(payload)(*fields[0]) if fields else payload)
