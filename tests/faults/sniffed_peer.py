"""One end of a protected link, as a process; see `test_sniffing`."""

from __future__ import annotations

import pickle
import sys

from millstream.config import Config
from millstream.ports import PacketArrived, PeerConnected
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.clock import SystemClock
from millstream.runtime.tcp import TCPNetwork

TURNS_MAX = 300


def main() -> None:
    """Listen or dial, as told on standard input, and let one batch pass."""
    own, host, port, key, row, protection, certificate = pickle.load(sys.stdin.buffer)
    end = TCPNetwork(
        own_id=PeerId(own),
        job=bytes(range(16)),
        key=key,
        clock=SystemClock(),
        config=Config(),
        host=host,
        listens=port == 0,
        protection=protection,
        certificate=certificate,
    )
    if port:
        end.connect(PeerId(1), (host, port))
    else:
        print(end.address[1], flush=True)  # noqa: T201 - read by the test
    packet = Packet(PacketKind.BATCH, Generation(1), ChannelId(1), 0, [row])
    for _ in range(TURNS_MAX):
        for event in end.poll(0.1):
            if isinstance(event, PeerConnected):
                end.send(event.peer, packet)
            if isinstance(event, PacketArrived):
                assert event.packet.body == [row]
                print("arrived", flush=True)  # noqa: T201 - read by the test
                end.poll(0.1)
                end.close()
                return


if __name__ == "__main__":
    main()
