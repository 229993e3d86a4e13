"""A worker: one process's share of a job, moved forward by `step`.

It hosts one task of every stage, speaks to the coordinator and to the other workers
through its network, and never blocks except inside ``network.poll``.  It does not know
whether it runs on Spark, in a plain process or in the simulator.
"""

from __future__ import annotations

import pickle
from enum import Enum, auto
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, TransportError
from millstream.ports import FrameArrived, PeerConnected, PeerLost
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import COORDINATOR, ChannelId, Generation, PeerId
from millstream.protocol.messages import (
    Deploy,
    Emitted,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    Progress,
    Ready,
    Register,
    Release,
    Start,
    Stop,
)
from millstream.runtime.assembly import Assembly, assemble
from millstream.runtime.report import failure_report
from millstream.runtime.task import TaskPhase
from millstream.runtime.timers import Timers

if TYPE_CHECKING:
    from millstream.operators.base import Rows
    from millstream.ports import Address, Clock, Network, NetworkEvent
    from millstream.runtime.deployment import Deployment

__all__ = ["Worker", "WorkerPhase"]

_NO_GENERATION = Generation(0)
_NO_CHANNEL = ChannelId(0)


class WorkerPhase(Enum):
    """Where a worker stands."""

    JOINING = auto()
    CONNECTING = auto()
    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()
    FAILED = auto()
    OVER = auto()


