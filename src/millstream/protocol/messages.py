"""The control messages between workers and their coordinator.

Each is plain data made of numbers, text, bytes, lists and maps, so that any codec
can carry it; `to_wire` and `from_wire` say in which order the fields go, also of what is
inside of them.  Nothing
here is ever pickled by the engine: where user objects must cross (a result, an
exception), the sender has already turned them into bytes.  What comes from a peer
counts as a message only if every field has its declared type.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import get_type_hints

from millstream.errors import RemoteProtocolError
from millstream.protocol.barrier import barrier_from_wire
from millstream.protocol.metrics import TaskMetrics  # noqa: TC001 - hints are read
from millstream.protocol.shapes import checker, maker, unmaker

__all__ = [
    "FROM_COORDINATOR",
    "FROM_WORKERS",
    "KINDS",
    "BarrierForm",
    "Compact",
    "Compacted",
    "CompleteEpoch",
    "Deploy",
    "Emitted",
    "Ended",
    "Failed",
    "Finished",
    "Heartbeat",
    "LinkLost",
    "Member",
    "Message",
    "Offset",
    "OpenEpoch",
    "Progress",
    "Ready",
    "Register",
    "Release",
    "Resume",
    "Sealed",
    "SnapshotId",
    "Start",
    "Stop",
    "StoredFile",
    "from_wire",
    "to_wire",
]

BarrierForm = tuple[int, int, tuple[str, ...]]
"""Epoch, the epoch that deltas build on, and orders; see `protocol.barrier`."""

Member = tuple[int, str, int]
"""Worker id, host and data port of one member of a generation."""

Offset = tuple[str, str, int, bool]
"""Operator, split, where to go on in it, and whether it has been read to its end."""

SnapshotId = tuple[int, int]
"""Claim and epoch of a stored snapshot; (0, 0) is the beginning of the job."""

StoredFile = tuple[str, int, str, tuple[str, ...]]
"""Name, length and SHA-256 of a state file, and the operators it is about."""


# From a worker to the coordinator.


@dataclass(frozen=True, slots=True)
class Register:
    """A worker started and accepts peers at `host`:`port`."""

    worker: int
    host: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Every peer of the generation is connected, and the tasks are restored.

    `restored_bytes` of state files were read for that, in `restore_ns`.
    """

    worker: int
    generation: int
    restored_bytes: int = 0
    restore_ns: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is alive; goes both ways."""

    worker: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What the worker's tasks have done in this generation, and how they stand.

    `resident_bytes` is the memory that its process has; 0 where nobody knows.
    """

    worker: int
    generation: int
    tasks: tuple[TaskMetrics, ...]
    resident_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Emitted:
    """Rows of a sink whose result the driver keeps, encoded by the worker.

    `epoch` is the last one that the task had cut before.
    """

    worker: int
    generation: int
    sink: int
    task: int
    epoch: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """All tasks of the worker have ended and everything they sent has left."""

    worker: int
    generation: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A user function or the worker itself failed.

    `kind` is the name of an error class of `millstream.errors`; `cause` is the
    original exception pickled, or empty where it could not be.
    """

    worker: int
    generation: int
    kind: str
    text: str
    operator: str
    location: str
    position: str
    details: str
    cause: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a task captured at a cut is durable; or it is not, and `problem` says why.

    `transactions` pairs the name of a sink with what its writer sealed, encoded.
    """

    worker: int
    generation: int
    epoch: int
    stage: int
    task: int
    file: StoredFile | None
    offsets: tuple[Offset, ...]
    transactions: tuple[tuple[str, bytes], ...]
    pause_ns: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A task has ended; `epoch` is the last one that it cut.

    Follows the `Sealed` of everything that the task cut.  `nodes_left` is how many of its
    operators, from the first on, ended because nobody read what they made.
    """

    worker: int
    generation: int
    epoch: int
    stage: int
    task: int
    offsets: tuple[Offset, ...]
    transactions: tuple[tuple[str, bytes], ...]
    nodes_left: int = 0


@dataclass(frozen=True, slots=True)
class Compacted:
    """The files of a task up to `epoch` are merged into one, or `problem` says why not."""

    worker: int
    generation: int
    epoch: int
    stage: int
    task: int
    file: StoredFile | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The connection to another worker broke; that worker may be dead or not."""

    worker: int
    generation: int
    peer: int
    reason: str


