"""Jobs that begin where much, or all, of the flow has ended before.

What an operator had to say it has said: what would be lost or repeated without a word
because somebody reads from it now, or it from somebody else, is refused here.  A job that
has nothing left to do runs nothing; what it was told to drop is gone from its state all the
same, as at the end of any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError
from millstream.observe.log import logger
from millstream.plan.ended import live_operators, new_rows_lost
from millstream.protocol import snapshot_events as events
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.protocol.story import Story
from millstream.runtime.background import Inline
from millstream.runtime.clock import SystemClock
from millstream.runtime.coordinator import Coordinator
from millstream.runtime.inprocess import Hub
from millstream.runtime.restoring import is_same_plan
from millstream.runtime.snapshots import SnapshotCoordinator

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.plan.stages import StagePlan
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.snapshots import DriverContext, MergeFiles
    from millstream.state.manifest import Manifest

__all__ = ["CompleteRun", "check_ended", "is_complete", "with_last_epoch"]

_log = logger("state")


def is_complete(manifest: Manifest | None, stages: StagePlan) -> bool:
    """Return whether every sink of a flow had ended in this snapshot."""
    if manifest is None:
        return False
    nodes = [node for stage in stages.stages for node in stage.nodes]
    sinks = {node.name for node in nodes if node.is_sink}
    return sinks <= manifest.finished_operators


def check_ended(
    manifest: Manifest,
    stages: StagePlan,
    known_sources: Collection[str],
    *,
    is_dropping: bool = False,
) -> None:
    """Refuse a flow in which what has ended would have more to do.

    Parameters
    ----------
    known_sources
        Names of the sources that the snapshot was taken with.
    is_dropping
        Whether the user wants to go on without state that is gone.  Rows that nobody would
        take are refused all the same.
    """
    ended = manifest.finished_operators
    lost = new_rows_lost(stages, ended, known_sources)
    if lost is not None:
        source, operator = lost
        msg = (
            f"the source {source!r} is new, and the operator {operator!r}, which reads "
            f"from it, had ended in epoch {manifest.epoch} and takes no more rows; give "
            "the operator another name with name=, or read the source in another flow"
        )
        raise SnapshotError(msg)
    left = {name for name, was_left in manifest.ended_operators if was_left}
    # One that was left before its first epoch has stored nothing, and has lost what it knew.
    forgotten = left & live_operators(stages, ended) & manifest.fingerprints.keys()
    if forgotten and not is_dropping:
        operator = min(forgotten)
        msg = (
            f"the operator {operator!r} is read again, and its state is gone: nobody "
            f"read from it any more in epoch {manifest.epoch}, so that it had ended; "
            "give it another name with name=, or pass drop_state=True to begin without "
            "its state"
        )
        raise SnapshotError(msg)


def with_last_epoch(driver: DriverContext, deployment: Deployment) -> DriverContext:
    """Store the end of a flow that had ended as part of another plan.

    That is an epoch all of whose tasks have ended, without the state of operators that the
    flow does not have.  A job without a right to write stores nothing.
    """
    before = driver.manifest
    if before is None or not driver.claim or is_same_plan(before, deployment):
        return driver
    told: list[events.Command | MergeFiles] = []
    clock, work = SystemClock(), Inline()
    story = Story(clock.monotonic_ns())
    snapshots = SnapshotCoordinator(
        deployment, driver, work, told.append, story=story, wall_ms=clock.wall_ms
    )
    tasks, generation = deployment.tasks(), before.generation + 1
    snapshots.handle(events.Started(generation, tasks, tasks, clock.monotonic_ns()))
    while snapshots.is_busy:
        snapshots.poll()
    if not any(isinstance(command, events.Concluded) for command in told):
        reasons = [c.reason for c in told if isinstance(c, events.GiveUp)]
        reasons = reasons or [entry.text for entry in story.entries()]
        msg = (
            "nothing is left to do, but that could not be stored without what was "
            f"dropped ({'; '.join(reasons)}); mend that and start again"
        )
        raise SnapshotError(msg)
    epoch = snapshots.complete_epoch
    _log.info("epoch %d has no state that this flow has no operator for", epoch)
    return replace(driver, manifest=snapshots.manifests.manifest)


class CompleteRun:
    """The run of a job that was complete before: it has no workers, and is over."""

    def __init__(self, deployment: Deployment, driver: DriverContext) -> None:
        self.coordinator = Coordinator(
            [PeerId(1 + index) for index in range(deployment.worker_count)],
            deployment,
            Hub().join(COORDINATOR),
            SystemClock(),
            background=Inline(),
            driver=driver,
        )

    def step(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the coordinator."""
        self.coordinator.close()
