"""What the launcher makes of Spark's own words; needs no Spark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import millstream as ms
from millstream.errors import UsageError
from millstream.launch.machine import python_problem
from millstream.launch.slots import workers_beside
from millstream.launch.spark_messages import first_words, local_slots, spark_reason

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LOST_EXECUTOR = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
    "failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 1): "
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
    "Reason: Command exited with code 137\nDriver stacktrace:"
)
CRASHED = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). "
    "Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled'\n"
    "\tat org.apache.spark.api.python.BasePythonRunner\n"
    "Caused by: java.io.EOFException\n"
)
TRACEBACK = (
    "An exception was thrown from the Python worker. Please see the stack trace below.\n"
    "Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "ModuleNotFoundError: No module named 'msgpack'\n"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LOST_EXECUTOR, "its executor 1 was lost: Command exited with code 137"),
        (CRASHED, "its Python process ended unexpectedly"),
        (
            TRACEBACK,
            "its Spark task failed: ModuleNotFoundError: No module named 'msgpack'",
        ),
        (
            "[SPARK_JOB_CANCELLED] Job 3 cancelled by user",
            "its Spark job was cancelled",
        ),
        ("Something else.\n\tat Main", "its Spark job ended: Something else"),
    ],
    ids=["executor", "crash", "traceback", "cancelled", "unknown"],
)
def test_the_reason_is_the_part_that_a_person_needs(text: str, reason: str) -> None:
    """A Java stack trace never reaches the user."""
    assert spark_reason(text) == reason


def test_py4js_preamble_is_skipped() -> None:
    """The first line only says that there is a second one."""
    text = (
        "An error occurred while calling None.X.\n: java.lang.Exception: no master.\n"
    )

    assert first_words(text) == "java.lang.Exception: no master"


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("spark://host:7077", None)],
)
def test_slots_of_a_local_master_are_in_its_name(
    master: str, slots: int | None
) -> None:
    """Only a local master says how many tasks it runs at once."""
    assert local_slots(master) == slots


def test_a_local_cluster_is_a_cluster() -> None:
    """Its executors are JVMs of their own, whatever its name begins with."""
    assert local_slots("local-cluster[2,1,1024]") is None


@pytest.mark.parametrize(
    ("workers", "slots", "busy", "started"),
    [(None, 4, 0, 3), (None, 4, 2, 1), (3, 4, 0, 3), (1, 4, 2, 1)],
)
def test_what_runs_beside_the_workers_gets_its_slot_first(
    workers: int | None, slots: int, busy: int, started: int
) -> None:
    """By default the workers take what is left."""
    assert workers_beside(workers, 1, slots, busy) == started


@pytest.mark.parametrize(
    ("workers", "slots", "busy", "advice"),
    [
        (4, 4, 0, r"has 4; ask for 3 workers, or give it 5 slots, .*local\[5\]"),
        (None, 1, 0, r"has 1; give it 2 slots, .*local\[2\]"),
        (2, 4, 2, r"has 4, 2 of them taken by other jobs; ask for 1 workers"),
    ],
)
def test_too_few_slots_for_a_stream_are_refused_with_the_fix(
    workers: int | None, slots: int, busy: int, advice: str
) -> None:
    """What, how many, and what to set."""
    with pytest.raises(UsageError, match=advice):
        workers_beside(workers, 1, slots, busy)


def test_a_python_without_arrow_is_named_before_spark_starts_anything(
    tmp_path: Path,
) -> None:
    """The environment of the program is not that of Spark unless somebody says so."""
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)

    assert python_problem(str(python)) == "No module named 'pyarrow'"
    assert python_problem("/no/such/python") == "there is no program '/no/such/python'"
    assert python_problem(sys.executable) == ""


@pytest.mark.spark
def test_a_session_with_another_python_is_refused_with_the_fix(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, in place of a page of Java."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    flow = ms.Flow("other-python")
    flow.from_iterable([1]).collect()

    with pytest.raises(ms.LaunchError) as caught:
        flow.run(spark=spark, workers=1)

    text = str(caught.value)
    assert "a worker could not start: there is no program '/no/such/python'" in text
    assert f"this program runs with {sys.executable!r}; set PYSPARK_PYTHON to" in text
