"""What happens to a job, and what its core wants done about it.

Plain data; `millstream.protocol.job` decides with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Failed, Message, SnapshotId

__all__ = [
    "BeginGeneration",
    "CancelRequested",
    "Command",
    "Committed",
    "EpochCompleted",
    "Event",
    "GivenUp",
    "Interrupt",
    "LinkBroke",
    "Outcome",
    "OutcomeKind",
    "PauseReached",
    "RequestPause",
    "SendMessage",
    "Settled",
    "StartWorker",
    "TimePassed",
    "WorkerExited",
    "WorkerFailed",
    "WorkerFinished",
    "WorkerHeard",
    "WorkerLost",
    "WorkerReady",
    "WorkerRegistered",
]


class OutcomeKind(Enum):
    """How a job ended."""

    SUCCEEDED = auto()
    FAILED = auto()
    CANCELLED = auto()
    STOPPED = auto()


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
    """A worker is connected to all others, and its tasks are restored."""

    worker: PeerId
    restored_bytes: int = 0
    restore_ns: int = 0


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
class GivenUp:
    """The output could not be made visible, or no snapshot can be gone on from.

    `error` is the name of a class of `millstream.errors`.
    """

    reason: str
    error: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The snapshot to go back to is known."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class PauseReached:
    """All tasks stand still behind the cut that this snapshot holds."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class StopReached:
    """Somebody wanted the job to end behind this epoch, which is complete."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochCompleted:
    """A snapshot is complete; `has_moved` if sources have read on, or have nothing left."""

    has_moved: bool


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
    | GivenUp
    | Settled
    | PauseReached
    | StopReached
    | EpochCompleted
    | TimePassed
)


# Commands: what the caller must do, in order.


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send the message to the worker."""

    worker: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class BeginGeneration:
    """All tasks of a generation run: take snapshots of them from now on."""

    generation: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Nothing of the present generation counts any more; answer with `Settled`.

    `is_damaged` if the snapshot cannot be restored: answer with an older one.
    """

    reason: str
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class RequestPause:
    """Let all tasks stand still at the next cut, then say `PauseReached`."""


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker with this id."""

    worker: PeerId


Command = SendMessage | BeginGeneration | Interrupt | RequestPause | StartWorker
