"""Packets as bytes: what is refused, and before what."""

from __future__ import annotations

import io
import pickle
import struct
import threading
from typing import TYPE_CHECKING, Any

import msgpack
import polars as pl
import pytest
from xxhash import xxh3_64_intdigest

from millstream.errors import RemoteProtocolError, TransportError
from millstream.protocol.barrier import Barrier, Order, Splits
from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch, Generation, PeerId
from millstream.protocol.messages import Deploy, Heartbeat, Stop
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.permits import permit
from millstream.runtime.integrity import CHECKSUM, FIELD_BYTES
from millstream.runtime.wire import PacketDecoder, PacketEncoder
from millstream.state.batches import arrow_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1024 * 1024
DEPLOY = Deploy(2, ((1, "localhost", 80), (2, "::1", 81)), (1, 2, 1), (3, 7))
BARRIER = Barrier(Epoch(7), Epoch(5), (Order.SNAPSHOT, Order.PAUSE))


def a_packet(kind: PacketKind, body: object = None) -> Packet:
    return Packet(kind, Generation(3), ChannelId(5), 11, body)


def encoded(packet: Packet) -> bytes:
    return b"".join(CHECKSUM.closed(*PacketEncoder(LIMIT).encode(packet)))


def a_decoder() -> PacketDecoder:
    return PacketDecoder(bytearray(4096), LIMIT)


def forged(kind: int, payload: bytes, length: int | None = None) -> bytes:
    """Return a packet with a right checksum over whatever is in it."""
    announced = len(payload) if length is None else length
    fields = struct.pack(">2sBBIIQI", b"MF", 2, kind, 3, 5, 11, announced)
    checksum = xxh3_64_intdigest(payload, xxh3_64_intdigest(fields)) & 0xFFFFFFFF
    return fields + payload + struct.pack(">I", checksum)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PacketKind.MESSAGE, Heartbeat(4)),
        (PacketKind.MESSAGE, DEPLOY),
        (PacketKind.MESSAGE, Stop("no such file: b\udcff.txt")),
        (PacketKind.SPLITS, Splits("b\udcff.txt:0", ("b\udcff.txt:0",), ())),
        (PacketKind.BATCH, []),
        (PacketKind.BATCH, [1, "two", (3, None), {"four": 4.0}]),
        (PacketKind.BATCH, [b"x" * 200_000, bytearray(100_000)]),
        (PacketKind.BARRIER, BARRIER),
        (PacketKind.CREDIT, 2**40),
        (PacketKind.END, None),
        (PacketKind.CLOSE, None),
    ],
)
def test_a_packet_survives_the_wire(kind: PacketKind, body: object) -> None:
    """Every kind arrives as it was sent, and both sides agree on its cost."""
    packet = a_packet(kind, body)

    assert a_decoder().feed(encoded(packet)) == [packet]


def test_the_cost_of_a_batch_is_the_length_of_its_payload() -> None:
    """Credit counts what the receiver must hold; other kinds are free."""
    batch = a_packet(PacketKind.BATCH, [b"x" * 500])
    others = [a_packet(PacketKind.CREDIT, 9), a_packet(PacketKind.BARRIER, BARRIER)]

    around = FIELD_BYTES + CHECKSUM.trailer_bytes
    assert len(encoded(batch)) == around + batch.cost
    for packet in others:
        encoded(packet)
        assert packet.cost == 0


def test_a_row_that_changes_after_sending_arrives_as_it_was() -> None:
    """A queued packet never refers to memory that the user may change."""
    row = bytearray(b"a" * 100_000)
    encoder = PacketEncoder(LIMIT)
    buffers = CHECKSUM.closed(*encoder.encode(a_packet(PacketKind.BATCH, [row])))
    row[:] = b"b" * 100_000

    (packet,) = a_decoder().feed(b"".join(buffers))

    assert packet.body == [bytearray(b"a" * 100_000)]


def test_a_row_that_cannot_be_pickled_raises_as_it_is() -> None:
    """The caller knows which operator made the row; the codec does not."""
    with pytest.raises(TypeError, match="cannot pickle"):
        encoded(a_packet(PacketKind.BATCH, [threading.Lock()]))


