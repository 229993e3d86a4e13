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
    rounds: tuple[int, float | str] | None = None,
) -> StageSample:
    return StageSample(name, is_source, tasks, rows_in, busy_s, blocked_s, rounds)


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
    ("rounds", "text"),
    [
        ((3, 0.000123456789), "round 3: 0.000123457"),
        ((1_234, 2_500_000.0), "round 1,234: 2.5e+06"),
        ((7, "ndarray"), "round 7: ndarray"),
    ],
)
def test_an_iteration_shows_its_last_round_and_what_it_was_decided_by(
    rounds: tuple[int, float | str], text: str
) -> None:
    """Six digits are enough to see whether it still moves."""
    now = Sample(2.0, (stage(is_source=True, rows_in=5), stage("fit", rounds=rounds)))

    assert progress_line("f", now, now) == f"f · 5 rows · {text} · 2 s"


def test_several_iterations_are_told_apart_by_name() -> None:
    """A number alone would not say whose it is."""
    now = Sample(2.0, (stage("fit", rounds=(3, 0.5)), stage("rank", rounds=(9, 1.0))))

    assert "fit round 3: 0.5 · rank round 9: 1 ·" in progress_line("f", now, now)


@pytest.mark.parametrize(
    ("at_s", "text"), [(59.0, "59 s"), (61.0, "1:01 min"), (3_725.0, "1:02:05 h")]
)
def test_time_is_told_as_people_tell_it(at_s: float, text: str) -> None:
    """Seconds, then minutes, then hours."""
    assert progress_line("f", Sample(at_s, ()), Sample(at_s, ())).endswith(text)
