"""Streams of Spark that go on while a flow runs, on real Spark."""

from __future__ import annotations

import json
import re
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest
from tests.spark.driving import SLOTS, eventually

import millstream as ms
from millstream.connectors.batch_lists import BatchDirectory
from millstream.connectors.spark import _stage_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _no_query_outlives_its_test(spark: SparkSession) -> Iterator[None]:
    """Spare the other tests the queries of one that failed."""
    yield
    for query in spark.streams.active:
        query.stop()


def add_file(folder: Path, numbers: range) -> None:
    """Let a file appear as a whole, as a file stream wants it."""
    hidden = folder / f".{numbers.start}"
    hidden.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    hidden.rename(folder / f"{numbers.start}.json")


def file_stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("n long").json(str(folder))


def rate_stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 200).load()


def stop_query(spark: SparkSession, name: str) -> None:
    (query,) = [q for q in spark.streams.active if (q.name or "").startswith(name)]
    query.stop()


def rows_read(job: ms.Job) -> int:
    return job.metrics()[0].rows_in


def has_read(job: ms.Job, count: int) -> Callable[[], bool]:
    """Return whether so many rows have come, or the job has ended."""
    return lambda: (
        rows_read(job) >= count or job.status() not in {"starting", "running"}
    )


def test_files_that_come_while_the_flow_runs_are_read_once_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The flow ends with the query, and leaves neither files nor queries behind."""
    folder, staging = tmp_path / "in", tmp_path / "staging"
    folder.mkdir()
    staging.mkdir()
    add_file(folder, range(1000))
    flow = ms.Flow("files")
    frame = flow.from_spark_stream(
        file_stream(spark, folder), trigger="0s", staging=str(staging)
    )
    numbers = frame.collect()
    tens = frame.select(ten=pl.col("n") // 10)
    counts = tens.group_by("ten").agg(pl.len()).collect()
    job = flow.start(spark=spark, workers=2)
    for start in (1000, 2000):
        eventually(has_read(job, start))
        add_file(folder, range(start, start + 1000))
    eventually(has_read(job, 3000))
    stop_query(spark, "files-")
    job.wait()

    assert sorted(numbers.result()["n"]) == list(range(3000))
    assert sorted(counts.result().rows()) == [(ten, 10) for ten in range(300)]
    assert list(staging.iterdir()) == []
    assert spark.streams.active == []


def test_a_rate_stream_is_read_without_gaps(spark: SparkSession) -> None:
    """Three tasks share the micro-batches, which go on while they read."""
    flow = ms.Flow("rate")
    values = flow.from_spark_stream(rate_stream(spark), trigger="0s").collect()
    job = flow.start(on="local", workers=3)
    eventually(has_read(job, 300))
    stop_query(spark, "rate-")
    job.wait()

    frame = values.result()
    assert sorted(frame["value"]) == list(range(frame.height))
    assert frame.schema["timestamp"] == pl.Datetime("us", "UTC")


def test_a_limit_ends_a_stream_that_does_not(spark: SparkSession) -> None:
    """When nobody reads on, the job succeeds and stops the query."""
    flow = ms.Flow("first")
    stream = flow.from_spark_stream(rate_stream(spark), trigger="0s")
    rows = stream.limit(50).collect()
    flow.run(on="local", workers=2)

    assert rows.result()["value"].n_unique() == 50
    assert spark.streams.active == []


def test_a_cancelled_job_stops_its_query(spark: SparkSession, tmp_path: Path) -> None:
    """It would go on for ever; by default one slot is left to it."""
    flow = ms.Flow("cancelled")
    frame = flow.from_spark_stream(
        rate_stream(spark), trigger="100ms", staging=str(tmp_path)
    )
    frame.write_csv(tmp_path / "out")
    job = flow.start(spark=spark)
    eventually(has_read(job, 100))
    assert len(job.worker_pids()) == SLOTS - 1
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()

    assert list(tmp_path.iterdir()) == []
    assert spark.streams.active == []


def written(out: Path) -> list[int]:
    """Return what a sink has committed."""
    texts = [file.read_text() for file in out.glob("*.jsonl")]
    return sorted(json.loads(line)["value"] for t in texts for line in t.splitlines())


def cancel(job: ms.Job) -> None:
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()


def is_live(job: ms.Job) -> bool:
    return job.status() in {"starting", "running"}


@dataclass
class StreamJobs:
    """Runs of one job, each until it has committed something new."""

    spark: SparkSession
    directory: Path
    launcher: dict[str, Any]
    staging: Path | None

    @property
    def out(self) -> Path:
        return self.directory / "out"

    def start(self, workers: int) -> ms.Job:
        flow = ms.Flow("resumed")
        stream = flow.from_spark_stream(
            rate_stream(self.spark),
            trigger="0s",
            staging=None if self.staging is None else str(self.staging),
        )
        # Long enough to hold rows back over cuts, and short enough not to be waited for.
        stream.select("value").write_jsonl(self.out, roll_every="150ms")
        count = len(written(self.out))
        job = flow.start(
            workers=workers,
            state=self.directory / "state",
            snapshot_every="50ms",
            **self.launcher,
        )
        eventually(lambda: len(written(self.out)) > count or not is_live(job))
        return job

    def staged(self) -> list[Path]:
        """Return where rows are staged."""
        return list((self.staging or self.directory / "state" / "staged").iterdir())


@pytest.mark.parametrize(
    ("is_on_spark", "has_staging"),
    [(False, False), (True, False), (True, True)],
    ids=["local", "spark", "spark, elsewhere"],
)
def test_a_job_goes_on_from_its_state_directory_exactly_once(
    spark: SparkSession, tmp_path: Path, *, is_on_spark: bool, has_staging: bool
) -> None:
    """Twice in a row, at other widths: the query, its files and the job are one."""
    staging = tmp_path / "staging" if has_staging else None
    if staging is not None:
        staging.mkdir()
    launcher = {"spark": spark} if is_on_spark else {"on": "local"}
    jobs = StreamJobs(spark, tmp_path, launcher, staging)
    for workers in (2, 1):
        cancel(jobs.start(workers))
        (staged,) = jobs.staged()
        assert (staged / "checkpoint").is_dir(), "a later run needs it"
        assert spark.streams.active == []
    job = jobs.start(SLOTS - 1)
    stop_query(spark, "resumed-")
    job.wait()

    values = written(jobs.out)
    assert values == list(range(len(values)))
    assert jobs.staged() == [], "a complete job needs nothing"


def slowed(row: dict[str, int]) -> int:
    threading.Event().wait(0.0002)
    return row["id"]


def bounded(spark: SparkSession, state: Path) -> tuple[ms.Job, ms.ResultHandle[Any]]:
    flow = ms.Flow("bounded")
    rows = flow.from_spark(spark.range(0, 4000, 1, 8)).to_rows().map(slowed).collect()
    return flow.start(on="local", state=state, snapshot_every="20ms", workers=1), rows


def test_staged_rows_of_a_bounded_frame_stay_with_the_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The job goes on in the middle of what Spark computed, also somewhere else."""
    first, _ = bounded(spark, tmp_path / "state")
    eventually(lambda: first.epoch >= 1 or not is_live(first))
    cancel(first)
    (tmp_path / "state").rename(tmp_path / "moved")

    second, rows = bounded(spark, tmp_path / "moved")
    second.wait()

    assert sorted(rows.result()) == list(range(4000))


