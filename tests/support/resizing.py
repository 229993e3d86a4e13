"""Stop a flow in the middle and go on with another number of workers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.spark.driving import eventually

if TYPE_CHECKING:
    from pathlib import Path

    import millstream as ms

__all__ = ["run_at_two_widths", "run_at_widths"]

EPOCHS = 3


def run_at_two_widths(
    flow: ms.Flow,
    widths: tuple[int, int],
    directory: Path,
    *,
    idle_ms: float = 100,
    **settings: Any,
) -> None:
    """Run a flow to a savepoint and from there to its end.

    `idle_ms` is how long the source pauses at first, so that there is a middle.
    """
    run_at_widths(flow, widths, directory, idle_ms=idle_ms, **settings)


def run_at_widths(
    flow: ms.Flow,
    widths: tuple[int, ...],
    directory: Path,
    *,
    idle_ms: float = 100,
    **settings: Any,
) -> None:
    """Run a flow from savepoint to savepoint, and from the last one to its end."""
    for number, workers in enumerate(widths[:-1]):
        job = flow.start(
            on="local",
            workers=workers,
            state=directory / f"state {number}",
            snapshot_every="20ms",
            source_idle_ms=idle_ms,
            **settings,
        )
        eventually(partial(_has_rows, job))
        eventually(partial(_has_come, job, job.epoch + EPOCHS))
        job.stop(directory / f"savepoint {number}")
        settings["resume_from"] = directory / f"savepoint {number}"
    flow.run(
        on="local",
        workers=widths[-1],
        state=directory / "after",
        source_idle_ms=1,
        **settings,
    )


def _has_rows(job: ms.Job) -> bool:
    return any(stage.rows_in for stage in job.metrics())


def _has_come(job: ms.Job, epoch: int) -> bool:
    assert job.status() == "running", (
        "the flow ended before it was stopped: pause for longer"
    )
    return job.epoch >= epoch
