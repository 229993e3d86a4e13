"""A worker whose coordinator is the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.snapshots import KEY, MemoryFiles

import millstream as ms
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.ports import PacketArrived
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import Deploy, Message, Start
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.background import Inline
from millstream.runtime.inprocess import Hub
from millstream.runtime.worker import Worker
from millstream.state.store import SnapshotStore
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.ports import Background
    from millstream.state.settings import StateSettings

__all__ = ["FIRST", "NO_CHANNEL", "SECOND", "Disk", "WorkerHarness", "counting_flow"]

FIRST, SECOND = PeerId(1), PeerId(2)
NO_CHANNEL = ChannelId(0)


class Disk(MemoryFiles):
    """Files on a disk that may be full."""

    is_full = False

    def create(self, name: str, chunks: Iterable[bytes]) -> None:
        if self.is_full:
            msg = "no space left on device"
            raise OSError(msg)
        super().create(name, chunks)


class WorkerHarness:
    """A worker whose coordinator is the test."""

    def __init__(
        self,
        flow: ms.Flow,
        workers: int = 1,
        state: StateSettings | None = None,
        background: Background | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.hub = Hub()
        self.coordinator = self.hub.join(COORDINATOR)
        context = SnapshotContext("job", "run", settings=state)
        deployment = deploy(flow.plan, flow.config(settings), workers, context)
        self.files = Disk()
        self.worker = Worker(
            FIRST,
            deployment,
            self.hub.join(FIRST),
            self.clock,
            ("", 0),
            pid=42,
            background=background or Inline(),
            store=SnapshotStore(self.files, KEY, run="run"),
        )

    def tell(self, message: Message) -> None:
        packet = Packet(PacketKind.MESSAGE, Generation(1), NO_CHANNEL, 0, message)
        self.coordinator.send(FIRST, packet)

    def step(self, turns: int = 1) -> list[Message]:
        """Let the worker work; return what it told the coordinator."""
        heard: list[Message] = []
        for _ in range(turns):
            self.worker.step()
            heard += [
                event.packet.body
                for event in self.coordinator.poll(0)
                if isinstance(event, PacketArrived)
            ]
        return heard

    def has_left(self) -> bool:
        return self.worker.is_over

    def deploy(self, *others: PeerId, generation: int = 1) -> None:
        ids = (FIRST, *others)
        members = tuple((id_, "", 0) for id_ in ids)
        self.tell(Deploy(generation, members, ids, (0, 0)))

    def run(self, turns: int = 20) -> list[Message]:
        self.step()
        self.deploy()
        self.step()
        self.tell(Start(1))
        return self.step(turns)


def counting_flow(rows: int = 200) -> ms.Flow:
    flow = ms.Flow("counting")
    flow.from_iterable(range(rows)).key_by(lambda i: i % 3).sum().for_each(_ignore)
    return flow


def _ignore(_row: object) -> None:
    """WorkerHarness for somebody who wants the rows."""
