"""What ``millstream simulate`` does once its options are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from millstream.cli.failures import FAILED, SUCCEEDED
from millstream.cli.jobfile import taken_flow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["simulate_file"]


def simulate_file(
    path: Path,
    arguments: Sequence[str],
    *,
    seeds: int,
    seed: int | None,
    workers: int,
    faults: Any,
) -> int:
    """Simulate the flow of a job file and print the report; return the exit code."""
    from millstream.testing import simulate  # noqa: PLC0415 - heavier than the rest

    flow = taken_flow(path, arguments)
    report = simulate(flow, seeds=seeds, seed=seed, workers=workers, faults=faults)
    click.echo(report.summary())
    return SUCCEEDED if report.is_clean else FAILED
