"""Lets the cores of a simulated job say what is wrong with them, as soon as it is.

Those that take events are asked after every event: the cores of job and snapshots, and the
aligners of tasks.  All others are asked after every turn of their worker: orders, dials,
heads and deciders of loops, event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.operators.loops.deciding import FreeLoopDecider
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.loop_intake import LoopIntake

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.ids import ChannelId
    from millstream.protocol.watermark import EventTime
    from millstream.runtime.assembly import Assembly
    from millstream.runtime.coordinator import Coordinator
    from millstream.runtime.task import Task
    from millstream.runtime.worker import Worker

__all__ = ["CoreChecker"]


class CoreChecker:
    """Asks the cores of one site; a core that is wrong is a problem of the run."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._has_said = False
        self._made: dict[int, Assembly] = {}
        self._checks: dict[int, list[Callable[[], None]]] = {}

    def watch(self, coordinator: Coordinator) -> None:
        """Ask both cores of a coordinator after every event."""
        self._ask_after_events(coordinator._core)  # noqa: SLF001 - a checker looks inside
        self._ask_after_events(coordinator.snapshots._core)  # noqa: SLF001 - as above

    def check(self, worker: Worker) -> None:
        """Ask the cores of a worker that has had its turn."""
        made = worker._made  # noqa: SLF001 - as above
        if self._made.get(worker.id) is not made:
            self._made[worker.id] = made
            found = [worker._orders.validate, worker._dialing.validate]  # noqa: SLF001
            for task in made.tasks:
                found += self._found(task)
            self._checks[worker.id] = found
        for validate in self._checks[worker.id]:
            self._ask(validate)

    def _found(self, task: Task) -> list[Callable[[], None]]:
        """Return what to ask of a task after every turn."""
        found: list[Callable[[], None]] = []
        intake: Any = task._intake  # noqa: SLF001 - as above
        if isinstance(intake, ChannelIntake):
            self._ask_after_events(intake._aligner)  # noqa: SLF001 - as above
            found.append(lambda: _time_of(intake).validate())
        if isinstance(intake, LoopIntake):
            found.append(intake._head.validate)  # noqa: SLF001 - as above
        deciders = [o for o in task._chain.operators if isinstance(o, FreeLoopDecider)]  # noqa: SLF001
        return found + [decider._decider.validate for decider in deciders]  # noqa: SLF001

    def _ask_after_events(self, core: Any) -> None:
        handle = core.handle

        def handled(event: Any) -> Any:
            commands = handle(event)
            self._ask(core.validate, f" after {event}")
            return commands

        core.handle = handled

    def _ask(self, validate: Callable[[], None], when: str = "") -> None:
        """Ask one core; what goes wrong first is told, the rest follows from it."""
        if self._has_said:
            return
        try:
            validate()
        except AssertionError as error:
            self._has_said = True
            core = getattr(validate, "__qualname__", "a core")
            self._problems.append(f"{core} says{when}: {error}")


def _time_of(intake: ChannelIntake) -> EventTime[ChannelId]:
    """Return what it goes by now; every round has its own time."""
    return intake._time  # noqa: SLF001 - a checker looks inside
