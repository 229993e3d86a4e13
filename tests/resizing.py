"""Stop a flow in the middle and go on with another number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run_at_two_widths"]

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
    job = flow.start(
        on="local",
        workers=widths[0],
        state=directory / "before",
        snapshot_every="20ms",
        source_idle_ms=idle_ms,
        **settings,
    )
    eventually(lambda: job.epoch > EPOCHS)
    job.savepoint(directory / "savepoint")
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()
    flow.run(
        on="local",
        workers=widths[1],
        state=directory / "after",
        resume_from=directory / "savepoint",
        source_idle_ms=1,
        **settings,
    )
