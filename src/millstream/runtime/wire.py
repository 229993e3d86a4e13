"""Frames as bytes, and bytes as frames.

A frame is a header of fixed size and a payload::

    magic 2 | version 1 | kind 1 | generation 4 | channel 4 | sequence 8 |
    length 4 | checksum 4 | payload ...

The checksum is 32 bits of xxh3 over the payload, seeded with the xxh3 of the rest of
the header, so that a flipped bit anywhere is found.  (xxh3 costs 0.03 ns a byte,
crc32 0.4.)  It is checked before anything is decoded, and the length is checked
before anything is allocated.

=========  ==========================================================
kind       payload
=========  ==========================================================
MESSAGE    msgpack of `millstream.protocol.messages.to_wire`
BATCH      pickle, protocol 5, of the list; or, of a data frame, an Arrow
           IPC stream: the two begin with different bytes
BARRIER    msgpack of `millstream.protocol.barrier.Barrier.to_wire`
CREDIT     a number of bytes, 8 bytes
HOPS       a number, 8 bytes
WATERMARK  a timestamp, 8 bytes, and whether its input is idle, 1 byte
ROUND      whether last words are asked for, 1 byte
END CLOSE  nothing
=========  ==========================================================

Batches are pickled, so a `FrameDecoder` may only ever be fed by a peer that has
proved that it belongs to the job.  This module does not know who that is, and it
does not check generations, sequences or credit.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgpack
from xxhash import xxh3_64_intdigest

from millstream.errors import RemoteProtocolError, TransportError
from millstream.protocol.barrier import (
    LAST_WORDS,
    ROUND_END,
    Hops,
    RoundEnd,
    barrier_from_wire,
)
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.messages import from_wire, to_wire
from millstream.protocol.watermark import Watermark
from millstream.state.batches import ARROW_MAGIC, arrow_bytes, frame_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HEADER_BYTES", "RECEIVE_BYTES", "Buffer", "FrameDecoder", "FrameEncoder"]

Buffer = bytes | memoryview
"""Something that `socket.sendmsg` takes."""

MAGIC = b"MF"
VERSION = 1
RECEIVE_BYTES = 512 * 1024
"""Size of the buffer that decoders share; beyond it a frame gets memory of its own."""

_FIELDS = struct.Struct(">2sBBIIQI")
_CHECKSUM = struct.Struct(">I")
_HEADER = struct.Struct(">2sBBIIQII")
"""The fields and their checksum at once."""
_CREDIT = struct.Struct(">Q")
_WATERMARK = struct.Struct(">q?")
HEADER_BYTES = _HEADER.size

_Header = tuple[FrameKind, Generation, ChannelId, int, int, int]
"""Kind, generation, channel, sequence, length and checksum; a tuple for its speed."""
_LENGTH = 4

_CHECKSUM_MASK = 0xFFFF_FFFF
_JOIN_BYTES = 8 * 1024
"""Up to this size one copy is cheaper than one more entry in `sendmsg`."""

_KINDS = {int(kind): kind for kind in FrameKind}
_PAYLOAD_BYTES = {
    FrameKind.END: 0,
    FrameKind.CLOSE: 0,
    FrameKind.ROUND: 1,
    FrameKind.CREDIT: _CREDIT.size,
    FrameKind.HOPS: _CREDIT.size,
    FrameKind.WATERMARK: _WATERMARK.size,
}


def _checksum(fields: Buffer, payload: Buffer) -> int:
    return xxh3_64_intdigest(payload, xxh3_64_intdigest(fields)) & _CHECKSUM_MASK


class FrameEncoder:
    """Turn frames into buffers for `socket.sendmsg`.

    Parameters
    ----------
    frame_bytes_max
        Longest payload that the peers accept.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max

    def encode(self, frame: Frame) -> list[Buffer]:
        """Return the buffers of a frame, and set its cost if it is a batch.

        Raises
        ------
        TransportError
            If the payload is longer than the peers accept.
        Exception
            Whatever pickling a row raises, as it is.
        """
        payload = _payload(frame)
        length = len(payload)
        if length > self._frame_bytes_max:
            msg = (
                f"a {frame.kind.name} frame of {length} bytes does not fit into the "
                f"{self._frame_bytes_max} bytes of frame_bytes_max; send fewer rows at "
                "once or raise the setting"
            )
            raise TransportError(msg)
        if frame.kind is FrameKind.BATCH:
            frame.cost = length
        fields = _FIELDS.pack(
            MAGIC,
            VERSION,
            frame.kind,
            frame.generation,
            frame.channel,
            frame.sequence,
            length,
        )
        header = fields + _CHECKSUM.pack(_checksum(fields, payload))
        if length <= _JOIN_BYTES:
            return [header + payload]
        return [header, payload]


