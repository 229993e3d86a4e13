"""A driver whose Spark proves who it is: on a cluster, then on this machine alone."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import SparkSession

import millstream as ms

if TYPE_CHECKING:
    from pyspark import SparkConf


def session(master: str, settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("authenticated")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def sums(spark: SparkSession, workers: int) -> dict[int, int]:
    flow = ms.Flow("sums")
    frame = flow.from_spark(spark.range(1000).selectExpr("id % 3 as key", "id"))
    table = frame.group_by("key").agg(pl.col("id").sum()).to_spark()
    flow.run(spark=spark, workers=workers)
    return {row["key"]: row["id"] for row in table.result().collect()}


def first_of_a_stream(spark: SparkSession) -> int:
    """Return how many rows came of a query with a slot beside the only worker."""
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    flow = ms.Flow("first")
    rows = flow.from_spark_stream(stream, trigger="0s").limit(20).collect()
    flow.run(spark=spark, workers=1)
    return rows.result()["value"].n_unique()


def refusal(spark: SparkSession) -> str:
    """Return what is said where this Spark would not encrypt its connections."""
    context = spark.sparkContext
    told = context.getConf()

    def without_encryption() -> SparkConf:
        return told.set("spark.network.crypto.enabled", "false")

    context.getConf = without_encryption  # type: ignore[method-assign]
    try:
        sums(spark, workers=2)
    except ms.UsageError as error:
        return str(error)
    finally:
        del context.getConf
    return ""


def main() -> None:
    _, master, host, settings = sys.argv
    secret: dict[str, str] = json.loads(settings)
    there = session(master, {**secret, "spark.driver.host": host})
    answer: dict[str, Any] = {"refusal": refusal(there)}
    answer["cluster"] = sums(there, workers=2)
    answer["stream"] = first_of_a_stream(there)
    there.stop()
    # In this order: a local master gives the whole JVM a secret of its own.
    here = session("local[2]", secret)
    answer["local"] = sums(here, workers=2)
    here.stop()
    print(json.dumps(answer))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
