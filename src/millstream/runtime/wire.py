"""Packets as bytes, and bytes as packets.

A packet is a header of fixed size, a payload and a trailer::

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

Batches are pickled, so a `PacketDecoder` may only ever be fed by a peer that has
proved that it belongs to the job.  This module does not know who that is, and it
does not check generations, sequences or credit.  Whatever decoding raises, a panic of
native code included, is the peer's fault and ends no more than its connection.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING

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
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.messages import from_wire, to_wire
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.permits import ANYTHING
from millstream.protocol.watermark import Watermark
from millstream.runtime.arrow_check import refuse_greedy
from millstream.runtime.integrity import CHECKSUM, FIELD_BYTES, Buffer
from millstream.state.batches import ARROW_MAGIC, arrow_bytes, frame_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.permits import Permit
    from millstream.runtime.integrity import Integrity
    from millstream.values import Batch

__all__ = ["MAGIC", "RECEIVE_BYTES", "VERSION", "PacketDecoder", "PacketEncoder"]

MAGIC = b"MF"
VERSION = 2
RECEIVE_BYTES = 512 * 1024
"""Size of the buffer that decoders share; beyond it a packet gets memory of its own."""

_FIELDS = struct.Struct(">2sBBIIQI")
_CREDIT = struct.Struct(">Q")
_WATERMARK = struct.Struct(">q?")

_Header = tuple[PacketKind, Generation, ChannelId, int, int]
"""Kind, generation, channel, sequence and length; a tuple for its speed."""
_LENGTH = 4

_TEXT_ERRORS = "surrogatepass"
"""A name or a message may hold lone surrogates, as `os.fsdecode` makes them."""

_KINDS = {int(kind): kind for kind in PacketKind}
_PAYLOAD_BYTES = {
    PacketKind.END: 0,
    PacketKind.CLOSE: 0,
    PacketKind.ROUND: 1,
    PacketKind.CREDIT: _CREDIT.size,
    PacketKind.HOPS: _CREDIT.size,
    PacketKind.WATERMARK: _WATERMARK.size,
}


class PacketEncoder:
    """Turn packets into what `Integrity.closed` takes.

    Parameters
    ----------
    packet_bytes_max
        Longest payload that the peers accept.
    """

    def __init__(self, packet_bytes_max: int) -> None:
        self._packet_bytes_max = packet_bytes_max

    def encode(self, packet: Packet) -> tuple[bytes, bytes]:
        """Return header and payload of a packet, and set its cost if it is a batch.

        Raises
        ------
        TransportError
            If the payload is longer than the peers accept.
        Exception
            Whatever pickling a row raises, as it is.
        """
        payload = _payload(packet)
        length = len(payload)
        if length > self._packet_bytes_max:
            msg = (
                f"a {packet.kind.name} packet of {length} bytes does not fit into the "
                f"{self._packet_bytes_max} bytes of packet_bytes_max; send fewer rows at "
                "once or raise the setting"
            )
            raise TransportError(msg)
        if packet.kind is PacketKind.BATCH:
            packet.cost = length
        fields = _FIELDS.pack(
            MAGIC,
            VERSION,
            packet.kind,
            packet.generation,
            packet.channel,
            packet.sequence,
            length,
        )
        return fields, payload


def _payload(packet: Packet) -> bytes:  # noqa: PLR0911 - one per kind
    if packet.kind is PacketKind.BATCH:
        if isinstance(packet.body, list):
            return pickle.dumps(packet.body, 5)
        return arrow_bytes(packet.body)
    if packet.kind is PacketKind.MESSAGE:
        return _packed(to_wire(packet.body))
    if packet.kind in {PacketKind.BARRIER, PacketKind.SPLITS}:
        return _packed(packet.body.to_wire())
    if packet.kind is PacketKind.CREDIT:
        return _CREDIT.pack(packet.body)
    if packet.kind is PacketKind.HOPS:
        return _CREDIT.pack(packet.body.count)
    if packet.kind is PacketKind.ROUND:
        return bytes([packet.body.asks_flush])
    if packet.kind is PacketKind.WATERMARK:
        return _WATERMARK.pack(packet.body.time, packet.body.is_idle)
    return b""


def _packed(wire: object) -> bytes:
    packed: bytes = msgpack.packb(wire, use_bin_type=True, unicode_errors=_TEXT_ERRORS)
    return packed


class PacketDecoder:
    """Cut a stream of bytes into packets; the caller moves the bytes.

    Write into `writable()`, then tell `received` how many bytes came.  Between the
    two nobody else may use the shared buffer; after them it is free.

    Parameters
    ----------
    shared
        The buffer that all decoders of one thread receive into.
    packet_bytes_max
        Longest payload that is accepted.
    permit
        What may come from this peer.
    integrity
        Says whether a packet is whole.

    Examples
    --------
    >>> end = Packet(PacketKind.END, Generation(1), ChannelId(2), 3)
    >>> decoder = PacketDecoder(bytearray(64), packet_bytes_max=1024)
    >>> (data,) = CHECKSUM.closed(*PacketEncoder(1024).encode(end))
    >>> decoder.feed(data) == [end]
    True
    """

    def __init__(
        self,
        shared: bytearray,
        packet_bytes_max: int,
        permit: Permit = ANYTHING,
        integrity: Integrity = CHECKSUM,
    ) -> None:
        self._shared = memoryview(shared)
        self._permit = permit
        self._payload_bytes_max = min(
            packet_bytes_max, permit.payload_bytes_max or packet_bytes_max
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

    def received(self, count: int) -> list[Packet]:
        """Take note of `count` new bytes and return the packets they complete.

        Raises
        ------
        RemoteProtocolError
            If the peer sent what is no packet; the decoder is useless afterwards.
        """
        self._filled += count
        if self._large is None:
            return self._cut(self._shared[: self._filled])
        if self._filled < len(self._large):
            return []
        large, self._large, self._tail = self._large, None, b""
        return [self._decode(large, 0, self._header(large, 0))]

    def feed(self, data: Buffer) -> list[Packet]:
        """Take bytes that are somewhere else already."""
        packets: list[Packet] = []
        while data:
            target = self.writable()
            count = min(len(target), len(data))
            target[:count] = data[:count]
            packets += self.received(count)
            data = data[count:]
        return packets

    def _cut(self, view: memoryview) -> list[Packet]:
        packets: list[Packet] = []
        start, end = 0, len(view)
        while end - start >= FIELD_BYTES:
            header = self._header(view, start)
            size = self._around_bytes + header[_LENGTH]
            if end - start < size:
                if size > len(self._shared):
                    self._expect_large(view[start:], size)
                    return packets
                break
            packets.append(self._decode(view, start, header))
            start += size
        self._tail = bytes(view[start:])
        return packets

    def _expect_large(self, begun: memoryview, size: int) -> None:
        self._large = memoryview(bytearray(size))
        self._filled = len(begun)
        self._large[: self._filled] = begun
        self._tail = b""

    def _header(self, view: memoryview, start: int) -> _Header:
        """Return what a header says, once all of it is plausible."""
        magic, version, number, *rest = _FIELDS.unpack_from(view, start)
        if magic != MAGIC or version != VERSION:
            msg = f"a packet begins with {MAGIC!r} {VERSION}, got {magic!r} {version}"
            raise RemoteProtocolError(msg)
        kind = _KINDS.get(number)
        if kind is None:
            msg = f"there is no packet of kind {number}"
            raise RemoteProtocolError(msg)
        if kind not in self._permit.kinds:
            msg = f"a {kind.name} packet may not come from this peer on this connection"
            raise RemoteProtocolError(msg)
        generation, channel, sequence, length = rest
        if length > self._payload_bytes_max:
            msg = (
                f"a {kind.name} packet announces {length} bytes; at most "
                f"{self._payload_bytes_max} are accepted (setting packet_bytes_max)"
            )
            raise RemoteProtocolError(msg)
        fixed = _PAYLOAD_BYTES.get(kind)
        if length != fixed if fixed is not None else length == 0:
            msg = f"a {kind.name} packet cannot have {length} bytes"
            raise RemoteProtocolError(msg)
        return kind, generation, channel, sequence, length

    def _decode(self, view: memoryview, start: int, header: _Header) -> Packet:
        kind, generation, channel, sequence, length = header
        end = start + FIELD_BYTES + length
        trailer = view[end : end + self._integrity.trailer_bytes]
        if not self._integrity.is_whole(view[start:end], trailer):
            msg = (
                f"the {kind.name} packet {sequence} on channel {channel} was damaged on "
                "the way, or it is not the one that its peer sent next"
            )
            raise RemoteProtocolError(msg)
        body = self._body(kind, view[start + FIELD_BYTES : end])
        cost = length if kind is PacketKind.BATCH else 0
        return Packet(kind, generation, channel, sequence, body, cost)

    def _body(self, kind: PacketKind, payload: memoryview) -> object:
        """Decode a payload; Rust panics and a pickle may raise any `BaseException`."""
        try:
            if kind is PacketKind.MESSAGE:
                message = _unpacked(payload, "control message")
                return from_wire(message, self._permit.messages)
            return _READERS[kind](payload)
        except (KeyboardInterrupt, RemoteProtocolError):
            raise
        except BaseException as error:
            what = f"{type(error).__name__}: {error}"
            msg = f"a {kind.name} packet cannot be decoded here: {what}"
            raise RemoteProtocolError(msg) from error


def _read_batch(payload: memoryview) -> Batch:
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


_READERS: dict[PacketKind, Callable[[memoryview], object]] = {
    PacketKind.BATCH: _read_batch,
    PacketKind.BARRIER: _read_barrier,
    PacketKind.ROUND: _read_round,
    PacketKind.HOPS: _read_hops,
    PacketKind.WATERMARK: _read_watermark,
    PacketKind.SPLITS: _read_splits,
    PacketKind.CREDIT: _read_credit,
    PacketKind.END: _read_nothing,
    PacketKind.CLOSE: _read_nothing,
}
