"""A driver with its own session on a cluster, which then listens where it should not."""

from __future__ import annotations

import json
import sys
from typing import Any

import psutil
from pyspark.sql import SparkSession

import millstream as ms


def place(rank: int, size: int) -> list[tuple[int, str]]:
    """Return the process id of the executor, and where Millstream came from."""
    return [(psutil.Process().parent().parent().pid, ms.__file__)]


def session(**settings: str) -> SparkSession:
    builder = SparkSession.builder.master(sys.argv[1]).appName("cluster")
    for key, value in settings.items():
        builder = builder.config(key.replace("_", "."), value)
    return builder.getOrCreate()


def main() -> None:
    spark = session(spark_driver_host="127.0.0.1")
    answer: dict[str, Any] = {"places": []}
    for _ in range(2):
        flow = ms.Flow("places")
        found = flow.from_parallel(place).collect()
        flow.run(spark=spark, workers=2)
        answer["places"].append(sorted(found.result()))
    answer["count"] = spark.range(10).count()
    spark.stop()
    if len(sys.argv) > 2:
        open_session = session(spark_driver_host=sys.argv[2])
        flow = ms.Flow("refused")
        flow.from_iterable(range(3)).collect()
        try:
            flow.run(spark=open_session, workers=1)
        except ms.UsageError as error:
            answer["refusal"] = str(error)
        open_session.stop()
    print(json.dumps(answer))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
