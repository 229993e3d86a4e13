"""A picture of a run: a row for every figure, a column for every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.endurance.enduring import ALLOWED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.endurance.running import Sample

__all__ = ["plot"]


def plot(
    samples: list[Sample], kills: list[tuple[float, str]], warm_up_s: float, path: Path
) -> None:
    """Draw all samples; kills are lines, and the time that does not count is grey."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    jobs = list(dict.fromkeys(sample.job for sample in samples))
    size = (3.2 * max(1, len(jobs)), 1.6 * len(ALLOWED))
    figure, axes = plt.subplots(
        len(ALLOWED), max(1, len(jobs)), figsize=size, sharex=True, squeeze=False
    )
    for column, job in enumerate(jobs):
        own = [sample for sample in samples if sample.job == job]
        axes[0][column].set_title(job)
        axes[-1][column].set_xlabel("minutes")
        for row, name in enumerate(ALLOWED):
            axis = axes[row][column]
            points = [(s.at_s / 60, s.figures[name]) for s in own if name in s.figures]
            if points:
                axis.plot(*zip(*points, strict=True), linewidth=1)
            axis.axvspan(0, warm_up_s / 60, color="0.92")
            for at_s, killed in kills:
                if killed == job:
                    axis.axvline(at_s / 60, color="tab:red", linewidth=0.5)
            axis.set_ylim(0, 1.1 * max([value for _, value in points], default=1) or 1)
            if column == 0:
                axis.set_ylabel(name)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
