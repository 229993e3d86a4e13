"""Spark DataFrames in and out of a flow, on real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_aggregate_of_a_dataframe(spark: SparkSession) -> None:
    """What Spark computes, a flow goes on with."""
    frame = spark.range(10_000).selectExpr("id % 7 as key", "id")
    flow = ms.Flow("sums")
    sums = flow.from_spark(frame).group_by("key").agg(pl.col("id").sum()).collect()
    flow.run(spark=spark, workers=2)

    expected = {
        row["key"]: row["sum(id)"] for row in frame.groupBy("key").sum("id").collect()
    }
    assert dict(sums.result().rows()) == expected


def test_stream_is_read_as_far_as_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    """A Structured Streaming source gives all that it has when the job starts."""
    spark.range(500).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long").json(str(tmp_path / "in"))
    flow = ms.Flow("stream")
    total = flow.from_spark_stream(stream).to_rows().map(lambda row: row["id"]).sum()
    flow.run(spark=spark, workers=2)

    assert total.result() == sum(range(500))


def test_staged_rows_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    """Whether the job succeeds or not."""
    flow = ms.Flow("staged")
    frame = flow.from_spark(spark.range(10), staging=str(tmp_path))
    frame.map_batches(_fail).collect()
    with pytest.raises(ms.OperatorError):
        flow.run(spark=spark, workers=1)

    assert list(tmp_path.iterdir()) == []


def _fail(_frame: pl.DataFrame) -> pl.DataFrame:
    raise ValueError


def test_what_spark_computed_goes_in_and_what_comes_out_spark_goes_on_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A cached table joined with a view; SQL, a writer and MLlib over the result."""
    from pyspark.ml.feature import VectorAssembler  # noqa: PLC0415 - a slow import

    shops = spark.range(5).selectExpr("id as shop", "concat('s', id) as city").cache()
    spark.range(100).selectExpr("id % 5 as shop", "id as net").createOrReplaceTempView(
        "sales"
    )
    flow = ms.Flow("through")
    frame = flow.from_spark(spark.table("sales").join(shops, "shop"))
    totals = frame.group_by("city").agg(pl.col("net").sum()).to_spark()
    flow.run(on="local", workers=2)

    table = totals.result()
    expected = {f"s{shop}": sum(range(shop, 100, 5)) for shop in range(5)}
    table.createOrReplaceTempView("totals")
    query = "select city, net from totals where net > 900"
    assert dict(spark.sql(query).collect()) == expected
    table.write.partitionBy("city").parquet(str(tmp_path / "totals"))
    written = spark.read.parquet(str(tmp_path / "totals"))
    assert {row["city"]: row["net"] for row in written.collect()} == expected
    vectors = VectorAssembler(inputCols=["net"], outputCol="v").transform(table)
    assert {row["city"]: row["v"][0] for row in vectors.collect()} == expected
    shops.unpersist()
    with pytest.raises(ms.UsageError, match="'v' has the Spark type vector"):
        ms.Flow("vectors").from_spark(vectors)


def test_a_dataframe_that_cannot_be_computed_fails_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No worker starts, and nothing stays behind."""
    flow = ms.Flow("broken")
    frame = spark.range(3).selectExpr("id / (id - 1) as x")
    flow.from_spark(frame, staging=str(tmp_path)).collect()

    with pytest.raises(
        ms.OperationalError, match=r"compute .*DIVIDE_BY_ZERO"
    ) as caught:
        flow.run(spark=spark, workers=1)

    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_other_kind_of_dataframe_is_refused(spark: SparkSession) -> None:
    """A bounded one never goes on, and an unbounded one cannot be staged as a whole."""
    flow = ms.Flow("refused")
    with pytest.raises(ms.UsageError, match="use `from_spark`"):
        flow.from_spark_stream(spark.range(1))
    with pytest.raises(ms.UsageError, match="use `from_spark_stream`"):
        flow.from_spark(spark.readStream.format("rate").load())
    with pytest.raises(
        ms.UsageError, match="takes a bounded Spark DataFrame, got list"
    ):
        flow.from_spark([1])
