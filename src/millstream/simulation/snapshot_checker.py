"""What must hold for the snapshots of every simulated run, at every moment.

`SnapshotChecker` looks at tasks when they cut or end and at manifests when they appear.
A complete epoch is a consistent cut: on every channel its reader had taken exactly the
rows that its writer had put in; on a channel that closes a loop it had taken or logged
them.  It holds nothing of an older generation, and all its
files are there as long as it may be restored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from millstream.plan.iteration import Port
from millstream.protocol.align import Cut, DeliverBatch, Seal
from millstream.protocol.barrier import RoundEnd
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.loop_intake import LoopIntake
from millstream.runtime.task import TaskPhase
from millstream.runtime.task_cut import TaskCut
from millstream.state.manifest import decoded_manifest
from millstream.state.store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.protocol.align import Command, Event
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import ChannelId
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.channels import InputChannel, OutputChannel
    from millstream.runtime.task import Task
    from millstream.runtime.task_cut import TaskCut
    from millstream.runtime.worker import Worker
    from millstream.simulation.disk import VirtualDisk
    from millstream.simulation.upkeep import UpkeepChecker
    from millstream.state.manifest import FileRef, Manifest

__all__ = ["SnapshotChecker"]

_Attempt = tuple[str, int]
"""Run and generation."""
_TaskId = tuple[int, int]

_ATTEMPT_IN_NAME = re.compile(r"epochs/\d+/(\w+)-\d+-\d+-\d+-(\d+)\.state")


@dataclass(frozen=True, slots=True)
class _Cut:
    """What passed through a task before one of its cuts, or before its end."""

    epoch: int
    sent: dict[ChannelId, int]
    taken: dict[ChannelId, int]
    writers: dict[ChannelId, _TaskId]


@dataclass(slots=True)
class _Generation:
    """All that was seen of the tasks of one generation."""

    tasks: set[_TaskId] = field(default_factory=set)
    cuts: dict[tuple[int, _TaskId], _Cut] = field(default_factory=dict)
    ends: dict[_TaskId, _Cut] = field(default_factory=dict)
    transactions: set[tuple[str, int, bytes]] = field(default_factory=set)


class SnapshotChecker:
    """Sees every cut, every manifest and every file that goes."""

    def __init__(
        self,
        disk: VirtualDisk,
        key: bytes,
        problems: list[str],
        upkeep: UpkeepChecker,
        retained: int,
    ) -> None:
        self._disk = disk
        self._retained = retained
        self._upkeep = upkeep
        self._key = key
        self._problems = problems
        self._made: dict[tuple[str, int], Assembly] = {}
        self._generations: dict[_Attempt, _Generation] = defaultdict(_Generation)
        self._manifests: dict[str, Manifest] = {}

    # Tasks

    def observe(self, run: str, worker: Worker) -> None:
        """Look at the tasks of a worker, once in each generation."""
        made = worker._made  # noqa: SLF001 - a checker looks inside
        if self._made.get((run, worker.id)) is made:
            return
        self._made[run, worker.id] = made
        seen = self._generations[run, worker._generation]  # noqa: SLF001 - as above
        for task in made.tasks:
            self._observe_task(seen, task)

    def _observe_task(self, seen: _Generation, task: Task) -> None:
        own = (task.stage.id, task.index)
        outputs: list[OutputChannel] = task._outputs  # noqa: SLF001 - as above
        intake: Any = task._intake  # noqa: SLF001 - as above
        inputs = intake.channels if isinstance(intake, ChannelIntake) else []
        sent = {channel.channel.id: 0 for channel in outputs}
        seen.tasks.add(own)
        for channel in outputs:
            _count_rows(channel, sent)

        # In a loop a cut is told later than it is made.
        at_cut: dict[int, tuple[dict[ChannelId, int], dict[ChannelId, int]]] = {}
        looped = _count_loops(intake) if inputs else {}

        def counted() -> tuple[dict[ChannelId, int], dict[ChannelId, int]]:
            # What a head has left unread is lost to nobody.
            read = [c for c in inputs if not c.is_closed]
            return dict(sent), {c.channel.id: c.rows_taken for c in read}

        def note(cut: TaskCut) -> _Cut:
            put, taken = at_cut.pop(cut.epoch, counted())
            taken |= looped.get(cut.epoch, {})
            for channel in _unheard(intake):
                taken.pop(channel, None)
            return _Cut(cut.epoch, put, taken, _writers(inputs))

        def cutting(barrier: Barrier) -> None:
            make_cut(barrier)
            if (barrier.epoch, own) not in seen.cuts:
                at_cut[barrier.epoch] = counted()

        def cut_too(cut: TaskCut) -> None:
            seen.cuts[cut.epoch, own] = note(cut)
            on_cut(_noting_seals(cut, seen))

        def end_too(cut: TaskCut) -> None:
            seen.ends[own] = note(cut)
            on_end(_noting_seals(cut, seen))

        if task.phase is TaskPhase.DRAINING:
            seen.ends[own] = _Cut(task.epoch, sent, {}, {})
        on_cut, on_end = task._on_cut, task._on_end  # noqa: SLF001 - as above
        task._on_cut, task._on_end = cut_too, end_too  # noqa: SLF001 - as above
        make_cut = task._cut  # noqa: SLF001 - as above
        task._cut = cutting  # type: ignore[method-assign]  # noqa: SLF001 - of this one

    # The disk

    def published(self, name: str, data: bytes) -> None:
        """Check a manifest at the moment at which it appears."""
        if not name.startswith("manifests/"):
            return
        manifest = self._manifests[name] = decoded_manifest(
            data, self._key, lambda: SnapshotStore(self._disk, self._key).directory
        )
        seen = self._generations[manifest.run, manifest.generation]
        found = [
            *self._missing_files(manifest),
            *_foreign_parts(manifest, seen),
            *_broken_chains(manifest),
            *_unsound_tasks(manifest, seen),
            *_torn_channels(manifest, seen),
        ]
        self._problems += [f"epoch {manifest.epoch}: {problem}" for problem in found]
        self._upkeep.published(manifest, self._needed())

    def removed(self, name: str) -> None:
        """Check that nothing goes that may be needed."""
        for each, manifest in self._manifests.items():
            is_listed = any(ref.name == name for ref in manifest.references())
            is_newest = name == each and self._history()[:1] == [name]
            if is_newest or (is_listed and each in self._history()):
                self._problems.append(f"{name} was removed, and {each} needs it")

    def _needed(self) -> set[str]:
        """Return the names of the manifests that are to be kept, and of their files."""
        kept = self._history()[: self._retained]
        listed = [self._manifests[each].references() for each in kept]
        return {*kept, *(ref.name for refs in listed for ref in refs)}

    def _history(self) -> list[str]:
        """Return the names of the manifests that may be restored, newest first."""
        store = SnapshotStore(self._disk, self._key)
        names = [each.name for each in store.manifests()]
        return [name for name in names if name not in self._disk.damaged]

    def _missing_files(self, manifest: Manifest) -> Iterator[str]:
        for ref in manifest.references():
            data = self._disk.files.get(ref.name)
            if ref.name in self._disk.damaged:
                continue
            if data is None or len(data) != ref.length:
                yield f"its file {ref.name} is missing or cut off"
            elif sha256(data).hexdigest() != ref.sha256:
                yield f"its file {ref.name} has another digest"


def _count_rows(channel: OutputChannel, sent: dict[ChannelId, int]) -> None:
    """Let a channel count what is put into it."""
    put: Callable[[Any, int], None] = channel.put

    def counting(rows: Any, now_ns: int) -> None:
        if not channel.is_closed:
            sent[channel.channel.id] += len(rows)
        put(rows, now_ns)

    channel.put = counting  # type: ignore[method-assign]  # of this one channel


def _unheard(intake: Any) -> Iterator[ChannelId]:
    """Yield the channels of a decider who has nothing more to say to this head."""
    if isinstance(intake, LoopIntake) and intake.is_over:
        for channel in intake.channels:
            if channel.port == Port.DECISIONS:
                yield channel.channel.id


def _count_loops(intake: ChannelIntake) -> dict[int, dict[ChannelId, int]]:
    """Count, by epoch, the rows of back channels that were delivered or logged."""
    aligner = intake._aligner  # noqa: SLF001 - as above
    delivered = dict.fromkeys(intake._back, 0)  # noqa: SLF001 - as above
    by_epoch: dict[int, dict[ChannelId, int]] = {}
    handle = aligner.handle
    is_inside = False

    def counting(event: Event) -> list[Command]:
        # What was put off is handled inside of another event, and is told with that.
        nonlocal is_inside
        if is_inside:
            return handle(event)
        is_inside = True
        commands = handle(event)
        is_inside = False
        for command in commands:
            match command:
                case DeliverBatch(channel, (rows, _)):
                    delivered[channel] += _count(rows)
                case Cut(barrier):
                    by_epoch[barrier.epoch] = dict(delivered)
                case Seal(epoch, logged):
                    for channel, (rows, _) in logged:
                        by_epoch[epoch][channel] += _count(rows)
        return commands

    aligner.handle = counting  # type: ignore[method-assign]  # of this one
    return by_epoch


def _count(batch: Any) -> int:
    """Return how many rows came on a back channel; a look brings none."""
    return 0 if isinstance(batch, RoundEnd) else len(batch)


def _writers(inputs: list[InputChannel]) -> dict[ChannelId, _TaskId]:
    return {
        c.channel.id: (c.channel.edge.source, c.channel.source_index) for c in inputs
    }


def _noting_seals(cut: TaskCut, seen: _Generation) -> TaskCut:
    """Return the cut with seals that are noted when they are done."""

    def noted(operator: str, seal: bytes | Callable[[], bytes | None]) -> bytes | None:
        wire = seal() if callable(seal) else seal
        if wire is not None:
            seen.transactions.add((operator, cut.task, wire))
        return wire

    seals = tuple((name, partial(noted, name, seal)) for name, seal in cut.transactions)
    return replace(cut, transactions=seals)


def _foreign_parts(manifest: Manifest, seen: _Generation) -> Iterator[str]:
    """Yield what did not come from the present generation."""
    for ref in manifest.files:
        match = _ATTEMPT_IN_NAME.fullmatch(ref.name)
        attempt = (manifest.run, str(manifest.generation))
        if ref.epoch == manifest.epoch and match and match.groups() != attempt:
            yield f"{ref.name} is not of generation {manifest.generation}"
    for transaction in manifest.transactions:
        if transaction not in seen.transactions:
            operator, task, _ = transaction
            yield f"task {task} of {operator!r} sealed no such thing in this generation"


def _broken_chains(manifest: Manifest) -> Iterator[str]:
    """Yield the deltas that do not build on the file before them."""
    last: dict[_TaskId, FileRef] = {}
    for ref in manifest.files:
        before = last.get((ref.stage, ref.task))
        if before is None and not ref.is_base:
            yield f"{ref.name} is a delta on nothing"
        if before is not None and not ref.since <= before.epoch < ref.epoch:
            yield f"{ref.name} is a delta since {ref.since} on epoch {before.epoch}"
        last[ref.stage, ref.task] = ref


def _unsound_tasks(manifest: Manifest, seen: _Generation) -> Iterator[str]:
    """Yield the tasks that neither cut the epoch nor ended before it."""
    ended = set(manifest.ended)
    for task in sorted(seen.tasks):
        if task in ended:
            end = seen.ends.get(task)
            if end is None or end.epoch >= manifest.epoch:
                yield f"task {task} counts as ended, and it had not"
        elif (manifest.epoch, task) not in seen.cuts:
            yield f"task {task} has not cut it"


def _torn_channels(manifest: Manifest, seen: _Generation) -> Iterator[str]:
    """Yield the channels on which rows were lost, doubled or passed through the cut."""
    for task in sorted(seen.tasks.difference(manifest.ended)):
        cut = seen.cuts.get((manifest.epoch, task))
        if cut is None:
            continue
        for channel, taken in cut.taken.items():
            writer = cut.writers[channel]
            end = seen.ends.get(writer) if writer in manifest.ended else None
            before = end or seen.cuts.get((manifest.epoch, writer))
            sent = None if before is None else before.sent[channel]
            if sent != taken:
                yield f"{taken} rows of channel {channel} were taken, and {sent} sent"
