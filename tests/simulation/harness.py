"""A simulated cluster for tests that write down themselves what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import PeerId
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import Fault, FaultKind, SwarmOptions

if TYPE_CHECKING:
    import millstream as ms
    from millstream.protocol.job import Phase
    from millstream.runtime.worker import WorkerPhase

MS = 1_000_000
LEASE_NS = 6_000 * MS


def cluster_of(
    flow: ms.Flow,
    *,
    workers: int = 3,
    seed: int = 1,
    is_exit_reported: bool = True,
    **settings: Any,
) -> Cluster:
    """Return a cluster in which nothing goes wrong by itself."""
    config = replace(flow.config(settings), launch_timeout_ms=20_000)
    options = SwarmOptions(
        workers,
        config,
        delay_ns_min=1 * MS,
        delay_ns_max=3 * MS,
        turn_ns_max=MS // 10,
        is_exit_reported=is_exit_reported,
    )
    deployment = deploy(flow.plan, config, workers, SnapshotContext("scenario", ""))
    return Cluster(deployment, options, seed)


def reach(cluster: Cluster, phase: Phase) -> None:
    """Run until the coordinator has come to a phase."""
    cluster.run_until(lambda: cluster.coordinator.phase is phase)


def reach_worker(cluster: Cluster, phase: WorkerPhase) -> PeerId:
    """Run until some worker has come to a phase, and return which."""

    def found() -> list[PeerId]:
        return [p for p, worker in cluster.workers.items() if worker.phase is phase]

    cluster.run_until(lambda: bool(found()))
    return found()[0]


def strike(
    cluster: Cluster,
    kind: FaultKind,
    peer: int = 1,
    other: int | None = None,
    duration_ns: int = 0,
) -> None:
    """Let a fault happen now."""
    far = None if other is None else PeerId(other)
    cluster.inject(Fault(0, kind, PeerId(peer), far, duration_ns, is_fatal=True))


def ending(cluster: Cluster) -> str:
    """Run to the end, check that nothing is left, and return how it ended."""
    cluster.run()
    assert cluster.problems == []
    assert cluster.network.open_connections == 0
    assert not cluster.workers
    error = cluster.coordinator.error()
    return "succeeded" if error is None else f"{type(error).__name__}: {error}"
