"""The life of a job as its coordinator sees it.

This module decides when workers are deployed, started, stopped and released, and how
the job ends.  It does not know how a message reaches a worker, how a worker is
started, or what time it is: times arrive inside events.

Theory of operation
-------------------
::

    GATHERING  --all registered-->  CONNECTING  --all ready-->  RUNNING
        |                               |                          |
        +------- failure, loss, cancellation, timeout -------------+
        |                                                          |
        v                                                   all finished
    STOPPING  <------------------- committed -------------- COMMITTING
        |
        +--everybody gone, or grace over-->  ENDED

STOPPING follows success as well: workers are released and must disconnect, so that an
ended job has left nothing behind.

A broken link between two workers is not yet a verdict: mostly one of them is dead and
its own loss arrives a moment later, with a better reason.  The link is therefore held
against its far end for `_SUSPECT_NS` before it fails the job.

Likewise a lost connection to a worker says only that it is gone; the launcher mostly
knows why, and says so a moment later (`WorkerExited`).  The loss is therefore held for
`_EXIT_REASON_NS`, and the job fails with the launcher's reason if that comes, with the
connection's otherwise.  `lost_workers` names the workers about whom it waits.

Invariants (see `JobCore.validate`)
-----------------------------------
1. A job has an outcome exactly when it is STOPPING or ENDED.
2. Only registered workers are ready, and only ready workers are finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from millstream.protocol.messages import Deploy, Member, Release, Start, Stop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Failed, Message

__all__ = [
    "CancelRequested",
    "Command",
    "CommitFailed",
    "CommitOutput",
    "Committed",
    "EndJob",
    "Event",
    "JobCore",
    "LinkBroke",
    "Outcome",
    "OutcomeKind",
    "Phase",
    "SendMessage",
    "TimePassed",
    "WorkerExited",
    "WorkerFailed",
    "WorkerFinished",
    "WorkerHeard",
    "WorkerLost",
    "WorkerReady",
    "WorkerRegistered",
]

_SUSPECT_NS = 1_000_000_000
_EXIT_REASON_NS = 500_000_000
_GENERATION = 1


class Phase(Enum):
    """Where a job stands."""

    GATHERING = auto()
    CONNECTING = auto()
    RUNNING = auto()
    COMMITTING = auto()
    STOPPING = auto()
    ENDED = auto()


class OutcomeKind(Enum):
    """How a job ended."""

    SUCCEEDED = auto()
    FAILED = auto()
    CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended and why.

    `error` is the name of a class of `millstream.errors`; `report` is what a worker
    said about a failure of its own.
    """

    kind: OutcomeKind
    error: str = ""
    reason: str = ""
    report: Failed | None = None


# Events: what happened.


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """A worker started and can be reached."""

    worker: PeerId
    host: str
    port: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker is connected to all others."""

    worker: PeerId


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    """A sign of life came from a worker."""

    worker: PeerId
    now_ns: int


@dataclass(frozen=True, slots=True)
class WorkerFinished:
    """All tasks of a worker have ended."""

    worker: PeerId


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker reported a failure."""

    worker: PeerId
    report: Failed


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The connection to a worker is gone."""

    worker: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The launcher says that a worker is not running any more."""

    worker: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class LinkBroke:
    """A worker lost its connection to another one."""

    worker: PeerId
    peer: PeerId
    reason: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants the job to end now."""

    reason: str
    now_ns: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The output of the job is visible."""


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The output of the job could not be made visible."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `now_ns`."""

    now_ns: int


Event = (
    WorkerRegistered
    | WorkerReady
    | WorkerHeard
    | WorkerFinished
    | WorkerFailed
    | WorkerLost
    | WorkerExited
    | LinkBroke
    | CancelRequested
    | Committed
    | CommitFailed
    | TimePassed
)


