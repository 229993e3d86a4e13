"""How segments become the bytes of a state file, and bytes become segments again.

A file is a magic number and a run of segments, each a header and its payload::

    "MSSF" version:u16  ( header bytes:u32  header:msgpack  payload )*

Decoding believes nothing: lengths are compared with what is there before anything is
cut out, so a length of ten gigabytes costs nothing.  It does not look into payloads;
who decodes one must have verified the file (`state.store`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn

import msgpack

from millstream.errors import SnapshotError
from millstream.state.base import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.values import Plain

__all__ = ["decoded_segments", "encoded_segments"]

_MAGIC = b"MSSF"
_VERSION = 1
_START = struct.Struct(">4sH")
_HEADER_BYTES = struct.Struct(">I")
_HEADER_BYTES_MAX = 65_536
_SMALL_BYTES = 65_536
"""Payloads up to here are copied behind their header, which saves a write."""


def encoded_segments(segments: Iterable[Segment]) -> Iterator[bytes]:
    """Return the bytes of a state file piece by piece.

    Examples
    --------
    >>> segment = Segment("count", 0, SegmentKind.TASK, (0, 16), b"payload")
    >>> data = b"".join(encoded_segments([segment]))
    >>> decoded_segments(data) == [segment]
    True
    """
    yield _START.pack(_MAGIC, _VERSION)
    for segment in segments:
        start = _header(segment)
        if len(segment.payload) <= _SMALL_BYTES:
            yield start + segment.payload
        else:
            yield start
            yield segment.payload


def decoded_segments(data: bytes) -> list[Segment]:
    """Return the segments of a state file; raises `SnapshotError`."""
    view = memoryview(data)
    if len(view) < _START.size:
        _refuse(f"it has {len(view)} bytes")
    magic, version = _START.unpack_from(view)
    if magic != _MAGIC:
        _refuse(f"it begins with {magic!r}")
    if version != _VERSION:
        msg = (
            f"the state file has version {version}, this Millstream reads {_VERSION}; "
            "use the release that wrote it, or a newer one"
        )
        raise SnapshotError(msg)
    return list(_segments(view[_START.size :]))


def _segments(rest: memoryview) -> Iterator[Segment]:
    while rest:
        if len(rest) < _HEADER_BYTES.size:
            _refuse("it ends inside a header")
        (header_bytes,) = _HEADER_BYTES.unpack_from(rest)
        end = _HEADER_BYTES.size + header_bytes
        if header_bytes > _HEADER_BYTES_MAX or end > len(rest):
            _refuse(f"a header claims {header_bytes} bytes")
        fields, payload_bytes = _fields(bytes(rest[_HEADER_BYTES.size : end]))
        if payload_bytes > len(rest) - end:
            _refuse(f"a payload claims {payload_bytes} bytes")
        yield Segment(*fields, payload=bytes(rest[end : end + payload_bytes]))
        rest = rest[end + payload_bytes :]


def _header(segment: Segment) -> bytes:
    first, last = segment.shards
    fields = (segment.operator, segment.task, segment.kind.value, first, last)
    header = msgpack.packb((*fields, len(segment.payload)))
    if len(header) > _HEADER_BYTES_MAX:
        msg = f"the operator's name has {len(segment.operator)} characters; shorten it"
        raise SnapshotError(msg)
    return _HEADER_BYTES.pack(len(header)) + bytes(header)


def _fields(header: bytes) -> tuple[tuple[str, int, SegmentKind, tuple[int, int]], int]:
    try:
        operator, task, kind, first, last, payload_bytes = msgpack.unpackb(header)
        shards = (_count(first), _count(last))
        fields = (_text(operator), _count(task), SegmentKind(_text(kind)), shards)
        return fields, _count(payload_bytes)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        _refuse(f"a header cannot be read ({error})")


def _count(value: Plain) -> int:
    if type(value) is not int or value < 0:
        msg = f"{value!r} is no count"
        raise ValueError(msg)
    return value


def _text(value: Plain) -> str:
    if type(value) is not str:
        msg = f"{value!r} is no text"
        raise ValueError(msg)
    return value


def _refuse(what: str) -> NoReturn:
    msg = f"the state file is malformed: {what}; it is damaged or none of Millstream's"
    raise SnapshotError(msg)
