"""The coordinator: the shell around `JobCore`, moved forward by `step`.

It runs in the driver, turns network events into events of the core, carries out the
core's commands, and keeps what the workers send: progress and results.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream import errors
from millstream.ports import FrameArrived, PeerLost
from millstream.protocol.frames import Frame, FrameKind
from millstream.protocol.ids import ChannelId, Generation, PeerId
from millstream.protocol.job import (
    CancelRequested,
    Command,
    CommitFailed,
    CommitOutput,
    Committed,
    EndJob,
    Event,
    JobCore,
    LinkBroke,
    OutcomeKind,
    Phase,
    SendMessage,
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
    Emitted,
    Failed,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    Progress,
    Ready,
    Register,
    StageProgress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.config import Config
    from millstream.ports import Clock, Network, NetworkEvent
    from millstream.protocol.job import Outcome

__all__ = ["Coordinator", "Results"]

_NO_CHANNEL = ChannelId(0)
_GENERATION = Generation(1)


@dataclass(slots=True)
class Results:
    """Rows that sinks sent to the driver, in the order of tasks."""

    _parts: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)

    def add(self, message: Emitted) -> None:
        """Keep a part; parts of one task arrive in order."""
        parts = self._parts.setdefault((message.sink, message.task), [])
        assert message.sequence == len(parts), "results of a task arrive in order"
        parts.append(message.payload)

    def rows(self, sink: int) -> list[Any]:
        """Return all rows of a sink."""
        rows: list[Any] = []
        for key in sorted(key for key in self._parts if key[0] == sink):
            for payload in self._parts[key]:
                rows += pickle.loads(payload)  # noqa: S301 - from an authenticated worker
        return rows


class Coordinator:
    """Leads one job from the first registration to the last good-bye.

    Parameters
    ----------
    commit
        Makes the output of the sinks visible; called once, when all tasks ended.
    """

    def __init__(
        self,
        workers: Iterable[PeerId],
        network: Network,
        clock: Clock,
        config: Config,
        commit: Callable[[], None],
    ) -> None:
        self.results = Results()
        #: Latest progress of every worker, by worker and stage.
        self.progress: dict[PeerId, tuple[StageProgress, ...]] = {}
        #: Process ids of registered workers, for people and for tests that kill.
        self.pids: dict[PeerId, int] = {}
        self._network = network
        self._clock = clock
        self._config = config
        self._commit = commit
        self._workers = tuple(workers)
        self._inbox: list[Event] = []
        self._inbox_lock = threading.Lock()
        now_ns = clock.monotonic_ns()
        self._beat_ns = now_ns
        self._core = JobCore(
            self._workers,
            now_ns=now_ns,
            launch_ns=config.launch_timeout_ms * 1_000_000,
            lease_ns=config.lease_ms * 1_000_000,
            grace_ns=config.stop_grace_ms * 1_000_000,
        )

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
    def lost_workers(self) -> tuple[PeerId, ...]:
        """Workers that are gone and whose launcher has not said why yet."""
        return self._core.lost_workers

    def cancel(self, reason: str) -> None:
        """Ask for the end of the job; safe to call from any thread."""
        self._post(CancelRequested(reason, self._clock.monotonic_ns()))

    def worker_exited(self, worker: PeerId, reason: str) -> None:
        """Tell that a worker's process is gone; safe to call from any thread."""
        self._post(WorkerExited(worker, reason))

    def step(self, wait_s: float = 0.0) -> bool:
        """Handle what happened; return whether anything did."""
        events = self._network.poll(wait_s)
        for event in events:
            self._handle(event)
        with self._inbox_lock:
            posted, self._inbox = self._inbox, []
        for item in posted:
            self._decide(item)
        now_ns = self._clock.monotonic_ns()
        self._decide(TimePassed(now_ns))
        self._beat(now_ns)
        return bool(events or posted)

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

    def error(self) -> errors.MillstreamError | None:
        """Return the exception to raise for the outcome, if it was not a success."""
        outcome = self._core.outcome
        if outcome is None or outcome.kind is OutcomeKind.SUCCEEDED:
            return None
        if outcome.report is not None and outcome.error == "OperatorError":
            return _operator_error(outcome.report)
        kind: type[errors.MillstreamError] = getattr(errors, outcome.error)
        return kind(outcome.reason)

    def _post(self, event: Event) -> None:
        with self._inbox_lock:
            self._inbox.append(event)

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case FrameArrived(peer, frame) if frame.kind is FrameKind.MESSAGE:
                self._decide(WorkerHeard(peer, self._clock.monotonic_ns()))
                self._handle_message(peer, frame.body)
            case PeerLost(peer, reason):
                self._decide(WorkerLost(peer, reason))

    def _handle_message(self, peer: PeerId, message: Message) -> None:
        now_ns = self._clock.monotonic_ns()
        match message:
            case Register(_, host, port, pid):
                self.pids[peer] = pid
                self._decide(WorkerRegistered(peer, host, port, now_ns))
            case Ready():
                self._decide(WorkerReady(peer))
            case Progress(_, _, stages):
                self.progress[peer] = stages
            case Emitted():
                self.results.add(message)
            case Finished():
                self._decide(WorkerFinished(peer))
            case Failed():
                self._decide(WorkerFailed(peer, message))
            case LinkLost(_, _, other, reason):
                self._decide(LinkBroke(peer, PeerId(other), reason, now_ns))

    def _decide(self, event: Event) -> None:
        for command in self._core.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendMessage(worker, message):
                self._send(worker, message)
            case CommitOutput():
                self._carry_out_commit()
            case EndJob():
                pass

    def _carry_out_commit(self) -> None:
        try:
            self._commit()
        except Exception as error:  # noqa: BLE001 - a user's sink may raise anything
            reason = (
                f"the output could not be committed: {type(error).__name__}: {error}"
            )
            self._decide(CommitFailed(reason))
        else:
            self._decide(Committed())

    def _beat(self, now_ns: int) -> None:
        if now_ns - self._beat_ns >= self._config.heartbeat_ms * 1_000_000:
            self._beat_ns = now_ns
            for worker in self.pids:
                self._send(worker, Heartbeat(0))

    def _send(self, worker: PeerId, message: Message) -> None:
        frame = Frame(FrameKind.MESSAGE, _GENERATION, _NO_CHANNEL, 0, message)
        self._network.send(worker, frame)


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
            error.__cause__ = pickle.loads(report.cause)  # noqa: S301 - authenticated
        except Exception:  # noqa: BLE001 - a class the driver cannot import
            error.__cause__ = RuntimeError(report.details)
    return error