# Commands: what the caller must do, in order.


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send the message to the worker."""

    worker: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class CommitOutput:
    """Make the output visible, then report `Committed` or `CommitFailed`."""


@dataclass(frozen=True, slots=True)
class EndJob:
    """Nothing is left of the job; tell whoever waits for it."""

    outcome: Outcome


Command = SendMessage | CommitOutput | EndJob


@dataclass(slots=True)
class _Member:
    index: int
    host: str
    port: int
    heard_ns: int
    is_ready: bool = False
    is_finished: bool = False
    is_gone: bool = False


class JobCore:
    """Decide over the life of one job.

    Parameters
    ----------
    workers
        Ids of the workers that were asked for.
    now_ns, launch_ns, lease_ns, grace_ns
        The time now, and how long workers may take to come, be silent, and leave.
    """

    def __init__(
        self,
        workers: Iterable[PeerId],
        *,
        now_ns: int,
        launch_ns: int,
        lease_ns: int,
        grace_ns: int,
    ) -> None:
        self.phase = Phase.GATHERING
        self.outcome: Outcome | None = None
        self._expected = tuple(workers)
        self._members: dict[PeerId, _Member] = {}
        self._exited: dict[PeerId, str] = {}
        self._suspects: dict[PeerId, tuple[int, str]] = {}
        self._losses: dict[PeerId, tuple[int, str]] = {}
        self._now_ns = now_ns
        self._launch_deadline_ns = now_ns + launch_ns
        self._launch_ns = launch_ns
        self._lease_ns = lease_ns
        self._grace_ns = grace_ns
        self._stop_deadline_ns = 0
        assert self._expected, "a job needs a worker"

    @property
    def lost_workers(self) -> tuple[PeerId, ...]:
        """Workers that are gone for a reason which the launcher may still give."""
        return () if self.outcome is not None else tuple(self._losses)

    def handle(self, event: Event) -> list[Command]:  # noqa: C901, PLR0911, PLR0912 - one arm per event
        """Take one event and return the commands to carry out, in order."""
        if self.phase is Phase.ENDED:
            return []
        match event:
            case WorkerRegistered():
                return self._handle_registered(event)
            case WorkerReady(worker):
                return self._handle_ready(worker)
            case WorkerHeard(worker, now_ns):
                if worker in self._members:
                    self._members[worker].heard_ns = now_ns
                return []
            case WorkerFinished(worker):
                return self._handle_finished(worker)
            case WorkerFailed(_, report):
                return self._fail(report.kind, report.text, report)
            case WorkerLost(worker, reason):
                return self._handle_lost(worker, reason)
            case WorkerExited(worker, reason):
                return self._handle_exited(worker, reason)
            case LinkBroke():
                return self._handle_link(event)
            case CancelRequested(reason, now_ns):
                self._now_ns = now_ns
                return self._stop(
                    Outcome(OutcomeKind.CANCELLED, "JobCancelledError", reason)
                )
            case Committed():
                return self._handle_committed()
            case CommitFailed(reason):
                return self._fail("OperationalError", reason)
            case TimePassed(now_ns):
                return self._handle_time(now_ns)
        assert_never(event)

    def validate(self) -> None:
        """Assert the invariants in the module docstring; called by every test."""
        has_outcome = self.outcome is not None
        assert has_outcome == (self.phase in {Phase.STOPPING, Phase.ENDED})
        for member in self._members.values():
            assert member.is_ready or not member.is_finished
        if self.phase in {Phase.CONNECTING, Phase.RUNNING, Phase.COMMITTING}:
            assert len(self._members) == len(self._expected)

    def _handle_registered(self, event: WorkerRegistered) -> list[Command]:
        if event.worker not in self._expected or event.worker in self._members:
            return [SendMessage(event.worker, Stop("this worker is not expected"))]
        self._members[event.worker] = _Member(
            len(self._members), event.host, event.port, event.now_ns
        )
        if self.phase is Phase.STOPPING:
            return [self._farewell(event.worker)]
        if len(self._members) < len(self._expected):
            return []
        assert self.phase is Phase.GATHERING
        self.phase = Phase.CONNECTING
        members: tuple[Member, ...] = tuple(
            (member.index, worker, member.host, member.port)
            for worker, member in self._members.items()
        )
        return self._to_all(Deploy(_GENERATION, members))

    def _handle_ready(self, worker: PeerId) -> list[Command]:
        if self.phase is not Phase.CONNECTING or worker not in self._members:
            return []
        self._members[worker].is_ready = True
        if not all(member.is_ready for member in self._members.values()):
            return []
        self.phase = Phase.RUNNING
        return self._to_all(Start(_GENERATION))

    def _handle_finished(self, worker: PeerId) -> list[Command]:
        if self.phase is not Phase.RUNNING or worker not in self._members:
            return []
        self._members[worker].is_finished = True
        if not all(member.is_finished for member in self._members.values()):
            return []
        self.phase = Phase.COMMITTING
        self._losses.clear()
        return [CommitOutput()]

    def _handle_committed(self) -> list[Command]:
        if self.phase is not Phase.COMMITTING:
            return []
        return self._stop(Outcome(OutcomeKind.SUCCEEDED))

    def _handle_lost(self, worker: PeerId, reason: str) -> list[Command]:
        member = self._members.get(worker)
        if member is None:
            return []
        member.is_gone = True
        if self.phase is Phase.STOPPING:
            return self._end_if_everybody_left()
        if self.phase is not Phase.COMMITTING:
            deadline_ns = self._now_ns + _EXIT_REASON_NS
            self._losses.setdefault(worker, (deadline_ns, reason))
        return []

    def _handle_exited(self, worker: PeerId, reason: str) -> list[Command]:
        self._exited[worker] = reason
        member = self._members.get(worker)
        if member is not None:
            member.is_gone = True
        if self.phase is Phase.STOPPING:
            return self._end_if_everybody_left()
        if self.phase is Phase.COMMITTING:
            return []
        if member is None:
            return self._fail("LaunchError", f"a worker could not start: {reason}")
        return self._fail("WorkerLostError", self._loss(worker, reason))

    def _handle_link(self, event: LinkBroke) -> list[Command]:
        if self.phase in {Phase.CONNECTING, Phase.RUNNING}:
            text = (
                f"the connection from worker {self._index(event.worker)} to worker "
                f"{self._index(event.peer)} broke: {event.reason}"
            )
            self._suspects.setdefault(event.peer, (event.now_ns + _SUSPECT_NS, text))
        return []

    def _handle_time(self, now_ns: int) -> list[Command]:
        self._now_ns = now_ns
        if self.phase is Phase.STOPPING:
            return self._end_if_everybody_left()
        if self.phase in {Phase.GATHERING, Phase.CONNECTING} and (
            now_ns > self._launch_deadline_ns
        ):
            return self._fail("LaunchError", self._late())
        return self._handle_absence(now_ns)

    def _handle_absence(self, now_ns: int) -> list[Command]:
        """Fail the job for a worker that is lost, cut off or silent for too long."""
        for worker, (deadline_ns, reason) in self._losses.items():
            if now_ns > deadline_ns:
                return self._fail("WorkerLostError", self._loss(worker, reason))
        for worker, (deadline_ns, text) in self._suspects.items():
            if now_ns > deadline_ns and worker not in self._losses:
                return self._fail("TransportError", text)
        for worker, member in self._members.items():
            silent_ns = now_ns - member.heard_ns
            if silent_ns > self._lease_ns and worker not in self._losses:
                reason = f"it was silent for {silent_ns / 1e9:.1f} s"
                return self._fail("WorkerLostError", self._loss(worker, reason))
        return []

    def _late(self) -> str:
        count, wanted = len(self._members), len(self._expected)
        seconds = self._launch_ns / 1e9
        if self.phase is Phase.CONNECTING:
            ready = sum(member.is_ready for member in self._members.values())
            return (
                f"only {ready} of {wanted} workers reached all others within "
                f"{seconds:g} s; check that the executors' hosts can connect to each "
                "other"
            )
        return (
            f"only {count} of {wanted} workers registered within {seconds:g} s; free "
            f"{wanted - count} more task slots in Spark, ask for fewer workers, or raise "
            "the setting 'launch_timeout_ms'"
        )

    def _loss(self, worker: PeerId, reason: str) -> str:
        return (
            f"worker {self._index(worker)} was lost: {reason}; the job stopped because "
            "it keeps no snapshots to go on from"
        )

    def _fail(
        self, error: str, reason: str, report: Failed | None = None
    ) -> list[Command]:
        return self._stop(Outcome(OutcomeKind.FAILED, error, reason, report))

    def _stop(self, outcome: Outcome) -> list[Command]:
        """Fix the outcome; the first one counts."""
        if self.outcome is not None:
            return []
        self.outcome = outcome
        self.phase = Phase.STOPPING
        self._stop_deadline_ns = self._now_ns + self._grace_ns
        commands: list[Command] = [
            self._farewell(worker)
            for worker, member in self._members.items()
            if not member.is_gone
        ]
        return commands + self._end_if_everybody_left()

    def _farewell(self, worker: PeerId) -> Command:
        assert self.outcome is not None
        if self.outcome.kind is OutcomeKind.SUCCEEDED:
            return SendMessage(worker, Release())
        return SendMessage(worker, Stop(self.outcome.reason))

    def _end_if_everybody_left(self) -> list[Command]:
        assert self.outcome is not None
        is_everybody_gone = all(
            worker in self._exited
            or (worker in self._members and self._members[worker].is_gone)
            for worker in self._expected
        )
        if not is_everybody_gone and self._now_ns < self._stop_deadline_ns:
            return []
        self.phase = Phase.ENDED
        return [EndJob(self.outcome)]

    def _to_all(self, message: Message) -> list[Command]:
        return [SendMessage(worker, message) for worker in self._members]

    def _index(self, worker: PeerId) -> int:
        return self._members[worker].index if worker in self._members else worker - 1
