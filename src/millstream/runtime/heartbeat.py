"""The heart of a worker process: a thread that says "alive" while user code runs long.

A worker's `step` speaks to the coordinator too, but only between batches.  This thread
has a connection of its own, so a function that computes for a minute costs no lease;
and it notices a vanished coordinator even then, so that no worker outlives its job.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.ports import PeerLost
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.handshake import Role
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.ports import Address
    from millstream.runtime.tcp import TCPNetwork

__all__ = ["Heart"]


class Heart:
    """Beats until it is stopped or the coordinator is gone.

    Parameters
    ----------
    on_lost
        Called from the heart's thread, once, with the reason.
    """

    def __init__(
        self,
        worker: PeerId,
        network: TCPNetwork,
        coordinator: Address,
        *,
        interval_s: float,
        on_lost: Callable[[str], None],
    ) -> None:
        self._worker = worker
        self._network = network
        self._coordinator = coordinator
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="millstream-heart", daemon=True
        )

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._is_stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        message = Heartbeat(self._worker)
        frame = Frame(FrameKind.MESSAGE, Generation(0), ChannelId(0), 0, message)
        try:
            self._network.connect(COORDINATOR, self._coordinator, role=Role.HEARTBEAT)
            while not self._is_stopped.is_set():
                self._network.send(COORDINATOR, frame)
                for event in self._network.poll(0.0):
                    if isinstance(event, PeerLost):
                        self._on_lost(event.reason)
                        return
                self._is_stopped.wait(self._interval_s)
        finally:
            self._network.close()
