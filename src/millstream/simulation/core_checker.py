"""Lets the cores of a simulated job say what is wrong with them, as soon as it is.

Those that take events are asked after every event: the cores of job and snapshots, and the
aligners of tasks.  All others are asked after every turn of their worker: orders, dials,
heads and deciders of loops, event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.observer import Core
    from millstream.runtime.worker import Worker

__all__ = ["CoreChecker"]


class CoreChecker:
    """Asks the cores of one site; a core that is wrong is a problem of the run.

    It looks on at the coordinator itself; of workers it is told by their observers.
    """

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._has_said = False

    def check(self, worker: Worker) -> None:
        """Ask the cores of a worker that has had its turn."""
        self._ask(worker.validate)

    def decided(self, core: Core, event: object) -> None:
        """Ask a core that has taken an event."""
        self._ask(core.validate, f" after {event}")

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
