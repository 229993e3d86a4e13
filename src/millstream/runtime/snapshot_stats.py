"""What is remembered of the snapshots of a job, for users who watch what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.protocol.snapshot_events import Store

__all__ = ["REMEMBERED_MAX", "Snapshot", "snapshot_of"]

REMEMBERED_MAX = 1000
"""Only so many are remembered, because a job may run for years."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One complete snapshot of a running job.

    Attributes
    ----------
    duration_ms
        From the announcement of the epoch until its manifest was durable; 0 for the
        last epoch of a job whose input ended, which nobody announces.
    state_bytes
        What the tasks wrote for it: the state touched since the one before.
    pause_ms
        How long the task that stood still longest did so at its cut.
    """

    epoch: int
    duration_ms: float
    state_bytes: int
    pause_ms: float


def snapshot_of(store: Store, duration_ns: int) -> Snapshot:
    """Return what to remember of an epoch that has just become complete."""
    sealed = [report for report in store.sealed if report.epoch == store.epoch]
    lengths = (report.file[1] for report in sealed if report.file is not None)
    pauses_ns = (report.pause_ns for report in sealed)
    return Snapshot(
        store.epoch, duration_ns / 1e6, sum(lengths), max(pauses_ns, default=0) / 1e6
    )
