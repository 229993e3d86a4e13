"""What a worker or a coordinator needs of the world to run its protocol.

Both receive these as constructor arguments; sockets, clocks, snapshot files and threads
they reach through nothing else.  That is what lets the same code run on Spark, in one
process, and in the deterministic simulator.  What operators and connectors do by
themselves (reading, writing, spilling, RocksDB) goes past these ports.

=============  ===============================  ==================================
port           real                             simulated
=============  ===============================  ==================================
`Clock`        `runtime.clock.SystemClock`      `simulation.clock.VirtualClock`
`Network`      `runtime.tcp.TCPNetwork`,        `simulation.network.SimulatedLink`
               `runtime.inprocess.LocalLink`
`Files`        `state.files.LocalFiles`,        `simulation.disk.VirtualDisk`
               `state.files.RemoteFiles`
`Background`   `runtime.background.Threaded`    `simulation.disk.Deferred`
=============  ===============================  ==================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet

__all__ = [
    "Address",
    "Background",
    "Clock",
    "Done",
    "Files",
    "Network",
    "NetworkEvent",
    "PacketArrived",
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

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump, and differ between machines."""
        ...


@dataclass(slots=True)
class PacketArrived:
    """A packet came from an authenticated peer."""

    peer: PeerId
    packet: Packet


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A peer proved that it belongs to this job."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The connection to a peer is gone; nothing more will come from it.

    `is_absent` says of a dial that nobody listens there.
    """

    peer: PeerId
    reason: str
    is_absent: bool = False


NetworkEvent = PacketArrived | PeerConnected | PeerLost


class Network(Protocol):
    """Connections to peers, each a FIFO of packets; no call blocks except `poll`."""

    @property
    def address(self) -> Address:
        """Where other peers reach this one."""
        ...

    def connect(self, peer: PeerId, address: Address) -> None:
        """Begin to connect; `PeerConnected` or `PeerLost` tells how it ended."""
        ...

    def send(self, peer: PeerId, packet: Packet) -> int:
        """Queue a packet and return the credit it takes; a lost peer takes nothing."""
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


class Files(Protocol):
    """A directory of files that never change; names have ``/`` between their parts."""

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file that must not be there yet; it is durable when this returns.

        After an error the name is spent: what is there may be half a file.
        """
        ...

    def publish(self, name: str, data: bytes) -> None:
        """Let a durable file appear as a whole or not at all.

        Raises `FileExistsError` if there is one of that name already.
        """
        ...

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return a file, or its first `bytes_max` bytes; raises `FileNotFoundError`."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the full names of all files below a folder, in order; none is fine."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone already is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a piece of background work."""

    tag: Any
    result: Any = None
    error: BaseException | None = None


class Background(Protocol):
    """Work that must not stop the steps: encoding, digests, files."""

    def submit(self, tag: Any, work: Callable[[], Any]) -> None:
        """Run `work` later, one piece after the other, in order."""
        ...

    def poll(self) -> list[Done]:
        """Return what has ended since the last time."""
        ...

    def close(self) -> None:
        """Take no more work and wait for nothing."""
        ...
