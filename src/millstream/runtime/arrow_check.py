"""Looks at the messages of an Arrow IPC stream before anybody decodes them.

A decoder allocates what it is told, and where that fails the process ends.  Peers write
uncompressed streams; a compressed one may say of a few bytes that they are terabytes.  A
column of views may claim more buffers than there are.  Both are refused here.  This module
reads as much of the flatbuffers as it needs for that, and knows no columns.
"""

from __future__ import annotations

import struct

from millstream.errors import RemoteProtocolError

__all__ = ["refuse_greedy"]

_CONTINUATION = 0xFFFF_FFFF
_PREFIX = struct.Struct("<II")
_OFFSET = struct.Struct("<I")
_BACK = struct.Struct("<i")
_SLOT = struct.Struct("<H")
_LONG = struct.Struct("<q")

_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
"""Fields of a flatbuffer of type Message."""
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
"""What a message may hold."""
_DICTIONARY_RECORDS = 1
_BUFFERS, _COMPRESSION, _VIEW_BUFFERS = 2, 3, 4
"""Fields of a flatbuffer of type RecordBatch."""


def refuse_greedy(stream: memoryview) -> None:
    """Raise `RemoteProtocolError` if a message asks for more memory than it brings."""
    try:
        start = 0
        while start < len(stream):
            start = _after_message(stream, start)
    except (struct.error, IndexError) as error:
        msg = f"a batch is no Arrow stream: its metadata is cut off ({error})"
        raise RemoteProtocolError(msg) from error


def _after_message(stream: memoryview, start: int) -> int:
    """Check the message at `start`; return where the next one begins."""
    continuation, size = (int(part) for part in _PREFIX.unpack_from(stream, start))
    if continuation != _CONTINUATION:
        msg = f"a batch is no Arrow stream: {continuation:#x} stands before a message"
        raise RemoteProtocolError(msg)
    start += _PREFIX.size
    if size == 0:
        return len(stream)
    metadata = stream[start : start + size]
    message = _Table(metadata, _OFFSET.unpack_from(metadata, 0)[0])
    kind = message.byte(_HEADER_TYPE)
    if kind not in (_SCHEMA, _DICTIONARY, _RECORDS):
        msg = f"a batch holds an Arrow message of type {kind}, which is no part of a frame"
        raise RemoteProtocolError(msg)
    if kind != _SCHEMA:
        records = message.table(_HEADER)
        _check(records.table(_DICTIONARY_RECORDS) if kind == _DICTIONARY else records)
    body_bytes = message.long(_BODY_LENGTH)
    end = start + size + body_bytes
    if body_bytes < 0 or end > len(stream):
        msg = (
            f"a batch announces {body_bytes} bytes of Arrow buffers that are not there"
        )
        raise RemoteProtocolError(msg)
    return end


def _check(records: _Table) -> None:
    if records.has(_COMPRESSION):
        msg = "a batch is a compressed Arrow stream; peers send uncompressed ones"
        raise RemoteProtocolError(msg)
    buffers, claimed = records.count(_BUFFERS), records.longs(_VIEW_BUFFERS)
    if any(not 0 <= number <= buffers for number in claimed):
        msg = f"a batch has {buffers} Arrow buffers, and a column of it claims {max(claimed)}"
        raise RemoteProtocolError(msg)


class _Table:
    """A table of a flatbuffer: a table of slots says where each field is."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self._place = place
        self._slots = place - _BACK.unpack_from(data, place)[0]
        if self._slots < 0:
            msg = f"a table of fields begins at {self._slots}"
            raise IndexError(msg)
        self._slots_bytes: int = _SLOT.unpack_from(data, self._slots)[0]

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._field(field) is not None

    def byte(self, field: int) -> int:
        """Return a field of one byte; 0 if it is not there."""
        place = self._field(field)
        return 0 if place is None else self._data[place]

    def long(self, field: int) -> int:
        """Return a field of eight bytes; 0 if it is not there."""
        place = self._field(field)
        return 0 if place is None else int(_LONG.unpack_from(self._data, place)[0])

    def table(self, field: int) -> _Table:
        """Return a table that a field refers to."""
        place = self._target(field)
        if place is None:
            msg = f"field {field} is missing"
            raise IndexError(msg)
        return _Table(self._data, place)

    def count(self, field: int) -> int:
        """Return how many entries a list has; 0 if it is not there."""
        place = self._target(field)
        return 0 if place is None else int(_OFFSET.unpack_from(self._data, place)[0])

    def longs(self, field: int) -> tuple[int, ...]:
        """Return a list of numbers of eight bytes; empty if it is not there."""
        place, count = self._target(field), self.count(field)
        if place is None:
            return ()
        if _LONG.size * count > len(self._data):
            msg = f"a list of {count} numbers"
            raise IndexError(msg)
        start = place + _OFFSET.size
        return struct.unpack_from(f"<{count}q", self._data, start)

    def _target(self, field: int) -> int | None:
        """Return the place that a field refers to."""
        place = self._field(field)
        if place is None:
            return None
        return place + int(_OFFSET.unpack_from(self._data, place)[0])

    def _field(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._slots_bytes:
            return None
        offset: int = _SLOT.unpack_from(self._data, self._slots + slot)[0]
        return self._place + offset if offset else None
