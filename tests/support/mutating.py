"""Packets of every kind, and what becomes of them when somebody with the keys changes them.

One example is a *sweep*: a packet, another one to splice with, a script of a few changes,
all drawn by Hypothesis, and the same script at `SWEEP` places of the packet.  Drawing a
packet costs more than decoding it, and nearly all of what a fuzzer finds depends on where.
The trailer is made anew behind the changes, so that nothing but decoding can find them out;
so is the announced length, unless it is that which is changed.

`python -m tests.support.mutating` runs the sweeps in a process of its own, which may take `HEADROOM`
more memory than it has after its first packets, is ended if a sweep takes too long, and
imports nothing for a pickle but what its rows are made of: a damaged pickle that names
anything else is refused where it looks that up, before it can do harm.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import struct
import sys
from contextlib import redirect_stderr
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples, is_exhaustive, load_profile
from tests.support.liars import bodies, messages

from millstream.errors import RemoteProtocolError
from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import FROM_COORDINATOR, FROM_WORKERS
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.permits import ANYTHING, Permit, permit
from millstream.runtime.integrity import CHECKSUM, FIELD_BYTES, UNTOUCHED, PacketTags
from millstream.runtime.wire import PacketDecoder, PacketEncoder
from millstream.state.batches import ARROW_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.runtime.integrity import Integrity

__all__ = ["PERMITS", "SWEEP", "Change", "Sweep", "mutants", "survive", "sweeps"]

SWEEP = 50
"""Mutants of one example."""
HEADROOM = 256 * 1024 * 1024
_SWEEP_S = 60
"""A sweep takes a few hundredths of a second; after this long it hangs."""
_LIMIT = 64 * 1024
_FIRST_PLACE = 3
"""Magic and version say nothing of what follows."""
_LENGTH_AT = 20
_KINDS = [*PacketKind, *2 * [PacketKind.MESSAGE], *7 * [PacketKind.BATCH]]
"""Most of what can go wrong is in messages and batches."""

PERMITS: list[Permit] = [
    ANYTHING,
    permit(COORDINATOR, PeerId(1)),
    permit(PeerId(1), COORDINATOR),
    permit(PeerId(1), PeerId(2)),
    permit(COORDINATOR, PeerId(1), Role.HEARTBEAT),
]
"""What every role accepts."""

_INTEGRITIES: dict[str, Callable[[], Integrity]] = {
    "checksum": lambda: CHECKSUM,
    "tags": lambda: PacketTags(bytes(32)),
    "inside TLS": lambda: UNTOUCHED,
}
_TABLE = pl.DataFrame({"a": [1, 2, None], "s": ["x", "yy", None], "l": [[1], [], None]})
_TABLES = [
    _TABLE,
    _TABLE.select(pl.struct("a", "s").alias("n"), pl.lit(datetime(2024, 1, 1, tzinfo=UTC))),
    pl.DataFrame({"c": pl.Series(["u", "v"], dtype=pl.Categorical)}),
    pl.DataFrame({"e": pl.Series(["u", "v"], dtype=pl.Enum(["u", "v"])), "b": [b"x", None]}),
    pl.DataFrame({"d": [Decimal("1.5"), None], "f": [float("nan"), 1.0]}),
    pl.DataFrame(),
]  # fmt: skip
_COMPRESSED = [
    sink.getvalue()
    for name in ("lz4", "zstd")
    for sink in [BytesIO()]
    if _TABLE.write_ipc_stream(sink, compression=name) is None
]
"""What another program makes of a data frame: buffers say how long they will be."""
_OBJECTS: list[Any] = [
    datetime(2024, 5, 6, 7, tzinfo=UTC),
    Decimal("12.50"),
    Fraction(1, 3),
    UUID(int=5),
    complex(1, 2),
    frozenset({1, 2}),
    {3, 4},
    bytearray(b"some bytes"),
    range(7),
    1 << 200,
]
"""Rows whose pickles name classes, or have opcodes of their own."""

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)
_ROWS = st.lists(_PLAIN | st.sampled_from(_OBJECTS), min_size=1, max_size=6)
_NUMBERS = [
    struct.pack(code, value)
    for code in ("<I", ">I", "<Q", ">Q")
    for value in (0, 1, 0xFF, 0xFFFF, 1 << 24, (1 << 31) - 1, (1 << 32) - 1)
] + [struct.pack(code, (1 << 63) - 1) for code in ("<Q", ">Q")]
_PICKLE_WORDS = [
    b"r\xff\xff\xff\x01",
    b"p99999999\n",
    b"B\xff\xff\xff\x7f",
    b"\x8e" + b"\xff" * 7 + b"\x00",
    b"\x96" + b"\xff" * 7 + b"\x00",
    b"\x8b\xff\xff\xff\x7f",
    b"\x95" + b"\xff" * 7 + b"\x00",
    b"cbuiltins\nbytearray\n\x8a\x06" + b"\xff" * 5 + b"\x00\x85R",
    b"cos\nabort\n)R",
    b"2" * 9,
    b"]" * 2_000,
]
"""Opcodes that ask for memory, for recursion or for what a job does not know."""


@dataclass(frozen=True)
class Change:
    """What is done at a place: some bytes are cut out, others put in."""

    at: int
    cut: int
    put: bytes
    flip: int = 0


@dataclass(frozen=True)
class Sweep:
    """A packet, changed in the same way at many places."""

    fields: bytes
    payload: bytes
    script: tuple[Change, ...]
    stride: int
    length: int | None
    integrity: str
    tail: bytes


def _body(kind: PacketKind) -> st.SearchStrategy[Any]:
    if kind is PacketKind.MESSAGE:
        return messages(FROM_WORKERS, PeerId(1)) | messages(
            FROM_COORDINATOR, COORDINATOR
        )
    if kind is PacketKind.BATCH:
        return _ROWS | _ROWS | st.sampled_from(_TABLES)
    return bodies(kind)


@st.composite
def _packets(draw: st.DrawFn) -> tuple[bytes, bytes]:
    kind = draw(st.sampled_from(_KINDS))
    packet = Packet(kind, Generation(1), ChannelId(2), 3, draw(_body(kind)))
    fields, payload = PacketEncoder(_LIMIT).encode(packet)
    if kind is PacketKind.BATCH and draw(st.integers(0, 6)) == 0:
        payload = draw(st.sampled_from(_COMPRESSED))
    return fields, payload


def _changes(other: bytes) -> st.SearchStrategy[Change]:
    """Return flips, cuts, insertions, numbers and splices with another payload."""
    spliced = st.integers(0, max(0, len(other) - 1)).map(lambda n: other[n : n + 40])
    put = (
        st.binary(max_size=3)
        | st.sampled_from(_NUMBERS)
        | st.sampled_from(_PICKLE_WORDS)
        | spliced
    )
    places = st.integers(0, 400)
    flips = st.builds(Change, places, st.just(0), st.just(b""), st.integers(1, 255))
    ends = st.builds(Change, places, st.just(_LIMIT), st.just(b"") | spliced)
    others = st.builds(Change, places, st.integers(0, 8), put)
    written = put.flatmap(
        lambda new: st.builds(Change, places, st.just(len(new)), st.just(new))
    )
    return flips | ends | others | written


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    """Return a packet and how it is changed."""
    fields, payload = draw(_packets())
    _, other = draw(_packets())
    script = draw(st.lists(_changes(other), min_size=1, max_size=3))
    return Sweep(
        fields,
        payload,
        tuple(script),
        draw(st.integers(1, 7)),
        draw(st.none() | st.none() | st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(sorted(_INTEGRITIES))),
        draw(st.sampled_from([b"", fields + payload])),
    )


def mutants(sweep: Sweep) -> Iterator[bytes]:
    """Give the packet with the script at one place after the other, and a right trailer."""
    for turn in range(SWEEP):
        data = bytearray(sweep.fields + sweep.payload)
        for change in sweep.script:
            room = max(1, len(data) - _FIRST_PLACE)
            at = _FIRST_PLACE + (change.at + turn * sweep.stride) % room
            if change.flip and at < len(data):
                data[at] ^= change.flip
            data[at : at + change.cut] = change.put
        if len(data) >= FIELD_BYTES:
            length = sweep.length
            if length is None:
                length = len(data) - FIELD_BYTES
            struct.pack_into(">I", data, _LENGTH_AT, length)
        fields, payload = bytes(data[:FIELD_BYTES]), bytes(data[FIELD_BYTES:])
        yield b"".join(_INTEGRITIES[sweep.integrity]().closed(fields, payload))


def survive(sweep: Sweep) -> int:
    """Feed a sweep to the decoders of all roles; return how often it was refused."""
    refused = 0
    for data in mutants(sweep):
        for allowed in PERMITS:
            refused += _is_refused(sweep, data + sweep.tail, allowed)
    return refused


def _is_refused(sweep: Sweep, data: bytes, allowed: Permit) -> bool:
    integrity = _INTEGRITIES[sweep.integrity]()
    decoder = PacketDecoder(bytearray(4096), _LIMIT, allowed, integrity)
    try:
        packets = decoder.feed(data)
    except RemoteProtocolError as error:
        if isinstance(error.__cause__, MemoryError) and not _is_pickle(data):
            raise
        return True
    for packet in packets:
        assert packet.kind in allowed.kinds
        if packet.kind is PacketKind.MESSAGE:
            assert type(packet.body) in allowed.messages
    return False


def _is_pickle(data: bytes) -> bool:
    """Whether decoding runs what a member wrote, which may ask for any memory."""
    is_batch = data[_FIRST_PLACE : _FIRST_PLACE + 1] == bytes([PacketKind.BATCH])
    return is_batch and data[FIELD_BYTES : FIELD_BYTES + 4] != ARROW_MAGIC


class _ForbiddenError(BaseException):
    """Raised where a damaged pickle looks up what no row is made of."""


class _Names:
    """What pickles look up: all is allowed at first, and nothing new after `lock`."""

    def __init__(self) -> None:
        self._known: set[tuple[Any, ...]] = set()
        self._is_locked = False

    def look_up(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Be an audit hook."""
        if event != "pickle.find_class":
            return
        if self._is_locked and arguments not in self._known:
            raise _ForbiddenError(*arguments)
        self._known.add(arguments)

    def lock(self) -> None:
        """Allow nothing that has not been looked up before."""
        self._is_locked = True


def _limit_memory() -> None:
    """Let the process have not much more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _main() -> None:
    load_profile()
    refused = tried = 0

    @settings(examples(40 / 3 if is_exhaustive() else 4), database=None)
    @given(sweeps())
    def run(sweep: Sweep) -> None:
        nonlocal refused, tried
        faulthandler.dump_traceback_later(_SWEEP_S, exit=True, file=stderr)
        with redirect_stderr(StringIO()):
            refused += survive(sweep)
        tried += SWEEP
        faulthandler.cancel_dump_traceback_later()

    with os.fdopen(os.dup(2), "w") as stderr:
        names = _Names()
        sys.addaudithook(names.look_up)
        _warm_up()
        names.lock()
        _limit_memory()
        run()
    print(tried, refused)  # noqa: T201 - for the test that started this


def _warm_up() -> None:
    """Let decoders import, and native code start its threads, what they need."""
    for body in (*_TABLES, _OBJECTS):
        packet = Packet(PacketKind.BATCH, Generation(1), ChannelId(2), 3, body)
        (data,) = CHECKSUM.closed(*PacketEncoder(_LIMIT).encode(packet))
        PacketDecoder(bytearray(4096), _LIMIT).feed(data)


if __name__ == "__main__":
    _main()
