"""The progress line and the summary, from plain numbers."""

from __future__ import annotations

import pytest

from millstream.observe.progress import (
    Sample,
    StageSample,
    progress_line,
    summary_line,
)


def stage(
    name: str = "read",
    *,
    is_source: bool = False,
    tasks: int = 1,
    rows_in: int = 0,
    busy_s: float = 0.0,
    blocked_s: float = 0.0,
) -> StageSample:
    return StageSample(name, is_source, tasks, rows_in, busy_s, blocked_s)


def test_only_rows_of_sources_are_counted() -> None:
    """A row that passes three stages was read once."""
    read = stage(is_source=True, rows_in=10)
    sample = Sample(2.0, (read, stage("map", rows_in=10), stage("sum", rows_in=10)))

    assert summary_line("f", "succeeded", sample) == (
        "f · succeeded · 10 rows · 5 rows/s · 2.0 s"
    )


def test_rate_is_that_of_the_time_between_the_samples() -> None:
    """What happened before the first sample does not count."""
    before = Sample(10.0, (stage(is_source=True, rows_in=1_000_000),))
    now = Sample(12.0, (stage(is_source=True, rows_in=1_003_000),))

    assert "1,003,000 rows · 1,500 rows/s" in progress_line("f", before, now)


def test_back_pressure_is_the_share_of_the_most_blocked_stage() -> None:
    """Two tasks have two seconds of time per second."""
    before = Sample(0.0, (stage(tasks=2), stage("map")))
    now = Sample(1.0, (stage(tasks=2, blocked_s=1.0), stage("map", blocked_s=0.25)))

    assert "back-pressure 50 %" in progress_line("f", before, now)


def test_back_pressure_is_never_more_than_all_the_time() -> None:
    """Workers report a long wait at its end, which may be one big step."""
    before, now = Sample(0.0, (stage(),)), Sample(1.0, (stage(blocked_s=9.0),))

    assert "back-pressure 100 %" in progress_line("f", before, now)


def test_bottleneck_is_the_stage_whose_tasks_worked_most() -> None:
    """Four tasks with three seconds together are less busy than one with one."""
    before = Sample(0.0, (stage("wide", tasks=4), stage("narrow")))
    now = Sample(1.0, (stage("wide", tasks=4, busy_s=3.0), stage("narrow", busy_s=1.0)))

    assert "busiest narrow" in progress_line("f", before, now)


def test_an_idle_flow_has_no_bottleneck() -> None:
    """Nothing is better than a name drawn by lot."""
    line = progress_line("f", Sample(0.0, (stage(),)), Sample(1.0, (stage(),)))

    assert "busiest" not in line


def test_first_sample_alone_gives_no_rate() -> None:
    """Nothing is divided by the time that has not passed."""
    now = Sample(0.0, (stage(is_source=True, rows_in=1),))

    assert progress_line("f", now, now) == "f · 1 row · 0 s"
    assert summary_line("f", "failed", now) == "f · failed · 1 row · 0.0 s"


@pytest.mark.parametrize(
    ("at_s", "text"), [(59.0, "59 s"), (61.0, "1:01 min"), (3_725.0, "1:02:05 h")]
)
def test_time_is_told_as_people_tell_it(at_s: float, text: str) -> None:
    """Seconds, then minutes, then hours."""
    assert progress_line("f", Sample(at_s, ()), Sample(at_s, ())).endswith(text)
