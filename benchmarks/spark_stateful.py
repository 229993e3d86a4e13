"""A stateful query of Spark Structured Streaming that dies and is started again.

For ``recovery.py``, which runs it in processes of its own: ``fill`` keeps the last text
and a count for every key in RocksDB and then dies without a word; ``resume`` starts the
same query on the same checkpoint and prints, as JSON, how long the session took to
start and how long the query took until it had worked off its first new batch.

    python benchmarks/spark_stateful.py fill|resume DIRECTORY KEYS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import measure
import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from touching import TEXT_BYTES

SCHEMA = "key long, text string"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SHARE = 0.01
SMALL_BATCHES = 5


def main() -> None:
    """Do one of the two parts."""
    part, directory, keys = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if part == "fill":
        fill(directory, keys)
    else:
        resume(directory, keys)


def fill(directory: Path, keys: int) -> None:
    """Fill the state, touch some of it a few times, and die."""
    spark = session(directory)
    touched = round(keys * SHARE)
    write_batch(directory, 0, 0, keys)
    for number in range(1, SMALL_BATCHES + 1):
        write_batch(directory, number, (number - 1) * touched, number * touched)
    run_through(spark, directory)
    os._exit(0)


def resume(directory: Path, keys: int) -> None:
    """Start the query again, with one more batch to work off."""
    touched = round(keys * SHARE)
    write_batch(directory, SMALL_BATCHES + 1, 0, touched)
    session_s, spark = measure.timed(lambda: session(directory))
    query_s, counted = measure.timed(lambda: run_through(spark, directory))
    print(json.dumps({"session_s": session_s, "query_s": query_s, "keys": counted}))
    spark.stop()


def session(directory: Path) -> SparkSession:
    """Return a session with as many cores and partitions as Millstream has workers."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("spark_stateful")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
        .config(
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
            "true",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_batch(directory: Path, number: int, first: int, end: int) -> None:
    """Let a file with these keys appear at once."""
    inputs = directory / "input"
    inputs.mkdir(exist_ok=True)
    key = pl.Series("key", range(first, end), pl.Int64)
    text = key.cast(pl.String).str.zfill(TEXT_BYTES).alias("text")
    hidden = directory / f"{number}.parquet"
    pl.DataFrame([key, text]).write_parquet(hidden)
    hidden.rename(inputs / f"{number:06}.parquet")


def run_through(spark: SparkSession, directory: Path) -> int:
    """Work off all batches that are there; return how many keys have state."""
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / "input"))
    )
    state = rows.groupBy("key").agg(F.last("text").alias("text"), F.count("*"))
    query = (
        state.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None, "a batch was there"
    query.stop()
    return int(progress["stateOperators"][0]["numRowsTotal"])


if __name__ == "__main__":
    main()
