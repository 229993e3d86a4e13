"""The eyes of the checkers: one observer per simulated worker, who tells all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import Compacted
from millstream.runtime.sealing import SealFailed
from millstream.runtime.task import TaskPhase
from millstream.simulation.task_watch import TaskWatch

if TYPE_CHECKING:
    from millstream.protocol.align import Command, Event
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Generation, PeerId
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.channel_intake import ChannelIntake
    from millstream.runtime.intake import Intake
    from millstream.runtime.sealing import Report
    from millstream.runtime.task_cut import TaskCut
    from millstream.simulation.checkers import BufferChecker
    from millstream.simulation.core_checker import CoreChecker
    from millstream.simulation.snapshot_checker import GenerationSeen, SnapshotChecker
    from millstream.simulation.task_watch import TaskId

__all__ = ["WorkerObserver"]


class WorkerObserver:
    """Looks on at one worker (see `millstream.runtime.observer`)."""

    def __init__(
        self,
        run: str,
        worker: PeerId,
        snapshots: SnapshotChecker,
        cores: CoreChecker,
        buffers: BufferChecker,
    ) -> None:
        self._run = run
        self._worker = worker
        self._snapshots = snapshots
        self._cores = cores
        self._buffers = buffers
        self._seen: GenerationSeen
        self._watches: dict[TaskId, TaskWatch] = {}
        self._by_intake: dict[Intake, TaskWatch] = {}

    def deployed(self, generation: Generation, made: Assembly) -> None:
        """Look at other tasks from now on."""
        self._seen = self._snapshots.generation(self._run, generation)
        watches = [(task, TaskWatch(task)) for task in made.tasks]
        self._watches = {watch.id: watch for _, watch in watches}
        self._by_intake = {task.intake: watch for task, watch in watches}
        for task, watch in watches:
            has_ended = task.phase is TaskPhase.DRAINING
            self._seen.begin(watch, task.epoch, has_ended=has_ended)
        self._buffers.deployed(self._worker, made)

    def aligned(
        self, intake: ChannelIntake, event: Event, commands: list[Command]
    ) -> None:
        """Count what comes round, and ask the aligner what is wrong with it."""
        self._cores.decided(intake.aligner, event)
        self._by_intake[intake].aligned(commands)

    def captured(self, task: TaskId, barrier: Barrier) -> None:
        """Count what passed before the cut."""
        self._watches[task].captured(barrier.epoch)

    def sealed(self, cut: TaskCut) -> None:
        """Note a cut."""
        self._seen.cut(self._watches[cut.stage, cut.task], cut.epoch)

    def ended(self, cut: TaskCut) -> None:
        """Note an end."""
        self._seen.end(self._watches[cut.stage, cut.task], cut.epoch)

    def reported(self, report: Report) -> None:
        """Note what sinks sealed."""
        if not isinstance(report, Compacted | SealFailed):
            seen = self._snapshots.generation(self._run, report.generation)
            seen.seal(report.task, report.transactions)
