"""The ages of records at the sink of a keyed count of Spark Structured Streaming.

For ``latency.py``, which runs it in a process of its own: record *i* is due at the start
plus *i* intervals, has the key *i* modulo the number of keys, and is counted with the
others of its key.

Both modes read streams that Spark keeps in the driver's memory: there is no network or
disk in front of them.

``micro`` is micro-batches that follow each other at once.  The age of a record is taken
when ``foreachBatch`` has the counts of its batch.

``real`` is real-time mode (Spark 4.1; with aggregations since 4.3).  Its stream in memory
is the only source for it besides Kafka, and tasks ask it record by record.  The age of a
record is taken in the JVM, behind the count, so that no Python adds to it.

    python benchmarks/spark_latency.py micro|real RECORDS_PER_SECOND SECONDS TARGET.npy
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row
    from pyspark.sql.streaming import StreamingQuery

KEYS = 100
CORES = 2
REAL_TIME_SLOTS = 1 + CORES
WARM_UP_RECORDS, WARM_UP_S = 1_000, 5
TICK_S = 0.001
CHECKPOINT_EVERY = "5 seconds"
PATIENCE_S = 60
NS = 1_000_000_000
NOW_NS = "cast(reflect('java.lang.System', 'nanoTime') as long)"


def main() -> None:
    """Measure one of the two modes and save the ages."""
    mode, rate, seconds, target = sys.argv[1:]
    measured = {"micro": micro_batches, "real": real_time}[mode]
    with TemporaryDirectory(prefix="millstream-bench-") as directory:
        ages = measured(Path(directory), int(rate), int(seconds))
    np.save(target, ages)


def session(slots: int, **config: object) -> SparkSession:
    """Return a session with as many partitions as Millstream has workers."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("spark_latency")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(CORES))
    )
    for name, value in config.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Pace:
    """Says when records are due: some at once, to warm up, the others by the clock."""

    def __init__(self, rate: int, seconds: int) -> None:
        self.rate = rate
        self.records = WARM_UP_RECORDS + rate * (WARM_UP_S + seconds)
        self._start_ns = 0

    def feed(self, send: Callable[[int, int], object]) -> None:
        """Call `send` with a range of records whenever some are due, until the end."""
        ticks = threading.Event()
        self._start_ns = time.monotonic_ns()
        sent = WARM_UP_RECORDS
        while sent < self.records and not ticks.wait(TICK_S):
            elapsed_ns = time.monotonic_ns() - self._start_ns
            due = WARM_UP_RECORDS + elapsed_ns * self.rate // NS + 1
            if due > sent:
                send(sent, min(due, self.records))
                sent = due

    def ages_ms(self, numbers: Any, seen_ns: Any) -> Any:
        """Return the ages of records, without those of the time of warming up."""
        places = np.asarray(numbers, dtype=np.int64) - WARM_UP_RECORDS
        due_ns = self._start_ns + places * NS // self.rate
        ages = (np.asarray(seen_ns, dtype=np.int64) - due_ns) / 1e6
        return ages[places >= self.rate * WARM_UP_S]


def micro_batches(directory: Path, rate: int, seconds: int) -> Any:
    """Return the ages with micro-batches."""
    spark = session(CORES)
    sources = jvm(spark).org.apache.spark.sql.execution.streaming.runtime
    stream = sources.MemoryStream.apply(*session_of(spark), CORES, long_encoder(spark))
    totals: dict[int, int] = {}
    seen: list[tuple[int, int]] = []

    def note(batch: DataFrame, _number: int) -> None:
        totals.update((row["key"], row["count"]) for row in batch.collect())
        seen.append((sum(totals.values()), time.monotonic_ns()))

    query = (
        DataFrame(stream.toDF(), spark)
        .groupBy((F.col("value") % KEYS).alias("key"))
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .foreachBatch(note)
        .start()
    )
    add = adding_to(stream, spark)
    add(0, WARM_UP_RECORDS)
    wait_until(query, lambda: len(seen) > 0)
    pace = Pace(rate, seconds)
    pace.feed(add)
    wait_until(query, lambda: seen[-1][0] >= pace.records)
    query.stop()
    spark.stop()
    counts = np.diff([0, *(count for count, _ in seen)])
    times = np.repeat([now_ns for _, now_ns in seen], counts)
    return pace.ages_ms(np.arange(len(times)), times)


