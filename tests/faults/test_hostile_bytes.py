"""Hostile clients on real sockets against the listener of a real `TCPNetwork`.

What must hold in every case: the stranger is turned away without a byte that was
computed with the key, nothing it sent is decoded, it costs a bounded amount of memory
and a bounded number of connections, and the peers of the job notice nothing.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config import Config
from millstream.ports import NetworkEvent, PacketArrived, PeerConnected, PeerLost
from millstream.protocol.handshake import (
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    ClientHandshake,
    Protection,
    Role,
    Send,
    derive_key,
)
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.tls import make_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOB = b"job-0123456789ab"
KEY = derive_key(b"secret of the job", b"data")
SERVER, MEMBER, STRANGER = PeerId(1), PeerId(2), PeerId(3)
CONFIG = Config(handshake_ms=3_000, half_open_max=64, half_open_address_max=64)
POLLS_MAX = 5_000
CERTIFICATE = make_certificate()

TLS_CLIENT_HELLO = bytes.fromhex(
    "16030100c8010000c40303" + "5a" * 32 + "20" + "a5" * 32 + "0004130113020100"
)
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": TLS_CLIENT_HELLO,
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "a length of -1": struct.pack(">i", -1) + b"x" * 100,
    "a length of 2**31": struct.pack(">I", 2**31) + b"x" * 100,
    "pickle": pickle.dumps({"a": [1, 2, 3]}),
    "msgpack": msgpack.packb([1, 2, 3] * 100),
    "a packet": struct.pack(">2sBBIIQI", b"MF", 2, 2, 0, 0, 0, 5) + b"N.xxx",
    "magic, then garbage": b"MSHS" + b"\xff" * 200,
    "megabytes": b"MSHS" + b"\x01" * 4_000_000,
}


class ManualClock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000


class Target:
    """A listener under attack, and a count of everything it has decoded."""

    def __init__(self, protection: Protection = Protection.MAC) -> None:
        self.clock = ManualClock()
        self.protection = protection
        self.network = self.member(SERVER)
        self.events: list[NetworkEvent] = []
        self.decoded = 0

    def member(self, own_id: PeerId, key: bytes = KEY) -> TCPNetwork:
        return TCPNetwork(
            own_id=own_id,
            job=JOB,
            key=key,
            clock=self.clock,
            config=CONFIG,
            protection=self.protection,
            certificate=CERTIFICATE,
        )

    def dial(self) -> socket.socket:
        return socket.create_connection(self.network.address)

    def poll(self) -> None:
        self.events += self.network.poll(0.001)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if condition():
                return
            self.poll()
        pytest.fail(f"it never happened; events: {self.events}")

    def heard_by(self, sock: socket.socket) -> bytes:
        """Run until the listener has closed `sock`; return what it said before."""
        heard = bytearray()
        sock.settimeout(0)
        for _ in range(POLLS_MAX):
            self.poll()
            try:
                data = sock.recv(4096)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return bytes(heard)
            if not data:
                return bytes(heard)
            heard += data
        pytest.fail(f"the connection was never closed; heard {bytes(heard)!r}")

    def read(self, sock: socket.socket, size: int) -> bytes:
        """Run until the listener has sent `size` bytes."""
        sock.settimeout(0)
        heard = b""
        for _ in range(POLLS_MAX):
            self.poll()
            try:
                heard += sock.recv(size - len(heard))
            except BlockingIOError:
                continue
            if len(heard) == size:
                return heard
        pytest.fail(f"only {len(heard)} of {size} bytes came")

    def authenticated(self, own_id: PeerId) -> socket.socket:
        """Return a raw socket whose handshake was right."""
        sock = self.dial()
        client = ClientHandshake(KEY, JOB, own_id, os.urandom(32), peer=SERVER)
        sock.sendall(client.hello)
        (proof,) = client.receive(self.read(sock, NONCE_BYTES))
        assert isinstance(proof, Send)
        sock.sendall(proof.data)
        client.receive(self.read(sock, PROOF_BYTES))
        return sock

    def assert_a_member_is_served(self) -> None:
        """Let a real peer connect and send a packet."""
        member = self.member(MEMBER)
        packet = Packet(PacketKind.BATCH, Generation(1), ChannelId(1), 0, ["hello"])
        member.connect(SERVER, self.network.address)
        member.send(SERVER, packet)

        def served() -> bool:
            member.poll(0)
            return PacketArrived(MEMBER, packet) in self.events

        self.run_until(served)
        assert PeerConnected(MEMBER) in self.events
        member.close()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    target = Target()
    spy_on(monkeypatch, target, pickle, "loads")
    spy_on(monkeypatch, target, msgpack, "unpackb")
    yield target
    target.network.close()


def spy_on(
    monkeypatch: pytest.MonkeyPatch, target: Target, module: Any, name: str
) -> None:
    real = getattr(module, name)

    def counting(*args: Any, **options: Any) -> Any:
        target.decoded += 1
        return real(*args, **options)

    monkeypatch.setattr(module, name, counting)


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_turned_away_without_an_answer(target: Target, name: str) -> None:
    """Whatever protocol it is, it is not ours, and it hears nothing of us."""
    with target.dial() as sock:
        sock.settimeout(0)
        sock.send(GARBAGE[name])

        assert target.heard_by(sock) == b""

    assert target.decoded == 0
    assert target.events == []
    target.assert_a_member_is_served()


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_turned_away_from_tls_without_an_answer(name: str) -> None:
    """Not even an alert says what is listening there."""
    target = Target(Protection.TLS)
    with target.dial() as sock:
        sock.settimeout(0)
        sock.send(GARBAGE[name])
        sock.shutdown(socket.SHUT_WR)

        assert target.heard_by(sock) == b""

    assert target.events == []
    target.assert_a_member_is_served()
    target.network.close()


def test_a_slow_loris_before_tls_is_dropped_at_the_deadline() -> None:
    """The time for a handshake is that of TLS and of ours together."""
    target = Target(Protection.TLS)
    with target.dial() as sock:
        sock.sendall(TLS_CLIENT_HELLO[:20])
        target.run_until(lambda: target.network.half_open_count == 1)
        target.clock.now_ns = CONFIG.handshake_ms * 1_000_000

        assert target.heard_by(sock) == b""

    target.assert_a_member_is_served()
    target.network.close()


@settings(max_examples=30)
@given(garbage=st.binary(max_size=300))
def test_any_garbage_is_turned_away(garbage: bytes) -> None:
    """Hypothesis knows more kinds of garbage than we do."""
    target = Target()
    with target.dial() as sock:
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        heard = target.heard_by(sock)
    target.network.close()

    assert heard == b""
    assert target.events == []


def test_a_wrong_secret_hears_a_nonce_and_no_more(target: Target) -> None:
    """The server never shows anything computed with its key to a stranger."""
    client = ClientHandshake(b"guess", JOB, STRANGER, bytes(32), peer=SERVER)
    with target.dial() as sock:
        sock.sendall(client.hello)
        (proof,) = client.receive(target.read(sock, NONCE_BYTES))
        assert isinstance(proof, Send)
        sock.sendall(proof.data + pickle.dumps(["rows"]))

        assert target.heard_by(sock) == b""

    assert target.decoded == 0
    assert target.events == []


def test_a_replayed_handshake_is_turned_away(target: Target) -> None:
    """Every byte a member ever sent, sent again, opens nothing."""
    client = ClientHandshake(KEY, JOB, MEMBER, os.urandom(32), peer=SERVER)
    with target.dial() as sock:
        sock.sendall(client.hello)
        (proof,) = client.receive(target.read(sock, NONCE_BYTES))
        assert isinstance(proof, Send)
        sock.sendall(proof.data)
        target.read(sock, PROOF_BYTES)
    target.run_until(lambda: len(target.events) == 2)
    target.events.clear()

    with target.dial() as sock:
        sock.sendall(client.hello)
        target.read(sock, NONCE_BYTES)
        sock.sendall(proof.data)

        assert target.heard_by(sock) == b""

    assert target.events == []


def test_a_mirror_is_turned_away(target: Target) -> None:
    """Sending the server its own words proves nothing."""
    client = ClientHandshake(KEY, JOB, STRANGER, bytes(32), peer=SERVER)
    with target.dial() as sock:
        sock.sendall(client.hello)
        sock.sendall(target.read(sock, NONCE_BYTES))

        assert target.heard_by(sock) == b""

    assert target.events == []


@pytest.mark.parametrize("length", [0, CONFIG.packet_bytes_max + 1, 2**31, 2**32 - 1])
def test_an_impossible_length_of_a_member_costs_its_connection_only(
    target: Target, length: int
) -> None:
    """Even who knows the secret cannot make us allocate more than the limit."""
    with target.authenticated(STRANGER) as sock:
        tracemalloc.start()
        header = struct.pack(">2sBBIIQI", b"MF", 2, 2, 1, 1, 0, length)
        sock.sendall(header + b"x" * 1000)
        target.run_until(lambda: len(target.events) == 2)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    connected, lost = target.events
    assert connected == PeerConnected(STRANGER)
    assert isinstance(lost, PeerLost)
    assert str(length) in lost.reason
    assert peak_bytes < 1_000_000
    assert target.decoded == 0
    target.assert_a_member_is_served()


def test_a_damaged_pickle_of_a_member_is_never_loaded(target: Target) -> None:
    """The tag is looked at first."""
    payload = pickle.dumps(["rows"])
    header = struct.pack(">2sBBIIQI", b"MF", 2, 2, 1, 1, 0, len(payload))
    with target.authenticated(STRANGER) as sock:
        sock.sendall(header + payload + bytes(16))
        target.run_until(lambda: len(target.events) == 2)

    assert isinstance(target.events[1], PeerLost)
    assert "damaged" in target.events[1].reason
    assert target.decoded == 0


def test_a_cut_at_every_byte_of_a_packet_delivers_no_half_packet(
    target: Target,
) -> None:
    """A peer that dies in the middle of a packet is lost, and that is all."""
    payload = pickle.dumps(["rows"])
    header = struct.pack(">2sBBIIQI", b"MF", 2, 2, 1, 1, 0, len(payload))
    for size in range(1, len(header + payload)):
        target.events.clear()
        with target.authenticated(STRANGER) as sock:
            sock.sendall((header + payload)[:size])
        target.run_until(lambda: len(target.events) == 2)

        assert target.events == [
            PeerConnected(STRANGER),
            PeerLost(STRANGER, "the other side closed the connection"),
        ]
    assert target.decoded == 0


def test_a_slow_loris_does_not_keep_a_member_out(target: Target) -> None:
    """300 connections of one byte each hold at most 64 places and little memory."""
    tracemalloc.start()
    lorises = []
    for _ in range(300):
        loris = target.dial()
        loris.sendall(b"M")
        lorises.append(loris)
        target.poll()
        assert target.network.half_open_count <= CONFIG.half_open_max
    assert target.network.half_open_count == CONFIG.half_open_max
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    target.assert_a_member_is_served()

    assert peak_bytes < 2_000_000
    assert PeerLost(MEMBER, "the other side closed the connection") not in target.events
    for loris in lorises:
        loris.close()


def test_a_slow_loris_is_dropped_at_the_deadline(target: Target) -> None:
    """A byte now and then does not extend the time it was given."""
    with target.dial() as sock:
        for tenth in range(30):
            target.clock.now_ns = tenth * 100_000_000
            sock.sendall(b"MSHS\x01\x01"[tenth : tenth + 1])
            target.run_until(lambda: target.network.half_open_count == 1)
        target.clock.now_ns = CONFIG.handshake_ms * 1_000_000

        assert target.heard_by(sock) == b""

    assert target.network.half_open_count == 0
    assert target.events == []


def test_a_stranger_with_a_right_hello_is_dropped_at_the_deadline(
    target: Target,
) -> None:
    """Knowing the job's name buys a nonce and three seconds."""
    client = ClientHandshake(b"?", JOB, STRANGER, bytes(32), peer=SERVER)
    assert len(client.hello) == HELLO_BYTES
    with target.dial() as sock:
        sock.sendall(client.hello)
        target.read(sock, NONCE_BYTES)
        target.clock.now_ns = CONFIG.handshake_ms * 1_000_000

        assert target.heard_by(sock) == b""

    assert target.network.half_open_count == 0


def test_a_false_heartbeat_is_no_way_in(target: Target) -> None:
    """The role is under the proof like everything else."""
    hello = bytearray(ClientHandshake(KEY, JOB, MEMBER, bytes(32), peer=SERVER).hello)
    hello[5] = Role.HEARTBEAT
    client = ClientHandshake(KEY, JOB, MEMBER, bytes(32), peer=SERVER)
    with target.dial() as sock:
        sock.sendall(hello)
        (proof,) = client.receive(target.read(sock, NONCE_BYTES))
        assert isinstance(proof, Send)
        sock.sendall(proof.data)

        assert target.heard_by(sock) == b""

    assert target.events == []
