"""Connections with somebody in the middle, who knows no secret and has everything else.

Method: two networks in one thread, and a relay between them that passes the handshake.
Then it injects, repeats, rewrites or reads.  What a plain connection suffers is tested
too: it is what ``insecure=True`` gives up, and shows that the attacks work.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.relays import Relay

from millstream.config import Config
from millstream.ports import NetworkEvent, PacketArrived, PeerConnected, PeerLost
from millstream.protocol.handshake import MAGIC, Protection, derive_key
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.clock import SystemClock
from millstream.runtime.integrity import CHECKSUM
from millstream.runtime.tcp import TCPNetwork
from millstream.runtime.tls import make_certificate
from millstream.runtime.wire import PacketEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONE, TWO = PeerId(1), PeerId(2)
SECRET = b"the secret of the job, 32 bytes."
JOB = b"job-0123456789ab"
CERTIFICATE = make_certificate()
POLLS_MAX = 5_000
ROW = b"a row that nobody else may read"
PROTECTED = [Protection.MAC, Protection.TLS]

executed: list[str] = []


class Exploit:
    """A row that runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return run, ("code",)


def run(code: str) -> None:
    executed.append(code)


def a_batch(sequence: int, body: object) -> Packet:
    return Packet(PacketKind.BATCH, Generation(1), ChannelId(3), sequence, body)


def forged(body: object) -> bytes:
    """Return a packet as anybody can make it."""
    return b"".join(CHECKSUM.closed(*PacketEncoder(1 << 20).encode(a_batch(0, body))))


class Middle:
    """A client, a server and a relay between them."""

    def __init__(
        self,
        client: Protection,
        server: Protection | None = None,
        change: Callable[[bool, bytes], bytes] = lambda _, data: data,
    ) -> None:
        self.server = network(ONE, server or client)
        self.client = network(TWO, client)
        self.relay = Relay(self.server.address, change)
        self.at_server: list[NetworkEvent] = []
        self.at_client: list[NetworkEvent] = []
        self.client.connect(ONE, self.relay.address)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if condition():
                return
            self.relay.poll()
            self.at_client += self.client.poll(0.001)
            self.at_server += self.server.poll(0.001)
        pytest.fail(f"it never happened: {self.at_client} {self.at_server}")

    def connect(self) -> None:
        self.run_until(lambda: bool(self.at_client and self.at_server))
        assert self.at_client == [PeerConnected(ONE)]
        assert self.at_server == [PeerConnected(TWO)]

    def send(self, *bodies: object) -> None:
        """Let the client send batches, and wait until they have arrived."""
        wanted = len(self.at_server) + len(bodies)
        for body in bodies:
            self.client.send(ONE, a_batch(0, body))
        self.run_until(lambda: len(self.at_server) == wanted)

    def lost(self) -> str:
        """Wait until the server has hung up; return why."""
        self.run_until(lambda: isinstance(self.at_server[-1], PeerLost))
        event = self.at_server[-1]
        assert isinstance(event, PeerLost)
        return event.reason

    def close(self) -> None:
        for part in (self.client, self.server, self.relay):
            part.close()


def network(own_id: PeerId, protection: Protection) -> TCPNetwork:
    return TCPNetwork(
        own_id=own_id,
        job=JOB,
        key=derive_key(SECRET, b"network"),
        clock=SystemClock(),
        config=Config(),
        protection=protection,
        certificate=CERTIFICATE,
    )


@pytest.fixture
def middles() -> Iterator[list[Middle]]:
    """Close what a test opens."""
    found: list[Middle] = []
    yield found
    for middle in found:
        middle.close()


def opened(middles: list[Middle], protection: Protection) -> Middle:
    middle = Middle(protection)
    middles.append(middle)
    middle.connect()
    return middle


