"""NEXMark: events per second of eleven queries, beside Spark's DataFrame.

The queries are those of `examples.nexmark`, on two workers on Spark: all of them on rows,
with event time and watermarks, and all but the first on frames.  The events are in files,
pickled for rows and in Parquet for frames and for Spark (`nexmark_data`).  Spark answers in
SQL over the finished files: a batch, which knows the end of time and waits for no
watermark.

Results are counted and one of their columns is added up, and both must be the same for
all contestants, on a few events that nobody's time is taken for.  Later Spark makes its
results and throws them away.  All share one session; the start of Millstream's workers
is part of its time.

    python benchmarks/nexmark.py [--quick] [--queries q1,q5]
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import measure
import polars as pl
import word_count

import millstream as ms

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # workers get the path, too

import nexmark_peers  # noqa: E402
from examples.nexmark.market import Market  # noqa: E402
from examples.nexmark.queries import QUERIES  # noqa: E402
from nexmark_data import TABLES, EventFiles, write_events  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

WORKERS = 2
RATE = 10_000
FULL_EVENTS, QUICK_EVENTS, CHECKED_EVENTS = 1_000_000, 50_000, 20_000
ROUNDS = 2
ROWS, FRAMES, SPARK = "rows", "frames", "Spark SQL"
BY_THE_CLOCK = "q12"
#: Which column of a query's result is added up.
COLUMN = {"q0": -1, "q1": 2, "q3": 3, "q7": 2, "q8": 0, "q9": 2}

Sum = tuple[int | None, float]
"""How many rows a result has, and what a column adds up to."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to answer a query."""

    query: str
    kind: str
    answer: Callable[[Path, bool], Sum | None]

    def __str__(self) -> str:
        """Return its name in tables."""
        return f"{self.query}, {self.kind}"


def main() -> None:
    """Measure all queries and print how they compare."""
    parser = measure.arguments(__doc__ or "")
    parser.set_defaults(rounds=ROUNDS)
    parser.add_argument("--queries", default=",".join(QUERIES), help="which, by comma")
    options = parser.parse_args()
    events = QUICK_EVENTS if options.quick else FULL_EVENTS
    spark = word_count.session(memory="2g")
    found = contestants(spark, options.queries.split(","))
    try:
        with TemporaryDirectory(prefix="millstream-bench-") as directory:
            small, large = Path(directory, "small"), Path(directory, "large")
            check(found, made(small, CHECKED_EVENTS))
            samples = measured(found, made(large, events), options.rounds)
    finally:
        spark.stop()
    print_rates(found, samples, events)
    measure.finish(
        measure.Report(
            name="nexmark",
            is_quick=options.quick,
            sizes={"events": events, "workers": WORKERS},
            samples_unit="s",
            samples=samples,
            figures=figures(found, samples),
        )
    )


def made(directory: Path, events: int) -> Path:
    """Return a directory with the events of a market."""
    measure.say(f"making {events:,} events")
    directory.mkdir()
    write_events(Market(events, RATE), directory, WORKERS)
    return directory


def contestants(spark: SparkSession, names: list[str]) -> list[Contestant]:
    """Return every way to answer every query."""
    found = []
    for name in names:
        found.append(Contestant(name, ROWS, by_rows(spark, name)))
        if name in nexmark_peers.FRAME_QUERIES:
            found.append(Contestant(name, FRAMES, by_frames(spark, name)))
        if name in nexmark_peers.SQL:
            found.append(Contestant(name, SPARK, by_sql(spark, name)))
    return found


def by_rows(spark: SparkSession, name: str) -> Callable[[Path, bool], Sum | None]:
    """Answer with a stream of rows."""
    column = COLUMN.get(name, 1)
    out_of_order_ms = Market(0, RATE).out_of_order_ms

    def added_up(rows: list[Any]) -> list[tuple[int, float]]:
        return [(len(rows), sum(row[column] for row in rows))]

    def answer(directory: Path, _is_timed: bool) -> Sum:  # noqa: FBT001
        flow = ms.Flow(name)
        events = flow.read(EventFiles(directory))
        timed = events.event_time(lambda event: event.at, out_of_order=out_of_order_ms)
        parts = QUERIES[name](timed).map_batches(added_up).collect()
        flow.run(spark=spark, workers=WORKERS)
        counts, sums = zip(*parts.result(), strict=True)
        return None if name == BY_THE_CLOCK else sum(counts), round(sum(sums), 3)

    return answer


