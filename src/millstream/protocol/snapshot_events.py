"""What happens to the snapshots of a job, and what their core wants done about it.

Plain data; `millstream.protocol.snapshots` decides with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Epoch
    from millstream.protocol.messages import Ended, Sealed

__all__ = [
    "Announce",
    "Command",
    "Commit",
    "CommitFailed",
    "Committed",
    "Concluded",
    "Event",
    "FallBack",
    "FellBack",
    "GiveUp",
    "Inject",
    "Interrupted",
    "Notification",
    "PauseRequested",
    "Paused",
    "Resume",
    "Settled",
    "SnapshotRequested",
    "Started",
    "Store",
    "StoreFailed",
    "Stored",
    "TaskEnded",
    "TaskId",
    "TaskSealed",
    "TimePassed",
]

TaskId = tuple[int, int]
"""Stage and index of a task."""


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Started:
    """All workers of a generation run; `ended` are tasks that have nothing to do."""

    generation: int
    tasks: frozenset[TaskId]
    ended: frozenset[TaskId]
    now_ns: int


@dataclass(frozen=True, slots=True)
class TaskSealed:
    """What a task captured is stored, or could not be."""

    report: Sealed


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task has sent everything it will ever send."""

    report: Ended


@dataclass(frozen=True, slots=True)
class Stored:
    """The manifest of the epoch is durable."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The manifest could not be written."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The sinks have made the epoch visible."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A sink could not make the epoch visible."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """Somebody wants a snapshot now that holds everything, also what sinks hold back."""


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Everything is to stand still at the next cut."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the job to stop behind an epoch; answer with `Stopped`."""


@dataclass(frozen=True, slots=True)
class StopFailed:
    """The job must go on: what was wanted of the epoch behind which it stands failed."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The generation is over: somebody is lost or has failed.

    `is_damaged` if a worker could not restore the epoch, because of damaged files.
    """

    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class FellBack:
    """Everything newer than the epoch is damaged and counts no more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `now_ns`."""

    now_ns: int


Event = (
    Started
    | TaskSealed
    | TaskEnded
    | Stored
    | StoreFailed
    | Committed
    | CommitFailed
    | SnapshotRequested
    | PauseRequested
    | StopRequested
    | StopFailed
    | Interrupted
    | FellBack
    | TimePassed
)


# Commands: what the caller must do, in order.


@dataclass(frozen=True, slots=True)
class Inject:
    """Announce the epoch to every worker."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Store:
    """Write the manifest, then report `Stored` or `StoreFailed`.

    Attributes
    ----------
    sealed
        What tasks sealed after the last complete epoch, in order; only those of this
        epoch count for state, all of them for transactions.
    ended
        Tasks that ended since the last complete epoch, likewise.
    """

    epoch: Epoch
    since: Epoch
    sealed: tuple[Sealed, ...]
    ended: tuple[Ended, ...]
    ended_tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True)
class Commit:
    """Let the sinks commit the epoch, then report `Committed` or `CommitFailed`."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell every worker that the epoch is complete.

    `has_moved` if sources have read on since the one before, or have nothing left to read.
    """

    epoch: Epoch
    has_moved: bool


@dataclass(frozen=True, slots=True)
class Resume:
    """Tell every worker to go on after the pause at this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FallBack:
    """Find the newest epoch that is whole, then report `FellBack`."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The output cannot be committed, or no epoch restored; the job must fail.

    `error` is the name of a class of `millstream.errors`.
    """

    reason: str
    error: str = "OperationalError"


# Notifications: what the core has found, for those whom it concerns.


@dataclass(frozen=True, slots=True)
class Paused:
    """Everything stands still at this epoch, which is complete and committed."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job stands still behind this epoch, and no other one will be opened."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer to `Interrupted`: go back to this epoch; 0 is the beginning."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Concluded:
    """Every task has ended and the last epoch is committed."""

    epoch: Epoch


Notification = Paused | Stopped | Settled | Concluded

Command = Inject | Store | Commit | Announce | Resume | FallBack | GiveUp | Notification