@pytest.mark.parametrize("protection", PROTECTED)
def test_an_injected_packet_is_refused_and_runs_nothing(
    middles: list[Middle], protection: Protection
) -> None:
    """Having passed the handshake on is of no use without its keys."""
    executed.clear()
    middle = opened(middles, protection)
    middle.send(["before"])

    middle.relay.to_target[0].sendall(forged([Exploit()]) + bytes(16))

    assert middle.lost() != ""
    bodies = [e.packet.body for e in middle.at_server if isinstance(e, PacketArrived)]
    assert bodies == [["before"]]
    assert executed == []


def test_an_injected_packet_on_a_plain_connection_runs_code(
    middles: list[Middle],
) -> None:
    """That is what ``insecure=True`` gives up."""
    executed.clear()
    middle = opened(middles, Protection.PLAIN)

    middle.relay.to_target[0].sendall(forged([Exploit()]))

    middle.run_until(lambda: len(middle.at_server) == 2)
    assert executed == ["code"]


@pytest.mark.parametrize("protection", PROTECTED)
def test_a_repeated_packet_is_refused(
    middles: list[Middle], protection: Protection
) -> None:
    """It was right when it came first."""
    middle = opened(middles, protection)
    start = len(middle.relay.from_clients)
    middle.send(["once"])

    middle.relay.to_target[0].sendall(bytes(middle.relay.from_clients[start:]))

    assert middle.lost() != ""
    assert sum(isinstance(event, PacketArrived) for event in middle.at_server) == 1


@pytest.mark.parametrize("protection", PROTECTED)
def test_packets_of_another_connection_are_refused(
    middles: list[Middle], protection: Protection
) -> None:
    """Even of the same two peers: each connection has keys of its own."""
    former = opened(middles, protection)
    start = len(former.relay.from_clients)
    former.send(["then"])
    record = bytes(former.relay.from_clients[start:])
    middle = opened(middles, protection)

    middle.relay.to_target[0].sendall(record)

    assert middle.lost() != ""
    assert sum(isinstance(event, PacketArrived) for event in middle.at_server) == 0


def test_a_rewritten_hello_is_refused(middles: list[Middle]) -> None:
    """A relay that says "plain" for the client gets no plain connection."""

    def downgraded(is_client: bool, data: bytes) -> bytes:  # noqa: FBT001 - as the relay
        if is_client and data.startswith(MAGIC):
            return data[:6] + bytes([Protection.PLAIN]) + data[7:]
        return data

    for server in (Protection.MAC, Protection.PLAIN):
        middle = Middle(Protection.MAC, server, downgraded)
        middles.append(middle)
        middle.run_until(lambda middle=middle: bool(middle.at_client))  # type: ignore[misc]

        assert isinstance(middle.at_client[0], PeerLost)
        assert middle.at_server == []


@pytest.mark.parametrize("server", list(Protection))
@pytest.mark.parametrize("client", list(Protection))
def test_two_protections_do_not_meet(
    middles: list[Middle], client: Protection, server: Protection
) -> None:
    """The driver decides for all; who says anything else is turned away."""
    if client is server:
        opened(middles, client)
        return
    middle = Middle(client, server)
    middles.append(middle)

    middle.run_until(lambda: bool(middle.at_client))

    assert isinstance(middle.at_client[0], PeerLost)
    assert middle.at_server == []


@pytest.mark.parametrize("protection", list(Protection))
def test_inside_tls_nothing_can_be_read(
    middles: list[Middle], protection: Protection
) -> None:
    """Neither rows nor secret; and the reader would find them if they were there."""
    middle = opened(middles, protection)
    middle.send([ROW] * 10)
    middle.server.send(TWO, a_batch(0, [ROW]))
    middle.run_until(lambda: len(middle.at_client) == 2)
    read = bytes(middle.relay.from_clients + middle.relay.from_target)

    assert (ROW in read) == (protection is not Protection.TLS)
    assert (pickle.dumps([ROW], 5)[:8] in read) == (protection is not Protection.TLS)
    for secret in (SECRET, derive_key(SECRET, b"network"), CERTIFICATE.private[40:80]):
        assert secret not in read
