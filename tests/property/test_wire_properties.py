"""The frame codec: any frames, cut anywhere, damaged anywhere.

Method: hypothesis makes a sequence of frames and a way to cut their bytes into
chunks; a decoder with a small shared buffer, so that large frames take the other
path too, must give back exactly the frames.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import Splits
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import ChannelId, Generation
from millstream.protocol.messages import Emitted, Heartbeat, Progress, Stop
from millstream.runtime.integrity import CHECKSUM
from millstream.runtime.wire import FrameDecoder, FrameEncoder

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
        st.lists(st.tuples(u32, u64, u64, u64, u64), max_size=3).map(tuple),
    ),
)
names = st.lists(st.text(), max_size=3).map(tuple)
bodies = st.one_of(
    st.tuples(st.just(FrameKind.MESSAGE), messages),
    st.tuples(st.just(FrameKind.BATCH), st.lists(rows, max_size=4)),
    st.tuples(st.just(FrameKind.CREDIT), u64),
    st.tuples(st.just(FrameKind.SPLITS), st.builds(Splits, st.text(), names, names)),
    st.tuples(st.sampled_from([FrameKind.END, FrameKind.CLOSE]), st.none()),
)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    kind, body = draw(bodies)
    generation, channel = Generation(draw(u32)), ChannelId(draw(u32))
    return Frame(kind, generation, channel, draw(u64), body)


def encoded(frame: Frame) -> bytes:
    return b"".join(CHECKSUM.closed(*FrameEncoder(LIMIT).encode(frame)))


@given(sent=st.lists(frames(), max_size=5), sizes=st.lists(st.integers(1, 400)))
def test_frames_arrive_whatever_the_chunks(sent: list[Frame], sizes: list[int]) -> None:
    """The network may cut and join the bytes as it likes."""
    data = b"".join(map(encoded, sent))
    decoder = FrameDecoder(bytearray(SHARED_BYTES), LIMIT)
    arrived: list[Frame] = []
    for size in sizes:
        arrived += decoder.feed(data[:size])
        data = data[size:]
    arrived += decoder.feed(data)

    assert arrived == sent


@given(first=frames(), second=frames())
def test_two_frames_arrive_for_every_single_cut(first: Frame, second: Frame) -> None:
    """There is no position at which a cut is special."""
    data = encoded(first) + encoded(second)
    for cut in range(len(data) + 1):
        decoder = FrameDecoder(bytearray(SHARED_BYTES), LIMIT)

        assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) == [first, second]


@given(frame=frames(), data=st.data())
def test_a_damaged_byte_is_never_delivered(frame: Frame, data: st.DataObject) -> None:
    """Whatever a byte becomes, the frame is refused."""
    damaged = bytearray(encoded(frame))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    decoder = FrameDecoder(bytearray(SHARED_BYTES), LIMIT)

    with pytest.raises(RemoteProtocolError):
        decoder.feed(bytes(damaged) + bytes(LIMIT + 64))


@given(st.binary(min_size=28, max_size=2000))
def test_bytes_that_are_no_frame_are_refused(garbage: bytes) -> None:
    """Random bytes raise one kind of error and nothing else."""
    decoder = FrameDecoder(bytearray(SHARED_BYTES), LIMIT)

    with pytest.raises(RemoteProtocolError):
        decoder.feed(garbage)
