"""K-means over ten million points: `cycle` against MLlib, RDDs and hand-written processes.

The points, two coordinates in a CSV file of 200 MB, are read once; then there are 30 rounds
with a fixed number of centroids.  Reading is part of the time.  The body is a function of
whole data frames: a Numba kernel in one contestant, plain NumPy in another.

*By hand* is the same Numba kernel in two `multiprocessing` processes, each with half of the
file, which Polars reads; a pipe carries centroids one way and sums the other.  The RDD keeps
NumPy arrays in its cache and runs the NumPy kernel per partition, a job for every round.  All
of these begin with the same centroids, and must end with the same within 1e-6.  MLlib chooses
its own first centroids (tolerance 0, the same number of rounds), so only its time counts.

Where there are more than 50 centroids, NumPy and RDD see fewer points (`--rdd-points`), and
so does MLlib (`--mllib-points`).  Millstream with Numba is then measured on as many as well:
a ratio is always that of two times on the same points, and its name says how many.

With 708 to 999 centroids MLlib compares centroids with each other, in every round, by a
job that has a task for each of them (it does so in one process if coordinates times squared
centroids are less than a million).  That takes seconds, however few points there are; so the
fewer there are, the worse it looks.

Millstream and the processes by hand also run with one round, which tells what starting and
reading take, and, by the difference, what a round takes.

On two idle cores a round of all takes about five minutes with 50 centroids, and twelve with
750.

    python benchmarks/k_means.py [--quick] [--centroids 50 750] [--points N] [--rounds 3]
                                 [--rdd-points N] [--mllib-points N]
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import polars as pl
import word_count
from k_means_kernels import moved, sums_by_numpy, sums_of

import millstream as ms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from k_means_kernels import Centroids
    from pyspark.sql import SparkSession

ROUNDS, WORKERS = 30, 2
FULL_POINTS, QUICK_POINTS = 10_000_000, 200_000
FEW_CENTROIDS, MANY_CENTROIDS = 50, 750
NUMPY_DISTANCES, MLLIB_DISTANCES = 375_000_000, 1_500_000_000
"""Most distances in a round of slow contestants, if there are many centroids."""
SCHEMA = {"x": pl.Float64, "y": pl.Float64}
SUMS = {"centroid": pl.Int64, "x": pl.Float64, "y": pl.Float64, "count": pl.Int64}
OWN, OWN_NUMPY, BY_HAND = "Millstream, Numba", "Millstream, NumPy", "By hand, Numba"
MLLIB, RDD = "Spark MLlib", "PySpark RDD, NumPy"
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Task:
    """What every contestant has to do."""

    path: Path
    points: int
    initial: Centroids
    rounds: int = ROUNDS

    @property
    def once(self) -> Task:
        """The same with one round."""
        return replace(self, rounds=1)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The same with all points, and with as many as slow peers get."""

    full: Task
    rdd: Task
    mllib: Task


# Contestants


def by_millstream(
    spark: SparkSession, task: Task, kernel: Callable[..., Any], workers: int = WORKERS
) -> Centroids:
    """Run a cycle on resident workers of the session."""

    def partial_sums(state: ms.RoundState[Centroids]) -> Any:
        def sums(points: pl.DataFrame) -> pl.DataFrame:
            found, counts = kernel(
                points["x"].to_numpy(), points["y"].to_numpy(), state.value
            )
            return pl.DataFrame(
                {
                    "centroid": np.arange(len(counts)),
                    "x": found[:, 0],
                    "y": found[:, 1],
                    "count": counts,
                },
                schema=SUMS,
            )

        return sums

    def update(centroids: Centroids, sums: pl.DataFrame) -> Centroids:
        total = sums.group_by("centroid").sum().sort("centroid")
        return moved(
            centroids, total.select("x", "y").to_numpy(), total["count"].to_numpy()
        )

    flow = ms.Flow("k-means")
    points = flow.read_csv(task.path, schema=SCHEMA, header=False)
    result = points.cycle(
        task.initial,
        lambda points, state: points.map_batches(partial_sums(state), schema=SUMS),
        update,
        max_rounds=task.rounds,
    ).collect()
    flow.run(spark=spark, workers=workers)
    centroids: Centroids = result.result()[0]
    return centroids


