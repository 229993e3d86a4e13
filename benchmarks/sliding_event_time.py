"""Sliding windows of event time: 10 s every second, 100,000 keys, beside Spark.

Both read the same Parquet files, with timestamps up to two seconds out of order, count the
rows and add up the values of every key and window, and write the rows of all windows to
Parquet files.  Spark's contestant is Structured Streaming with ``availableNow``, which reads
everything that is there and stops; its state is in memory (its default) or in RocksDB.

Structured Streaming does not say what is in windows that no later row has closed.  The last
file therefore has a row an hour later, and windows up to an hour before it are compared.

    python benchmarks/sliding_event_time.py [--quick]
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import polars as pl
import word_count
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

FULL_ROWS, QUICK_ROWS, WARM_UP_ROWS = 2_000_000, 500_000, 20_000
FULL_KEYS, QUICK_KEYS = 100_000, 5_000
ROWS_PER_SECOND, DISORDER_MS, FILES = 100_000, 2_000, 8
HOUR_MS = 3_600_000
OURS, MEMORY, ROCKS = "Millstream", "Spark, state in memory", "Spark, state in RocksDB"
STORE = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
IN_MEMORY = f"{PROVIDERS}.HDFSBackedStateStoreProvider"
IN_ROCKS = f"{PROVIDERS}.RocksDBStateStoreProvider"
SCHEMA = "key long, at timestamp, x long"
COLUMNS = ("key", "window_start", "n", "total")


def main() -> None:
    """Measure both and print how they compare."""
    options = measure.arguments(__doc__ or "").parse_args()
    rows = QUICK_ROWS if options.quick else FULL_ROWS
    keys = QUICK_KEYS if options.quick else FULL_KEYS
    files = written_events(options.data, rows, keys)
    small = written_events(options.data, WARM_UP_ROWS, keys)
    spark = word_count.session("3g")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        measured(1, contestants(spark), small)
        samples = measured(options.rounds, contestants(spark), files)
    finally:
        spark.stop()
    measure.finish(
        measure.Report(
            name="sliding_event_time",
            is_quick=options.quick,
            sizes={"rows": rows, "keys": keys, "workers": word_count.WORKERS},
            samples_unit="s",
            samples=samples,
            figures=figures(samples, rows),
        )
    )


def contestants(spark: SparkSession) -> dict[str, Callable[[Path, Path], None]]:
    """Return both, and Spark with either kind of state."""
    return {
        OURS: partial(windows_by_millstream, spark),
        MEMORY: partial(windows_by_spark, spark, IN_MEMORY),
        ROCKS: partial(windows_by_spark, spark, IN_ROCKS),
    }


def measured(
    rounds: int, runs: dict[str, Callable[[Path, Path], None]], files: Path
) -> dict[str, list[float]]:
    """Return the times of all contestants, whose windows were all the same."""
    known: list[str] = []

    def seconds(name: str) -> float:
        target = Path(tempfile.mkdtemp(prefix="sliding-"))
        try:
            seconds, _ = measure.timed(lambda: runs[name](files, target / "out"))
            found = digest(target / "out")
        finally:
            shutil.rmtree(target, ignore_errors=True)
        known.append(found)
        measure.check(name, found, known[0])
        return seconds

    return measure.interleaved(rounds, runs, seconds)


def digest(directory: Path) -> str:
    """Return a few words that are the same for the same windows only."""
    rows = pl.read_parquet(f"{directory}/*.parquet").select(
        "key", pl.col("window_start").cast(pl.Datetime("ms")), "n", "total"
    )
    last = rows["window_start"].min() + pl.duration(milliseconds=HOUR_MS // 2)
    rows = rows.filter(pl.col("window_start") < last)
    hashed = rows.cast({"n": pl.Int64, "total": pl.Int64}).hash_rows(seed=7)
    return f"{rows.height} windows, {rows['n'].sum()} rows, digest {hashed.sum()}"


def figures(samples: dict[str, list[float]], rows: int) -> list[measure.Figure]:
    """Compare the medians."""
    median = {name: statistics.median(times) for name, times in samples.items()}
    fastest = min((MEMORY, ROCKS), key=median.__getitem__)
    speeds = [
        measure.Figure(f"{name}, rows per second", rows / seconds, "rows/s")
        for name, seconds in median.items()
    ]
    ratio = median[fastest] / median[OURS]
    return [*speeds, measure.at_least(f"{OURS}, faster than {fastest}", ratio, "x", 3)]


def windows_by_millstream(spark: SparkSession, files: Path, target: Path) -> None:
    """Aggregate as a flow of frames."""
    flow = ms.Flow("sliding")
    events = flow.read_parquet(f"{files}/*.parquet")
    timed = events.event_time("at", out_of_order=DISORDER_MS)
    windows = timed.group_by("key").window(ms.windows.sliding("10s", "1s"))
    windows.agg(n=pl.len(), total=pl.col("x").sum()).write_parquet(target)
    flow.run(spark=spark, workers=word_count.WORKERS)


def windows_by_spark(
    spark: SparkSession, provider: str, files: Path, target: Path
) -> None:
    """Aggregate as a streaming query."""
    spark.conf.set(STORE, provider)
    events = spark.readStream.schema(SCHEMA).parquet(str(files))
    timed = events.withWatermark("at", f"{DISORDER_MS} milliseconds")
    groups = timed.groupBy("key", F.window("at", "10 seconds", "1 second").alias("w"))
    made = groups.agg(F.count("*").alias("n"), F.sum("x").alias("total"))
    rows = made.select("key", F.col("w.start").alias("window_start"), "n", "total")
    writer: Any = rows.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(target.parent / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(target))
    query.awaitTermination()


def written_events(directory: Path, rows: int, keys: int) -> Path:
    """Return a directory of events, made now if it was not made before."""
    target = directory.expanduser() / f"events-{rows}-{keys}"
    if target.exists():
        return target
    random = np.random.default_rng(7)
    begun = Path(tempfile.mkdtemp(dir=directory.expanduser()))
    first_ms = 1_600_000_000_000
    for number, places in enumerate(np.array_split(np.arange(rows), FILES)):
        times = first_ms + places * 1000 // ROWS_PER_SECOND
        times = times - random.integers(0, DISORDER_MS, times.size)
        frame = pl.DataFrame(
            {
                "key": random.integers(0, keys, times.size),
                "at": times,
                "x": random.integers(-100, 100, times.size),
            }
        )
        write_events(frame, begun / f"{number:02}.parquet")
    end = first_ms + rows * 1000 // ROWS_PER_SECOND + HOUR_MS
    last = pl.DataFrame({"key": [0], "at": [end], "x": [0]})
    write_events(last, begun / f"{FILES:02}.parquet")
    return begun.rename(target)


def write_events(frame: pl.DataFrame, file: Path) -> None:
    """Write events with a type of time that both read as one."""
    times = pl.col("at").cast(pl.Datetime("ms")).cast(pl.Datetime("us", "UTC"))
    frame.with_columns(times).write_parquet(file)


if __name__ == "__main__":
    main()
