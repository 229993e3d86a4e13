"""The complete list of ways in which a worker or a coordinator touches the world.

Both receive these as constructor arguments and reach the world through nothing
else.  That is what lets the same code run on Spark, in one process, and in the
deterministic simulator.

=============  ===============================  ==================================
port           real                             simulated
=============  ===============================  ==================================
`Clock`        `runtime.clock.SystemClock`      `simulation.clock.VirtualClock`
`Network`      `runtime.tcp.TCPNetwork`,        `simulation.network.SimulatedLink`
               `runtime.inprocess.LocalLink`
=============  ===============================  ==================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.protocol.frames import Frame
    from millstream.protocol.ids import PeerId

__all__ = [
    "Address",
    "Clock",
    "FrameArrived",
    "Network",
    "NetworkEvent",
    "PeerConnected",
    "PeerLost",
]

Address = tuple[str, int]
"""Host and port."""


class Clock(Protocol):
    """Source of time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back."""
        ...


@dataclass(slots=True)
class FrameArrived:
    """A frame came from an authenticated peer."""

    peer: PeerId
    frame: Frame


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A peer proved that it belongs to this job."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The connection to a peer is gone; nothing more will come from it."""

    peer: PeerId
    reason: str


NetworkEvent = FrameArrived | PeerConnected | PeerLost


class Network(Protocol):
    """Connections to peers, each a FIFO of frames; no call blocks except `poll`."""

    @property
    def address(self) -> Address:
        """Where other peers reach this one."""
        ...

    def connect(self, peer: PeerId, address: Address) -> None:
        """Begin to connect; `PeerConnected` or `PeerLost` tells how it ended."""
        ...

    def send(self, peer: PeerId, frame: Frame) -> int:
        """Queue a frame and return the credit it takes; a lost peer takes nothing."""
        ...

    def backlog(self, peer: PeerId) -> int:
        """Bytes queued for the peer that have not left this process."""
        ...

    def poll(self, timeout_s: float) -> list[NetworkEvent]:
        """Move bytes; return what happened, waiting up to `timeout_s` for the first."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """Drop the connection to a peer without a `PeerLost`."""
        ...

    def close(self) -> None:
        """Close every connection and the listener."""
        ...
