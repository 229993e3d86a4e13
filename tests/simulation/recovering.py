"""Many seeds of the flows with snapshots, in as many processes as there are processors.

A process that is started makes the flow again by its name: functions do not travel.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING

from tests.simulation import (
    frame_join_flows,
    frame_window_flows,
    join_flows,
    late_side_flows,
    loop_flows,
    loop_join_flows,
    recovery_flows,
    timed_loop_flows,
    timer_flows,
    window_flows,
)

from millstream.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.flows import Case

FLOWS = (
    recovery_flows,
    loop_flows,
    loop_join_flows,
    late_side_flows,
    timed_loop_flows,
    timer_flows,
    join_flows,
    window_flows,
    frame_window_flows,
    frame_join_flows,
)
TIME_CASES = (
    *timed_loop_flows.TIMED_LOOP_CASES,
    *timer_flows.TIMER_CASES,
    *join_flows.JOIN_CASES,
    *window_flows.WINDOW_CASES,
    *frame_join_flows.FRAME_JOIN_CASES,
    *frame_window_flows.FRAME_WINDOW_CASES,
)
CHUNK_SEEDS = 25

Pool = ProcessPoolExecutor


def failures_of(name: str, seeds: Sequence[int]) -> list[str]:
    """Return what went wrong in these seeds of a flow, one text for each."""
    (make,) = [vars(flows)[name] for flows in FLOWS if name in vars(flows)]
    case = make()
    report = simulate(
        case.flow, seeds=seeds, snapshots=True, check=case.check, on_failure="report"
    )
    return [
        f"{name}, seed {failure.seed}: {'; '.join(failure.problems)}"
        for failure in report.failures
    ]


@contextmanager
def pool() -> Iterator[Pool]:
    """Start the processes; Polars has threads, so none of them is a fork."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as executor:
        yield executor


def swarm(executor: Pool, make: Callable[[], Case], seeds: range) -> list[str]:
    """Run the seeds of a flow on all processors and return what went wrong."""
    chunks = [
        seeds[start : start + CHUNK_SEEDS]
        for start in range(0, len(seeds), CHUNK_SEEDS)
    ]
    parts = executor.map(failures_of, [make.__name__] * len(chunks), chunks)
    return [failure for part in parts for failure in part]
