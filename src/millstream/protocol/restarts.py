"""How often a job with snapshots goes on after a loss or a failure, and when it gives up.

Counts what happened since the last complete epoch; what is done about it is decided in
`millstream.protocol.job`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.ids import PeerId
    from millstream.protocol.messages import Failed

__all__ = ["DAMAGE", "LASTING", "LOSSES_MAX", "Restarts"]

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
"""Workers and links that a running job may lose without a complete epoch between."""


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
        self._losses_without_progress = 0
        #: How many workers were lost before this one in the same place.
        self._lost_starts: dict[PeerId, int] = {}
        self._last_failure: tuple[str, str, str] | None = None
        #: How often the last failure came in a row.
        self.same_failures = 0

    def validate(self) -> None:
        """Assert that nothing was put up with too often; called by every test."""
        losses, tries = self._losses_without_progress, self._lost_starts.values()
        assert 0 <= losses <= LOSSES_MAX + 1, f"{losses} losses were put up with"
        most = self.restarts_max + 1
        assert 0 <= self.same_failures <= most, f"{self.same_failures} failures"
        assert all(0 < count <= most for count in tries), f"{self._lost_starts}"

    def get_on(self) -> None:
        """Forget what happened: an epoch is complete."""
        self._losses_without_progress, self._last_failure = 0, None

    def count_failure(self, report: Failed) -> bool:
        """Count a failure; return whether it came too often."""
        failure = (report.kind, report.operator, report.location)
        self.same_failures += 1
        if failure != self._last_failure:
            self._last_failure, self.same_failures = failure, 1
        return self.same_failures > self.restarts_max

    def count_loss(self, *, what: str) -> str:
        """Count a loss of a job that has begun; say why it is one too many, or nothing."""
        self._losses_without_progress += 1
        if self._losses_without_progress <= LOSSES_MAX:
            return ""
        return f"{what}, the last of {LOSSES_MAX} in a row without a snapshot between"

    def count_start(self, worker: PeerId, replacement: PeerId, reason: str) -> str:
        """Count a loss before the job has begun; say why it is one too many, or nothing."""
        assert replacement not in self._lost_starts, f"{replacement} came before"
        tries = self._lost_starts.pop(worker, 0) + 1
        self._lost_starts[replacement] = tries
        if tries <= self.restarts_max:
            return ""
        return f"a worker could not start: {reason}, the last of {tries} tries"
