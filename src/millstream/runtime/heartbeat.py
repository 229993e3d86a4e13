"""The heartbeats of a worker process: a thread that says "alive" while user code runs long.

A worker's `step` speaks to the coordinator too, but only between batches.  This thread
has a connection of its own, so a function that computes for a minute costs no lease;
and it notices a vanished coordinator even then, so that no worker outlives its job.  Like
the worker's own, its connection is dialed again while there is time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.ports import PeerConnected, PeerLost
from millstream.protocol.dialing import Dialing
from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import Heartbeat
from millstream.protocol.packets import Packet, PacketKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.ports import Address, Clock, NetworkEvent
    from millstream.runtime.tcp import TCPNetwork

__all__ = ["HeartbeatThread"]

_DIAL_WAIT_S = 0.02
"""How long the thread waits for the network while it is being connected."""


class HeartbeatThread:
    """Beats until it is stopped or the coordinator is gone.

    Parameters
    ----------
    patience_s
        How long the coordinator is dialed again if that fails.
    on_lost
        Called from this thread, once, with the reason.
    on_beat
        Called when it begins to beat, and from this thread with every beat.
    """

    def __init__(
        self,
        worker: PeerId,
        network: TCPNetwork,
        coordinator: Address,
        clock: Clock,
        *,
        interval_s: float,
        patience_s: float,
        on_lost: Callable[[str], None],
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._network = network
        self._coordinator = coordinator
        self._clock = clock
        self._dialing = Dialing(worker)
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._on_lost = on_lost
        self._on_beat = on_beat
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="millstream-heart", daemon=True
        )

    def start(self) -> None:
        """Begin to beat.

        The first call of `on_beat` does not wait for the thread: user code may take the
        interpreter before that has had a turn.
        """
        self._on_beat()
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._is_stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        message = Heartbeat(self._worker)
        packet = Packet(PacketKind.MESSAGE, Generation(0), ChannelId(0), 0, message)
        deadline_ns = self._clock.monotonic_ns() + int(self._patience_s * 1e9)
        self._dialing.begin(COORDINATOR, self._coordinator, deadline_ns)
        self._dial()
        try:
            while not self._is_stopped.is_set():
                self._on_beat()
                is_met = COORDINATOR not in self._dialing
                if is_met:
                    self._network.send(COORDINATOR, packet)
                lost = self._poll(0.0 if is_met else _DIAL_WAIT_S)
                if lost is not None:
                    self._on_lost(lost)
                    return
                if is_met:
                    self._is_stopped.wait(self._interval_s)
        finally:
            self._network.close()

    def _poll(self, timeout_s: float) -> str | None:
        """Move bytes, and dial again if that is due; return why nothing more will come."""
        now_ns = self._clock.monotonic_ns()
        for _, _ in self._dialing.due(now_ns):
            self._dial()
        for event in self._network.poll(timeout_s):
            lost = self._handle(event, now_ns)
            if lost is not None:
                return lost
        return None

    def _handle(self, event: NetworkEvent, now_ns: int) -> str | None:
        match event:
            case PeerConnected():
                self._dialing.succeed(COORDINATOR)
            case PeerLost(_, reason, is_absent):
                is_dialing = COORDINATOR in self._dialing
                if not is_dialing or not self._dialing.fail(
                    COORDINATOR, now_ns, is_absent=is_absent
                ):
                    return reason
        return None

    def _dial(self) -> None:
        self._network.connect(COORDINATOR, self._coordinator, role=Role.HEARTBEAT)
