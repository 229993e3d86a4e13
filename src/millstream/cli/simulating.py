"""What ``millstream simulate`` does once its options are known."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.failures import FAILED, SUCCEEDED
from millstream.cli.jobfile import taken_flow
from millstream.cli.terminal import StatusLine

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
    workers: int | None,
    faults: Any,
    snapshots: bool,
) -> int:
    """Simulate the flow of a job file and print the report; return the exit code."""
    from millstream.testing import simulate  # noqa: PLC0415 - heavier than the rest

    line = StatusLine(sys.stderr) if sys.stderr.isatty() else None
    done = 0

    def show(_: object) -> None:
        nonlocal done
        done += 1
        if line is not None:
            line.draw(f"simulating · {done} of {seeds if seed is None else 1} seeds")

    with taken_flow(path, arguments) as flow:
        try:
            report = simulate(
                flow, seeds=seeds, seed=seed, workers=workers, faults=faults,
                snapshots=snapshots, on_failure="report", on_seed=show,
            )  # fmt: skip
        finally:
            if line is not None:
                line.clear()
    command = _command(path, workers, faults, is_keeping=snapshots)
    report = replace(report, command=command)
    if seed is not None:
        click.echo("\n".join(report.outcomes[0].story))
    click.echo(report.summary())
    return SUCCEEDED if report.is_clean else FAILED


def _command(path: Path, workers: int | None, faults: str, *, is_keeping: bool) -> str:
    """Return the command that repeats a seed."""
    command = f"millstream simulate {path.name}"
    if workers is not None:
        command += f" --workers {workers}"
    if is_keeping:
        command += " --snapshots"
    if faults != "all":
        command += f" --faults {faults}"
    return f"{command} --seed {{seed}}"
