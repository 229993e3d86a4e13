"""What a round costs in which nothing is done: `cycle` against a Spark job per round.

The state, an integer, goes to all workers, each of which gives one number back; their sum is
the next state.  Both do many rounds and few; the difference, divided by the number of rounds
between, is what one costs.  Start and end of the job are in both and fall out.

Spark broadcasts the state and reduces an RDD of two cached partitions, in the same session.

    python benchmarks/empty_round.py [--quick]
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import measure
import word_count

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

WORKERS = 2
FEW, MANY = 20, 420
QUICK_FEW, QUICK_MANY = 2, 12
OWN, SPARK = "Millstream", "PySpark RDD"
TARGET_MS = 5


def main() -> None:
    """Measure both."""
    options = measure.arguments(__doc__ or "").parse_args()
    few, many = (QUICK_FEW, QUICK_MANY) if options.quick else (FEW, MANY)
    spark = word_count.session()
    programs: dict[str, Callable[[int], int]] = {
        OWN: lambda rounds: by_millstream(spark, rounds),
        SPARK: lambda rounds: by_spark(spark, rounds),
    }

    def milliseconds(name: str) -> float:
        times = {}
        for rounds in (few, many):
            times[rounds], found = measure.timed(lambda r=rounds: programs[name](r))
            measure.check(name, found, expected(rounds))
        return (times[many] - times[few]) / (many - few) * 1e3

    try:
        for name in programs:
            milliseconds(name)
        samples = measure.interleaved(options.rounds, programs, milliseconds)
    finally:
        spark.stop()
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    measure.finish(
        measure.Report(
            name="empty_round",
            is_quick=options.quick,
            sizes={"rounds": many - few, "workers": WORKERS},
            samples_unit="ms",
            samples=samples,
            figures=[
                measure.at_most("an empty round", medians[OWN], "ms", TARGET_MS),
                measure.Figure(
                    "quicker than a job per round", medians[SPARK] / medians[OWN], "x"
                ),
            ],
        )
    )


def expected(rounds: int) -> int:
    """Return the last state."""
    state = 0
    for _ in range(rounds):
        state = sum((i + state) % 1000 for i in range(WORKERS))
    return state


def by_millstream(spark: SparkSession, rounds: int) -> int:
    """Cycle over a row per worker."""
    flow = ms.Flow("empty-round")
    rows = flow.from_parallel(lambda rank, _: [rank])
    result = rows.cycle(
        0,
        lambda rows, state: rows.map(lambda i: (i + state.value) % 1000),
        lambda _, found: sum(found),
        max_rounds=rounds,
    ).collect()
    flow.run(spark=spark, workers=WORKERS)
    return result.result()[0]


def by_spark(spark: SparkSession, rounds: int) -> int:
    """Run a job for every round."""
    context = spark.sparkContext
    rows = context.parallelize(range(WORKERS), WORKERS).cache()
    state = 0
    for _ in range(rounds):
        shown = context.broadcast(state)
        state = rows.map(lambda i, shown=shown: (i + shown.value) % 1000).sum()
        shown.destroy()
    rows.unpersist()
    return state


if __name__ == "__main__":
    main()
