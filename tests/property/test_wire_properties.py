"""The packet codec: any packets, cut anywhere, damaged anywhere.

Method: hypothesis makes a sequence of packets and a way to cut their bytes into
chunks; a decoder with a small shared buffer, so that large packets take the other
path too, must give back exactly the packets.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import Splits
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.messages import Emitted, Heartbeat, Progress, Stop
from millstream.protocol.metrics import TaskMetrics
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.integrity import CHECKSUM
from millstream.runtime.wire import PacketDecoder, PacketEncoder

LIMIT = 1024 * 1024
SHARED_BYTES = 256

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
rows = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=600),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)
messages = st.one_of(
    st.builds(Heartbeat, u32),
    st.builds(Stop, st.text()),
    st.builds(Emitted, u32, u32, u32, u32, u64, st.binary(max_size=600)),
    st.builds(
        Progress,
        u32,
        u32,
        st.lists(st.builds(TaskMetrics, u32, u32, u64, u64), max_size=3).map(tuple),
        u64,
    ),
)
names = st.lists(st.text(), max_size=3).map(tuple)
bodies = st.one_of(
    st.tuples(st.just(PacketKind.MESSAGE), messages),
    st.tuples(st.just(PacketKind.BATCH), st.lists(rows, max_size=4)),
    st.tuples(st.just(PacketKind.CREDIT), u64),
    st.tuples(st.just(PacketKind.SPLITS), st.builds(Splits, st.text(), names, names)),
    st.tuples(st.sampled_from([PacketKind.END, PacketKind.CLOSE]), st.none()),
)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    kind, body = draw(bodies)
    generation, channel = Generation(draw(u32)), ChannelId(draw(u32))
    return Packet(kind, generation, channel, draw(u64), body)


def encoded(packet: Packet) -> bytes:
    return b"".join(CHECKSUM.closed(*PacketEncoder(LIMIT).encode(packet)))


@given(sent=st.lists(packets(), max_size=5), sizes=st.lists(st.integers(1, 400)))
def test_packets_arrive_whatever_the_chunks(
    sent: list[Packet], sizes: list[int]
) -> None:
    """The network may cut and join the bytes as it likes."""
    data = b"".join(map(encoded, sent))
    decoder = PacketDecoder(bytearray(SHARED_BYTES), LIMIT)
    arrived: list[Packet] = []
    for size in sizes:
        arrived += decoder.feed(data[:size])
        data = data[size:]
    arrived += decoder.feed(data)

    assert arrived == sent


@given(first=packets(), second=packets())
def test_two_packets_arrive_for_every_single_cut(first: Packet, second: Packet) -> None:
    """There is no position at which a cut is special."""
    data = encoded(first) + encoded(second)
    for cut in range(len(data) + 1):
        decoder = PacketDecoder(bytearray(SHARED_BYTES), LIMIT)

        assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) == [first, second]


@given(packet=packets(), data=st.data())
def test_a_damaged_byte_is_never_delivered(packet: Packet, data: st.DataObject) -> None:
    """Whatever a byte becomes, the packet is refused."""
    damaged = bytearray(encoded(packet))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    decoder = PacketDecoder(bytearray(SHARED_BYTES), LIMIT)

    with pytest.raises(RemoteProtocolError):
        decoder.feed(bytes(damaged) + bytes(LIMIT + 64))


@given(st.binary(min_size=28, max_size=2000))
def test_bytes_that_are_no_packet_are_refused(garbage: bytes) -> None:
    """Random bytes raise one kind of error and nothing else."""
    decoder = PacketDecoder(bytearray(SHARED_BYTES), LIMIT)

    with pytest.raises(RemoteProtocolError):
        decoder.feed(garbage)
