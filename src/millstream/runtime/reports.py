"""Which reports of workers count, and which no worker of this job can have meant.

A message that decodes can still make no sense: rows for a sink that is not there, an epoch
that nobody opened, a task that lives elsewhere.  `Reports` finds that before anything is
done about it, and drops what came too late, which is nobody's mistake: of a generation that
is over, of a worker that is gone, or after the outcome.  It decides from what the two cores
know, and changes neither; how often a task may seal an epoch is known to the snapshot core.

What a worker says in the present generation
--------------------------------------------
=====================================  ==================================================
Register                               once, first of all
Ready, LinkLost, Failed, Progress      any time after that
Emitted, Sealed, Ended, Compacted      of its own tasks, once all have been started
Finished                               once, when all its tasks have ended
=====================================  ==================================================
"""

from __future__ import annotations

import re
from dataclasses import astuple
from functools import cache
from typing import TYPE_CHECKING

from millstream import errors
from millstream.errors import MillstreamError, RemoteProtocolError
from millstream.protocol.ids import PeerId
from millstream.protocol.job import Phase
from millstream.protocol.messages import (
    Compacted,
    Emitted,
    Ended,
    Failed,
    Finished,
    Heartbeat,
    LinkLost,
    Progress,
    Ready,
    Register,
    Sealed,
)
from millstream.protocol.metrics import COUNTERS
from millstream.protocol.orders import PORT_MAX
from millstream.state.layout import state_name
from millstream.state.plain import OBJECTS, decode, form_of

if TYPE_CHECKING:
    from millstream.plan.stages import Stage
    from millstream.protocol.job import JobCore
    from millstream.protocol.messages import Message, Offset, StoredFile
    from millstream.protocol.metrics import TaskMetrics
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import SnapshotCoordinator

__all__ = ["Reports"]