class Processes:
    """Processes that exist before the clock starts, and read a part each."""

    def __init__(self, workers: int = WORKERS) -> None:
        # Polars has threads, so they must not be forks.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            context.Process(target=_part_by_hand, args=(theirs,), daemon=True).start()
            self._pipes.append(ours)

    def __call__(self, task: Task) -> Centroids:
        """Send centroids one way, add up the sums that come the other."""
        part = -(-task.points // len(self._pipes))
        for number, pipe in enumerate(self._pipes):
            pipe.send((task, number * part, part))
        centroids = task.initial
        for _ in range(task.rounds):
            for pipe in self._pipes:
                pipe.send(centroids)
            parts = [pipe.recv() for pipe in self._pipes]
            sums, counts = sum(s for s, _ in parts), sum(c for _, c in parts)
            centroids = moved(centroids, sums, counts)
        return centroids

    def close(self) -> None:
        """Let the processes end."""
        for pipe in self._pipes:
            pipe.close()


def _part_by_hand(pipe: Connection) -> None:
    with contextlib.suppress(EOFError):  # when the other process has ended
        _serve_parts(pipe)


def _serve_parts(pipe: Connection) -> None:
    while True:
        task, start, count = pipe.recv()
        points = pl.read_csv(
            task.path, has_header=False, schema=SCHEMA, skip_rows=start, n_rows=count
        )
        x, y = points["x"].to_numpy(), points["y"].to_numpy()
        for _ in range(task.rounds):
            pipe.send(sums_of(x, y, pipe.recv()))


def by_rdd(spark: SparkSession, task: Task, workers: int = WORKERS) -> Centroids:
    """Keep arrays in the cache, and run a job for every round."""

    def array_of(lines: Any) -> Any:
        yield np.array([line.split(",") for line in lines], dtype=np.float64)

    text = spark.sparkContext.textFile(str(task.path), workers)
    arrays = text.mapPartitions(array_of).cache()
    centroids = task.initial
    for _ in range(task.rounds):
        shown = spark.sparkContext.broadcast(centroids)
        found = arrays.map(
            lambda points, shown=shown: sums_by_numpy(
                points[:, 0], points[:, 1], shown.value
            )
        )
        sums, counts = found.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
        centroids = moved(centroids, sums, counts)
        shown.destroy()
    arrays.unpersist()
    return centroids


def by_mllib(spark: SparkSession, task: Task) -> Centroids:
    """Fit the model of Spark's own library."""
    from pyspark.ml.clustering import KMeans  # noqa: PLC0415 - its session exists now
    from pyspark.ml.feature import VectorAssembler  # noqa: PLC0415 - see above

    points = spark.read.csv(str(task.path), schema="x DOUBLE, y DOUBLE")
    assembled = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    vectors = assembled.transform(points).select("features").cache()
    k_means = KMeans(
        k=len(task.initial), maxIter=task.rounds, tol=0.0, initMode="random", seed=7
    )
    model = k_means.fit(vectors)
    vectors.unpersist()
    measure.check(f"{MLLIB} (rounds)", model.summary.numIter, task.rounds)
    return np.array(model.clusterCenters())


# Measuring


def main() -> None:
    """Measure all contestants with few and many centroids."""
    options = parsed()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find the kernels here, and what Numba compiled of them beside.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    samples: dict[str, list[float]] = {}
    figures: list[measure.Figure] = []
    spark = word_count.session(memory="6g")
    try:
        for count in options.centroids:
            tasks = tasks_of(options, count)
            taken = measured(spark, tasks, options.rounds)
            samples |= {f"k = {count}, {name}": times for name, times in taken.items()}
            figures += compared(count, tasks, taken)
    finally:
        spark.stop()
    measure.finish(
        measure.Report(
            name="k_means",
            is_quick=options.quick,
            sizes={
                "points": options.points,
                "rounds": ROUNDS,
                "workers": WORKERS,
            },
            samples_unit="s",
            samples=samples,
            figures=figures,
        )
    )


def parsed() -> argparse.Namespace:
    """Return the options; a quick run has few points and few centroids."""
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--centroids", type=int, nargs="*")
    parser.add_argument("--points", type=int)
    for peer in ("rdd", "mllib"):
        parser.add_argument(f"--{peer}-points", type=int)
    options = parser.parse_args()
    if options.points is None:
        options.points = QUICK_POINTS if options.quick else FULL_POINTS
    if options.centroids is None:
        many = [] if options.quick else [MANY_CENTROIDS]
        options.centroids = [FEW_CENTROIDS, *many]
    return options


def tasks_of(options: argparse.Namespace, count: int) -> Tasks:
    """Return as many points for each peer as was asked for, or as are sensible."""

    def task(points: int | None, distances: int) -> Task:
        if points is None:
            is_few = count <= FEW_CENTROIDS
            points = options.points if is_few else distances // count
        return task_of(options.data, min(points, options.points), count)

    return Tasks(
        full=task_of(options.data, options.points, count),
        rdd=task(options.rdd_points, NUMPY_DISTANCES),
        mllib=task(options.mllib_points, MLLIB_DISTANCES),
    )


def measured(spark: SparkSession, tasks: Tasks, rounds: int) -> dict[str, list[float]]:
    """Return the times of all; Millstream's with as many points as any peer."""
    by_hand = Processes()

    def own(task: Task) -> Centroids:
        return by_millstream(spark, task, sums_of)

    def own_numpy(task: Task) -> Centroids:
        return by_millstream(spark, task, sums_by_numpy)

    full, rdd, mllib = tasks.full, tasks.rdd, tasks.mllib
    runs: list[tuple[str, Callable[[Task], Centroids], Task]] = [
        (OWN, own, full),
        (BY_HAND, by_hand, full),
        (OWN, own, full.once),
        (BY_HAND, by_hand, full.once),
        (OWN, own, rdd),
        (OWN_NUMPY, own_numpy, rdd),
        (RDD, lambda task: by_rdd(spark, task), rdd),
        (OWN, own, mllib),
        (MLLIB, lambda task: by_mllib(spark, task), mllib),
    ]
    contestants = {label(name, task): (name, run, task) for name, run, task in runs}
    expected: dict[tuple[int, int], Centroids] = {}

    def seconds(which: str) -> float:
        name, run, task = contestants[which]
        # What the contestant before has left behind is nobody's burden.
        spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]  # noqa: SLF001
        taken, centroids = measure.timed(lambda: run(task))
        if name != MLLIB:
            known = expected.setdefault((task.points, task.rounds), centroids)
            assert np.allclose(known, centroids, rtol=0, atol=TOLERANCE), which
        return taken

    with contextlib.closing(by_hand):
        for run in (own, by_hand, own_numpy):
            run(replace(rdd, rounds=2))
        return measure.interleaved(rounds, contestants, seconds)


