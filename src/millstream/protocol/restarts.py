"""How often a job with snapshots goes on after a loss or a failure, and when it gives up.

What is done about it is decided in `millstream.protocol.job`.

A job that goes back to an epoch reads the same records again, so that one which makes a
function raise, or a worker exit, does so every time; and there may well be a complete epoch
between, in front of that record.  Where it is cannot be seen from here, nor in a worker that
is dead.  But it is less than an epoch and what was in flight behind the one that is gone back
to.  So a failure or a loss is forgotten only after `CALM_EPOCHS` epochs in a row in which
the sources have moved on, or after `CALM_NS` if they have nothing to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Failed

__all__ = [
    "CALM_EPOCHS",
    "CALM_NS",
    "DAMAGE",
    "LASTING",
    "LOSSES_MAX",
    "Restarts",
]

DAMAGE = "SnapshotDamagedError"
"""What a worker calls a snapshot that it cannot restore."""
LASTING = frozenset(
    {
        "OperatorError",
        "TransportError",
        "OperationalError",
        "RemoteProtocolError",
        DAMAGE,
    }
)
"""Failures of a worker that it may not repeat after a recovery."""

LOSSES_MAX = 20
"""Workers and links that a running job may lose before the losses are forgotten."""
CALM_EPOCHS = 5
"""Epochs with progress, without a failure or a loss, after which those before are forgotten."""
CALM_NS = 600 * 1_000_000_000
"""Time without a failure or a loss, after which those before are forgotten."""


class Restarts:
    """The budget of one job.

    Parameters
    ----------
    restarts_max
        How often the same failure, or a loss in the same place before the job has begun,
        is put up with.
    """

    def __init__(self, restarts_max: int) -> None:
        assert restarts_max >= 0, f"a job cannot be restarted {restarts_max} times"
        self.restarts_max = restarts_max
        self._losses = 0
        #: How often each failure came: by its kind, operator and place in the program.
        self._failures: dict[tuple[str, str, str], int] = {}
        #: Epochs with progress since the last failure or loss.
        self._calm_epochs = 0
        self._calm_since_ns = 0
        #: How many workers were lost before this one in the same place.
        self._lost_starts: dict[PeerId, int] = {}

    def validate(self) -> None:
        """Assert that nothing was put up with too often; called by every test."""
        losses, tries = self._losses, self._lost_starts.values()
        assert 0 <= losses <= LOSSES_MAX + 1, f"{losses} losses were put up with"
        most = self.restarts_max + 1
        failures = self._failures.values()
        assert all(0 < count <= most for count in failures), f"{self._failures}"
        assert all(0 < count <= most for count in tries), f"{self._lost_starts}"
        assert 0 <= self._calm_epochs < CALM_EPOCHS, f"{self._calm_epochs} calm epochs"

    def complete_epoch(self, now_ns: int, *, has_moved: bool) -> None:
        """Note a complete epoch; forget what happened if it was calm for long enough."""
        self._calm_epochs += has_moved
        is_calm = now_ns - self._calm_since_ns >= CALM_NS
        if self._calm_epochs >= CALM_EPOCHS or is_calm:
            self._losses, self._calm_epochs = 0, 0
            self._failures.clear()
        assert self._calm_epochs < CALM_EPOCHS, f"{self._calm_epochs} epochs were calm"

    def count_failure(self, report: Failed, now_ns: int) -> int:
        """Count a failure; return how often it came."""
        self._disturb(now_ns)
        failure = (report.kind, report.operator, report.location)
        self._failures[failure] = self._failures.get(failure, 0) + 1
        return self._failures[failure]

    def count_loss(self, now_ns: int, *, what: str) -> str:
        """Count a loss of a job that has begun; say why it is one too many, or nothing."""
        assert self._losses <= LOSSES_MAX, f"the job had to end before {what}"
        self._disturb(now_ns)
        self._losses += 1
        if self._losses <= LOSSES_MAX:
            return ""
        return (
            f"{what}, after {LOSSES_MAX} others without {CALM_EPOCHS} snapshots in a row "
            "between"
        )

    def _disturb(self, now_ns: int) -> None:
        calm_ns = self._calm_since_ns
        assert now_ns >= calm_ns, f"it was calm since {calm_ns}, and is {now_ns}"
        self._calm_epochs, self._calm_since_ns = 0, now_ns

    def count_start(self, worker: PeerId, replacement: PeerId, reason: str) -> str:
        """Count a loss before the job has begun; say why it is one too many, or nothing."""
        assert replacement not in self._lost_starts, f"{replacement} came before"
        tries = self._lost_starts.pop(worker, 0) + 1
        assert tries <= self.restarts_max + 1, f"worker {worker} was tried too often"
        self._lost_starts[replacement] = tries
        if tries <= self.restarts_max:
            return ""
        return f"a worker could not start: {reason}, the last of {tries} tries"
