"""Lets the cores of a simulated job say what is wrong with them, as soon as it is.

Those that take events are asked after every event: the cores of job and snapshots, and the
aligners of tasks.  All others are asked after every turn of their worker: orders, dials,
heads and deciders of loops, event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.align import Aligner, Event
    from millstream.runtime.coordinator import Coordinator
    from millstream.runtime.worker import Worker

__all__ = ["CoreChecker"]


class CoreChecker:
    """Asks the cores of one site; a core that is wrong is a problem of the run."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._has_said = False

    def watch(self, coordinator: Coordinator) -> None:
        """Ask both cores of a coordinator after every event."""
        self._ask_after_events(coordinator._core)  # noqa: SLF001 - a checker looks inside
        self._ask_after_events(coordinator.snapshots._core)  # noqa: SLF001 - as above

    def check(self, worker: Worker) -> None:
        """Ask the cores of a worker that has had its turn."""
        self._ask(worker.validate)

    def ask(self, aligner: Aligner, event: Event) -> None:
        """Ask the aligner of a task after an event."""
        self._ask(aligner.validate, f" after {event}")

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