def jvm(spark: SparkSession) -> Any:
    """Return the packages of Java; the streams in memory have no other door."""
    return spark._jvm  # noqa: SLF001


def session_of(spark: SparkSession) -> tuple[Any]:
    """Return Java's session."""
    return (spark._jsparkSession,)  # noqa: SLF001


def long_encoder(spark: SparkSession) -> Any:
    """Return what says that records are numbers."""
    return jvm(spark).org.apache.spark.sql.Encoders.LONG()


def adding_to(stream: Any, spark: SparkSession) -> Callable[[int, int], object]:
    """Return a function that adds a range of numbers to a stream in memory."""
    as_scala = jvm(spark).scala.jdk.javaapi.CollectionConverters.asScala
    numbers = jvm(spark).java.util.stream.LongStream

    def add(first: int, end: int) -> None:
        stream.addData(as_scala(numbers.range(first, end).boxed().toList()))

    return add


class Notes:
    """Writes down which record was seen when, a file for every part of an epoch."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: list[tuple[int, int]] = []

    def open(self, partition: int, epoch: int) -> bool:
        """Begin a part."""
        self._target = self._directory / f"{epoch}-{partition}.json"
        self._seen = []
        return True

    def process(self, row: Row) -> None:
        """Note a record."""
        self._seen.append((row["newest"], row["seen_ns"]))

    def close(self, _error: Exception | None) -> None:
        """Write the part down."""
        self._target.write_text(json.dumps(self._seen))


def real_time(directory: Path, rate: int, seconds: int) -> Any:
    """Return the ages in real-time mode."""
    # The tasks of both stages run at once; buffers are sent as soon as Millstream's are.
    wait = {"spark.shuffle.streaming.networkBufferMaxWaitTimeMs": 5}
    spark = session(REAL_TIME_SLOTS, **wait)
    sources = jvm(spark).org.apache.spark.sql.execution.streaming.sources
    stream = sources.LowLatencyMemoryStream.singlePartition(
        *session_of(spark), long_encoder(spark)
    )
    notes = directory / "notes"
    notes.mkdir()
    counted = DataFrame(stream.toDF(), spark).groupBy(F.col("value") % KEYS)
    query = (
        counted.agg(F.count("*"), F.max("value").alias("newest"))
        .withColumn("seen_ns", F.expr(NOW_NS))
        .writeStream.outputMode("update")
        .trigger(realTime=CHECKPOINT_EVERY)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .foreach(Notes(notes))
        .start()
    )
    add = adding_to(stream, spark)
    add(0, WARM_UP_RECORDS)
    wait_until(query, lambda: processed(query) >= WARM_UP_RECORDS)
    pace = Pace(rate, seconds)
    pace.feed(add)
    wait_until(query, lambda: processed(query) >= pace.records)
    query.stop()
    spark.stop()
    seen = [pair for part in notes.iterdir() for pair in json.loads(part.read_text())]
    return pace.ages_ms(*zip(*seen, strict=True))


def processed(query: StreamingQuery) -> int:
    """Return how many records the epochs that are over have taken."""
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def wait_until(query: StreamingQuery, is_done: Callable[[], bool]) -> None:
    """Wait for something, but not for ever."""
    waiting = threading.Event()
    deadline_ns = time.monotonic_ns() + PATIENCE_S * NS
    while not is_done():
        if not query.isActive:
            msg = f"the query has ended: {query.exception()}"
            raise SystemExit(msg)
        if time.monotonic_ns() > deadline_ns:
            msg = f"{processed(query):,} records were processed in {PATIENCE_S} s more"
            raise SystemExit(msg)
        waiting.wait(0.05)


if __name__ == "__main__":
    main()
