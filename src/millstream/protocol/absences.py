"""Workers that may be gone, until somebody says why or it has taken too long.

A link that broke is held against its far end for `_SUSPECT_NS`, and a lost connection to a
worker for `_EXIT_REASON_NS`: mostly a better reason arrives a moment later.  What is done about
it is decided in `millstream.protocol.job`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.protocol.ids import PeerId

__all__ = ["Absences"]

_SUSPECT_NS = 1_000_000_000
_EXIT_REASON_NS = 500_000_000


class Absences:
    """Who is suspected or lost, until when to wait, and what is said if nothing comes."""

    def __init__(self) -> None:
        self._suspects: dict[PeerId, tuple[int, str]] = {}
        self._lost: dict[PeerId, tuple[int, str]] = {}

    @property
    def lost(self) -> tuple[PeerId, ...]:
        """Workers that are gone for a reason which the launcher may still give."""
        return tuple(self._lost)

    def validate(self, present: Collection[PeerId], *, can_recover: bool) -> None:
        """Assert that a loss waits for its reason only where the job will end of it."""
        assert not (self._lost and can_recover), (
            f"a job that recovers waits for no reason: {self._lost}"
        )
        there = [worker for worker in self._lost if worker in present]
        assert not there, f"workers {there} are lost and there"
        gone = [worker for worker in self._suspects if worker not in present]
        assert not (gone and can_recover), f"workers {gone} are suspected, and are gone"

    def suspect(self, worker: PeerId, now_ns: int, text: str) -> None:
        """Note that another worker cannot reach this one; the first time counts."""
        assert text, f"worker {worker} is suspected for a reason"
        self._suspects.setdefault(worker, (now_ns + _SUSPECT_NS, text))

    def lose(self, worker: PeerId, now_ns: int, reason: str) -> None:
        """Note that the connection to a worker is gone; the first time counts."""
        assert reason, f"worker {worker} is lost for a reason"
        self._lost.setdefault(worker, (now_ns + _EXIT_REASON_NS, reason))

    def clear_suspect(self, worker: PeerId) -> None:
        """Hold nothing against a worker any more."""
        self._suspects.pop(worker, None)

    def clear_suspects(self) -> None:
        """Hold nothing against anybody: all connect anew."""
        assert not self._lost, f"workers {self.lost} are lost, and connect anew"
        self._suspects.clear()

    def clear(self) -> None:
        """Wait for nobody's reason: all have done what they had to do."""
        self._suspects.clear()
        self._lost.clear()

    def due_loss(self, now_ns: int) -> tuple[PeerId, str] | None:
        """Return a worker whose reason has not come in time, and what is known of it."""
        for worker, (deadline_ns, reason) in self._lost.items():
            lost_ns = deadline_ns - _EXIT_REASON_NS
            assert lost_ns <= now_ns, f"it is {now_ns}, {worker} was lost at {lost_ns}"
            if now_ns > deadline_ns:
                return worker, reason
        return None

    def due_suspect(self, now_ns: int) -> tuple[PeerId, str] | None:
        """Return a worker that was suspected for long enough, and why."""
        for worker, (deadline_ns, text) in self._suspects.items():
            since_ns = deadline_ns - _SUSPECT_NS
            assert since_ns <= now_ns, (
                f"it is {now_ns}, {worker} is so since {since_ns}"
            )
            if now_ns > deadline_ns and worker not in self._lost:
                return worker, text
        return None
