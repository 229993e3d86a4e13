"""The coordinator: the shell around `JobCore`, moved forward by `step`.

It runs in the driver, turns network events into events of the core, carries out the
core's commands, and keeps what the workers send: what they have done, and results.  What
counts of that is decided by `Reports`; a worker that makes no sense is given up, and its
loss is a loss like any other.  Snapshots are the business of `SnapshotCoordinator`; this is where
the two meet.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream import errors
from millstream.credentials import without_credentials
from millstream.errors import RemoteProtocolError
from millstream.observe.log import logger
from millstream.ports import PacketArrived, PeerConnected, PeerLost
from millstream.protocol import snapshot_events
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.job import JobCore, Phase
from millstream.protocol.job_events import (
    BeginGeneration,
    CancelRequested,
    Command,
    Committed,
    EpochCompleted,
    Event,
    GivenUp,
    Interrupt,
    LinkBroke,
    OutcomeKind,
    PauseReached,
    RequestPause,
    SendMessage,
    Settled,
    StartWorker,
    StopReached,
    TimePassed,
    WorkerExited,
    WorkerFailed,
    WorkerFinished,
    WorkerHeard,
    WorkerLost,
    WorkerReady,
    WorkerRegistered,
)
from millstream.protocol.messages import (
    Compact,
    Compacted,
    CompleteEpoch,
    Emitted,
    Ended,
    Failed,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    OpenEpoch,
    Progress,
    Ready,
    Register,
    Resume,
    Sealed,
)
from millstream.protocol.packets import Packet, PacketKind, senseless
from millstream.protocol.story import Severity, Story
from millstream.runtime.event_queue import EventQueue
from millstream.runtime.reports import Reports
from millstream.runtime.restoring import beginning_of
from millstream.runtime.results import ResultPart
from millstream.runtime.snapshots import MergeFiles, Savepoint, SnapshotCoordinator
from millstream.runtime.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.ports import Background, Clock, Network, NetworkEvent
    from millstream.protocol.job_events import Outcome
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.observer import DriverObserver
    from millstream.runtime.snapshots import DriverContext

__all__ = ["Coordinator", "Recovery"]

_LOGS = {area: logger(area) for area in ("job", "snapshots")}
_NOTED_LINES = 12
"""Decisions that an error shows; it carries all that are kept."""

_NO_CHANNEL = ChannelId(0)
_BUSY_WAIT_S = 0.002
"""How long the coordinator sleeps at most while files are being written."""


@dataclass(slots=True)
class Recovery:
    """How the job went back to a snapshot, and how long each part of that took.

    Attributes
    ----------
    reason
        What had happened.
    epoch
        The epoch that it went back to.
    settle_ns, restore_ns
        From the interruption until it was clear where to go back to, and from there
        until all tasks ran again; 0 while that has not happened.
    """

    reason: str
    began_ns: int
    epoch: int = 0
    settle_ns: int = 0
    restore_ns: int = 0


class Coordinator:
    """Leads one job from the first registration to the last good-bye."""

    def __init__(
        self,
        workers: Iterable[PeerId],
        deployment: Deployment,
        network: Network,
        clock: Clock,
        *,
        background: Background,
        driver: DriverContext,
        observer: DriverObserver | None = None,
    ) -> None:
        self.results = driver.results
        #: What all workers have done.
        self.tally = Tally()
        #: Process ids of registered workers, for users and for tests that kill.
        self.pids: dict[PeerId, int] = {}
        #: Workers that the launcher must start.
        self.wanted_workers: list[PeerId] = []
        #: How the job went back, oldest first.
        self.recoveries: list[Recovery] = []
        self._deployment = deployment
        self._network = network
        self._clock = clock
        self._config = deployment.config
        self._observer = observer
        self._events: EventQueue[Event] = EventQueue(self._decide)
        self._inbox: list[Event | Savepoint] = []
        self._inbox_lock = threading.Lock()
        now_ns = clock.monotonic_ns()
        self._beat_ns = now_ns
        #: What was decided, by both cores.
        self.story = Story(now_ns, self._config.story_entries_max)
        self._sink_names = {
            n.id: n.name for s in deployment.stages.stages for n in s.nodes if n.is_sink
        }
        self.snapshots = SnapshotCoordinator(
            deployment,
            driver,
            background,
            self._carry_out_snapshot,
            story=self.story,
            wall_ms=clock.wall_ms,
            observer=observer,
        )
        manifest = driver.manifest
        self._core = JobCore(
            workers,
            now_ns=now_ns,
            launch_ns=self._config.launch_timeout_ms * 1_000_000,
            lease_ns=self._config.lease_ms * 1_000_000,
            grace_ns=self._config.stop_grace_ms * 1_000_000,
            restarts_max=self._config.restarts_max if driver.is_keeping else None,
            generation=0 if manifest is None else manifest.generation,
            snapshot=self.snapshots.manifests.snapshot,
            is_complete=driver.is_complete,
            story=self.story,
        )
        self._reports = Reports(deployment, self._core, self.snapshots)
        #: Workers that made no sense, and how; nothing of them is heard any more.
        self.given_up: dict[PeerId, str] = {}

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return self._core.phase

    @property
    def outcome(self) -> Outcome | None:
        """How the job ended, once that is decided."""
        return self._core.outcome

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the job."""
        return self._core.phase is Phase.ENDED

    @property
    def members(self) -> tuple[PeerId, ...]:
        """Workers that are there; of a job with an outcome, those that had tasks."""
        if self._core.outcome is not None:
            return tuple(sorted(set(self._core.placement)))
        return self._core.members

    @property
    def placement(self) -> tuple[PeerId, ...]:
        """The worker that hosts each task index."""
        return self._core.placement

    @property
    def is_uneven(self) -> bool:
        """Whether a worker has no tasks while another one has several."""
        return self._core.is_uneven

    @property
    def lost_workers(self) -> tuple[PeerId, ...]:
        """Workers that are gone and whose launcher has not said why yet."""
        return self._core.lost_workers

    def cancel(self, reason: str) -> None:
        """Ask for the end of the job; safe to call from any thread."""
        said = without_credentials(reason)
        self._post(CancelRequested(said, self._clock.monotonic_ns()))

    def savepoint(self, savepoint: Savepoint) -> None:
        """Ask for a copy of the next snapshot; safe to call from any thread."""
        with self._inbox_lock:
            self._inbox.append(savepoint)

    def worker_exited(self, worker: PeerId, reason: str) -> None:
        """Tell that a worker's process is gone; safe to call from any thread."""
        self._post(WorkerExited(worker, without_credentials(reason)))

    def step(self, wait_s: float = 0.0) -> bool:
        """Handle what happened; return whether anything did."""
        wait_s = min(wait_s, _BUSY_WAIT_S) if self.snapshots.is_busy else wait_s
        events = self._network.poll(wait_s)
        for event in events:
            self._handle(event)
        with self._inbox_lock:
            posted, self._inbox = self._inbox, []
        for item in posted:
            if isinstance(item, Savepoint):
                self.snapshots.savepoint(item)
            elif not (
                isinstance(item, CancelRequested) and self.snapshots.is_concluding
            ):
                self._events.put(item)
        self.snapshots.poll()
        now_ns = self._clock.monotonic_ns()
        self._events.put(TimePassed(now_ns))
        self.snapshots.handle(snapshot_events.TimePassed(now_ns))
        self._beat(now_ns)
        self._log()
        return bool(events or posted)

    def close(self) -> None:
        """Close all connections."""
        self._log()
        self.snapshots.close()
        self._network.close()

    def error(self) -> errors.MillstreamError | None:
        """Return the exception to raise for the outcome, if it was not a success."""
        outcome = self._core.outcome
        well = (OutcomeKind.SUCCEEDED, OutcomeKind.STOPPED)
        if outcome is None or outcome.kind in well:
            return None
        if outcome.report is not None and outcome.error == "OperatorError":
            return self.with_story(_operator_error(outcome.report))
        kind: type[errors.MillstreamError] = getattr(errors, outcome.error)
        return self.with_story(kind(outcome.reason))

    def with_story(self, error: errors.MillstreamError) -> errors.MillstreamError:
        """Let an error carry the story of the job, and show the end of it."""
        if not error.story:
            error.story = self.story.lines()
            if not isinstance(error, errors.JobCancelledError):
                error.add_note(self._last_decisions())
        return error

    def _last_decisions(self) -> str:
        """Return the end of the story but for the outcome, which the error says."""
        told = [d for d in self.story.entries() if d.severity < Severity.ERROR]
        lines = [each.line(self.story.began_ns) for each in told[-_NOTED_LINES:]]
        return "\n".join(["What the job did last (error.story has more):", *lines])

    def _log(self) -> None:
        """Log what the cores have decided."""
        for decision in self.story.untold():
            at_s = (decision.at_ns - self.story.began_ns) / 1e9
            words = ("%s at %.3f s: %s", self._deployment.job, at_s, decision.text)
            _LOGS[decision.area].log(decision.severity, *words)

    def _post(self, event: Event) -> None:
        with self._inbox_lock:
            self._inbox.append(event)

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case PeerConnected(peer) if peer in self.given_up:
                self._network.disconnect(peer)
            case PacketArrived(peer, packet) if peer not in self.given_up:
                try:
                    self._hear(peer, packet)
                except RemoteProtocolError as error:
                    self._give_up(peer, f"{senseless(packet)}: {error}")
            case PeerLost(peer, reason):
                self._events.put(WorkerLost(peer, without_credentials(reason)))

    def _hear(self, peer: PeerId, packet: Packet) -> None:
        if packet.kind is not PacketKind.MESSAGE:
            msg = "a worker sends messages to its coordinator, and nothing else"
            raise RemoteProtocolError(msg)
        self._events.put(WorkerHeard(peer, self._clock.monotonic_ns()))
        if self._reports.can_count(peer, packet.body):
            self._handle_message(peer, packet.body)

    def _give_up(self, peer: PeerId, reason: str) -> None:
        """End the connection to a worker that makes no sense; it counts as lost."""
        reason = without_credentials(reason)
        self.given_up[peer] = reason
        self._note(f"worker {self._core.index_of(peer)} is given up: {reason}")
        self._events.put(WorkerLost(peer, reason))
        self._network.disconnect(peer)

    def _note(self, text: str) -> None:
        now_ns = self._clock.monotonic_ns()
        self.story.add(now_ns, "job", text, Severity.WARNING)

    def _handle_message(self, peer: PeerId, message: Message) -> None:
        now_ns = self._clock.monotonic_ns()
        match message:
            case Register(_, host, port, pid):
                self.pids[peer] = pid
                self._events.put(WorkerRegistered(peer, host, port, now_ns))
            case Ready(_, _, size, took_ns):
                self._events.put(WorkerReady(peer, size, took_ns))
            case Progress() if peer in self.members:
                self.tally.take(peer, message)
            case Finished():
                self._events.put(WorkerFinished(peer))
            case Emitted() | Sealed() | Ended() | Compacted():
                self._take_report(message)
            case Failed():
                self._events.put(WorkerFailed(peer, message))
            case LinkLost(_, _, other, reason):
                said = without_credentials(reason)
                self._events.put(LinkBroke(peer, PeerId(other), said, now_ns))

    def _take_report(self, message: Emitted | Sealed | Ended | Compacted) -> None:
        """Take what a worker says of its tasks in the present generation."""
        match message:
            case Emitted(_, _, sink, task, epoch, payload):
                name = self._sink_names[sink]
                self.results.add(ResultPart(name, task, epoch, payload))
            case Sealed():
                self.snapshots.handle(snapshot_events.TaskSealed(message))
            case Ended():
                self.snapshots.handle(snapshot_events.TaskEnded(message))
            case Compacted():
                self.snapshots.compacted(message)

    def _decide(self, event: Event) -> None:
        commands = self._core.handle(event)
        if self._observer is not None:
            self._observer.decided(self._core, event)
        for command in commands:
            self._carry_out(command)
        if self._core.phase in {Phase.STOPPING, Phase.ENDED}:
            self.snapshots.halt()

    def _begin_generation(self, generation: int) -> None:
        """All tasks run: epochs may come."""
        self.tally.forget_others(self.members)
        tasks = self._deployment.tasks()
        now_ns = self._clock.monotonic_ns()
        for recovery in self.recoveries[-1:]:
            if not recovery.restore_ns:
                began_ns = recovery.began_ns + recovery.settle_ns
                recovery.restore_ns = now_ns - began_ns
        ended = self._ended_tasks()
        self.snapshots.handle(snapshot_events.Started(generation, tasks, ended, now_ns))

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendMessage(worker, message):
                self._send(worker, message)
            case StartWorker(worker):
                self.wanted_workers.append(worker)
            case Interrupt(reason, is_damaged):
                now_ns = self._clock.monotonic_ns()
                self.recoveries.append(Recovery(reason, now_ns))
                self.snapshots.handle(snapshot_events.Interrupted(is_damaged))
            case BeginGeneration(generation):
                self._begin_generation(generation)
            case RequestPause():
                self.snapshots.handle(snapshot_events.PauseRequested())

    def _carry_out_snapshot(  # noqa: C901 - one arm per command
        self, command: snapshot_events.Command | MergeFiles
    ) -> None:
        generation = self.snapshots.generation
        match command:
            case snapshot_events.Inject(barrier):
                self._send_all(OpenEpoch(generation, barrier.to_wire()))
            case snapshot_events.Announce(epoch, has_moved):
                self._events.put(EpochCompleted(has_moved))
                if self._core.phase in {Phase.RUNNING, Phase.COMMITTING}:
                    # Otherwise its tasks are gone, and the next ones not there yet.
                    self._send_all(CompleteEpoch(generation, epoch))
            case snapshot_events.Resume(epoch):
                self._send_all(Resume(generation, epoch))
            case MergeFiles(snapshot, stages):
                self._send_all(Compact(generation, snapshot, stages))
            case snapshot_events.Paused():
                self._events.put(PauseReached(self.snapshots.manifests.snapshot))
            case snapshot_events.Settled(epoch):
                self._go_back(epoch)
            case snapshot_events.Stopped(epoch):
                self._events.put(StopReached(epoch))
            case snapshot_events.Concluded():
                self._events.put(Committed())
            case snapshot_events.GiveUp(reason, error):
                self._events.put(GivenUp(reason, error))

    def _go_back(self, epoch: int) -> None:
        self.results.go_back(epoch)
        recovery = self.recoveries[-1]
        recovery.epoch = epoch
        recovery.settle_ns = self._clock.monotonic_ns() - recovery.began_ns
        self._events.put(Settled(self.snapshots.manifests.snapshot))

    def _ended_tasks(self) -> frozenset[tuple[int, int]]:
        manifest = self.snapshots.manifests.manifest
        if manifest is None:
            return frozenset()
        return beginning_of(manifest, self._deployment).ended

    def _send_all(self, message: Message) -> None:
        for worker in self._core.members:
            self._send(worker, message)

    def _beat(self, now_ns: int) -> None:
        if now_ns - self._beat_ns >= self._config.heartbeat_ms * 1_000_000:
            self._beat_ns = now_ns
            for worker in self._core.members:
                self._send(worker, Heartbeat(0))

    def _send(self, worker: PeerId, message: Message) -> None:
        generation = Generation(self._core.generation)
        packet = Packet(PacketKind.MESSAGE, generation, _NO_CHANNEL, 0, message)
        self._network.send(worker, packet)


def _operator_error(report: Failed) -> errors.OperatorError:
    """Rebuild a user's failure with the original exception as its cause."""
    error = errors.OperatorError(
        report.text,
        operator=report.operator,
        location=report.location,
        position=report.position,
        details=report.details,
    )
    if report.cause:
        try:
            cause = pickle.loads(report.cause)  # noqa: S301 - authenticated
            if not isinstance(cause, BaseException):
                cause = RuntimeError(report.details)
            error.__cause__ = cause
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a class the driver cannot import
            error.__cause__ = RuntimeError(report.details)
    return error