class Cancelled:
    """Stands for a DataFrame whose write Spark cancels, with a long story about it."""

    def __getattr__(self, name: str) -> Any:
        java = "\n".join(
            f"\tat org.apache.spark.Deep.call(Deep.scala:{n})" for n in range(999)
        )
        msg = f"An error occurred while calling o7.parquet.\n: Job 3 cancelled\n{java}"
        raise RuntimeError(msg)


def test_what_spark_is_told_of_a_cancelled_write_is_short(tmp_path: Path) -> None:
    """Spark searches it by a pattern that takes a frame of its stack per character."""
    BatchDirectory(tmp_path).make()
    told = ""
    try:
        _stage_batch(str(tmp_path), 1, cast("DataFrame", Cancelled()), 0)
    except RuntimeError:
        told = traceback.format_exc()

    assert BatchDirectory(tmp_path).listed(0) is None
    spark_looks_for = (
        r"py4j\.protocol\.Py4JJavaError: An error occurred while calling"
        r"(.|\r\n|\r|\n)*java\.lang\.InterruptedException"
    )
    assert re.search(spark_looks_for, told)
    assert "Deep.scala" not in told


def test_a_query_that_is_stopped_while_it_writes_just_stops(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The batch that was cut off is not committed, and no error of the query's."""
    flow = ms.Flow("writing")
    park = (
        "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 50000000L)"
    )
    stream = rate_stream(spark).selectExpr("value", f"{park} as slept")
    flow.from_spark_stream(stream, trigger="0s").write_csv(tmp_path / "out")
    # With a snapshot the lists before it may be forgotten.
    job = flow.start(on="local", state=tmp_path / "state", snapshot_every="1h")
    staged = tmp_path / "state" / "staged" / "from_spark_stream"
    tracker = spark.sparkContext.statusTracker()

    def is_writing() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        is_busy = any(stage is not None and stage.numActiveTasks for stage in stages)
        return is_busy and (staged / "lists" / "0").exists()

    eventually(is_writing)
    (query,) = spark.streams.active
    cancel(job)

    assert query.exception() is None
    listed = {int(path.name) for path in (staged / "lists").iterdir()}
    commits = {path.name for path in (staged / "checkpoint" / "commits").iterdir()}
    assert {int(name) for name in commits if name.isdecimal()} <= listed


def test_a_query_that_dies_fails_the_job_with_its_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream that silently stops would look like one with nothing to say."""
    flow = ms.Flow("dying")
    stream = rate_stream(spark).selectExpr("assert_true(value < 100, 'too far') x")
    frame = flow.from_spark_stream(
        stream.selectExpr("x is null as x"), trigger="0s", staging=str(tmp_path)
    )
    frame.collect()

    with pytest.raises(ms.OperatorError) as caught:
        flow.run(spark=spark, workers=1)

    text = str(caught.value)
    assert "from_spark_stream at test_spark_streams.py:" in text
    assert "Spark's streaming query ended after" in text
    assert "too far" in text
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_stream_needs_a_slot_beside_the_workers(spark: SparkSession) -> None:
    """With all slots taken by workers the query would wait for them, and they for it."""
    flow = ms.Flow("full")
    flow.from_spark_stream(rate_stream(spark), trigger="1s").collect()

    with pytest.raises(
        ms.UsageError,
        match=r"4 workers need 5 task slots.* has 4; ask for 3 workers, or .*local\[5\]",
    ):
        flow.run(spark=spark, workers=SLOTS)

    assert spark.streams.active == []


def test_a_stream_without_a_trigger_may_have_nothing_yet(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Then the input is empty, and has a schema all the same."""
    flow = ms.Flow("nothing")
    rows = flow.from_spark_stream(file_stream(spark, tmp_path)).collect()
    flow.run(on="local")

    assert rows.result().schema == {"n": pl.Int64}
    assert rows.result().is_empty()


def test_a_query_that_spark_does_not_start_fails_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing stays behind, of other sources either."""
    flow = ms.Flow("unsupported")
    flow.from_spark(spark.range(3), staging=str(tmp_path)).collect()
    counts = rate_stream(spark).groupBy("value").count()
    flow.from_spark_stream(counts, trigger="0s", staging=str(tmp_path)).collect()

    with pytest.raises(
        ms.OperationalError, match=r"could not start .* query"
    ) as caught:
        flow.run(on="local")

    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_time_is_refused(spark: SparkSession) -> None:
    """With the user's file and line, while the flow is being built."""
    flow = ms.Flow("refused")

    with pytest.raises(ms.UsageError, match=r"streams\.py:\d+: cannot read .* 'soon'"):
        flow.from_spark_stream(rate_stream(spark), trigger="soon")


def test_staging_that_is_not_there_is_refused(spark: SparkSession) -> None:
    """Spark would make it, on whichever machine it happens to run."""
    flow = ms.Flow("refused")
    flow.from_spark_stream(
        rate_stream(spark), trigger="1s", staging="/no/such"
    ).collect()

    with pytest.raises(ms.UsageError, match="staging='/no/such' is not a directory"):
        flow.run(spark=spark, workers=1)