_Report = Ready | Progress | Emitted | Finished | Failed | Sealed | Ended | Compacted
_PID_MAX = 2**31 - 1
_TIME_MIN, _TIME_MAX = -(2**63), 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Reports:
    """The reports of all workers of one job."""

    def __init__(
        self, deployment: Deployment, core: JobCore, snapshots: SnapshotCoordinator
    ) -> None:
        self._deployment = deployment
        self._core = core
        self._snapshots = snapshots
        self._tasks = deployment.tasks()
        self._stages = {stage.id: stage for stage in deployment.stages.stages}
        self._sinks = {
            node.id: stage.id
            for stage in self._stages.values()
            for node in stage.nodes
            if node.is_sink
        }
        self._splits_of = cache(self._own_splits)

    def can_count(self, peer: PeerId, message: Message) -> bool:
        """Return whether a message counts; what came too late does not.

        Raises
        ------
        RemoteProtocolError
            If that worker cannot have meant it.
        """
        match message:
            case Register() | Heartbeat():
                _expect(
                    message.worker == peer, f"it calls itself worker {message.worker}"
                )
                return isinstance(message, Register) and self._can_register(message)
            case (
                Ready()
                | Progress()
                | Emitted()
                | Finished()
                | Failed()
                | Sealed()
                | Ended()
                | Compacted()
                | LinkLost()
            ):
                _expect(
                    message.worker == peer, f"it calls itself worker {message.worker}"
                )
                return self._can_report(peer, message)
        msg = "a worker does not say this"
        raise RemoteProtocolError(msg)

    def _can_register(self, message: Register) -> bool:
        is_here = PeerId(message.worker) in self._core.members
        _expect(not is_here, "it has registered before")
        _expect(
            0 <= message.port <= PORT_MAX and "\0" not in message.host,
            f"nobody listens at {message.host!r}, port {message.port}",
        )
        _expect(0 < message.pid <= _PID_MAX, f"no process has the number {message.pid}")
        return True

    def _can_report(self, peer: PeerId, message: _Report | LinkLost) -> bool:
        core, member = self._core, self._core.member(peer)
        if core.phase is Phase.ENDED or (member is not None and member.is_gone):
            return False
        _expect(member is not None, "it has not registered")
        _expect(
            0 <= message.generation <= core.generation,
            f"generation {message.generation} has not begun, {core.generation} is the last",
        )
        if isinstance(message, Failed | Progress):
            self._check_any(message)
            return True
        if message.generation != core.generation or core.outcome is not None:
            return False
        self._check_present(peer, message)
        return True

    def _check_any(self, message: Failed | Progress) -> None:
        """Check what counts in later generations too."""
        if isinstance(message, Failed):
            kind = getattr(errors, message.kind, None)
            is_kind = isinstance(kind, type) and issubclass(kind, MillstreamError)
            _expect(is_kind, f"there is no error {message.kind!r}")
            return
        self._check_progress(message)

    def _check_progress(self, message: Progress) -> None:
        own = [(task.stage, task.task) for task in message.tasks]
        unknown = set(own) - self._tasks
        _expect(not unknown, f"there are no tasks {unknown}")
        _expect(len(set(own)) == len(own), f"it tells of tasks {own}")
        _expect(message.resident_bytes >= 0, f"it has {message.resident_bytes} bytes")
        for task in message.tasks:
            readers = {output.stage for output in task.outputs}
            strangers = readers - self._stages.keys()
            _expect(not strangers, f"there are no stages {strangers}")
            least = min(_counts(task))
            _expect(least >= 0, f"it has counted {least}")
            times = [] if task.watermark is None else [task.watermark]
            for time in [*times, *(time for _, time in task.splits)]:
                _expect(_TIME_MIN <= time <= _TIME_MAX, f"{time} is no event time")

    def _check_present(
        self,
        peer: PeerId,
        message: Ready | Emitted | Finished | Sealed | Ended | Compacted | LinkLost,
    ) -> None:
        match message:
            case Ready(_, _, size, took_ns):
                _expect(min(size, took_ns) >= 0, "it has restored less than nothing")
            case LinkLost(_, _, other, _):
                is_worker = other != peer and self._core.is_expected(PeerId(other))
                _expect(is_worker, f"it has no connection to a worker {other}")
            case Finished():
                self._check_finished(peer)
            case Emitted():
                self._check_emitted(peer, message)
            case Sealed() | Ended():
                self._check_left(peer, message)
            case Compacted():
                self._check_task(peer, message.stage, message.task)
                if message.file is not None:
                    self._check_file(message.file, message, ".base")

    def _check_finished(self, peer: PeerId) -> None:
        placed = enumerate(self._core.placement)
        indexes = {index for index, worker in placed if worker == peer}
        own = {task for task in self._tasks if task[1] in indexes}
        left = own - set(self._snapshots.ended_tasks)
        _expect(bool(own), "it has no tasks")
        _expect(not left, f"tasks {sorted(left)} have not ended")
        member = self._core.member(peer)
        is_new = member is not None and not member.is_finished
        _expect(is_new, "it has finished before")

    def _check_emitted(self, peer: PeerId, message: Emitted) -> None:
        stage = self._sinks.get(message.sink)
        if stage is None:
            msg = f"there is no sink {message.sink}"
            raise RemoteProtocolError(msg)
        self._check_task(peer, stage, message.task)
        has_ended = (stage, message.task) in self._snapshots.ended_tasks
        _expect(not has_ended, f"task {stage}.{message.task} has ended")
        self._check_epoch(message.epoch)

    def _check_left(self, peer: PeerId, message: Sealed | Ended) -> None:
        """Check what a task leaves at a cut, or at its end."""
        self._check_task(peer, message.stage, message.task)
        self._check_epoch(message.epoch)
        stage = self._stages[message.stage]
        names = {node.name for node in stage.nodes}
        strangers = {name for name, _ in message.transactions} - names
        _expect(not strangers, f"no {strangers} seal anything in stage {stage.id}")
        for name, sealed in message.transactions:
            _check_sealed(name, sealed)
        self._check_offsets(stage, message.task, message.offsets)
        if isinstance(message, Ended):
            can_be = 0 <= message.nodes_left <= len(stage.nodes)
            _expect(can_be, f"{message.nodes_left} operators of {len(names)} were left")
            return
        _expect(message.pause_ns >= 0, f"it paused for {message.pause_ns} ns")
        if message.file is not None:
            self._check_file(message.file, message, ".state")

    def _check_task(self, peer: PeerId, stage: int, task: int) -> None:
        core = self._core
        _expect((stage, task) in self._tasks, f"there is no task {stage}.{task}")
        has_begun = core.phase in {Phase.RUNNING, Phase.COMMITTING}
        _expect(has_begun, f"generation {core.generation} has not been started")
        host = core.placement[task]
        _expect(host == peer, f"task {stage}.{task} is on worker {host}")

    def _check_epoch(self, epoch: int) -> None:
        epochs = self._snapshots.epochs
        can_be = epoch in epochs
        _expect(can_be, f"epoch {epoch} is none of {epochs[0]} to {epochs[-1]}")

    def _check_offsets(
        self, stage: Stage, task: int, offsets: tuple[Offset, ...]
    ) -> None:
        name, own = stage.nodes[0].name, self._splits_of(stage.id, task)
        for operator, split, _, _ in offsets:
            is_own = operator == name and split in own
            _expect(is_own, f"task {stage.id}.{task} does not read {split!r}")

    def _own_splits(self, stage: int, task: int) -> frozenset[str]:
        """Return the splits that a task reads; only those of a source read any."""
        splits = self._deployment.splits.get(self._stages[stage].nodes[0].id, ())
        width = len(self._deployment.tasks(self._stages[stage]))
        return frozenset(split.name for split in splits[task::width])

    def _check_file(
        self, file: StoredFile, message: Sealed | Compacted, ending: str
    ) -> None:
        """Check that a file has the one name that this report can give it."""
        name, length, digest, operators = file
        due = state_name(
            message.epoch, self._deployment.run, worker=message.worker,
            stage=message.stage, task=message.task, generation=message.generation,
        )  # fmt: skip
        due = due.removesuffix(".state") + ending
        is_file = name == due and length >= 0 and _DIGEST.fullmatch(digest)
        _expect(
            bool(is_file), f"a file {name!r} of {length} bytes is not what it wrote"
        )
        unknown = set(operators) - self._deployment.fingerprints.keys()
        _expect(not unknown, f"no {unknown} keep state")


def _counts(task: TaskMetrics) -> list[int]:
    """Return all that is counted in what is told of a task."""
    counts = [getattr(task, name) for name in COUNTERS]
    counts += [task.batches_waiting, task.rows_waiting]
    counts += [task.state_entries, task.state_bytes]
    for output in task.outputs:
        counts += astuple(output)
    if task.rounds is not None:
        counts += [task.rounds.round, task.rounds.done]
    return counts


def _check_sealed(sink: str, sealed: bytes) -> None:
    """Check what can be of a transaction before a manifest relies on it.

    One with objects of the user's classes is left to `manifests.check_readable`: that the
    driver cannot import them is no mistake of the worker.
    """
    try:
        if form_of(sealed) != OBJECTS:
            decode(sealed)
    except Exception as error:
        msg = f"what {sink!r} sealed cannot be read ({type(error).__name__}: {error})"
        raise RemoteProtocolError(msg) from error


def _expect(can_be: bool, otherwise: str) -> None:  # noqa: FBT001 - a condition
    if not can_be:
        raise RemoteProtocolError(otherwise)
