"""A network inside one process: peers pass packets to each other by reference.

The local launcher runs on it.  It keeps the promises of `ports.Network` - FIFO between
two peers, `PeerLost` when a peer closes - and has no failures of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol.packets import PacketKind

if TYPE_CHECKING:
    from millstream.ports import Address, NetworkEvent
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet

__all__ = ["Hub", "LocalLink"]

_ROW_COST = 64
"""Credit of a row that is not encoded; about what a small one takes pickled."""


class Hub:
    """Knows every peer of the process, its inbox, and who is connected to whom."""

    def __init__(self) -> None:
        self.inboxes: dict[PeerId, deque[NetworkEvent]] = {}
        self.peers: dict[PeerId, set[PeerId]] = {}

    def join(self, peer: PeerId) -> LocalLink:
        """Return the network of a new peer."""
        self.inboxes[peer] = deque()
        self.peers[peer] = set()
        return LocalLink(peer, self)


class LocalLink:
    """The network as one peer sees it; see `ports.Network`."""

    def __init__(self, own_id: PeerId, hub: Hub) -> None:
        self._own_id = own_id
        self._hub = hub

    @property
    def address(self) -> Address:
        """A name nobody can dial; peers are found by id."""
        return ("in-process", self._own_id)

    def connect(self, peer: PeerId, address: Address) -> None:  # noqa: ARG002 - by id
        """Connect at once, if the peer is there."""
        hub, own = self._hub, self._own_id
        if peer not in hub.inboxes:
            hub.inboxes[own].append(PeerLost(peer, "it is not there", is_absent=True))
            return
        hub.peers[own].add(peer)
        hub.peers[peer].add(own)
        hub.inboxes[own].append(PeerConnected(peer))
        hub.inboxes[peer].append(PeerConnected(own))

    def send(self, peer: PeerId, packet: Packet) -> int:
        """Put the packet into the peer's inbox."""
        if peer not in self._hub.peers[self._own_id]:
            return 0
        if packet.kind is PacketKind.BATCH:
            packet.cost = len(packet.body) * _ROW_COST
        self._hub.inboxes[peer].append(PacketArrived(self._own_id, packet))
        return packet.cost

    def backlog(self, peer: PeerId) -> int:  # noqa: ARG002 - packets leave at once
        """Return 0: nothing waits here."""
        return 0

    def poll(self, timeout_s: float) -> list[NetworkEvent]:  # noqa: ARG002 - one thread
        """Return what came since the last time; never waits."""
        inbox = self._hub.inboxes.get(self._own_id)
        events = list(inbox or ())
        if inbox:
            inbox.clear()
        return events

    def disconnect(self, peer: PeerId) -> None:
        """Drop the connection; the peer learns of it."""
        hub, own = self._hub, self._own_id
        if peer in hub.peers.get(own, ()):
            hub.peers[own].discard(peer)
            hub.peers[peer].discard(own)
            hub.inboxes[peer].append(PeerLost(own, "it disconnected"))

    def close(self) -> None:
        """Leave; every connected peer learns of it."""
        for peer in sorted(self._hub.peers.get(self._own_id, ())):
            self.disconnect(peer)
        self._hub.inboxes.pop(self._own_id, None)
        self._hub.peers.pop(self._own_id, None)
