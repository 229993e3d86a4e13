"""Simulated jobs that are stopped behind an epoch, and go on with other workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.resizing import Resizing

from millstream.protocol.ids import COORDINATOR
from millstream.protocol.job_events import OutcomeKind
from millstream.runtime.snapshots import Savepoint
from millstream.simulation.seed import stream

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import SwarmOptions
    from millstream.state.manifest import Manifest

STOPS_MAX = 4
STOP_EPOCH_MAX = 4
FAILING_SHARE = 0.3


class Stopping(Resizing):
    """Asks for a stop soon after some epochs; some of the savepoints cannot be written.

    Attributes
    ----------
    stopped
        The last epochs of drivers that stopped.
    refused
        How many savepoints could not be written.
    """

    def __init__(
        self, deployment: Deployment, options: SwarmOptions, seed: int
    ) -> None:
        self._wishes = stream(seed, "stops")
        self._stop_epochs = sorted(
            self._wishes.randint(0, STOP_EPOCH_MAX)
            for _ in range(self._wishes.randint(1, STOPS_MAX))
        )
        self._copied: list[int] = []
        self.stopped: list[int] = []
        self.refused = 0
        super().__init__(deployment, options, seed)

    def _deliver(self) -> None:
        super()._deliver()
        is_due = self._stop_epochs and self._epoch >= self._stop_epochs[0]
        if is_due and self.site.has_driver and self._phase is not None:
            self._stop_epochs.pop(0)
            self._ask()

    def _ask(self) -> None:
        is_failing = self._wishes.random() < FAILING_SHARE

        def copy(_: Any, manifest: Manifest) -> None:
            if is_failing:
                self.refused += 1
                msg = "there is no room for the savepoint"
                raise OSError(msg)
            self._copied.append(manifest.epoch)

        wish = Savepoint(copy, lambda _: None, "elsewhere", does_stop=True)
        self.coordinator.savepoint(wish)
        self.network.woken.add(COORDINATOR)

    def _look_after(self, error: MillstreamError | None) -> None:
        outcome = self.coordinator.outcome
        if outcome is None or outcome.kind is not OutcomeKind.STOPPED:
            super()._look_after(error)
            return
        epoch = self.coordinator.snapshots.complete_epoch
        self.stopped.append(epoch)
        if not self._copied or self._copied[-1] != epoch:
            self.problems.append(f"it stopped at {epoch}, and copied {self._copied}")
        committed = max((s.last_epoch for s in self.sinks.values()), default=epoch)
        if committed > epoch:
            self.problems.append(f"{committed} was committed after the stop at {epoch}")
        self._plan_driver()