class Worker:
    """One member of a job.

    Parameters
    ----------
    id
        Identity of this incarnation; never used twice in a job.
    pid
        Process id, for messages to people.
    """

    def __init__(
        self,
        id: PeerId,  # noqa: A002 - the word of the protocol
        deployment: Deployment,
        network: Network,
        clock: Clock,
        coordinator: Address,
        *,
        pid: int,
    ) -> None:
        self.id = id
        self.phase = WorkerPhase.JOINING
        #: Why the worker left, if not because the job was complete.
        self.reason = ""
        self._deployment = deployment
        self._config = deployment.config
        self._network = network
        self._clock = clock
        self._pid = pid
        self._generation = _NO_GENERATION
        self._made = Assembly()
        self._timers = Timers()
        #: Peers with a connection; one may dial before our own `Deploy` has come.
        self._connected: set[PeerId] = set()
        self._missing: set[PeerId] = set()
        self._emitted: dict[int, int] = {}
        self._index = 0
        now_ns = clock.monotonic_ns()
        self._heard_ns = now_ns
        self._beat_ns = now_ns
        self._reported_ns = now_ns
        network.connect(COORDINATOR, coordinator)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.phase is WorkerPhase.OVER

    def step(self, wait_s: float = 0.0) -> bool:
        """Do a bounded amount of work; return whether anything was done.

        Waits up to `wait_s` for the network, which only a caller with nothing else
        to do should ask for.
        """
        is_working = False
        for event in self._network.poll(wait_s):
            is_working = True
            self._handle(event)
        now_ns = self._clock.monotonic_ns()
        if self.phase is WorkerPhase.RUNNING:
            is_working |= self._run_tasks(now_ns)
        self._keep_in_touch(now_ns)
        return is_working

    def wait_s(self) -> float:
        """Return how long nothing will be due; for a caller that may wait."""
        now_ns = self._clock.monotonic_ns()
        due_ns = self._beat_ns + self._config.heartbeat_ms * 1_000_000
        if self.phase is WorkerPhase.RUNNING:
            times = [task.idle_until_ns for task in self._made.tasks]
            for time_ns in (self._timers.next_ns, *times):
                if time_ns is not None:
                    due_ns = min(due_ns, time_ns)
        return max(0.0, (due_ns - now_ns) / 1e9)

    def close(self) -> None:
        """Close tasks and connections; safe to call at any time."""
        for task in self._made.tasks:
            task.close()
        self._network.close()
        self.phase = WorkerPhase.OVER

    # Events

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case FrameArrived(peer, frame):
                self._handle_frame(peer, frame)
            case PeerConnected(peer):
                self._handle_connected(peer)
            case PeerLost(peer, reason):
                self._handle_lost(peer, reason)

    def _handle_frame(self, peer: PeerId, frame: Frame) -> None:
        if frame.kind is FrameKind.MESSAGE:
            if peer == COORDINATOR:
                self._handle_message(frame.body)
            return
        if frame.generation != self._generation or self.phase is WorkerPhase.FAILED:
            return
        try:
            self._handle_element(frame)
        except MillstreamError as error:
            self._fail(error)

    def _handle_element(self, frame: Frame) -> None:
        made = self._made
        match frame.kind:
            case FrameKind.BATCH | FrameKind.END if frame.channel in made.inputs:
                made.inputs[frame.channel].receive(
                    frame.kind, frame.sequence, frame.body, frame.cost
                )
            case FrameKind.CREDIT if frame.channel in made.carriers:
                made.carriers[frame.channel].add_credit(frame.body)
            case FrameKind.CLOSE if frame.channel in made.outputs:
                made.outputs[frame.channel].close()

    def _handle_connected(self, peer: PeerId) -> None:
        if peer == COORDINATOR:
            host, port = self._network.address
            self._tell(Register(self.id, host, port, self._pid))
        self._connected.add(peer)
        self._missing.discard(peer)
        self._become_ready()

    def _handle_lost(self, peer: PeerId, reason: str) -> None:
        if self.is_over:
            return
        self._connected.discard(peer)
        if peer == COORDINATOR:
            self._leave(f"lost the coordinator: {reason}")
        elif self.phase is not WorkerPhase.FINISHED:
            self._tell(LinkLost(self.id, self._generation, peer, reason))

    def _handle_message(self, message: Message) -> None:
        self._heard_ns = self._clock.monotonic_ns()
        match message:
            case Deploy():
                self._deploy(message)
            case Start(generation) if generation == self._generation:
                if self.phase is WorkerPhase.WAITING:
                    self.phase = WorkerPhase.RUNNING
            case Stop(reason):
                self._leave(reason)
            case Release():
                self._leave("")

    # Actions

    def _deploy(self, message: Deploy) -> None:
        self._generation = Generation(message.generation)
        members = tuple(PeerId(worker) for _, worker, _, _ in message.members)
        self._index = members.index(self.id)
        self.phase = WorkerPhase.CONNECTING
        self._missing = set(members) - {self.id} - self._connected
        try:
            self._made = assemble(
                self._deployment,
                self._index,
                members,
                self._generation,
                self._network,
                clock=self._clock,
                timers=self._timers,
                emit=self._emit,
            )
        except Exception as error:  # noqa: BLE001 - a sink's open is user code
            self._fail(error)
            return
        for _, worker, host, port in message.members:
            if worker > self.id:
                self._network.connect(PeerId(worker), (host, port))
        self._become_ready()

    def _become_ready(self) -> None:
        if self.phase is WorkerPhase.CONNECTING and not self._missing:
            self.phase = WorkerPhase.WAITING
            self._tell(Ready(self.id, self._generation))

    def _run_tasks(self, now_ns: int) -> bool:
        self._timers.fire(now_ns)
        backlog = self._network.backlog(COORDINATOR)
        is_held = backlog > self._config.result_backlog_bytes
        is_working = False
        try:
            for task in self._made.tasks:
                is_working |= task.run(now_ns, is_held=is_held)
                now_ns = self._clock.monotonic_ns()
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._fail(error)
            return True
        if all(task.phase is TaskPhase.ENDED for task in self._made.tasks):
            self._report(now_ns)
            self._tell(Finished(self.id, self._generation))
            self.phase = WorkerPhase.FINISHED
        return is_working

    def _emit(self, sink: int, rows: Rows) -> None:
        """Send rows of a sink to the driver; too many for a frame go in halves."""
        payload = pickle.dumps(rows, protocol=5)
        sequence = self._emitted.get(sink, 0)
        message = Emitted(
            self.id, self._generation, sink, self._index, sequence, payload
        )
        try:
            self._tell(message)
        except TransportError:
            if len(rows) == 1:
                raise
            middle = len(rows) // 2
            self._emit(sink, rows[:middle])
            self._emit(sink, rows[middle:])
        else:
            self._emitted[sink] = sequence + 1

    def _fail(self, error: BaseException) -> None:
        self.phase = WorkerPhase.FAILED
        for task in self._made.tasks:
            task.close()
        self._tell(failure_report(error, self.id, self._generation, self._index))

    def _leave(self, reason: str) -> None:
        self.reason = reason
        for task in self._made.tasks:
            task.close()
        self.phase = WorkerPhase.OVER

    def _keep_in_touch(self, now_ns: int) -> None:
        """Send what is due to the coordinator; leave when it has gone silent."""
        if self.is_over:
            return
        if now_ns - self._beat_ns >= self._config.heartbeat_ms * 1_000_000:
            self._beat_ns = now_ns
            self._tell(Heartbeat(self.id))
        if now_ns - self._reported_ns >= self._config.progress_ms * 1_000_000:
            self._report(now_ns)
        silent_ns = now_ns - self._heard_ns
        if silent_ns > self._config.lease_ms * 1_000_000:
            self._leave(f"the coordinator was silent for {silent_ns / 1e9:.1f} s")

    def _report(self, now_ns: int) -> None:
        self._reported_ns = now_ns
        stages = tuple(
            (
                t.stage.id,
                t.rows_in,
                t.rows_out,
                t.busy_ns,
                t.blocked_until_ns(now_ns),
            )
            for t in self._made.tasks
        )
        if stages:
            self._tell(Progress(self.id, self._generation, stages))

    def _tell(self, message: Message) -> None:
        frame = Frame(FrameKind.MESSAGE, self._generation, _NO_CHANNEL, 0, message)
        self._network.send(COORDINATOR, frame)
