"""Spark DataFrames in and out of a flow, on real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ALL_TYPES = """
    select id, cast(id % 100 as byte) b, cast(id as short) s, cast(id as int) i,
           cast(id as float) f, cast(id as double) / 3 d, concat('ü', id) t,
           id % 2 = 0 e, cast(concat('x', id) as binary) bin,
           date_add(date'2020-02-28', cast(id as int)) day,
           timestamp_micros(id * 1234567) at,
           cast('2021-03-04 05:06:07.000008' as timestamp_ntz) local,
           cast(id as decimal(20, 4)) / 7 amount,
           array(id, null) items, named_struct('x', id, 'y', cast(null as string)) pair
    from range(1000)
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null,
           null, null
"""


def rows(frame: Any) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def test_types_survive_both_ways(spark: SparkSession) -> None:
    """Zones, decimals, nested columns and nulls come back as they went."""
    before = spark.sql(ALL_TYPES)
    flow = ms.Flow("both-ways")
    after = flow.from_spark(before).to_spark()
    flow.run(spark=spark, workers=2)

    assert rows(after.result()) == rows(before)


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


def test_types_that_would_lose_are_refused_by_name(spark: SparkSession) -> None:
    """In both directions, while the flow is being built."""
    flow = ms.Flow("refused")
    with pytest.raises(ms.UsageError, match=r"'m' has the Spark type map<string,int>"):
        flow.from_spark(spark.sql("select map('a', 1) m"))
    with pytest.raises(ms.UsageError, match="'t' has the type Time"):
        flow.from_frame(pl.DataFrame(schema={"t": pl.Time})).to_spark()
    with pytest.raises(ms.UsageError, match="use `from_spark`"):
        flow.from_spark_stream(spark.range(1))
