"""What happens to a job with snapshots when one thing goes wrong at one moment.

Method: run a small flow until some epochs are complete, let the fault happen, run on.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.simulation.flows import Case, same
from tests.simulation.recovery_flows import counted, in_order, scanned

import millstream as ms
from millstream.errors import SnapshotError
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.ids import COORDINATOR, PeerId
from millstream.simulation.checkers import sink_rows
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import Fault, FaultKind, SwarmOptions

MS = 1_000_000


def cluster_of(case: Case, **settings: Any) -> Cluster:
    """Return a cluster whose input comes over some ten epochs."""
    usual = {"snapshot_every_ms": 2, "lease_ms": 1_000, "source_idle_ms": 2}
    config = case.flow.config(usual | settings)
    options = SwarmOptions(
        3,
        config,
        delay_ns_min=MS // 10,
        delay_ns_max=MS // 2,
        turn_ns_max=MS // 20,
        is_exit_reported=True,
        is_keeping=True,
        rows_per_epoch=4,
        piece_ns_max=MS // 2,
    )
    keeping = SnapshotContext("scenario", "")
    return Cluster(deploy(case.flow.plan, config, 3, keeping), options, seed=1)


def reach_epoch(cluster: Cluster, epoch: int) -> None:
    cluster.run_until(lambda: cluster.coordinator.snapshots.complete_epoch >= epoch)


def strike(cluster: Cluster, kind: FaultKind, peer: int, duration_ns: int = 0) -> None:
    cluster.inject(Fault(0, kind, PeerId(peer), None, duration_ns, is_fatal=True))


def check_ending(cluster: Cluster, case: Case) -> None:
    """Run to the end: nothing may be wrong, and the rows must be right."""
    cluster.run()
    assert cluster.problems == []
    assert cluster.error() is None
    assert case.check is not None
    case.check(sink_rows(cluster))


def reasons(cluster: Cluster) -> set[str]:
    """Return why epochs were given up."""
    told = (d.text for d in cluster.coordinator.story.entries())
    return {text.partition(" is abandoned: ")[2] for text in told} - {""}


def test_lost_worker_is_replaced_and_the_job_goes_back_to_its_last_epoch() -> None:
    """The others stay, the lost one's tasks move, and its replacement gets a share."""
    case = counted()
    cluster = cluster_of(case)
    reach_epoch(cluster, 3)
    strike(cluster, FaultKind.CRASH, 2)

    check_ending(cluster, case)
    (recovery,) = cluster.coordinator.recoveries
    assert recovery.epoch >= 3


def test_worker_killed_before_the_job_begins_is_replaced() -> None:
    """The driver is not started again for that, and nothing is gone back to."""
    case = counted()
    cluster = cluster_of(case)
    strike(cluster, FaultKind.CRASH, 2)

    check_ending(cluster, case)
    assert len(cluster.sites) == 1
    assert cluster.coordinator.recoveries == []
    assert any("is started in its place" in line for line in cluster.story())


def test_workers_that_keep_dying_before_the_job_begins_end_the_driver() -> None:
    """Tries in one place are limited; whoever looks after the job starts it again."""
    case = counted()
    cluster = cluster_of(case, restarts_max=2)
    for peer in (PeerId(2), PeerId(4), PeerId(5)):
        cluster.run_until(partial(cluster.site.nodes.__contains__, peer))
        strike(cluster, FaultKind.CRASH, peer)
        cluster.run_until(lambda: not cluster.site.exit_notices)

    check_ending(cluster, case)
    assert len(cluster.sites) == 2
    assert any("the last of 3 tries" in line for line in cluster.story())


def test_epochs_that_are_given_up_in_a_long_round_still_pass() -> None:
    """Regression: the loop left them out, and who read another stream as well failed."""
    flow = ms.Flow("long-rounds")

    def hop(rows: ms.Stream[int]) -> ms.Stream[int]:
        for _ in range(8):
            rows = rows.shuffle().map(lambda i: i)
        return rows

    made = flow.from_iterable(range(12)).shuffle().iterate(hop, max_rounds=4)
    others = flow.from_iterable(range(60), name="others").shuffle()
    made.merge(others).for_each(print, name="rows")
    expected = [*range(12), *range(60)]
    case = Case(flow, lambda rows: same(rows["rows"], expected))
    cluster = cluster_of(case, snapshot_timeout_ms=1)

    check_ending(cluster, case)
    assert any("did not seal it" in reason for reason in reasons(cluster))
    assert cluster.coordinator.recoveries == []


def test_full_disk_costs_epochs_and_not_the_job() -> None:
    """Regression: the first failed write spent a name that was tried for ever."""
    case = counted()
    cluster = cluster_of(case)
    strike(cluster, FaultKind.FULL, 1, duration_ns=200 * MS)

    check_ending(cluster, case)
    assert any("no space left" in reason for reason in reasons(cluster))


def test_driver_that_crashed_is_started_again_where_it_was() -> None:
    """Its successor has the rows that were collected, and does not begin anew."""
    case = in_order()
    cluster = cluster_of(case)
    reach_epoch(cluster, 3)
    strike(cluster, FaultKind.CRASH, COORDINATOR)

    check_ending(cluster, case)
    first, second = cluster.sites
    assert first.coordinator.outcome is None
    assert second.coordinator.snapshots.complete_epoch > 3


def test_second_driver_stops_the_first() -> None:
    """The first one finds a higher claim and gives up without a commit."""
    case = in_order()
    cluster = cluster_of(case)
    reach_epoch(cluster, 3)
    cluster.disk.interruption = cluster._start_again

    check_ending(cluster, case)
    first, _ = cluster.sites
    assert "another driver has taken over" in str(first.coordinator.error())


def newest_state_file(cluster: Cluster) -> str:
    manifest = cluster.coordinator.snapshots.manifests.manifest
    assert manifest is not None
    return manifest.files[-1].name


@pytest.mark.parametrize("peer", [COORDINATOR, PeerId(1)])
def test_damaged_state_is_never_restored(peer: PeerId) -> None:
    """What sinks have shown cannot be taken back, so the job ends loudly."""
    cluster = cluster_of(scanned())
    reach_epoch(cluster, 6)  # in which a sink shows what it held back
    name = newest_state_file(cluster)
    cluster.disk.files[name] = b"something else"
    cluster.disk.damaged.add(name)
    strike(cluster, FaultKind.CRASH, peer)
    cluster.run()

    assert isinstance(cluster.error(), SnapshotError)
    assert name in str(cluster.error())
