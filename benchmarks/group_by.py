"""Sums by string key into running state: Millstream beside Polars and Spark.

Rows lie in memory, on every side: as Polars frames in batches of 64 k rows, and as a cached
DataFrame in a ``local[1]`` session.  Everybody has one core.  There are 100, 100 k and 10 M
different keys; with 10 M, every key comes once before keys come at random.

Millstream keeps its state from batch to batch, as a worker does, and so does *Polars by
batch*: its groups are put aside and grouped again when there are as many as in the table.
*Polars at once* and Spark see all rows together and keep nothing.

A run begins without state.  What a row costs in running state is measured apart, with all
keys known, as processor time: a loop that waits for nothing.

    python benchmarks/group_by.py [--quick]
"""

from __future__ import annotations

import os

# Polars reads it when it is imported; everybody gets one core.
os.environ["POLARS_MAX_THREADS"] = "1"

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import measure
import numpy as np
import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

import millstream as ms
from millstream.columns.compiled_table import StateTable
from millstream.plan.frames import AggregateFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from millstream.columns.kernels.loading import Engine
    from millstream.columns.table import FrameAggregation

    Checksum = tuple[int, int, int]

BATCH_ROWS = 65_536
FULL = {100: 10_000_000, 100_000: 10_000_000, 10_000_000: 20_000_000}
QUICK = {100: 1_000_000, 100_000: 1_000_000}
TARGET_KEYS, TARGET_NS = 100_000, 60
KNOWN_BATCHES = 20
OWN, BY_BATCH = "Millstream", "Polars by batch"
AT_ONCE, SPARK = "Polars at once", "PySpark DataFrame"
SUM = (pl.col("value").sum(),)
SEVEN = (
    *SUM,
    pl.len().alias("count"),
    pl.col("value").min().alias("min"),
    pl.col("value").max().alias("max"),
    pl.col("value").mean().alias("mean"),
    pl.col("value").first().alias("first"),
    pl.col("value").last().alias("last"),
)


@dataclass(slots=True)
class Findings:
    """What the cases have found out so far."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    figures: list[measure.Figure] = field(default_factory=list)


def main() -> None:
    """Measure all cases."""
    options = measure.arguments(__doc__ or "").parse_args()
    sizes = QUICK if options.quick else FULL
    findings = Findings()
    filled(1, SUM)  # compiles
    spark = session()
    try:
        for keys, rows in sizes.items():
            whole_run(spark, keys, rows, options.rounds, findings)
            known_keys(keys, SUM, options.rounds, findings)
        known_keys(TARGET_KEYS, SEVEN, options.rounds, findings)
    finally:
        spark.stop()
    measure.finish(
        measure.Report(
            name="group_by",
            is_quick=options.quick,
            sizes={"rows a batch": BATCH_ROWS, "rows at most": max(sizes.values())},
            samples_unit="ns",
            samples=findings.samples,
            figures=findings.figures,
        )
    )


def session() -> SparkSession:
    """Return a session with one core and enough memory for 10 M groups."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("group_by")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def batches_of(keys: int, rows: int) -> Iterator[pl.DataFrame]:
    """Return rows whose keys are all there are, then keys at random."""
    rng = np.random.default_rng(keys)
    numbers = np.concatenate(
        [rng.permutation(keys), rng.integers(0, keys, max(0, rows - keys))]
    )[:rows]
    for start in range(0, rows, BATCH_ROWS):
        yield batch_of(numbers[start : start + BATCH_ROWS])


