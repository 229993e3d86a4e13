"""Put a flow through many seeds and say what happened.

A run is judged against the *reference*: the same flow on one worker with nothing tight
and nothing wrong, or a check that the caller brings.  This module does not know how
a plan becomes a deployment; a function it is given does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.connectors.iterable import ParallelSource
from millstream.errors import OperatorError, UsageError
from millstream.plan.grouping import Broadcast
from millstream.plan.nodes import Read
from millstream.simulation.checkers import Expectation, difference, judge, sink_rows
from millstream.simulation.cluster import Cluster
from millstream.simulation.options import calm_options, draw_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.runtime.deployment import Deployment
    from millstream.simulation.options import FaultLevel, SwarmOptions
    from millstream.values import Rows

__all__ = ["SeedOutcome", "SimulationReport", "Simulator"]


_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """How the run of one seed ended.

    Attributes
    ----------
    outcome
        ``"succeeded"``, or the name of the error.
    message
        What the error said.
    faults
        What went wrong, in order.
    problems
        What should not have happened; empty if the run was good.
    story
        What the job decided, in the words of `Job.story`, in seconds of virtual time.
    trace
        The last events of the simulator in a run that was not good.
    """

    seed: int
    workers: int
    outcome: str
    message: str
    trace_hash: str
    virtual_s: float
    turns: int
    faults: tuple[str, ...]
    problems: tuple[str, ...]
    story: tuple[str, ...] = ()
    trace: str = ""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """How a flow did in all seeds.

    Attributes
    ----------
    command
        What reproduces the run of a seed, with ``{seed}`` in its place.
    """

    name: str
    command: str
    outcomes: tuple[SeedOutcome, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every run was as it should be."""
        return self.first_failure is None

    @property
    def failures(self) -> tuple[SeedOutcome, ...]:
        """The runs with problems."""
        return tuple(outcome for outcome in self.outcomes if outcome.problems)

    @property
    def first_failure(self) -> SeedOutcome | None:
        """The first run with problems."""
        return next((o for o in self.outcomes if o.problems), None)

    @property
    def outcome_counts(self) -> dict[str, int]:
        """How often the job ended in which way."""
        return dict(Counter(o.outcome for o in self.outcomes).most_common())

    @property
    def fault_counts(self) -> dict[str, int]:
        """How often which fault hit."""
        return dict(Counter(f for o in self.outcomes for f in o.faults).most_common())

    def summary(self) -> str:
        """Return all of it in a few lines, with the command that reproduces a failure."""
        lines = [
            f"{self.name}: {len(self.outcomes)} seeds, {len(self.failures)} with problems",
            f"  outcomes: {_listed(self.outcome_counts)}",
            f"  faults:   {_listed(self.fault_counts)}",
        ]
        failure = self.first_failure
        if failure is not None:
            lines += [
                f"  seed {failure.seed}: {problem}" for problem in failure.problems
            ]
            lines.append("  what the job decided last, in virtual time:")
            lines += [f"    {line}" for line in failure.story[-_SHOWN_LINES:]]
            lines.append(f"  reproduce: {self.command.format(seed=failure.seed)}")
        return "\n".join(lines)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


@dataclass(slots=True)
class Simulator:
    """Runs one flow, seed by seed.

    Parameters
    ----------
    deploy
        Makes the deployment for a configuration and a number of workers.
    check
        Gets the rows of every sink by name and raises if they are wrong; without it
        they must be the rows of the reference, in any order.
    is_failing
        Whether a function of the flow raises; then it must do so in every run.
    """

    deploy: Callable[[Config, int], Deployment]
    config: Config
    level: FaultLevel = "all"
    workers: int | None = None
    check: Callable[[dict[str, Rows]], object] | None = None
    cluster_class: type[Cluster] = Cluster
    is_keeping: bool = False
    is_failing: bool = False
    _references: dict[int, Expectation] = field(default_factory=dict)

    def run(self, seed: int) -> SeedOutcome:
        """Run one seed."""
        options = draw_options(
            seed, self.config, self.level, self.workers, is_keeping=self.is_keeping
        )
        return self.run_with(options, seed)

    def run_with(self, options: SwarmOptions, seed: int) -> SeedOutcome:
        """Run with options of one's own; the seed still orders turns and delays."""
        deployment = self.deploy(options.config, options.workers)
        expected = self._expectation(deployment)
        cluster = self.cluster_class(deployment, options, seed)
        cluster.run()
        outcome = _summary(cluster, seed, judge(cluster, expected))
        cluster.close()
        return outcome

    def _expectation(self, deployment: Deployment) -> Expectation:
        """Return the reference, made when it is first needed."""
        workers = deployment.worker_count if _is_counting_workers(deployment) else 1
        if workers not in self._references:
            self._references[workers] = self._refer(workers)
        return self._references[workers]

    def _refer(self, workers: int) -> Expectation:
        options = calm_options(self.config, workers)
        cluster = Cluster(self.deploy(options.config, workers), options, seed=0)
        cluster.run()
        cluster.close()
        if cluster.problems:
            msg = (
                f"the flow cannot be simulated, it goes wrong without any fault: "
                f"{cluster.problems[0]}; its input must end, or be limited"
            )
            raise UsageError(msg)
        error = cluster.error()
        if self.is_failing and error is None:
            return Expectation(lambda _: "it should have raised, and did not")
        is_expected = self.is_failing and isinstance(error, OperatorError)
        if error is not None and not is_expected:
            problem = f"without any fault it ended with {type(error).__name__}: {error}"
            return Expectation(lambda _: problem)
        if self.check is not None:
            return Expectation(_reporting(self.check), error)
        rows = sink_rows(cluster)
        return Expectation(lambda found: difference(found, rows), error)


def _is_counting_workers(deployment: Deployment) -> bool:
    """Return whether the rows depend on how many workers there are."""
    specs = [stage.nodes[0].spec for stage in deployment.stages.stages]
    return any(
        isinstance(e.grouping, Broadcast) for e in deployment.stages.edges
    ) or any(
        isinstance(spec, Read) and isinstance(spec.source, ParallelSource)
        for spec in specs
    )


def _reporting(
    check: Callable[[dict[str, Rows]], object],
) -> Callable[[dict[str, Rows]], str | None]:
    def run(rows: dict[str, Rows]) -> str | None:
        try:
            check(rows)
        except Exception as error:  # noqa: BLE001 - the user's check may raise anything
            return f"the check raised {type(error).__name__}: {error}"
        return None

    return run


def _summary(cluster: Cluster, seed: int, problems: list[str]) -> SeedOutcome:
    error = cluster.error()
    has_ended = error is not None or cluster.coordinator.outcome is not None
    name = "succeeded" if error is None else type(error).__name__
    if not has_ended:
        name = "nothing"
    return SeedOutcome(
        seed=seed,
        workers=cluster.options.workers,
        outcome=name,
        message=str(error) if error is not None else "",
        trace_hash=cluster.trace.digest,
        virtual_s=cluster.clock.now_ns / 1e9,
        turns=cluster.turn_count,
        faults=tuple(fault.kind.value for fault in cluster.fired),
        problems=tuple(problems),
        story=cluster.story(),
        trace=cluster.trace.story() if problems else "",
    )