def by_frames(spark: SparkSession, name: str) -> Callable[[Path, bool], Sum | None]:
    """Answer with frames."""
    column = COLUMN.get(name, 1)

    def added_up(rows: pl.DataFrame) -> pl.DataFrame:
        # The engine cannot see that other columns are not needed.
        total = float(rows[:, column].sum())
        return pl.DataFrame({"count": [rows.height], "sum": [total]})

    def answer(directory: Path, _is_timed: bool) -> Sum:  # noqa: FBT001
        flow = ms.Flow(name)
        schema = {"count": pl.Int64, "sum": pl.Float64}
        tables = nexmark_peers.Tables(flow, directory)
        # One row is made of many, which have a time in some queries.
        rows = nexmark_peers.FRAME_QUERIES[name](tables).drop_time()
        parts = rows.map_batches(added_up, schema=schema).collect()
        flow.run(spark=spark, workers=WORKERS)
        count, total = parts.result().sum().row(0)
        return None if name == BY_THE_CLOCK else count, round(total, 3)

    return answer


def by_sql(spark: SparkSession, name: str) -> Callable[[Path, bool], Sum | None]:
    """Answer with Spark SQL, which makes all columns."""
    column = COLUMN.get(name, 1)

    def answer(directory: Path, is_timed: bool) -> Sum | None:  # noqa: FBT001
        for table in TABLES:
            path = str(directory / f"{table}.parquet")
            spark.read.parquet(path).createOrReplaceTempView(table)
        rows = spark.sql(nexmark_peers.SQL[name])
        if is_timed:
            rows.write.format("noop").mode("overwrite").save()
            return None
        found = rows.collect()
        return len(found), round(sum(row[column] for row in found), 3)

    return answer


def check(found: list[Contestant], directory: Path) -> None:
    """Let everybody answer, and compare; this also warms everybody up."""
    results: dict[str, Sum | None] = {}
    for contestant in found:
        measure.say(f"checking {contestant}")
        result = contestant.answer(directory, False)  # noqa: FBT003
        expected = results.setdefault(contestant.query, result)
        measure.check(str(contestant), result, expected)


def measured(
    found: list[Contestant], directory: Path, rounds: int
) -> dict[str, list[float]]:
    """Return the times of all contestants."""
    by_name = {str(contestant): contestant for contestant in found}

    def seconds(name: str) -> float:
        answer = by_name[name].answer
        return measure.timed(lambda: answer(directory, True))[0]  # noqa: FBT003

    return measure.interleaved(rounds, by_name, seconds)


def medians(
    found: list[Contestant], samples: dict[str, list[float]]
) -> dict[tuple[str, str], float]:
    """Return the median of every contestant."""
    return {(c.query, c.kind): statistics.median(samples[str(c)]) for c in found}


def print_rates(
    found: list[Contestant], samples: dict[str, list[float]], events: int
) -> None:
    """Print a line for every query, and a column for every kind of contestant."""
    times = medians(found, samples)
    kinds = (ROWS, FRAMES, SPARK)
    measure.print_table(
        ("events/s", *kinds),
        [
            (
                query,
                *(
                    measure.shown(events / times[query, kind], "")
                    if (query, kind) in times
                    else ""
                    for kind in kinds
                ),
            )
            for query in dict.fromkeys(contestant.query for contestant in found)
        ],
    )


def figures(
    found: list[Contestant], samples: dict[str, list[float]]
) -> list[measure.Figure]:
    """Compare Millstream with Spark, query by query."""
    times = medians(found, samples)
    return [
        measure.Figure(
            f"{query}, {kind}: faster than {SPARK}", times[query, SPARK] / taken, "x"
        )
        for (query, kind), taken in times.items()
        if kind != SPARK and (query, SPARK) in times
    ]


if __name__ == "__main__":
    main()
