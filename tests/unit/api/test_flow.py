"""A flow and its jobs on the local launcher."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import millstream as ms
from millstream.launch.options import LaunchOptions, default_options


def test_flow_can_run_twice() -> None:
    """Every run reads the sources anew; results are those of the last one."""
    flow = ms.Flow("twice")
    total = flow.from_iterable([1, 2]).sum()

    first = flow.run(on="local")
    second = flow.run(on="local", workers=2)

    assert total.result() == 3
    assert first.id != second.id
    assert flow.last_job is second


def test_default_options_fill_in_what_a_program_leaves_open() -> None:
    """So that a command line can say where a script runs."""
    flow = ms.Flow("defaults")
    rows = flow.from_parallel(lambda rank, size: [size]).collect()

    with default_options(LaunchOptions(on="local", workers=3)):
        flow.run()

    assert rows.result() == [3, 3, 3]


def test_cancelled_job_raises_and_says_so() -> None:
    """`wait` and `result` raise the same error as often as they are asked."""
    flow = ms.Flow("endless")
    count = flow.from_iterable(itertools.count).count()
    job = flow.start(on="local")

    assert not job.wait(timeout_s=0.01)
    job.cancel("enough")

    for ask in (job.wait, count.result, job.result):
        with pytest.raises(ms.JobCancelledError, match="enough"):
            ask()
    assert job.status() == "cancelled"
    assert repr(job).endswith(": cancelled>")


def test_metrics_count_the_rows_of_every_stage() -> None:
    """Over all workers."""
    flow = ms.Flow("metrics")
    flow.from_iterable(range(100)).filter(lambda i: i % 2).shuffle().collect()

    metrics = flow.run(on="local", workers=2).metrics()

    assert [(stage.rows_in, stage.rows_out) for stage in metrics] == [
        (100, 100),
        (100, 50),
        (50, 0),
    ]


def test_job_result_has_every_sink_by_name() -> None:
    """For those who did not keep the handles."""
    flow = ms.Flow("sinks")
    rows = flow.from_iterable([2, 1])
    rows.collect(name="all")
    rows.sum()

    result = flow.run(on="local").result()

    assert result == {"all": [2, 1], "sum.result": [3]}


def test_failed_job_says_where_it_failed() -> None:
    """Operator, line, record, value and the user's own exception."""
    flow = ms.Flow("failing")
    flow.from_iterable([2, 1, 0]).map(lambda i: 2 // i, name="halve").collect()

    with pytest.raises(ms.OperatorError) as raised:
        flow.run(on="local")

    error = raised.value
    assert error.operator == "halve"
    assert error.location.startswith("test_flow.py:")
    assert "record 2" in error.position
    assert "value 0" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert flow.last_job.status() == "failed"


def test_error_that_cannot_travel_keeps_its_text() -> None:
    """An exception class with a strange constructor is no excuse."""

    class StrangeError(Exception):
        def __init__(self, a: Any, b: Any) -> None:
            super().__init__(f"strange {a} {b}")

    def fail(_row: int) -> int:
        raise StrangeError(1, 2)

    flow = ms.Flow("strange")
    flow.from_iterable([1]).map(fail).collect()

    with pytest.raises(ms.OperatorError, match="StrangeError: strange 1 2"):
        flow.run(on="local")
