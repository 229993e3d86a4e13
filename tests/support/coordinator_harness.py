"""A coordinator whose workers are the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.snapshots import KEY, MemoryFiles

import millstream as ms
from millstream.config import Config, configured
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.ports import PacketArrived
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import (
    Ended,
    Failed,
    Finished,
    Message,
    Ready,
    Register,
)
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.background import Inline
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub, LocalLink
from millstream.runtime.snapshots import DriverContext
from millstream.state.plain import encode
from millstream.state.store import SnapshotStore
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.state.manifest import Transaction


__all__ = ["CoordinatorHarness", "_flow", "failed"]


def _flow() -> ms.Flow:
    """Return a flow of one wide stage and two sinks in the driver."""
    flow = ms.Flow("job")
    rows = flow.from_parallel(lambda _rank, _size: [1, 2])
    rows.collect(name="own")
    rows.shuffle().collect(name="other")
    return flow


class CoordinatorHarness:
    """A coordinator whose workers are the test."""

    def __init__(
        self,
        workers: int = 2,
        commit: Callable[[], None] | None = None,
        *,
        keeps: bool = False,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        hub = Hub()
        self.ids = [PeerId(1 + i) for i in range(workers)]
        self.generation = 1
        self.committed: list[tuple[int, tuple[Transaction, ...], bool]] = []
        self._fails = commit
        self.files = MemoryFiles()
        self.deployment = deploy(
            _flow().plan,
            configured(Config(), settings),
            workers,
            SnapshotContext("job", "run"),
        )
        store = SnapshotStore(self.files, KEY, job="job", run="run")
        driver = DriverContext(self)
        if keeps:
            driver = DriverContext(self, store, store.claim())
            store.adopt(None)
        self.coordinator = Coordinator(
            self.ids,
            self.deployment,
            hub.join(COORDINATOR),
            self.clock,
            background=Inline(),
            driver=driver,
        )
        self.hub = hub
        self.links: dict[PeerId, LocalLink] = {}
        for id_ in self.ids:
            self.join(id_)
        self.inboxes()

    def join(self, worker: PeerId) -> PeerId:
        """Let a worker connect."""
        self.links[worker] = self.hub.join(worker)
        self.links[worker].connect(COORDINATOR, ("", 0))
        return worker

    def commit(
        self, epoch: int, transactions: tuple[Transaction, ...], *, is_last: bool
    ) -> None:
        """CoordinatorHarness for the sinks."""
        if self._fails is not None:
            self._fails()
        self.committed.append((epoch, transactions, is_last))

    def say(self, worker: PeerId, message: Message) -> None:
        packet = Packet(PacketKind.MESSAGE, Generation(1), ChannelId(0), 0, message)
        self.links[worker].send(COORDINATOR, packet)
        self.coordinator.step()

    def inboxes(self) -> list[list[Message]]:
        """Return what every worker was told."""
        return [
            [e.packet.body for e in link.poll(0) if isinstance(e, PacketArrived)]
            for link in self.links.values()
        ]

    def start(self) -> None:
        for id_ in self.ids:
            self.say(id_, Register(id_, "host", 7, 100 + id_))
        for id_ in self.ids:
            self.say(id_, Ready(id_, 1))

    def finish(self, worker: PeerId) -> None:
        """Let all tasks of a worker end; those of a sink have sealed something."""
        for stage, task in self.tasks_of(worker):
            names = [node.name for node in self.deployment.stages.stages[stage].nodes]
            sealed = (("own", encode("ab"[task])),) if "own" in names else ()
            generation = self.generation
            self.say(worker, Ended(worker, generation, 0, stage, task, (), sealed))
        self.say(worker, Finished(worker, self.generation))

    def tasks_of(self, worker: PeerId) -> list[tuple[int, int]]:
        """Return the tasks that a worker hosts in a job that has lost nobody."""
        width = self.deployment.worker_count
        return [
            (stage.id, worker - 1)
            for stage in self.deployment.stages.stages
            if worker - 1 < min(stage.width or width, width)
        ]

    def all_tasks(self) -> list[tuple[int, int]]:
        """Return the tasks of all workers."""
        return [task for id_ in self.ids for task in self.tasks_of(id_)]

    def sinks(self) -> list[int]:
        """Return the ids of the two sinks."""
        stages = self.deployment.stages.stages
        return [n.id for s in stages for n in s.nodes if n.is_sink]

    def pass_time(self, duration: str) -> None:
        self.clock.advance(duration)
        self.coordinator.step()

    def is_over(self) -> bool:
        return self.coordinator.is_over

    def leave(self) -> None:
        for link in self.links.values():
            link.close()
        self.coordinator.step()


def failed(cause: bytes = b"") -> Failed:
    return Failed(
        1, 1, "OperatorError", "map at job.py:3 raised ValueError: x", "map",
        "job.py:3", "record 7 of a.txt", "Traceback ...", cause,
    )  # fmt: skip
