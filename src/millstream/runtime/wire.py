"""Frames as bytes, and bytes as frames.

A frame is a header of fixed size, a payload and a trailer::

    magic 2 | version 1 | kind 1 | generation 4 | channel 4 | sequence 8 | length 4 |
    payload ... | trailer

The trailer is a checksum or a tag (`runtime.integrity`).  A receiver first looks at the
header: whether this kind may come from that peer at all, and whether the length can be,
before anything is allocated; then at the trailer; and only then into the payload.

=========  ==========================================================
kind       payload
=========  ==========================================================
MESSAGE    msgpack of `millstream.protocol.messages.to_wire`
BATCH      pickle, protocol 5, of the list; or, of a data frame, an Arrow
           IPC stream: the two begin with different bytes
BARRIER    msgpack of `millstream.protocol.barrier.Barrier.to_wire`
CREDIT     a number of bytes, 8 bytes
HOPS       a number, 8 bytes
SPLITS     msgpack of `millstream.protocol.barrier.Splits.to_wire`
WATERMARK  a timestamp, 8 bytes, and whether its input is idle, 1 byte
ROUND      whether a flush is asked for, 1 byte
END CLOSE  nothing
=========  ==========================================================

Batches are pickled, so a `FrameDecoder` may only ever be fed by a peer that has
proved that it belongs to the job.  This module does not know who that is, and it
does not check generations, sequences or credit.  Whatever decoding raises, a panic of
native code included, is the peer's fault and ends no more than its connection.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgpack

from millstream.errors import RemoteProtocolError, TransportError
from millstream.protocol.barrier import (
    FLUSH,
    ROUND_END,
    Hops,
    RoundEnd,
    barrier_from_wire,
    splits_from_wire,
)
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.messages import from_wire, to_wire
from millstream.protocol.permits import ANYTHING
from millstream.protocol.watermark import Watermark
from millstream.runtime.arrow_check import refuse_greedy
from millstream.runtime.integrity import CHECKSUM, FIELD_BYTES, Buffer
from millstream.state.batches import ARROW_MAGIC, arrow_bytes, frame_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.permits import Permit
    from millstream.runtime.integrity import Integrity

__all__ = ["MAGIC", "RECEIVE_BYTES", "VERSION", "FrameDecoder", "FrameEncoder"]

MAGIC = b"MF"
VERSION = 2
RECEIVE_BYTES = 512 * 1024
"""Size of the buffer that decoders share; beyond it a frame gets memory of its own."""

_FIELDS = struct.Struct(">2sBBIIQI")
_CREDIT = struct.Struct(">Q")
_WATERMARK = struct.Struct(">q?")

_Header = tuple[FrameKind, Generation, ChannelId, int, int]
"""Kind, generation, channel, sequence and length; a tuple for its speed."""
_LENGTH = 4

_TEXT_ERRORS = "surrogatepass"
"""A name or a message may hold lone surrogates, as `os.fsdecode` makes them."""

_KINDS = {int(kind): kind for kind in FrameKind}
_PAYLOAD_BYTES = {
    FrameKind.END: 0,
    FrameKind.CLOSE: 0,
    FrameKind.ROUND: 1,
    FrameKind.CREDIT: _CREDIT.size,
    FrameKind.HOPS: _CREDIT.size,
    FrameKind.WATERMARK: _WATERMARK.size,
}


class FrameEncoder:
    """Turn frames into what `Integrity.closed` takes.

    Parameters
    ----------
    frame_bytes_max
        Longest payload that the peers accept.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max

    def encode(self, frame: Frame) -> tuple[bytes, bytes]:
        """Return header and payload of a frame, and set its cost if it is a batch.

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
        return fields, payload


def _payload(frame: Frame) -> bytes:  # noqa: PLR0911 - one per kind
    if frame.kind is FrameKind.BATCH:
        if isinstance(frame.body, list):
            return pickle.dumps(frame.body, 5)
        return arrow_bytes(frame.body)
    if frame.kind is FrameKind.MESSAGE:
        return _packed(to_wire(frame.body))
    if frame.kind in {FrameKind.BARRIER, FrameKind.SPLITS}:
        return _packed(frame.body.to_wire())
    if frame.kind is FrameKind.CREDIT:
        return _CREDIT.pack(frame.body)
    if frame.kind is FrameKind.HOPS:
        return _CREDIT.pack(frame.body.count)
    if frame.kind is FrameKind.ROUND:
        return bytes([frame.body.asks_flush])
    if frame.kind is FrameKind.WATERMARK:
        return _WATERMARK.pack(frame.body.time, frame.body.is_idle)
    return b""


def _packed(wire: object) -> bytes:
    packed: bytes = msgpack.packb(wire, use_bin_type=True, unicode_errors=_TEXT_ERRORS)
    return packed


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
    permit
        What may come from this peer.
    integrity
        Says whether a frame is whole.

    Examples
    --------
    >>> end = Frame(FrameKind.END, Generation(1), ChannelId(2), 3)
    >>> decoder = FrameDecoder(bytearray(64), frame_bytes_max=1024)
    >>> (data,) = CHECKSUM.closed(*FrameEncoder(1024).encode(end))
    >>> decoder.feed(data) == [end]
    True
    """

    def __init__(
        self,
        shared: bytearray,
        frame_bytes_max: int,
        permit: Permit = ANYTHING,
        integrity: Integrity = CHECKSUM,
    ) -> None:
        self._shared = memoryview(shared)
        self._permit = permit
        self._payload_bytes_max = min(
            frame_bytes_max, permit.payload_bytes_max or frame_bytes_max
        )
        self._integrity = integrity
        self._around_bytes = FIELD_BYTES + integrity.trailer_bytes
        self._tail = b""
        self._large: memoryview | None = None
        self._filled = 0
        assert len(shared) > self._around_bytes

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
        while end - start >= FIELD_BYTES:
            header = self._header(view, start)
            size = self._around_bytes + header[_LENGTH]
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
        """Return what a header says, once all of it is plausible."""
        magic, version, number, *rest = _FIELDS.unpack_from(view, start)
        if magic != MAGIC or version != VERSION:
            msg = f"a frame begins with {MAGIC!r} {VERSION}, got {magic!r} {version}"
            raise RemoteProtocolError(msg)
        kind = _KINDS.get(number)
        if kind is None:
            msg = f"there is no frame of kind {number}"
            raise RemoteProtocolError(msg)
        if kind not in self._permit.kinds:
            msg = f"a {kind.name} frame may not come from this peer on this connection"
            raise RemoteProtocolError(msg)
        generation, channel, sequence, length = rest
        if length > self._payload_bytes_max:
            msg = (
                f"a {kind.name} frame announces {length} bytes; at most "
                f"{self._payload_bytes_max} are accepted (setting frame_bytes_max)"
            )
            raise RemoteProtocolError(msg)
        fixed = _PAYLOAD_BYTES.get(kind)
        if length != fixed if fixed is not None else length == 0:
            msg = f"a {kind.name} frame cannot have {length} bytes"
            raise RemoteProtocolError(msg)
        return kind, generation, channel, sequence, length

    def _decode(self, view: memoryview, start: int, header: _Header) -> Frame:
        kind, generation, channel, sequence, length = header
        end = start + FIELD_BYTES + length
        trailer = view[end : end + self._integrity.trailer_bytes]
        if not self._integrity.is_whole(view[start:end], trailer):
            msg = (
                f"the {kind.name} frame {sequence} on channel {channel} was damaged on "
                "the way, or it is not the one that its peer sent next"
            )
            raise RemoteProtocolError(msg)
        body = self._body(kind, view[start + FIELD_BYTES : end])
        cost = length if kind is FrameKind.BATCH else 0
        return Frame(kind, generation, channel, sequence, body, cost)

    def _body(self, kind: FrameKind, payload: memoryview) -> Any:
        """Decode a payload; Rust panics and a pickle may raise any `BaseException`."""
        try:
            if kind is FrameKind.MESSAGE:
                message = _unpacked(payload, "control message")
                return from_wire(message, self._permit.messages)
            return _READERS[kind](payload)
        except (KeyboardInterrupt, RemoteProtocolError):
            raise
        except BaseException as error:
            what = f"{type(error).__name__}: {error}"
            msg = f"a {kind.name} frame cannot be decoded here: {what}"
            raise RemoteProtocolError(msg) from error


