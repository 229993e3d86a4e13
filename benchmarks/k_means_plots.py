"""K-means by the number of centroids and of workers, as in Fig. 5 and 6 of RStream.

30 rounds over a CSV file of points, reading included, with 1 to 1,000 centroids on two
workers (Fig. 6), and with 50 centroids on one, two and four workers (Fig. 5a): Millstream
with a Numba kernel, the same kernel in processes by hand, and PySpark's RDD with NumPy.  All
but the number of points is as in ``k_means.py``, and so are the contestants; all must find
the same centroids.

A session has as many task slots as there are workers, so there is one for each number of
workers.  More workers than cores share them.  The plot goes to ``results/k_means_plots.png``.

It does one round if not told otherwise, which takes about six minutes on two idle cores; most
of that is PySpark's with 1,000 centroids.  With fewer points it takes less.

    python benchmarks/k_means_plots.py [--quick] [--points N] [--rounds 1]
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import k_means
import matplotlib as mpl
import measure
import numpy as np
import word_count
from k_means_kernels import sums_of
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from k_means_kernels import Centroids
    from matplotlib.axes import Axes

FULL_POINTS, QUICK_POINTS = 1_000_000, 50_000
FULL_CENTROIDS, QUICK_CENTROIDS = (1, 5, 20, 50, 200, 1_000), (1, 20, 200)
FULL_WORKERS, QUICK_WORKERS = (1, 2, 4), (1, 2)
WORKERS, CENTROIDS = 2, 50
CONTESTANTS = (k_means.OWN, k_means.BY_HAND, k_means.RDD)


@dataclass(frozen=True, slots=True)
class Case:
    """A point of a plot."""

    workers: int
    centroids: int

    def __str__(self) -> str:
        """Return its name in tables."""
        plural = "" if self.workers == 1 else "s"
        return f"{self.workers} worker{plural}, k = {self.centroids:,}"


Times = dict[Case, dict[str, list[float]]]
"""Seconds of every round, by case and contestant."""


def main() -> None:
    """Measure all cases, print them and draw them."""
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--points", type=int, default=FULL_POINTS)
    parser.set_defaults(rounds=1)
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    points = QUICK_POINTS if options.quick else options.points
    counts = QUICK_CENTROIDS if options.quick else FULL_CENTROIDS
    widths = QUICK_WORKERS if options.quick else FULL_WORKERS
    cases = [Case(WORKERS, count) for count in counts]
    cases += [Case(width, CENTROIDS) for width in widths]
    times: Times = {}
    for width in sorted(set(widths) | {WORKERS}):
        tasks = {
            case: k_means.task_of(options.data, points, case.centroids)
            for case in dict.fromkeys(cases)
            if case.workers == width
        }
        times |= measured(width, tasks, options.rounds)
    medians = {
        case: {name: statistics.median(taken) for name, taken in by_name.items()}
        for case, by_name in times.items()
    }
    print_medians(medians)
    plot(medians, counts, widths)
    measure.finish(
        measure.Report(
            name="k_means_plots",
            is_quick=options.quick,
            sizes={"points": points, "rounds": k_means.ROUNDS},
            samples_unit="s",
            samples={
                f"{case}, {name}": taken
                for case, by_name in times.items()
                for name, taken in by_name.items()
            },
            figures=figures(medians),
        )
    )


def measured(workers: int, tasks: dict[Case, k_means.Task], rounds: int) -> Times:
    """Return the times of all contestants on this many workers."""
    spark = word_count.session(memory="2g", slots=workers)
    by_hand = k_means.Processes(workers)
    contestants: dict[str, Callable[[k_means.Task], Centroids]] = {
        k_means.OWN: lambda task: k_means.by_millstream(spark, task, sums_of, workers),
        k_means.BY_HAND: by_hand,
        k_means.RDD: lambda task: k_means.by_rdd(spark, task, workers),
    }
    try:
        for compute in contestants.values():
            compute(replace(next(iter(tasks.values())), rounds=2))
        return {case: timed(contestants, tasks[case], rounds) for case in tasks}
    finally:
        by_hand.close()
        spark.stop()


def timed(
    contestants: dict[str, Callable[[k_means.Task], Centroids]],
    task: k_means.Task,
    rounds: int,
) -> dict[str, list[float]]:
    """Return the times of one case, if all found the same centroids."""
    expected: list[Centroids] = []

    def seconds(name: str) -> float:
        taken, found = measure.timed(lambda: contestants[name](task))
        expected.append(found)
        same = np.allclose(expected[0], found, rtol=0, atol=k_means.TOLERANCE)
        measure.check(name, same, True)  # noqa: FBT003 - what was found
        return taken

    return measure.interleaved(rounds, contestants, seconds)


def figures(medians: dict[Case, dict[str, float]]) -> list[measure.Figure]:
    """Compare every case with both peers; two workers with one."""
    found = []
    for case, times in medians.items():
        own = times[k_means.OWN]
        found += [
            measure.Figure(f"{case}, time by hand", own / times[k_means.BY_HAND], "x"),
            measure.Figure(
                f"{case}, faster than {k_means.RDD}", times[k_means.RDD] / own, "x"
            ),
        ]
    alone = medians[Case(1, CENTROIDS)]
    return [
        *found,
        *(
            measure.Figure(
                f"{name}, faster on {WORKERS} workers than on one",
                alone[name] / medians[Case(WORKERS, CENTROIDS)][name],
                "x",
            )
            for name in CONTESTANTS
        ),
    ]


def print_medians(medians: dict[Case, dict[str, float]]) -> None:
    """Print a line for every case, and a column for every contestant."""
    measure.print_table(
        ("median", *CONTESTANTS),
        [
            (str(case), *(measure.shown(times[name], "s") for name in CONTESTANTS))
            for case, times in medians.items()
        ],
    )


def plot(
    medians: dict[Case, dict[str, float]], counts: Sequence[int], widths: Sequence[int]
) -> None:
    """Draw both figures side by side."""
    mpl.use("agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in CONTESTANTS:
        times = [medians[Case(WORKERS, count)][name] for count in counts]
        left.plot(counts, times, marker="o", label=name)
        times = [medians[Case(width, CENTROIDS)][name] for width in widths]
        right.plot(widths, times, marker="o", label=name)
    left.set_xscale("log")
    left.set_xticks(list(counts), [f"{count:,}" for count in counts], minor=False)
    right.set_xticks(list(widths), [str(width) for width in widths])
    named(left, "centroids", f"{WORKERS} workers")
    named(right, "workers", f"{CENTROIDS} centroids, {os.cpu_count()} cores")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=3
    )
    measure.RESULTS.mkdir(exist_ok=True)
    figure.savefig(measure.RESULTS / "k_means_plots.png", dpi=150)
    plt.close(figure)


def named(axes: Axes, horizontal: str, title: str) -> None:
    """Write on a panel what it shows."""
    axes.set_xlabel(horizontal)
    axes.set_ylabel("time (s)")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title)


if __name__ == "__main__":
    main()