def test_a_batch_over_the_limit_names_both_sizes() -> None:
    """The caller splits it, or tells the user which setting to raise."""
    with pytest.raises(
        TransportError, match=r"BATCH .* 20\d\d bytes .* the 1000 bytes"
    ):
        PacketEncoder(1000).encode(a_packet(PacketKind.BATCH, [b"x" * 2000]))


@pytest.mark.parametrize("bit", range((FIELD_BYTES + 8 + CHECKSUM.trailer_bytes) * 8))
def test_every_flipped_bit_is_found(bit: int) -> None:
    """Header or payload, no damaged packet is ever delivered."""
    data = bytearray(encoded(a_packet(PacketKind.CREDIT, 77)))
    data[bit // 8] ^= 1 << bit % 8

    with pytest.raises(RemoteProtocolError):
        a_decoder().feed(bytes(data) + bytes(FIELD_BYTES + LIMIT))


@pytest.mark.parametrize("length", [0, LIMIT + 1, 2**31, 2**32 - 1])
def test_an_impossible_length_is_refused_with_the_header(length: int) -> None:
    """Nothing is allocated, and no payload is waited for."""
    decoder = a_decoder()

    with pytest.raises(RemoteProtocolError, match=str(length)):
        decoder.feed(forged(PacketKind.BATCH, b"", length))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (forged(99, b""), "no packet of kind 99"),
        (forged(PacketKind.END, b"x"), "END packet cannot have 1 bytes"),
        (forged(PacketKind.CREDIT, b"1234"), "CREDIT packet cannot have 4 bytes"),
        (forged(PacketKind.MESSAGE, b"\xc1"), "is not msgpack"),
        (forged(PacketKind.MESSAGE, b"\x91" * 5000 + b"\x01"), "is not msgpack"),
        (forged(PacketKind.MESSAGE, b"\xdd\x7f\xff\xff\xff"), "is not msgpack"),
        (forged(PacketKind.MESSAGE, msgpack.packb([99])), "tag 99"),
        (forged(PacketKind.BARRIER, b"\xc1"), "a barrier is not msgpack"),
        (forged(PacketKind.BARRIER, msgpack.packb([7, 5])), "a barrier has 3 fields"),
        (forged(PacketKind.BARRIER, msgpack.packb([7, 5, ["x"]])), "an order that"),
        (
            forged(PacketKind.BATCH, b"garbage"),
            "a BATCH packet cannot be decoded here: UnpicklingError",
        ),
        (
            forged(PacketKind.BATCH, pickle.dumps({"a": 1})),
            "a batch is a list, got dict",
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "a packet begins with"),
    ],
)
def test_what_is_no_packet_is_the_peers_fault(data: bytes, reason: str) -> None:
    """The reason says what was wrong with it."""
    with pytest.raises(RemoteProtocolError, match=reason):
        a_decoder().feed(data)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_before_it_is_decompressed(
    monkeypatch: pytest.MonkeyPatch, compression: Any
) -> None:
    """A few bytes may say of themselves that they are terabytes."""
    calls: list[object] = []
    monkeypatch.setattr(pl, "read_ipc_stream", recorder(calls))
    stream = io.BytesIO()
    pl.DataFrame({"zeros": [0] * 10_000}).write_ipc_stream(
        stream, compression=compression
    )

    with pytest.raises(RemoteProtocolError, match="a compressed Arrow stream"):
        a_decoder().feed(forged(PacketKind.BATCH, stream.getvalue()))
    assert calls == []


FRAMES = [
    pl.DataFrame(),
    pl.DataFrame({"a": [1, None], "s": ["x", ""], "n": [None, None]}),
    pl.DataFrame({"c": ["a", "b"], "l": [[1], []]}).with_columns(
        pl.col("c").cast(pl.Categorical)
    ),
]


