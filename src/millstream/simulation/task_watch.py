"""What passes through one task of a simulated job before each of its cuts, and its end.

`TaskWatch` counts rows: those that were put into each output channel, and those that were
taken from each input channel; on a channel that closes a loop, those that were delivered or
logged.  What the counts must be is the business of `snapshot_checker`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.plan.iteration import Port
from millstream.protocol.align import Cut, DeliverBatch, Seal
from millstream.protocol.barrier import RoundEnd
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.loop_intake import LoopIntake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.align import Command
    from millstream.protocol.ids import ChannelId
    from millstream.runtime.task import Task

__all__ = ["Passed", "TaskId", "TaskWatch"]

TaskId = tuple[int, int]
"""Stage and index."""

_Counts = dict["ChannelId", int]


@dataclass(frozen=True, slots=True)
class Passed:
    """What passed through a task before one of its cuts, or before its end.

    Attributes
    ----------
    writers
        Who writes the channels that it reads.
    """

    epoch: int
    sent: _Counts
    taken: _Counts
    writers: dict[ChannelId, TaskId]


class TaskWatch:
    """Counts what passes through one task."""

    def __init__(self, task: Task) -> None:
        self.id: TaskId = (task.stage.id, task.index)
        self._task = task
        intake = task.intake
        self._inputs = intake.channels if isinstance(intake, ChannelIntake) else []
        self._head = intake if isinstance(intake, LoopIntake) else None
        #: In a loop a cut is handed on later than it is made.
        self._at_cut: dict[int, tuple[_Counts, _Counts]] = {}
        back = [c.channel for c in self._inputs if c.channel.edge.is_back]
        self._delivered: _Counts = {c.id: 0 for c in back if self._head is not None}
        self._looped: dict[int, _Counts] = {}

    def captured(self, epoch: int) -> None:
        """Count at the moment of a cut."""
        self._at_cut[epoch] = self._counted()

    def aligned(self, commands: Iterable[Command]) -> None:
        """Count what back channels brought that is delivered, or logged with an epoch."""
        for command in commands:
            match command:
                case DeliverBatch(channel, (rows, _)):
                    self._delivered[channel] += _count(rows)
                case Cut(barrier):
                    self._looped[barrier.epoch] = dict(self._delivered)
                case Seal(epoch, logged):
                    for channel, (rows, _) in logged:
                        self._looped[epoch][channel] += _count(rows)

    def passed(self, epoch: int) -> Passed:
        """Return what passed before the cut of an epoch, or else what has until now."""
        at_cut = self._at_cut
        sent, taken = at_cut.pop(epoch) if epoch in at_cut else self._counted()
        taken |= self._looped.get(epoch, {})
        for channel in self._unheard():
            taken.pop(channel, None)
        writers = {
            c.channel.id: (c.channel.edge.source, c.channel.source_index)
            for c in self._inputs
        }
        return Passed(epoch, sent, taken, writers)

    def _counted(self) -> tuple[_Counts, _Counts]:
        # What a head has left unread is lost to nobody.
        read = [c for c in self._inputs if not c.is_closed]
        sent = {c.channel.id: c.rows_put for c in self._task.outputs.channels}
        return sent, {c.channel.id: c.rows_taken for c in read}

    def _unheard(self) -> list[ChannelId]:
        """Return the channels of a decider who has nothing more to say to this head."""
        if self._head is None or not self._head.is_over:
            return []
        return [c.channel.id for c in self._inputs if c.port == Port.DECISIONS]


def _count(batch: Any) -> int:
    """Return how many rows came on a back channel; a probe brings none."""
    return 0 if isinstance(batch, RoundEnd) else len(batch)
