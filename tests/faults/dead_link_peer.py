"""One end of a link, as a process; see `test_dead_link`."""

from __future__ import annotations

import sys

from millstream.config import Config, configured
from millstream.ports import PeerConnected, PeerLost
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.clock import SystemClock
from millstream.runtime.tcp import TCPNetwork

CONFIG = configured(Config(), {"lease_ms": 2000})
PACKET = Packet(PacketKind.BATCH, Generation(1), ChannelId(1), 0, [1])
TURNS_MAX = 600


def network(own: int, host: str, *, listens: bool) -> TCPNetwork:
    return TCPNetwork(
        own_id=PeerId(own),
        job=bytes(16),
        key=bytes(32),
        clock=SystemClock(),
        config=CONFIG,
        host=host,
        listens=listens,
    )


def listen(host: str) -> None:
    end = network(1, host, listens=True)
    print(end.address[1], flush=True)  # noqa: T201 - read by the test
    for _ in range(TURNS_MAX):
        end.poll(0.1)


def dial(host: str, port: str) -> None:
    end = network(2, "", listens=False)
    end.connect(PeerId(1), (host, int(port)))
    for _ in range(TURNS_MAX):
        for event in end.poll(0.1):
            if isinstance(event, PeerConnected):
                print("connected", flush=True)  # noqa: T201 - read by the test
            if isinstance(event, PeerLost):
                print(event.reason, flush=True)  # noqa: T201 - read by the test
                return
        end.send(PeerId(1), PACKET)


if __name__ == "__main__":
    if sys.argv[1] == "listen":
        listen(sys.argv[2])
    else:
        dial(sys.argv[2], sys.argv[3])
