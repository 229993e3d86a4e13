"""An observer of tasks: what it sees of a cut and of an end, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.making import channel
from tests.support.taking import barrier, taken
from tests.support.task_harness import TaskHarness

from millstream.plan import nodes as specs
from millstream.protocol.align import BarrierArrived, ChannelEnded, Cut
from millstream.protocol.packets import PacketKind
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import InputChannel

if TYPE_CHECKING:
    from millstream.protocol.align import Command, Event
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Generation
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.sealing import Report
    from millstream.runtime.task_cut import TaskCut


class Witness:
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.bench: TaskHarness | None = None

    def deployed(self, generation: Generation, made: Assembly) -> None:
        self.seen.append(("deployed", generation))

    def aligned(
        self, intake: ChannelIntake, event: Event, commands: list[Command]
    ) -> None:
        self.seen.append((event, Cut(barrier(1)) in commands))

    def captured(self, task: tuple[int, int], barrier: Barrier) -> None:
        assert self.bench is not None
        rows = self.bench.writer.rows_put
        self.seen.append(("captured", task, barrier.epoch, rows))

    def sealed(self, cut: TaskCut) -> None:
        self.seen.append(("sealed", cut.epoch))

    def ended(self, cut: TaskCut) -> None:
        self.seen.append(("ended", cut.epoch))

    def reported(self, report: Report) -> None:
        self.seen.append(report)


def test_cut_is_seen_before_anything_follows_it() -> None:
    """What was sent by then is what belongs to the epoch."""
    witness = Witness()
    witness.bench = bench = TaskHarness(range(6), [specs.Map(str)], observer=witness)
    bench.run()

    bench.task.announce(barrier(1))
    bench.run_out()

    assert witness.seen == [("captured", (0, 0), 1, 4), ("sealed", 1), ("ended", 1)]


def test_alignment_is_seen_event_by_event() -> None:
    """Whoever counts what comes round must know when the cut was."""
    witness = Witness()
    first, second = (InputChannel(channel(i)) for i in range(2))
    intake = ChannelIntake([first, second])
    intake.observer = witness
    first.receive(PacketKind.BARRIER, 0, barrier(1), 0)
    second.receive(PacketKind.END, 0, [], 0)

    taken(intake)

    assert witness.seen == [
        (BarrierArrived(first.channel.id, barrier(1)), False),
        (ChannelEnded(second.channel.id), True),
    ]
