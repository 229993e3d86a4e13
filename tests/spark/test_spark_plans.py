"""What Spark reads for a job is known, and a job goes on only with the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually

import millstream as ms
from millstream.connectors.spark_plans import inputs_of
from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def files(spark: SparkSession, folder: str, **options: Any) -> DataFrame:
    return spark.readStream.schema("n long").options(**options).json(folder)


def rate(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.readStream.format("rate").options(**options).load()


def test_inputs_are_told_apart_by_what_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files by their path, however it is spelt; others by their name and options."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "rows.json").write_text(json.dumps({"n": 1}))
    stream, bounded = files(spark, str(one)), spark.read.json(str(one))
    told = [
        inputs_of(frame)
        for frame in (
            stream,
            files(spark, str(two)),
            files(spark, str(one), multiLine=True),
            rate(spark, rowsPerSecond=5),
            rate(spark, rowsPerSecond=6),
            stream.unionByName(files(spark, str(two))),
            bounded,
            spark.read.json(str(two)),
            spark.range(5),
            spark.range(6),
        )
    ]

    assert len(set(told)) == len(told)
    assert told[0] == f"the json files of file:{one}"
    assert told[3] == "the stream rate (rowsPerSecond=5)"
    same = [f"file://{one}/", f"{one}/", str(one)]
    assert {inputs_of(files(spark, spelt)) for spelt in same} == {told[0]}
    assert inputs_of(bounded.where("n > 3").select("n")) == told[6]


def test_options_that_may_change_are_no_part_of_the_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    """How much is read at once, and with whose password, is nobody's identity."""
    plain = inputs_of(files(spark, str(tmp_path)))

    assert "pepper" not in plain
    assert plain == inputs_of(
        files(spark, str(tmp_path), maxFilesPerTrigger=3, password="pepper")
    )


class Remote:
    """Stands for a DataFrame of Spark Connect, which has no plan here."""


class Strange:
    """Stands for one of a Spark whose plans are made in another way."""

    _jdf = object()


@pytest.mark.parametrize("frame", [Remote(), Strange()])
def test_inputs_that_nobody_can_tell_fit_everything(frame: Any) -> None:
    """As those of a source without an identity."""
    assert inputs_of(frame) == ""


def begun(stream: DataFrame, state: Path) -> ms.Job:
    flow = ms.Flow("compared")
    flow.from_spark_stream(stream, trigger="0s").collect()
    return flow.start(on="local", state=state, snapshot_every="20ms")


def test_epochs_are_complete_before_a_query_has_any_rows_and_another_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tasks wait for no query, and a checkpoint means nothing to another input."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    state = tmp_path / "state"
    first = begun(files(spark, str(one)), state)
    eventually(lambda: first.epoch >= 2 or first.status() == "failed")
    assert not list((state / "staged" / "from_spark_stream" / "lists").iterdir())
    first.cancel()
    with pytest.raises(ms.JobCancelledError):
        first.wait()

    others = [
        files(spark, str(two)),
        rate(spark).selectExpr("value as n"),
        files(spark, str(one)).selectExpr("n", "n + 1 as m"),
    ]
    for other in others:
        with pytest.raises(SnapshotError) as refused:
            begun(other, state)
        text = str(refused.value)
        assert (
            f"read a query of Spark's over the json files of file:{one}, as (n" in text
        )
        assert "begin with a new state directory" in text
        assert "\n" not in text
    assert spark.streams.active == []

    again = begun(files(spark, f"{one}/", maxFilesPerTrigger=1), state)
    (query,) = spark.streams.active
    query.stop()
    again.wait()
