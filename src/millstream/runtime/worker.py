"""A worker: one process's share of a job, moved forward by `step`.

It hosts one task of every stage, speaks to the coordinator and to the other workers
through its network, and never blocks except inside ``network.poll``.  It does not know
whether it runs on Spark, in a plain process or in the simulator.  A dial that fails is
tried again for a while (`protocol.dialing`): strangers may crowd the listener.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError, TransportError
from millstream.observe.log import logger
from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol.barrier import barrier_from_wire
from millstream.protocol.dialing import Dialing
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch, Generation, PeerId
from millstream.protocol.messages import (
    Compact,
    CompleteEpoch,
    Deploy,
    Emitted,
    Ended,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    OpenEpoch,
    Progress,
    Ready,
    Register,
    Release,
    Resume,
    Start,
    Stop,
)
from millstream.protocol.orders import Orders
from millstream.protocol.packets import Packet, PacketKind, senseless
from millstream.protocol.routing import shard_range
from millstream.runtime.assembly import Assembly, Beginning, assemble
from millstream.runtime.delivery import deliver
from millstream.runtime.meters import measured, note_stored
from millstream.runtime.report import failure_report
from millstream.runtime.restoring import Restoration, beginning_of
from millstream.runtime.sealing import Sealer, SealFailed
from millstream.runtime.timers import Timers
from millstream.state.layout import NOTHING, ManifestId
from millstream.state.plain import encode_lists

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.ports import Address, Background, Clock, Network, NetworkEvent
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.observer import Core, Observer
    from millstream.runtime.task import Task
    from millstream.runtime.task_cut import TaskCut
    from millstream.state.base import ShardRange
    from millstream.state.store import SnapshotStore
    from millstream.values import Rows

__all__ = ["Worker", "WorkerPhase"]

_LOG = logger("worker")
_NO_GENERATION = Generation(0)
_NO_CHANNEL = ChannelId(0)
_SEALING_WAIT_S = 0.002
"""How long a worker sleeps at most while something is on its way into the store."""


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
    store
        Where snapshots are; None for a job without.
    background
        Does what must not stop the steps.
    observer
        Looks on at its tasks; in a real job nobody does.
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
        background: Background,
        store: SnapshotStore | None = None,
        resident_bytes: Callable[[], int] = int,
        observer: Observer | None = None,
    ) -> None:
        self.id = id
        self.phase = WorkerPhase.JOINING
        #: Why the worker left, if not because the job was complete.
        self.reason = ""
        #: Peers that made no sense, and how when it was found out last.
        self.given_up: dict[PeerId, str] = {}
        self._deployment = deployment
        self._config = deployment.config
        self._network = network
        self._clock = clock
        self._pid = pid
        self._resident_bytes = resident_bytes
        self._observer = observer
        self._generation = _NO_GENERATION
        self._made = Assembly()
        self._timers = Timers()
        #: Peers with a connection; one may dial before our own `Deploy` has come.
        self._connected: set[PeerId] = set()
        self._missing: set[PeerId] = set()
        self._members: set[PeerId] = set()
        self._orders = Orders(
            id,
            task_count=deployment.worker_count,
            stages=(stage.id for stage in deployment.stages.stages),
            has_store=store is not None,
        )
        self._dialing = Dialing(id)
        self._placement: tuple[PeerId, ...] = ()
        self._store = store
        self._sealer = Sealer(id, store, background, deployment.run, observer)
        self._restoration: Restoration | None = None
        #: Bytes that were restored for this generation, and how long that took.
        self._restored = (0, 0)
        self._deployed_ns = 0
        self._ends_told = 0
        now_ns = clock.monotonic_ns()
        self._heard_ns = now_ns
        self._beat_ns = now_ns
        self._reported_ns = now_ns
        self._dial(COORDINATOR, coordinator, self._config.launch_timeout_ms)

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
        if self._restoration is not None:
            is_working = True
            self._restore_step()
        if self.phase is WorkerPhase.RUNNING:
            is_working |= self._run_tasks(now_ns)
        is_working |= self._tell_sealed()
        for peer, address in self._dialing.due(now_ns):
            self._network.connect(peer, address)
        self._keep_in_touch(now_ns)
        return is_working

    def wait_s(self) -> float:
        """Return how long nothing will be due; for a caller that may wait."""
        now_ns = self._clock.monotonic_ns()
        due_ns = self._beat_ns + self._config.heartbeat_ms * 1_000_000
        times = [self._dialing.next_ns]
        if self.phase is WorkerPhase.RUNNING:
            times += [task.idle_until_ns for task in self._made.tasks]
            times.append(self._timers.next_ns)
        for time_ns in times:
            if time_ns is not None:
                due_ns = min(due_ns, time_ns)
        wait_s = max(0.0, (due_ns - now_ns) / 1e9)
        return min(wait_s, _SEALING_WAIT_S) if self._sealer.is_busy else wait_s

    def validate(self) -> None:
        """Assert what its cores promise; asked by tests and by the simulator."""
        cores: tuple[Core, ...] = (self._orders, self._dialing, *self._made.tasks)
        for core in cores:
            core.validate()

    def close(self) -> None:
        """Close tasks and connections; safe to call at any time."""
        self._close_tasks()
        self._sealer.close()
        self._network.close()
        self.phase = WorkerPhase.OVER

    # Events

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case PacketArrived(peer, packet) if peer in self._connected:
                try:
                    self._handle_packet(peer, packet)
                except RemoteProtocolError as error:
                    self._give_up(peer, f"{senseless(packet)}: {error}")
            case PeerConnected(peer):
                self._handle_connected(peer)
            case PeerLost():
                self._handle_lost(event)

    def _handle_packet(self, peer: PeerId, packet: Packet) -> None:
        if (packet.kind is PacketKind.MESSAGE) != (peer == COORDINATOR):
            msg = "that is not for such a peer to say"
            raise RemoteProtocolError(msg)
        if peer == COORDINATOR:
            self._handle_message(packet.body)
            return
        if packet.generation > self._generation and packet.kind is not PacketKind.CLOSE:
            # Tasks that were never started close what they would have read.
            msg = f"generation {packet.generation} has not begun"
            raise RemoteProtocolError(msg)
        has_tasks = self.phase not in {WorkerPhase.FAILED, WorkerPhase.OVER}
        if packet.generation != self._generation or not has_tasks:
            return
        try:
            deliver(self._made, self._placement, peer, packet)
        except RemoteProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 - a back channel spills to a disk
            self._fail(error)

    def _give_up(self, peer: PeerId, reason: str) -> None:
        """End the connection to a peer that makes no sense; it counts as lost."""
        self._say(logging.WARNING, f"gives peer {peer} up: {reason}")
        self.given_up[peer] = reason
        self._network.disconnect(peer)
        self._handle_lost(PeerLost(peer, reason))

    def _handle_connected(self, peer: PeerId) -> None:
        self._dialing.succeed(peer)
        if peer == COORDINATOR:
            self._heard_ns = self._clock.monotonic_ns()
            host, port = self._network.address
            self._tell(Register(self.id, host, port, self._pid))
        self._connected.add(peer)
        self._missing.discard(peer)
        self._become_ready()

    def _handle_lost(self, event: PeerLost) -> None:
        peer, reason = event.peer, event.reason
        if self.is_over or self._is_dialed_again(event):
            return
        self._connected.discard(peer)
        if peer == COORDINATOR:
            self._leave(f"lost the coordinator: {reason}")
        elif self.phase is not WorkerPhase.FINISHED and peer in self._members:
            self._tell(LinkLost(self.id, self._generation, peer, reason))

    def _is_dialed_again(self, event: PeerLost) -> bool:
        """Whether a peer could not be reached and there is time to try it again."""
        peer, now_ns = event.peer, self._clock.monotonic_ns()
        if peer not in self._dialing:
            return False
        if not self._dialing.fail(peer, now_ns, is_absent=event.is_absent):
            return False
        self._say(logging.DEBUG, f"dials peer {peer} again: {event.reason}")
        return True

    def _handle_message(self, message: Message) -> None:
        self._heard_ns = self._clock.monotonic_ns()
        if self.is_over or not self._orders.take(message):
            return
        match message:
            case Deploy():
                self._deploy(message)
            case Stop(reason):
                self._leave(reason)
            case Release():
                self._leave("")
            case Start() | OpenEpoch() | CompleteEpoch() | Resume() | Compact():
                try:
                    self._apply(message)
                except Exception as error:  # noqa: BLE001 - a task's state may refuse
                    self._fail(error)

    def _apply(
        self, message: Start | OpenEpoch | CompleteEpoch | Resume | Compact
    ) -> None:
        """Carry out a message that is for this generation."""
        tasks = self._made.tasks
        match message:
            case Start():
                if self.phase is WorkerPhase.WAITING:
                    self.phase = WorkerPhase.RUNNING
            case OpenEpoch(_, wire):
                for task in tasks:
                    task.announce(barrier_from_wire(wire))
            case CompleteEpoch(_, epoch):
                for task in tasks:
                    task.complete(Epoch(epoch))
            case Resume(_, epoch):
                for task in tasks:
                    task.resume(Epoch(epoch))
            case Compact():
                self._compact(message)

    def _compact(self, message: Compact) -> None:
        snapshot = ManifestId(*message.snapshot)
        for task in self._made.tasks:
            stage = task.stage.id
            if stage in message.stages:
                self._sealer.compact(snapshot, stage, task.index, self._generation)

    # Actions

    def _deploy(self, message: Deploy) -> None:
        """Make the tasks of a generation; those of an earlier one are thrown away."""
        self._close_tasks()
        self._timers = Timers()
        self._ends_told = 0
        self._restoration = None
        self._restored = (0, 0)
        self._deployed_ns = self._clock.monotonic_ns()
        self._generation = Generation(message.generation)
        self._placement = tuple(PeerId(worker) for worker in message.placement)
        self.phase = WorkerPhase.CONNECTING
        self._members = members = {PeerId(worker) for worker, _, _ in message.members}
        self._missing = members - {self.id} - self._connected
        try:
            self._make_tasks(ManifestId(*message.snapshot))
        except Exception as error:  # noqa: BLE001 - a sink's open is user code
            self._fail(error)
            return
        for former in self._dialing.keep({COORDINATOR, *members}):
            self._network.disconnect(former)
        for worker, host, port in message.members:
            if worker > self.id and worker in self._missing:
                self._dial(PeerId(worker), (host, port), self._config.lease_ms)
        self._become_ready()

    def _dial(self, peer: PeerId, address: Address, patience_ms: int) -> None:
        """Connect to a peer, or go on trying to, for so long from now."""
        deadline_ns = self._clock.monotonic_ns() + patience_ms * 1_000_000
        if peer in self._dialing:
            self._dialing.extend(peer, deadline_ns)
            return
        self._dialing.begin(peer, address, deadline_ns)
        self._network.connect(peer, address)

    def _make_tasks(self, snapshot: ManifestId) -> None:
        deployment = self._deployment
        beginning, manifest = Beginning(Epoch(0)), None
        if snapshot != NOTHING:
            assert self._store is not None
            manifest = self._store.load(snapshot)
            beginning = beginning_of(manifest, deployment)
        self._made = assemble(
            deployment,
            self.id,
            self._placement,
            self._generation,
            self._network,
            clock=self._clock,
            timers=self._timers,
            emit=self._emit,
            on_cut=lambda cut: self._sealer.seal(cut, self._generation),
            on_end=self._handle_end,
            beginning=beginning,
            observer=self._observer,
        )
        if manifest is not None:
            assert self._store is not None
            self._restoration = Restoration(
                self._store, manifest, self._made.tasks, deployment, self._shards_of
            )

    def _shards_of(self, task: Task) -> ShardRange:
        width = min(task.stage.width or len(self._placement), len(self._placement))
        return shard_range(self._config.shard_count, width, task.index)

    def _restore_step(self) -> None:
        assert self._restoration is not None
        try:
            if not self._restoration.step():
                took_ns = self._clock.monotonic_ns() - self._deployed_ns
                self._restored = (self._restoration.read_bytes, took_ns)
                self._restoration = None
                self._become_ready()
        except Exception as error:  # noqa: BLE001 - a user's state may refuse
            self._restoration = None
            self._fail(error)

    def _handle_end(self, cut: TaskCut) -> None:
        ended = (task for task in self._made.tasks if task.stage.id == cut.stage)
        if any(task.rounds is not None for task in ended):
            # Once it counts as ended, no recovery asks it again how far it came.
            self._report(self._clock.monotonic_ns())
        self._sealer.end(cut, self._generation)

    def _tell_sealed(self) -> bool:
        """Tell the coordinator what has been stored for this generation."""
        reports = self._sealer.poll()
        for report in reports:
            if report.generation != self._generation:
                continue
            if isinstance(report, SealFailed):
                self._fail(report.error)
                continue
            try:
                self._tell(report)
            except Exception as error:  # noqa: BLE001 - an offset is a user's
                self._fail(error)
            else:
                self._ends_told += isinstance(report, Ended)
                note_stored(self._made.tasks, report)
        # A worker without tasks may still store what it was asked for before.
        is_over = 0 < self._ends_told == len(self._made.tasks)
        if reports and is_over and self.phase is WorkerPhase.RUNNING:
            self._report(self._clock.monotonic_ns())
            self._tell(Finished(self.id, self._generation))
            self.phase = WorkerPhase.FINISHED
        return bool(reports)

    def _become_ready(self) -> None:
        is_set_up = not self._missing and self._restoration is None
        if self.phase is WorkerPhase.CONNECTING and is_set_up:
            self.phase = WorkerPhase.WAITING
            size, took_ns = self._restored
            self._say(
                logging.DEBUG,
                f"generation {self._generation} has {len(self._made.tasks)} tasks here, "
                f"{size:,} bytes restored in {took_ns / 1e9:.3f} s",
            )
            self._tell(Ready(self.id, self._generation, size, took_ns))

    def _run_tasks(self, now_ns: int) -> bool:
        backlog = self._network.backlog(COORDINATOR)
        is_held = backlog > self._config.result_backlog_bytes
        is_working = False
        try:
            self._timers.fire(now_ns)
            for task in self._made.tasks:
                is_working |= task.run(now_ns, is_held=is_held)
                now_ns = self._clock.monotonic_ns()
        except RemoteProtocolError as error:
            self._hold_to_account(error)
            return True
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._fail(error)
            return True
        return is_working

    def _hold_to_account(self, error: RemoteProtocolError) -> None:
        """Give up who wrote what a task could not follow, unless that was here."""
        writer = self.id
        if error.channel is not None:
            end = self._made.inputs[ChannelId(error.channel)]
            writer = self._placement[end.channel.source_index]
        if writer == self.id:
            self._fail(error)
            return
        self.phase = WorkerPhase.FAILED
        self._close_tasks()
        self._give_up(writer, f"it sent what makes no sense: {error}")

    def _emit(self, sink: int, task: int, epoch: Epoch, rows: Rows) -> None:
        """Send rows of a sink to the driver; too many for a packet go in halves."""
        payload = encode_lists(rows)
        message = Emitted(self.id, self._generation, sink, task, epoch, payload)
        try:
            self._tell(message)
        except TransportError:
            if len(rows) == 1:
                raise
            middle = len(rows) // 2
            self._emit(sink, task, epoch, rows[:middle])
            self._emit(sink, task, epoch, rows[middle:])

    def _fail(self, error: BaseException) -> None:
        """Tell the coordinator first: what closing raises then is no cause."""
        self.phase = WorkerPhase.FAILED
        self._say(logging.DEBUG, f"{type(error).__name__}: {error}", error)
        index = self._placement.index(self.id) if self.id in self._placement else -1
        self._tell(failure_report(error, self.id, self._generation, index))
        self._close_tasks()

    def _close_tasks(self) -> None:
        """Close what has failed or is not wanted any more, whatever that raises.

        A task that ends by itself closes itself; what that raises makes it fail.
        """
        for task in self._made.tasks:
            with suppress(Exception):
                task.close()

    def _leave(self, reason: str) -> None:
        self.reason = reason
        self._say(logging.DEBUG, f"leaves: {reason or 'the job is complete'}")
        self._close_tasks()
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
        is_met = COORDINATOR in self._connected
        if is_met and silent_ns > self._config.lease_ms * 1_000_000:
            self._leave(f"the coordinator was silent for {silent_ns / 1e9:.1f} s")

    def _report(self, now_ns: int) -> None:
        self._reported_ns = now_ns
        tasks, generation = self._made.tasks, self._generation
        if tasks:
            told = tuple(measured(task, now_ns) for task in tasks)
            self._tell(Progress(self.id, generation, told, self._resident_bytes()))

    def _say(self, level: int, text: str, error: BaseException | None = None) -> None:
        words = ("worker %s of %s: %s", self.id - 1, self._deployment.job, text)
        _LOG.log(level, *words, exc_info=error)

    def _tell(self, message: Message) -> None:
        packet = Packet(PacketKind.MESSAGE, self._generation, _NO_CHANNEL, 0, message)
        self._network.send(COORDINATOR, packet)
