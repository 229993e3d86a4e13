"""Jobs with snapshots in many seeds: whatever goes wrong, the rows are right.

Workers and drivers crash, freeze and are cut off; drivers are started twice; the disk
is full, stuck or damaged; writers finish after their process has died.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.conservation_checks import audit
from tests.simulation.loop_flows import LOOP_CASES, bank, ring
from tests.simulation.mutations import often
from tests.simulation.recovering import TIME_CASES, failures_of
from tests.simulation.recovery_flows import CASES, counted, scanned, stateful
from tests.simulation.visits import Visits, pieces
from tests.support.examples import few_flows, few_seeds, fresh_seeds, is_exhaustive

from millstream.protocol.job import JobCore
from millstream.protocol.job import Phase as JobPhase
from millstream.protocol.snapshots import Phase, SnapshotCore
from millstream.runtime.compacting import Compactions
from millstream.runtime.free_head import InFlight
from millstream.runtime.snapshots import SnapshotCoordinator
from millstream.runtime.task import Task, TaskPhase
from millstream.runtime.worker import Worker, WorkerPhase
from millstream.simulation.cluster import Cluster
from millstream.simulation.connectors import RecordingSink
from millstream.simulation.options import FaultKind
from millstream.state.store import SnapshotStore
from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.flows import Case

MANY_SEEDS = 2_000
"""Of all jobs together, and as many of the loops whose sum is conserved."""
CONSERVED = (ring, bank)
OTHER_LOOPS = tuple(make for make in LOOP_CASES if make not in CONSERVED)
LOOP_SEEDS = 540
"""Of the other loops together."""
TIME_SEEDS = 600
"""Of all flows with time together, which do more in every seed."""
CHUNK_SEEDS = 50
FEW_SEEDS = 4
SECONDS = 1.5
"""So long `make test` tries a flow, in seeds of the day."""


def many(cases: Sequence[Callable[[], Case]], total: int = MANY_SEEDS) -> list[Any]:
    """Return all seeds of the flows in an exhaustive run, else none but the day's."""
    return chunks(cases, total) if is_exhaustive() else [(make, None) for make in cases]


