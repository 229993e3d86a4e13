"""Every exception Millstream raises on purpose.

The hierarchy::

    MillstreamError
    ├── UsageError              the program is wrong; raised while it is being built
    ├── OperatorError           a user function raised; ``__cause__`` is its exception
    ├── OperationalError        the world misbehaved
    │   ├── LaunchError         workers could not be started
    │   ├── TransportError      a connection broke, or could not be made
    │   ├── WorkerLostError     a worker died or went silent
    │   ├── SnapshotError       stored state is damaged, foreign or out of reach
    │   │   └── SnapshotDamagedError  a stored file is not what was written
    │   └── JobCancelledError   somebody cancelled the job
    ├── InternalError           Millstream itself failed (a bug here)
    └── ProtocolError           somebody broke the protocol
        ├── LocalProtocolError  our own shell drove a core wrongly (a bug here)
        └── RemoteProtocolError a peer sent what it may not send

Every error has a stable ``code``; ``docs/reference/errors.md`` explains each one.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "InternalError",
    "JobCancelledError",
    "LaunchError",
    "LocalProtocolError",
    "LostChangesWarning",
    "MillstreamError",
    "OperationalError",
    "OperatorError",
    "ProtocolError",
    "RemoteProtocolError",
    "SnapshotDamagedError",
    "SnapshotError",
    "TransportError",
    "UnboundedStateWarning",
    "UsageError",
    "WorkerLostError",
]


class MillstreamError(Exception):
    """Base class of every error Millstream raises on purpose.

    Attributes
    ----------
    story
        What the job that failed had decided, one line each, oldest first; empty where
        no job ran.
    """

    code: ClassVar[str] = "millstream"
    story: tuple[str, ...] = ()


class UsageError(MillstreamError):
    """The flow or the way it was started is wrong; nothing has run."""

    code = "usage"


class OperatorError(MillstreamError):
    """A user function raised; the original exception is ``__cause__``.

    Attributes
    ----------
    operator
        Name of the operator whose function raised.
    location
        Where the operator was written, as ``file.py:line``.
    position
        Which record it was: source split and offset, or task and row number.
    details
        The traceback on the worker, as text.
    """

    code = "operator"

    def __init__(
        self,
        message: str,
        *,
        operator: str = "",
        location: str = "",
        position: str = "",
        details: str = "",
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.location = location
        self.position = position
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Carry the keyword attributes through pickle."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class LostChangesWarning(UserWarning):
    """A function changes something that every worker has a copy of."""


class UnboundedStateWarning(UserWarning):
    """What an operator keeps grows for as long as the job runs."""


class OperationalError(MillstreamError):
    """Something outside the flow failed."""

    code = "operational"


class LaunchError(OperationalError):
    """The workers could not be started."""

    code = "launch"


class TransportError(OperationalError):
    """A connection broke, or could not be made."""

    code = "transport"


class WorkerLostError(OperationalError):
    """A worker died or stopped answering."""

    code = "worker_lost"


class SnapshotError(OperationalError):
    """Stored state is damaged, belongs to somebody else, or cannot be reached."""

    code = "snapshot"


class SnapshotDamagedError(SnapshotError):
    """A file of a snapshot is gone, or is not what was written."""

    code = "snapshot.damaged"


class JobCancelledError(OperationalError):
    """The job was cancelled before its input ended."""

    code = "cancelled"


class InternalError(MillstreamError):
    """Millstream failed in a way that it does not know; ``__cause__`` says where."""

    code = "internal"


class ProtocolError(MillstreamError):
    """A participant broke the protocol."""

    code = "protocol"


class LocalProtocolError(ProtocolError):
    """The code around a protocol core called it in a way it forbids."""

    code = "protocol.local"


class RemoteProtocolError(ProtocolError):
    """A peer sent something that it may not send in the present state.

    Attributes
    ----------
    channel
        The channel that it came on, where its reader found it out.
    """

    code = "protocol.remote"
    channel: int | None = None


def _rebuild(
    kind: type[MillstreamError], args: tuple[Any, ...], state: dict[str, Any]
) -> MillstreamError:
    error = kind(*args)
    error.__dict__.update(state)
    return error
