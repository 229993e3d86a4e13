"""A network inside one process: peers pass frames to each other by reference.

The local launcher runs on it.  It keeps the promises of `ports.Network` - FIFO between
two peers, `PeerLost` when a peer closes - and has no failures of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.ports import FrameArrived, PeerConnected, PeerLost
from millstream.protocol.frames import FrameKind

if TYPE_CHECKING:
    from millstream.ports import Address, NetworkEvent
    from millstream.protocol.frames import Frame
    from millstream.protocol.ids import PeerId

__all__ = ["Hub", "LocalLink"]

_ROW_COST = 64
"""Credit of a row that is not encoded; about what a small one takes pickled."""


class Hub:
    """Knows every peer of the process."""

    def __init__(self) -> None:
        self.links: dict[PeerId, LocalLink] = {}

    def join(self, peer: PeerId) -> LocalLink:
        """Return the network of a new peer."""
        self.links[peer] = LocalLink(peer, self)
        return self.links[peer]


class LocalLink:
    """The network as one peer sees it."""

    def __init__(self, own_id: PeerId, hub: Hub) -> None:
        self._own_id = own_id
        self._hub = hub
        self._inbox: deque[NetworkEvent] = deque()
        self._peers: set[PeerId] = set()

    @property
    def address(self) -> Address:
        """A name nobody can dial; peers are found by id."""
        return ("in-process", self._own_id)

    def connect(self, peer: PeerId, address: Address) -> None:  # noqa: ARG002 - by id
        other = self._hub.links.get(peer)
        if other is None:
            self._inbox.append(PeerLost(peer, "it is not there"))
            return
        self._peers.add(peer)
        other._peers.add(self._own_id)
        self._inbox.append(PeerConnected(peer))
        other._inbox.append(PeerConnected(self._own_id))

    def send(self, peer: PeerId, frame: Frame) -> int:
        if peer not in self._peers:
            return 0
        if frame.kind is FrameKind.BATCH:
            frame.cost = len(frame.body) * _ROW_COST
        self._hub.links[peer]._inbox.append(FrameArrived(self._own_id, frame))
        return frame.cost

    def backlog(self, peer: PeerId) -> int:  # noqa: ARG002 - frames leave at once
        return 0

    def poll(self, timeout_s: float) -> list[NetworkEvent]:  # noqa: ARG002 - one thread
        events = list(self._inbox)
        self._inbox.clear()
        return events

    def disconnect(self, peer: PeerId) -> None:
        if peer in self._peers:
            self._peers.discard(peer)
            other = self._hub.links[peer]
            other._peers.discard(self._own_id)
            other._inbox.append(PeerLost(self._own_id, "it disconnected"))

    def close(self) -> None:
        for peer in sorted(self._peers):
            self.disconnect(peer)
        self._hub.links.pop(self._own_id, None)
