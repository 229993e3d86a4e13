"""Run a flow in the simulator: many seeds, each another cluster with other faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from millstream.errors import UsageError
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.simulation.run import SimulationReport, Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.api.flow import Flow
    from millstream.config import Config
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import FaultLevel
    from millstream.simulation.run import SeedOutcome

__all__ = ["SimulationFailedError", "simulate"]

Rows = list[Any]

_LEVELS: dict[object, FaultLevel] = {
    True: "all",
    "all": "all",
    "benign": "benign",
    False: "none",
    "none": "none",
}


class SimulationFailedError(AssertionError):
    """A flow did in some seed what it must never do; `report` has everything."""

    def __init__(self, report: SimulationReport) -> None:
        super().__init__(report.summary())
        self.report = report


def simulate(
    flow: Flow,
    *,
    seeds: int | Iterable[int] = 100,
    seed: int | None = None,
    workers: int | None = None,
    faults: bool | Literal["all", "benign", "none"] = True,
    snapshots: bool = False,
    check: Callable[[dict[str, Rows]], object] | None = None,
    fails: bool = False,
    on_failure: Literal["raise", "report"] = "raise",
    on_seed: Callable[[SeedOutcome], object] | None = None,
    **settings: Any,
) -> SimulationReport:
    """Run a flow once per seed, on virtual time, with what the seed makes go wrong.

    The workers and the coordinator are the real ones.  The seed decides how many workers
    there are, how small their buffers, whose turn it is, how long a frame takes, and
    which links clog, which workers freeze, crash or are cut off.  The same seed always
    does the same.  Sources are read; nothing is written, and the functions of
    `for_each` are not called.

    Every run must succeed with the rows that one worker without faults produces (as a
    multiset), or fail because of a fault that it was given, leaving nothing behind.
    With snapshots it must succeed whatever happens, unless it was cancelled or what it
    needs was destroyed.

    Parameters
    ----------
    seeds
        Numbers to try, or how many of them.
    seed
        The only number to try; to see a failure again.
    workers
        Number of workers; by default the seed draws 1 to 4.
    faults
        True or ``"all"`` for all kinds, ``"benign"`` for those that only slow the job
        down, False or ``"none"`` for none (buffers, turns and delays still vary).
    snapshots
        Let the job take snapshots and survive its faults.  Then drivers crash too and
        are started again, or twice; the disk is full, stuck or damaged.  A job that
        finds its snapshots damaged may end with `SnapshotError`.
    check
        Called with the rows of every sink by name instead of the comparison; raises
        if they are wrong.  For flows whose rows depend on the order of things.
    fails
        Whether a function of the flow raises, as it should; then every run must end with
        its error.  Without it, a flow that fails without any fault fails in every seed.
    on_failure
        ``"raise"`` stops at the first bad seed, ``"report"`` goes on.
    on_seed
        Called after every seed; for progress.
    settings
        Fields of `millstream.config.Config` to start from; a seed may make them smaller.

    Raises
    ------
    SimulationFailedError
        If a run went wrong, with the call that reproduces it.

    Examples
    --------
    >>> import millstream as ms
    >>> from millstream.testing import simulate
    >>> flow = ms.Flow("word-count")
    >>> words = flow.from_iterable(["to be or", "not to be"]).flat_map(str.split)
    >>> counts = words.group_by(str).count().collect()
    >>> report = simulate(flow, seeds=5, faults="benign")
    >>> report.outcome_counts
    {'succeeded': 5}
    """
    if faults not in _LEVELS:
        msg = f"simulate takes faults='all', 'benign' or 'none', got {faults!r}"
        raise UsageError(msg)
    flow.plan.check()

    def make(config: Config, count: int) -> Deployment:
        return deploy(flow.plan, config, count, SnapshotContext("simulation", ""))

    simulator = Simulator(
        make,
        flow.config(settings),
        _LEVELS[faults],
        workers,
        check,
        is_keeping=snapshots,
        is_failing=fails,
    )
    outcomes: list[SeedOutcome] = []
    for number in _numbers(seeds, seed):
        outcomes.append(simulator.run(number))
        if on_seed is not None:
            on_seed(outcomes[-1])
        if outcomes[-1].problems and on_failure == "raise":
            break
    given = {"workers": workers, "faults": _LEVELS[faults], "snapshots": snapshots}
    command = _call(given | settings)
    report = SimulationReport(flow.name, command, tuple(outcomes))
    if on_failure == "raise" and not report.is_clean:
        raise SimulationFailedError(report)
    return report


def _numbers(seeds: int | Iterable[int], seed: int | None) -> Iterable[int]:
    if seed is not None:
        return (seed,)
    return range(seeds) if isinstance(seeds, int) else seeds


def _call(given: dict[str, Any]) -> str:
    """Return the call that repeats a seed: a flow of a test is found by nothing else."""
    usual = {"workers": None, "faults": "all", "snapshots": False}
    texts = [f"{k}={v!r}" for k, v in given.items() if k not in usual or usual[k] != v]
    options = (
        "".join(f", {text}" for text in texts).replace("{", "{{").replace("}", "}}")
    )
    return f"simulate(flow, seed={{seed}}{options})"