@pytest.mark.parametrize("frame", FRAMES, ids=["empty", "nulls", "dictionary"])
def test_a_data_frame_survives_the_wire(frame: pl.DataFrame) -> None:
    """What we write ourselves is never taken for compressed."""
    (arrived,) = a_decoder().feed(encoded(a_packet(PacketKind.BATCH, frame)))

    assert arrived.body.equals(frame)


@pytest.mark.parametrize("size", range(8, 200, 7))
def test_a_data_frame_that_is_cut_off_is_refused(size: int) -> None:
    """Wherever its metadata ends, that is the peer's fault."""
    stream = arrow_bytes(FRAMES[1])[:size]

    with pytest.raises(RemoteProtocolError):
        a_decoder().feed(forged(PacketKind.BATCH, stream))


class Raises:
    """A row whose unpickling raises what it is told to."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return raise_it, (self.error,)


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`, which cannot be imported."""


def raise_it(error: type[BaseException]) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit, Panic, GeneratorExit, MemoryError])
def test_whatever_decoding_raises_ends_the_connection_only(
    error: type[BaseException],
) -> None:
    """A process that decodes must not end because of what a peer sent."""
    data = forged(PacketKind.BATCH, pickle.dumps([Raises(error)]))

    with pytest.raises(RemoteProtocolError, match=error.__name__):
        a_decoder().feed(data)


def test_an_interrupt_from_the_keyboard_is_nobodys_packet() -> None:
    """It may come while a packet is decoded, and is meant for the program."""
    data = forged(PacketKind.BATCH, pickle.dumps([Raises(KeyboardInterrupt)]))

    with pytest.raises(KeyboardInterrupt):
        a_decoder().feed(data)


@pytest.mark.parametrize("kind", list(PacketKind), ids=lambda kind: kind.name)
def test_a_kind_that_may_not_come_is_refused_with_its_header(kind: PacketKind) -> None:
    """Neither its payload is waited for, nor is it decoded."""
    header = forged(kind, b"", 8)[:FIELD_BYTES]
    for receiver, sender in ((COORDINATOR, PeerId(1)), (PeerId(1), PeerId(2))):
        allowed = permit(receiver, sender)
        decoder = PacketDecoder(bytearray(4096), LIMIT, allowed)
        if kind not in allowed.kinds:
            with pytest.raises(
                RemoteProtocolError, match="may not come from this peer"
            ):
                decoder.feed(header)


def test_a_long_heartbeat_is_refused_with_its_header() -> None:
    """A heartbeat connection cannot be made to allocate."""
    allowed = permit(COORDINATOR, PeerId(1), Role.HEARTBEAT)
    decoder = PacketDecoder(bytearray(4096), LIMIT, allowed)

    with pytest.raises(RemoteProtocolError, match="announces 17 bytes; at most 16"):
        decoder.feed(forged(PacketKind.MESSAGE, b"", 17)[:FIELD_BYTES])


def test_a_damaged_payload_is_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum comes first."""
    calls: list[object] = []
    monkeypatch.setattr(pickle, "loads", recorder(calls))
    monkeypatch.setattr(msgpack, "unpackb", recorder(calls))
    for packet in (
        a_packet(PacketKind.BATCH, [1]),
        a_packet(PacketKind.MESSAGE, Heartbeat(1)),
        a_packet(PacketKind.BARRIER, BARRIER),
    ):
        data = bytearray(encoded(packet))
        data[-1] ^= 1
        with pytest.raises(RemoteProtocolError, match="damaged on the way"):
            a_decoder().feed(bytes(data))

    assert calls == []


def test_memory_beyond_the_shared_buffer_is_only_held_for_one_packet() -> None:
    """A decoder between two packets holds nothing but a tail."""
    decoder = a_decoder()
    large = encoded(a_packet(PacketKind.BATCH, [b"x" * 100_000]))

    decoder.feed(large[:-1])
    assert len(decoder.writable()) == 1
    (packet,) = decoder.feed(large[-1:])

    assert packet.body == [b"x" * 100_000]
    assert len(decoder.writable()) == 4096


def recorder(calls: list[object]) -> Callable[..., Any]:
    def record(*args: object, **_: object) -> None:
        calls.append(args)

    return record
