"""What may be seen of a worker's tasks, and of a driver's cores; in a real job nobody looks.

An observer is told, and changes nothing.  It is asked for at cuts and ends, and where
barriers are aligned, never for a batch between operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.protocol.align import Command, Event
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Generation
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.channel_intake import ChannelIntake
    from millstream.runtime.sealing import Report
    from millstream.runtime.task_cut import TaskCut

__all__ = ["Core", "DriverObserver", "Observer"]


class Core(Protocol):
    """What takes events one by one, and can say what must hold of it."""

    def validate(self) -> None:
        """Assert what it promises."""
        ...


class DriverObserver(Protocol):
    """Who looks on at a coordinator."""

    def decided(self, core: Core, event: object) -> None:
        """See a core that has taken an event; nothing has been done about it yet."""
        ...


class Observer(Protocol):
    """Who looks on at one worker."""

    def deployed(self, generation: Generation, made: Assembly) -> None:
        """See the tasks of a generation; none of them has done anything."""
        ...

    def aligned(
        self, intake: ChannelIntake, event: Event, commands: list[Command]
    ) -> None:
        """See what an aligner was told, and what it wants done."""
        ...

    def captured(self, task: tuple[int, int], barrier: Barrier) -> None:
        """See the task of a stage and index at a cut: nothing follows the barrier yet."""
        ...

    def sealed(self, cut: TaskCut) -> None:
        """See what a task hands on of a cut whose barrier has come round every loop."""
        ...

    def ended(self, cut: TaskCut) -> None:
        """See what a task leaves at its end."""
        ...

    def reported(self, report: Report) -> None:
        """See what has been stored, or failed to be."""
        ...