def batch_of(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    """Return a row per number, which is part of its key and gives its value."""
    spread = pl.Series("key", numbers * 7919)
    key = ("customer-" + spread.cast(pl.String)).alias("key")
    return pl.DataFrame([key, pl.Series("value", numbers % 1000)])


def whole_run(
    spark: SparkSession, keys: int, rows: int, rounds: int, findings: Findings
) -> None:
    """Measure everybody from the first row to the last sum."""
    batches = list(batches_of(keys, rows))
    everything = pl.concat(batches, rechunk=True)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        everything.write_parquet(path)
        cached = spark.read.parquet(str(path)).cache()
        cached.count()
        programs: dict[str, Callable[[], Checksum]] = {
            SPARK: lambda: sums_by_spark(cached),
            OWN: lambda: sums_by_batch(batches, "native"),
            BY_BATCH: lambda: sums_by_batch(batches, "polars"),
            AT_ONCE: lambda: checksum(everything.group_by("key").agg(SUM)),
        }
        expected = programs[AT_ONCE]()

        def nanoseconds(name: str) -> float:
            seconds, found = measure.timed(programs[name])
            measure.check(name, found, expected)
            return seconds / rows * 1e9

        nanoseconds(SPARK)
        samples = measure.interleaved(rounds, programs, nanoseconds)
        cached.unpersist(blocking=True)
    findings.samples |= {
        f"{keys:,} keys, {name}": taken for name, taken in samples.items()
    }
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    findings.figures += [
        measure.Figure(f"{keys:,} keys, faster than {name}", median / medians[OWN], "x")
        for name, median in medians.items()
        if name != OWN
    ]


def known_keys(
    keys: int, exprs: tuple[pl.Expr, ...], rounds: int, findings: Findings
) -> None:
    """Measure what a row costs where all keys are known, with and without epochs."""
    case = f"{keys:,} keys known" + (", 7 aggregates" if exprs is SEVEN else "")
    plain, tracked = f"{case}, a row", f"{case}, a row with epochs"
    tables = {name: filled(keys, exprs) for name in (plain, tracked)}
    table = tables[tracked]
    table.begin_epoch(1)
    rng = np.random.default_rng(1)
    batches = [
        batch_of(rng.integers(0, keys, BATCH_ROWS)) for _ in range(KNOWN_BATCHES)
    ]

    def nanoseconds(name: str) -> float:
        add = tables[name].add_rows
        return statistics.median(cpu_ns(add, b) for b in batches) / BATCH_ROWS

    samples = measure.interleaved(rounds, tables, nanoseconds)
    table.begin_epoch(2)
    table.add_rows(batches[0])
    delta_ms = min(cpu_ns(table.delta, 1) for _ in range(rounds)) / 1e6
    plain_ns, tracked_ns = map(statistics.median, samples.values())
    target_ns = TARGET_NS if keys == TARGET_KEYS and exprs is SUM else None
    findings.samples |= samples
    findings.figures += [
        measure.Figure(plain, plain_ns, "ns", "at most", target_ns),
        measure.Figure(f"{case}, rate a worker", 1e3 / plain_ns, "M rows/s"),
        measure.Figure(f"{case}, memory", table.nbytes / keys, "B a key"),
        measure.Figure(f"{case}, epochs add", tracked_ns - plain_ns, "ns"),
        measure.Figure(f"{case}, delta after a batch", delta_ms, "ms"),
    ]


def filled(keys: int, exprs: tuple[pl.Expr, ...]) -> StateTable:
    """Return a table that knows all keys."""
    table = StateTable(aggregation(exprs), engine="native")
    for batch in batches_of(keys, keys):
        table.add_rows(batch)
    return table


def cpu_ns(work: Callable[..., object], *args: object) -> int:
    """Return what a call costs this process."""
    started_ns = time.process_time_ns()
    work(*args)
    return time.process_time_ns() - started_ns


def aggregation(exprs: tuple[pl.Expr, ...]) -> FrameAggregation:
    """Return what the operators of a flow get for these aggregates."""
    flow = ms.Flow("group-by")
    flow.from_frame(batch_of(np.arange(1))).group_by("key").agg(*exprs)
    spec = flow.plan.nodes[-1].spec
    assert isinstance(spec, AggregateFrame)
    found: FrameAggregation = spec.aggregation
    return found


def sums_by_batch(batches: list[pl.DataFrame], engine: Engine) -> Checksum:
    """Sum as a worker does."""
    table = StateTable(aggregation(SUM), engine=engine)
    for batch in batches:
        table.add_rows(batch)
    result = table.finished()
    assert result is not None
    return checksum(result)


def sums_by_spark(rows: DataFrame) -> Checksum:
    """Sum in Spark's own code; the sums stay there, as 10 M would take long to fetch."""
    sums = rows.groupBy("key").agg(F.sum("value").alias("value"))
    square = F.col("value") * F.col("value")
    found = sums.agg(F.count("*"), F.sum("value"), F.sum(square)).collect()[0]
    return found[0], found[1], found[2]


def checksum(sums: pl.DataFrame) -> Checksum:
    """Return how many keys there are, and the sums of their sums and of the squares."""
    value = pl.col("value")
    squares = (value * value).sum().alias("squares")
    count, total, square = sums.select(pl.len(), value.sum(), squares).row(0)
    return count, total, square


if __name__ == "__main__":
    main()