def _read_batch(payload: memoryview) -> Any:
    if payload[:4] == ARROW_MAGIC:
        refuse_greedy(payload)
        return frame_from_arrow(payload)
    batch = pickle.loads(payload)  # noqa: S301 -- the peer has authenticated
    if type(batch) is not list:
        msg = f"a batch is a list, got {type(batch).__name__}"
        raise RemoteProtocolError(msg)
    return batch


def _read_barrier(payload: memoryview) -> object:
    return barrier_from_wire(_unpacked(payload, "barrier"))


def _read_splits(payload: memoryview) -> object:
    return splits_from_wire(_unpacked(payload, "mark of splits"))


def _unpacked(payload: memoryview, what: str) -> object:
    try:
        wire: object = msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=True,
            max_ext_len=0,
            unicode_errors=_TEXT_ERRORS,
        )
    except (ValueError, msgpack.UnpackException) as error:
        msg = f"a {what} is not msgpack: {type(error).__name__}: {error}"
        raise RemoteProtocolError(msg) from error
    return wire


def _read_credit(payload: memoryview) -> int:
    return int(_CREDIT.unpack(payload)[0])


def _read_round(payload: memoryview) -> RoundEnd:
    return FLUSH if payload[0] else ROUND_END


def _read_hops(payload: memoryview) -> Hops:
    return Hops(_read_credit(payload))


def _read_watermark(payload: memoryview) -> Watermark:
    time, is_idle = _WATERMARK.unpack(payload)
    return Watermark(time, is_idle)


def _read_nothing(payload: memoryview) -> None:
    del payload


_READERS: dict[FrameKind, Callable[[memoryview], Any]] = {
    FrameKind.BATCH: _read_batch,
    FrameKind.BARRIER: _read_barrier,
    FrameKind.ROUND: _read_round,
    FrameKind.HOPS: _read_hops,
    FrameKind.WATERMARK: _read_watermark,
    FrameKind.SPLITS: _read_splits,
    FrameKind.CREDIT: _read_credit,
    FrameKind.END: _read_nothing,
    FrameKind.CLOSE: _read_nothing,
}