def _payload(frame: Frame) -> bytes:  # noqa: PLR0911 - one per kind
    if frame.kind is FrameKind.BATCH:
        if isinstance(frame.body, list):
            return pickle.dumps(frame.body, 5)
        return arrow_bytes(frame.body)
    if frame.kind is FrameKind.MESSAGE:
        packed: bytes = msgpack.packb(to_wire(frame.body), use_bin_type=True)
        return packed
    if frame.kind is FrameKind.BARRIER:
        wire: bytes = msgpack.packb(frame.body.to_wire(), use_bin_type=True)
        return wire
    if frame.kind is FrameKind.CREDIT:
        return _CREDIT.pack(frame.body)
    if frame.kind is FrameKind.HOPS:
        return _CREDIT.pack(frame.body.count)
    if frame.kind is FrameKind.ROUND:
        return bytes([frame.body.asks_last_words])
    if frame.kind is FrameKind.WATERMARK:
        return _WATERMARK.pack(frame.body.time, frame.body.is_idle)
    return b""


class FrameDecoder:
    """Cut a stream of bytes into frames; the caller moves the bytes.

    Write into `writable()`, then tell `received` how many bytes came.  Between the
    two nobody else may use the shared buffer; after them it is free.

    Parameters
    ----------
    shared
        The buffer that all decoders of one thread receive into.
    frame_bytes_max
        Longest payload that is accepted.

    Examples
    --------
    >>> end = Frame(FrameKind.END, Generation(1), ChannelId(2), 3)
    >>> decoder = FrameDecoder(bytearray(64), frame_bytes_max=1024)
    >>> [decoder.feed(part) for part in FrameEncoder(1024).encode(end)] == [[end]]
    True
    """

    def __init__(self, shared: bytearray, frame_bytes_max: int) -> None:
        self._shared = memoryview(shared)
        self._frame_bytes_max = frame_bytes_max
        self._tail = b""
        self._large: memoryview | None = None
        self._filled = 0
        assert len(shared) > HEADER_BYTES

    def writable(self) -> memoryview:
        """Return where the next bytes of the stream go; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        self._filled = len(self._tail)
        self._shared[: self._filled] = self._tail
        return self._shared[self._filled :]

    def received(self, count: int) -> list[Frame]:
        """Take note of `count` new bytes and return the frames they complete.

        Raises
        ------
        RemoteProtocolError
            If the peer sent what is no frame; the decoder is useless afterwards.
        """
        self._filled += count
        if self._large is None:
            return self._cut(self._shared[: self._filled])
        if self._filled < len(self._large):
            return []
        large, self._large, self._tail = self._large, None, b""
        return [self._decode(large, 0, self._header(large, 0))]

    def feed(self, data: Buffer) -> list[Frame]:
        """Take bytes that are somewhere else already."""
        frames: list[Frame] = []
        while data:
            target = self.writable()
            count = min(len(target), len(data))
            target[:count] = data[:count]
            frames += self.received(count)
            data = data[count:]
        return frames

    def _cut(self, view: memoryview) -> list[Frame]:
        frames: list[Frame] = []
        start, end = 0, len(view)
        while end - start >= HEADER_BYTES:
            header = self._header(view, start)
            size = HEADER_BYTES + header[_LENGTH]
            if end - start < size:
                if size > len(self._shared):
                    self._expect_large(view[start:], size)
                    return frames
                break
            frames.append(self._decode(view, start, header))
            start += size
        self._tail = bytes(view[start:])
        return frames

    def _expect_large(self, begun: memoryview, size: int) -> None:
        self._large = memoryview(bytearray(size))
        self._filled = len(begun)
        self._large[: self._filled] = begun
        self._tail = b""

    def _header(self, view: memoryview, start: int) -> _Header:
        """Return what a header says, once all of it but the checksum is plausible."""
        magic, version, number, *rest = _HEADER.unpack_from(view, start)
        if magic != MAGIC or version != VERSION:
            msg = f"a frame begins with {MAGIC!r} {VERSION}, got {magic!r} {version}"
            raise RemoteProtocolError(msg)
        kind = _KINDS.get(number)
        if kind is None:
            msg = f"there is no frame of kind {number}"
            raise RemoteProtocolError(msg)
        generation, channel, sequence, length, checksum = rest
        if length > self._frame_bytes_max:
            msg = (
                f"a {kind.name} frame announces {length} bytes; at most "
                f"{self._frame_bytes_max} are accepted (setting frame_bytes_max)"
            )
            raise RemoteProtocolError(msg)
        fixed = _PAYLOAD_BYTES.get(kind)
        if length != fixed if fixed is not None else length == 0:
            msg = f"a {kind.name} frame cannot have {length} bytes"
            raise RemoteProtocolError(msg)
        return kind, generation, channel, sequence, length, checksum

    def _decode(self, view: memoryview, start: int, header: _Header) -> Frame:
        kind, generation, channel, sequence, length, announced = header
        payload = view[start + HEADER_BYTES : start + HEADER_BYTES + length]
        found = _checksum(view[start : start + _FIELDS.size], payload)
        if announced != found:
            msg = (
                f"the {kind.name} frame {sequence} on channel {channel} was damaged on "
                f"the way: checksum {announced:#010x}, found {found:#010x}"
            )
            raise RemoteProtocolError(msg)
        body = _READERS[kind](payload)
        cost = length if kind is FrameKind.BATCH else 0
        return Frame(kind, generation, channel, sequence, body, cost)


def _read_batch(payload: memoryview) -> Any:
    if payload[:4] == ARROW_MAGIC:
        return _read_frame(payload)
    try:
        batch = pickle.loads(payload)  # noqa: S301 -- the peer has authenticated
    except Exception as error:
        msg = f"a batch cannot be unpickled here: {type(error).__name__}: {error}"
        raise RemoteProtocolError(msg) from error
    if type(batch) is not list:
        msg = f"a batch is a list, got {type(batch).__name__}"
        raise RemoteProtocolError(msg)
    return batch


def _read_frame(payload: memoryview) -> Any:
    try:
        return frame_from_arrow(payload)
    except Exception as error:
        msg = f"a batch is no Arrow stream: {type(error).__name__}: {error}"
        raise RemoteProtocolError(msg) from error


def _read_message(payload: memoryview) -> object:
    return from_wire(_unpacked(payload, "control message"))


def _read_barrier(payload: memoryview) -> object:
    return barrier_from_wire(_unpacked(payload, "barrier"))


def _unpacked(payload: memoryview, what: str) -> object:
    try:
        wire: object = msgpack.unpackb(
            payload, raw=False, strict_map_key=True, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        msg = f"a {what} is not msgpack: {type(error).__name__}: {error}"
        raise RemoteProtocolError(msg) from error
    return wire


def _read_credit(payload: memoryview) -> int:
    return int(_CREDIT.unpack(payload)[0])


def _read_round(payload: memoryview) -> RoundEnd:
    return LAST_WORDS if payload[0] else ROUND_END


def _read_hops(payload: memoryview) -> Hops:
    return Hops(_read_credit(payload))


def _read_watermark(payload: memoryview) -> Watermark:
    time, is_idle = _WATERMARK.unpack(payload)
    return Watermark(time, is_idle)


def _read_nothing(payload: memoryview) -> None:
    del payload


_READERS: dict[FrameKind, Callable[[memoryview], Any]] = {
    FrameKind.MESSAGE: _read_message,
    FrameKind.BATCH: _read_batch,
    FrameKind.BARRIER: _read_barrier,
    FrameKind.ROUND: _read_round,
    FrameKind.HOPS: _read_hops,
    FrameKind.WATERMARK: _read_watermark,
    FrameKind.CREDIT: _read_credit,
    FrameKind.END: _read_nothing,
    FrameKind.CLOSE: _read_nothing,
}