# From the coordinator to a worker.


@dataclass(frozen=True, slots=True)
class Deploy:
    """Make the tasks of this generation, restore them and connect to its members.

    `placement` has the id of the worker that hosts each task index.
    """

    generation: int
    members: tuple[Member, ...]
    placement: tuple[int, ...]
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Start:
    """Everybody is ready: read the sources."""

    generation: int


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """An epoch is open; `barrier` is one in its wire form."""

    generation: int
    barrier: BarrierForm


@dataclass(frozen=True, slots=True)
class CompleteEpoch:
    """An epoch is complete: no delta will be asked for since an earlier one."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after the pause at this epoch."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Merge the state files of these stages, as the snapshot lists them."""

    generation: int
    snapshot: SnapshotId
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Give up all work at once and leave."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """The job is complete; leave."""


Message = (
    Register
    | Ready
    | Heartbeat
    | Progress
    | Emitted
    | Finished
    | Failed
    | Sealed
    | Ended
    | Compacted
    | LinkLost
    | Deploy
    | Start
    | OpenEpoch
    | CompleteEpoch
    | Resume
    | Compact
    | Stop
    | Release
)

KINDS: tuple[type[Message], ...] = (
    Register,
    Ready,
    Heartbeat,
    Progress,
    Emitted,
    Finished,
    Failed,
    Sealed,
    Ended,
    Compacted,
    LinkLost,
    Deploy,
    Start,
    OpenEpoch,
    CompleteEpoch,
    Resume,
    Compact,
    Stop,
    Release,
)
"""All messages; the place of one is its tag on the wire."""

assert len(set(KINDS)) == len(KINDS), "a message has two tags"
_TAGS = {kind: tag for tag, kind in enumerate(KINDS)}
_FORMS = {
    kind: [
        (name, checker(form), maker(form))
        for name, form in get_type_hints(kind).items()
    ]
    for kind in KINDS
}
_PLAIN = {kind: unmaker(kind) for kind in KINDS}

FROM_COORDINATOR: frozenset[type[object]] = frozenset(
    {
        Heartbeat,
        Deploy,
        Start,
        OpenEpoch,
        CompleteEpoch,
        Resume,
        Compact,
        Stop,
        Release,
    }
)
"""What a worker takes from the coordinator."""

FROM_WORKERS: frozenset[type[object]] = frozenset(KINDS) - FROM_COORDINATOR | {
    Heartbeat
}
"""What the coordinator takes from a worker."""


def to_wire(message: Message) -> tuple[object, ...]:
    """Return the message as a tuple of plain values, its kind first."""
    kind = type(message)
    assert kind in _TAGS, f"{kind.__name__} is no message"
    return (_TAGS[kind], *_PLAIN[kind](message))


def from_wire(
    wire: object, allowed: frozenset[type[object]] = FROM_COORDINATOR | FROM_WORKERS
) -> Message:
    """Rebuild a message; whatever is none of the allowed ones is the peer's fault."""
    if not isinstance(wire, list | tuple) or not wire:
        msg = f"a control message is a list of values, got {type(wire).__name__}"
        raise RemoteProtocolError(msg)
    tag, *values = wire
    if type(tag) is not int or not 0 <= tag < len(KINDS):
        msg = f"there is no control message with tag {reprlib.repr(tag)}"
        raise RemoteProtocolError(msg)
    kind = KINDS[tag]
    if kind not in allowed:
        msg = f"{kind.__name__} may not come from this peer on this connection"
        raise RemoteProtocolError(msg)
    if len(values) != len(_FORMS[kind]):
        msg = f"{kind.__name__} has {len(_FORMS[kind])} fields, got {len(values)}"
        raise RemoteProtocolError(msg)
    fields = []
    for (name, fits, make), plain in zip(_FORMS[kind], values, strict=True):
        value = _as_tuple(plain)
        if not fits(value):
            msg = f"{kind.__name__}.{name} cannot be a {type(value).__name__} like this"
            raise RemoteProtocolError(msg)
        fields.append(make(value))
    message: Message = kind(*fields)
    if isinstance(message, OpenEpoch):
        barrier_from_wire(message.barrier)
    return message


def _as_tuple(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_as_tuple(item) for item in value)
    return value