def label(name: str, task: Task) -> str:
    """Return the name of a contestant with what it has to do."""
    once = ", one round" if task.rounds == 1 else ""
    return f"{name}, {task.points:,} points{once}"


def compared(
    count: int, tasks: Tasks, taken: dict[str, list[float]]
) -> list[measure.Figure]:
    """Return the ratios that are aimed at, each of the same points."""

    def time(name: str, task: Task) -> float:
        return statistics.median(taken[label(name, task)])

    full, rdd, mllib = tasks.full, tasks.rdd, tasks.mllib
    own, hand = time(OWN, full), time(BY_HAND, full)
    own_round = (own - time(OWN, full.once)) / (ROUNDS - 1)
    hand_round = (hand - time(BY_HAND, full.once)) / (ROUNDS - 1)
    own_rest = time(OWN, full.once) - own_round
    hand_rest = time(BY_HAND, full.once) - hand_round
    faster = f"k = {count}, faster than {label(MLLIB, mllib)}"
    ratio = time(MLLIB, mllib) / time(OWN, mllib)
    is_aimed_at = count == FEW_CENTROIDS and mllib.points == full.points
    over_rdd = time(RDD, rdd) / time(OWN, rdd)
    numpy_over_rdd = time(RDD, rdd) / time(OWN_NUMPY, rdd)
    of_rdd = f"faster than {label(RDD, rdd)}"
    return [
        measure.at_least(faster, ratio, "x", 8)
        if is_aimed_at
        else measure.Figure(faster, ratio, "x"),
        measure.at_most(f"k = {count}, time by hand", own / hand, "x", 1.25),
        measure.Figure(
            f"k = {count}, a round, time by hand", own_round / hand_round, "x"
        ),
        measure.Figure(f"k = {count}, starting and reading", own_rest, "s"),
        measure.Figure(f"k = {count}, starting and reading by hand", hand_rest, "s"),
        measure.Figure(f"k = {count}, {of_rdd}", over_rdd, "x"),
        measure.Figure(f"k = {count}, NumPy body, {of_rdd}", numpy_over_rdd, "x"),
    ]


def task_of(directory: Path, points: int, count: int) -> Task:
    """Return the points, made once, and the first of them as centroids."""
    path = directory / f"points-{points}.csv"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(points)
        centres = rng.uniform(-100, 100, (64, 2))
        near = centres[rng.integers(0, len(centres), points)]
        coordinates = np.round(near + rng.normal(0, 5, (points, 2)), 5)
        frame = pl.DataFrame(coordinates, schema=SCHEMA)
        frame.write_csv(path.with_suffix(".part"), include_header=False)
        path.with_suffix(".part").rename(path)
    first = pl.read_csv(path, has_header=False, schema=SCHEMA, n_rows=count)
    return Task(path, points, first.to_numpy())


if __name__ == "__main__":
    main()