def chunks(cases: Sequence[Callable[[], Case]], total: int) -> list[Any]:
    """Share the seeds between the flows, in pieces that processes can share."""
    seeds = -(-total // len(cases))
    return [
        pytest.param(make, range(start, min(start + CHUNK_SEEDS, first + seeds)))
        for make, first in zip(cases, count(FEW_SEEDS, 10_000), strict=False)
        for start in range(first, first + seeds, CHUNK_SEEDS)
    ]


def name_of(value: Callable[[], Case] | range | None) -> str:
    if value is None:
        return "of-the-day"
    return f"from-{value.start}" if isinstance(value, range) else value.__name__


def failures_in(make: Callable[[], Case], seeds: range | None) -> list[str]:
    """Run these seeds, or those of the day until the time is over or one fails."""
    if seeds is not None:
        return failures_of(make.__name__, seeds)
    runs = (failures_of(make.__name__, [seed]) for seed in fresh_seeds(SECONDS))
    return next(filter(None, runs), [])


@pytest.mark.parametrize("make", few_flows(CASES), ids=lambda make: make.__name__)
def test_job_survives_a_few_seeds(make: Callable[[], Case]) -> None:
    """Exactly the right rows, in order by key; every epoch a consistent cut."""
    assert failures_of(make.__name__, few_seeds(FEW_SEEDS)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("make", "seeds"), many(CASES), ids=name_of)
def test_job_survives_many_seeds(make: Callable[[], Case], seeds: range | None) -> None:
    """All flows together run through two thousand seeds in `.ci/run`."""
    assert failures_in(make, seeds) == []


@pytest.mark.parametrize("make", few_flows(LOOP_CASES), ids=lambda make: make.__name__)
def test_loop_survives_a_few_seeds(make: Callable[[], Case]) -> None:
    """What goes round is neither lost nor doubled; a round begins where it was cut."""
    assert failures_of(make.__name__, few_seeds(FEW_SEEDS)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("make", "seeds"), many(CONSERVED), ids=name_of)
def test_sum_in_a_loop_survives_many_seeds(
    make: Callable[[], Case], seeds: range | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens and money are all there, at every cut and after every crash."""
    seen = audit(monkeypatch)

    assert failures_in(make, seeds) == []
    if seeds is not None:
        assert seen["under way"] > 0, "some of it goes round at a cut"


@pytest.mark.parametrize("make", CONSERVED, ids=lambda make: make.__name__)
def test_audit_finds_what_a_snapshot_doubles(
    make: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is stored twice is found at the cut, whether or not it is ever read."""
    audit(monkeypatch)
    fill = InFlight.fill
    monkeypatch.setattr(InFlight, "fill", lambda log, rows: fill(log, [*rows, *rows]))

    assert any(
        "under way" in failure for failure in failures_of(make.__name__, range(9))
    )


@pytest.mark.slow
@pytest.mark.parametrize(("make", "seeds"), many(OTHER_LOOPS, LOOP_SEEDS), ids=name_of)
def test_loop_survives_many_seeds(
    make: Callable[[], Case], seeds: range | None
) -> None:
    """All other loops together run through five hundred seeds in `.ci/run`."""
    assert failures_in(make, seeds) == []


@pytest.mark.parametrize("make", few_flows(TIME_CASES), ids=lambda make: make.__name__)
def test_time_survives_a_few_seeds(make: Callable[[], Case]) -> None:
    """What follows from time alone does so once, whoever was lost meanwhile."""
    assert failures_of(make.__name__, few_seeds(FEW_SEEDS // 2)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("make", "seeds"), many(TIME_CASES, TIME_SEEDS), ids=name_of)
def test_time_survives_many_seeds(
    make: Callable[[], Case], seeds: range | None
) -> None:
    """All flows with time together run through six hundred seeds in `.ci/run`."""
    assert failures_in(make, seeds) == []


@pytest.mark.parametrize(
    ("cases", "total"),
    [
        (CASES, MANY_SEEDS),
        (CONSERVED, MANY_SEEDS),
        (OTHER_LOOPS, LOOP_SEEDS),
        (TIME_CASES, TIME_SEEDS),
    ],
    ids=["jobs", "sums", "loops", "time"],
)
def test_many_seeds_are_many(cases: Sequence[Callable[[], Case]], total: int) -> None:
    """No seed is run twice, and no flow goes without."""
    runs = {
        (make, seed)
        for make, seeds in (chunk.values for chunk in chunks(cases, total))
        for seed in seeds
    }

    assert len(runs) == sum(len(chunk.values[1]) for chunk in chunks(cases, total))
    assert len(runs) >= total
    assert {make for make, _ in runs} == set(cases)


def test_same_seed_has_the_same_trace_with_snapshots() -> None:
    """Files, drivers and late writers depend on nothing but the seed."""

    def traces() -> list[str]:
        report = simulate(counted().flow, seeds=range(20, 26), snapshots=True)
        return [outcome.trace_hash for outcome in report.outcomes]

    assert traces() == traces()


RARE_BRANCHES: dict[str, tuple[type[Any], str, Callable[..., bool]]] = {
    "an epoch is given up": (SnapshotCore, "_abandon", lambda *_: True),
    "an epoch with a pause is given up": (
        SnapshotCore,
        "_abandon",
        lambda core, _: core._is_pausing,
    ),
    "a task cannot store": (
        SnapshotCore,
        "_handle_sealed",
        lambda _, report: bool(report.problem),
    ),
    "a manifest cannot be written": (
        SnapshotCore,
        "_handle_store_failed",
        lambda *_: True,
    ),
    "a recovery waits for a manifest": (
        SnapshotCore,
        "_handle_interrupted",
        lambda core: core.phase is Phase.STORING,
    ),
    "a recovery waits for a commit": (
        SnapshotCore,
        "_handle_interrupted",
        lambda core: core.phase is Phase.COMMITTING,
    ),
    "a recovery is interrupted": (
        JobCore,
        "_interrupt",
        lambda core, _: core.phase is JobPhase.CONNECTING and core._is_recovering,
    ),
    "a worker is lost while a manifest is awaited": (
        JobCore,
        "_replace",
        lambda core, *_: core.phase is JobPhase.RESOLVING_EPOCH,
    ),
    "a spare gets work": (JobCore, "_handle_pause", lambda *_: True),
    "a task ends before a cut": (
        SnapshotCore,
        "_handle_stored",
        lambda core, _: 0 < len(core._storing.ended_tasks) < len(core._tasks),
    ),
    "a task begins as one that has ended": (Task, "end_at_once", lambda *_: True),
    "a finished worker goes back to work": (
        Worker,
        "_deploy",
        lambda worker, _: worker.phase is WorkerPhase.FINISHED,
    ),
    "a barrier comes to a task in its final flush": (
        Task,
        "announce",
        lambda task, _: task.phase is TaskPhase.FINISHING,
    ),
    "a base takes the place of deltas": (
        Compactions,
        "settle",
        lambda compactions: bool(compactions._finished()),
    ),
    "a driver is started again": (
        Cluster,
        "_start_again",
        lambda cluster: not cluster.site.has_driver,
    ),
    "a second driver is started": (
        Cluster,
        "_start_again",
        lambda cluster: cluster.site.has_driver,
    ),
    "a driver finds that it was superseded": (
        SnapshotStore,
        "_refuse_superseded",
        lambda store: not store.is_current(store._claim),
    ),
    "an older epoch is used": (
        SnapshotStore,
        "adopt",
        lambda store, manifest: manifest is not None and bool(store.passed_over),
    ),
    "a commit is repeated": (
        RecordingSink,
        "commit",
        lambda sink, _, __, tokens: any(tuple(t) in sink._committed for t in tokens),
    ),
    "the last epoch is being committed when a worker leaves": (
        SnapshotCoordinator,
        "_commit",
        lambda snapshots, _: snapshots.is_concluding,
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_swarm_comes_to_every_rare_branch_of_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What no seed ever does, no seed proves."""
    visits = Visits(monkeypatch, RARE_BRANCHES)
    often(monkeypatch, FaultKind.DAMAGE, is_driver=False)

    for seeds in pieces(range(5_000, 5_400)):
        for make in (counted, stateful, scanned):
            if visits.missing:
                assert failures_of(make.__name__, seeds) == []

    assert visits.missing == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_swarm_meets_every_fault_and_survives_most() -> None:
    """A fault that never hits tests nothing; only two endings are not a success."""
    faults = {kind.value for kind in FaultKind}
    endings = {"succeeded", "JobCancelledError", "SnapshotError"}
    met: set[str] = set()
    ended: set[str] = set()

    for seeds in pieces(range(6_000, 6_200)):
        if met != faults or ended != endings:
            report = simulate(counted().flow, seeds=seeds, snapshots=True)
            met |= set(report.fault_counts)
            ended |= set(report.outcome_counts)

    assert met == faults
    assert ended == endings
