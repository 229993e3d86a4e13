"""A driver on Spark Connect: no SparkContext, no JVM of its own."""

from __future__ import annotations

import json
import threading
from typing import Any

from pyspark.sql import SparkSession

import millstream as ms


def hang(row: int) -> int:
    threading.Event().wait(3600)
    return row


def main() -> None:
    builder: Any = SparkSession.builder
    spark = builder.remote("local[2]").getOrCreate()
    answer: dict[str, Any] = {"session": type(spark).__module__}
    flow = ms.Flow("remainders")
    counts = flow.from_iterable(range(100)).group_by(lambda i: i % 3).count().collect()
    job = flow.run(spark=spark)
    answer["workers"] = len(job.worker_pids())
    answer["counts"] = sorted(counts.result())
    both_ways = ms.Flow("both-ways")
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    table = both_ways.from_spark(spark.range(100)).to_spark()
    first = both_ways.from_spark_stream(stream, trigger="0s").limit(20).collect()
    both_ways.run(spark=spark)
    answer["table"] = table.result().selectExpr("sum(id)").collect()[0][0]
    answer["first"] = first.result()["value"].n_unique()
    stuck = ms.Flow("stuck")
    stuck.from_iterable(range(3)).map(hang).collect()
    job = stuck.start(spark=spark, workers=1, stop_grace_ms=200)
    while job.status() != "running":
        job.wait(0.05)
    job.cancel()
    try:
        job.wait()
    except ms.JobCancelledError as error:
        answer["cancelled"] = str(error)
    answer["pid"] = job.worker_pids()[0]
    answer["count"] = spark.range(10).count()
    print(json.dumps(answer))  # noqa: T201 - the test reads it
    spark.stop()


if __name__ == "__main__":
    main()
