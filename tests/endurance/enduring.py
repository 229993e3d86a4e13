"""A run of endless jobs: who is killed when, what is measured, and what is said of it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.endurance.flows import JOBS
from tests.endurance.running import GROWN_UP_S, Running, Sample
from tests.endurance.slopes import Allowance, Verdict, judged
from tests.spark.driving import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["ALLOWED", "Outcome", "Plan", "endured"]

BEGIN_WITHIN_S = 180.0

ALLOWED = {
    "worker MB": Allowance(20, 0.15),
    "driver MB": Allowance(15, 0.2),
    "descriptors": Allowance(6),
    "threads": Allowance(4),
    "state files": Allowance(150, 0.5),
    "state MB": Allowance(8, 0.5),
    "scratch dirs": Allowance(2),
    "pause ms": Allowance(25, 1.0),
    "snapshot ms": Allowance(250, 1.0),
    "latency ms": Allowance(250, 1.0),
}
"""By how much the figures of a healthy job may rise while they are measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run, where, and for how long."""

    directory: Path
    seconds: float
    jobs: Sequence[str]
    keys: int
    has_spark: bool = False
    warm_up_share: float = 0.3
    kill_until_share: float = 0.65
    kills_each: int = 3
    grown_up_s: float = GROWN_UP_S

    @property
    def warm_up_s(self) -> float:
        """What comes before does not count."""
        return self.seconds * self.warm_up_share

    @property
    def look_s(self) -> float:
        """How far samples are apart."""
        return min(5.0, max(1.0, self.seconds / 60))

    def kill_times(self) -> list[tuple[float, str]]:
        """Return when which job loses a worker, in order."""
        span_s = self.seconds * (self.kill_until_share - 0.1)
        count = self.kills_each * len(self.jobs)
        return [
            (
                0.1 * self.seconds + span_s * number / count,
                self.jobs[number % len(self.jobs)],
            )
            for number in range(count)
        ]


@dataclass(slots=True)
class Outcome:
    """All that was measured, and what follows from it."""

    samples: list[Sample] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        """Whether something rose or went wrong."""
        return bool(self.problems) or any(v.is_rising for v in self.verdicts)


def endured(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Run the jobs for the time of the plan; kill, measure and judge."""
    outcome = Outcome()
    running: dict[str, Running] = {}
    try:
        for name in sorted(plan.jobs, key=lambda name: not JOBS[name].is_on_spark):
            _begin(plan, name, running)
        _watch(plan, running, outcome, say)
    finally:
        for job in running.values():
            outcome.problems += job.close()
    with (plan.directory / "samples.jsonl").open("w") as file:
        for sample in outcome.samples:
            line = {"job": sample.job, "at_s": sample.at_s, **sample.figures}
            file.write(json.dumps(line) + "\n")
    outcome.verdicts = verdicts(outcome.samples, plan.jobs, plan.warm_up_s)
    outcome.problems += [
        f"{name} was measured {count} times only"
        for name in plan.jobs
        if (count := sum(s.job == name for s in outcome.samples)) < 10
    ]
    return outcome


def _begin(plan: Plan, name: str, running: dict[str, Running]) -> None:
    """Start a job and wait for its first epoch: five that start at once hinder each other."""
    on = "spark" if plan.has_spark and JOBS[name].is_on_spark else "processes"
    directory = plan.directory / name
    running[name] = job = Running(
        name, directory, on, plan.keys, grown_up_s=plan.grown_up_s
    )
    eventually(
        lambda: job.status.get("epoch") or job.process.poll() is not None,
        BEGIN_WITHIN_S,
    )


def _watch(
    plan: Plan,
    running: dict[str, Running],
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    began_s, pause = time.monotonic(), threading.Event()
    coming, told_s = plan.kill_times(), 0.0
    while (now_s := time.monotonic() - began_s) < plan.seconds:
        while coming and coming[0][0] <= now_s:
            _, name = coming.pop(0)
            if running[name].kill_worker():
                outcome.kills.append((now_s, name))
            else:
                coming = sorted([*coming, (now_s + plan.look_s, name)])
        for job in running.values():
            sample = job.sample(plan.look_s)
            if sample is not None:
                outcome.samples.append(sample)
            elif job.process.poll() is not None:
                outcome.problems.append(f"{job.name} ended: {job.said[-2000:]}")
                return
        if now_s - told_s > plan.seconds / 20:
            told_s = now_s
            say(_line(now_s, outcome))
        pause.wait(plan.look_s)


def _line(now_s: float, outcome: Outcome) -> str:
    latest = {sample.job: sample.figures for sample in outcome.samples}
    parts = [
        f"{name}: {figures.get('worker MB', 0):.0f} MB, {figures['state files']:.0f} files"
        for name, figures in latest.items()
    ]
    return f"{now_s / 60:5.1f} min, {len(outcome.kills)} kills; " + "; ".join(parts)


def verdicts(
    samples: list[Sample], jobs: Sequence[str], warm_up_s: float
) -> list[Verdict]:
    """Judge every figure of every job after the warm-up."""
    found = []
    for name in jobs:
        own = [s for s in samples if s.job == name and s.at_s >= warm_up_s]
        for figure, allowance in ALLOWED.items():
            points = [(s.at_s, s.figures[figure]) for s in own if figure in s.figures]
            verdict = judged(name, figure, points, allowance)
            if verdict is not None:
                found.append(verdict)
    return found
