"""Frames of every kind and role with a few bytes changed, by somebody who has the keys.

Method: real frames are encoded, up to four places of header and payload are changed, and
the trailer is made anew, so that nothing but decoding can find it out.  Whatever comes of
it, the decoder gives a frame that its permit allows, asks for more, or raises
`RemoteProtocolError`; it raises nothing else, and does not allocate what the bytes say.
`.ci/run` tries 100,000 of them.
"""

from __future__ import annotations

import random
import tracemalloc
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

import polars as pl
import psutil
import pytest
from tests.examples import is_exhaustive

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import Barrier, Hops, Order, RoundEnd, Splits
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch, Generation, PeerId
from millstream.protocol.messages import (
    Announced,
    Deploy,
    Emitted,
    Heartbeat,
    Progress,
    Sealed,
    Stop,
)
from millstream.protocol.permits import ANYTHING, Permit, permit
from millstream.protocol.watermark import Watermark
from millstream.runtime.integrity import CHECKSUM, FIELD_BYTES
from millstream.runtime.wire import FrameDecoder, FrameEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 64 * 1024
MEMORY_MAX = 64 * 1024 * 1024
RESIDENT_MAX = 512 * 1024 * 1024
FEW, MANY = 300, 100_000

PERMITS: list[Permit] = [
    ANYTHING,
    permit(COORDINATOR, PeerId(1)),
    permit(PeerId(1), COORDINATOR),
    permit(PeerId(1), PeerId(2)),
    permit(COORDINATOR, PeerId(1), Role.HEARTBEAT),
]
BARRIER = Barrier(Epoch(7), Epoch(5), (Order.SNAPSHOT,))
TABLE = pl.DataFrame({"a": [1, 2, None], "s": ["x", "yy", None], "l": [[1], [], None]})
WORDS = pl.DataFrame({"c": pl.Series(["u", "v"], dtype=pl.Categorical)})
BODIES: list[tuple[FrameKind, Any]] = [
    *((FrameKind.MESSAGE, message) for message in (
        Heartbeat(3),
        Stop("enough"),
        Emitted(1, 1, 2, 3, 4, b"rows"),
        Progress(1, 1, ((0, 1, 2, 3, 4),), ((1, 2, 3, (0.5, "x")),)),
        Sealed(1, 2, 7, 0, 1, ("f", 10, "ab", ("o",)), (("r", "s", 1, True),), (), 5),
        Deploy(1, ((1, "a", 1), (2, "b", 2)), (1, 2), (3, 7)),
        Announced(2, BARRIER.to_wire()),
    )),
    (FrameKind.BATCH, [1, "two", (3, None), {"four": 4.0}, b"five" * 20]),
    (FrameKind.BATCH, TABLE),
    (FrameKind.BATCH, WORDS),
    (FrameKind.BARRIER, BARRIER),
    (FrameKind.SPLITS, Splits("a", ("a", "b"), ("c",))),
    (FrameKind.CREDIT, 4096),
    (FrameKind.HOPS, Hops(3)),
    (FrameKind.ROUND, RoundEnd(asks_last_words=True)),
    (FrameKind.WATERMARK, Watermark(123, is_idle=True)),
    (FrameKind.END, None),
    (FrameKind.CLOSE, None),
]  # fmt: skip


def encoded(kind: FrameKind, body: Any) -> tuple[bytes, bytes]:
    frame = Frame(kind, Generation(1), ChannelId(2), 3, body)
    return FrameEncoder(LIMIT).encode(frame)


def mutants(count: int, seed: int) -> Iterator[bytes]:
    """Give frames with a right trailer and a few wrong bytes."""
    rng = random.Random(seed)
    originals = [encoded(kind, body) for kind, body in BODIES]
    for _ in range(count):
        fields, payload = rng.choice(originals)
        data = bytearray(fields + payload)
        for _ in range(rng.randint(1, 4)):
            # Pickle is code, and damaging it would run some; its kind stays as it is.
            place = rng.randrange(3, len(data))
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if data[3] == FrameKind.BATCH and payload[:1] == b"\x80":
            data[FIELD_BYTES:] = payload
        yield b"".join(
            CHECKSUM.closed(bytes(data[:FIELD_BYTES]), bytes(data[FIELD_BYTES:]))
        )


def assert_survived(data: bytes, allowed: Permit) -> bool:
    """Feed a mutant to a decoder; return whether it was refused."""
    decoder = FrameDecoder(bytearray(4096), LIMIT, allowed)
    try:
        frames = decoder.feed(data)
    except RemoteProtocolError:
        return True
    for frame in frames:
        assert frame.kind in allowed.kinds
        if frame.kind is FrameKind.MESSAGE:
            assert type(frame.body) in allowed.messages
    return False


def survive(count: int, seed: int) -> int:
    """Return how many mutants were refused; every one is tried in every role."""
    refused = 0
    with redirect_stderr(StringIO()):
        for data in mutants(count, seed):
            for allowed in PERMITS:
                refused += assert_survived(data, allowed)
    return refused


def test_mutated_frames_end_at_most_a_connection() -> None:
    """Of every kind, to every role: no other exception, and bounded memory."""
    tracemalloc.start()
    refused = survive(FEW, seed=1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert FEW < refused < FEW * len(PERMITS)
    assert peak_bytes < MEMORY_MAX


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_very_many_mutated_frames_end_at_most_a_connection() -> None:
    """As many as an afternoon of a fuzzer where nothing is left out."""
    count = MANY if is_exhaustive() else MANY // 20
    before_bytes = psutil.Process().memory_info().rss

    assert survive(count, seed=2) > count

    grown_bytes = psutil.Process().memory_info().rss - before_bytes
    assert grown_bytes < RESIDENT_MAX
