"""What `simulate` takes, and what it reports."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

import millstream as ms
from millstream.errors import UsageError
from millstream.testing import SimulationFailedError, simulate


def counts() -> ms.Flow:
    flow = ms.Flow("counts")
    flow.from_iterable(range(20)).group_by(lambda i: i % 3).count().collect(name="sums")
    return flow


def wrong(_: dict[str, Any]) -> None:
    msg = "never good enough"
    raise AssertionError(msg)


def test_seeds_are_a_number_or_numbers() -> None:
    """And one seed alone, to see a failure again."""
    several = simulate(counts(), seeds=3, faults=False)
    some = simulate(counts(), seeds=[2, 1], faults="none")
    alone = simulate(counts(), seeds=3, seed=2, faults=False)

    assert [o.seed for o in several.outcomes] == [0, 1, 2]
    assert [o.seed for o in some.outcomes] == [2, 1]
    assert alone.outcomes == several.outcomes[2:]


def test_failure_says_how_to_reproduce_it() -> None:
    """A call: no command would find a flow that is made in a test."""
    with pytest.raises(SimulationFailedError) as caught:
        simulate(counts(), seeds=range(42, 50), faults=False, check=wrong)

    text = str(caught.value)
    assert "seed 42: the check raised AssertionError: never good enough" in text
    assert text.endswith("reproduce: simulate(flow, seed=42, faults='none')")
    assert len(caught.value.report.outcomes) == 1


def test_failures_can_be_reported_instead() -> None:
    """For a run over all seeds, whatever happens."""
    report = simulate(
        counts(), seeds=4, workers=2, faults=False, check=wrong, on_failure="report"
    )

    assert not report.is_clean
    assert len(report.failures) == 4
    assert report.outcome_counts == {"succeeded": 4}
    assert "simulate(flow, seed=0, workers=2, faults='none')" in report.summary()


def test_check_gets_the_rows_by_the_name_of_the_sink() -> None:
    """Also in runs that no fault disturbed."""
    seen: list[dict[str, Any]] = []
    simulate(counts(), seeds=1, faults=False, check=seen.append)

    assert [sorted(rows["sums"]) for rows in seen] == [[(0, 7), (1, 7), (2, 6)]]


def test_faults_are_counted() -> None:
    """So that one sees whether anything went wrong at all."""
    report = simulate(counts(), seeds=20)

    assert sum(report.outcome_counts.values()) == 20
    assert sum(report.fault_counts.values()) == sum(
        len(outcome.faults) for outcome in report.outcomes
    )
    assert report.fault_counts


def failing() -> ms.Flow:
    flow = ms.Flow("failing")
    flow.from_iterable(["1", "0"]).map(lambda text: 1 // int(text)).collect()
    return flow


def test_flow_that_always_fails_is_not_clean() -> None:
    """Whatever goes wrong besides; unless one says that it should fail."""
    report = simulate(failing(), seeds=3, faults="none", on_failure="report")

    assert len(report.failures) == 3
    assert "the job ended with OperatorError" in report.summary()
    assert simulate(failing(), seeds=3, fails=True).is_clean
    report = simulate(counts(), seeds=1, fails=True, faults="none", on_failure="report")
    assert "it should have raised, and did not" in report.summary()


def test_every_seed_is_told() -> None:
    """For a progress line."""
    seeds: list[int] = []
    simulate(counts(), seeds=3, faults=False, on_seed=lambda o: seeds.append(o.seed))

    assert seeds == [0, 1, 2]


def test_unknown_level_of_faults_is_refused() -> None:
    """With the levels there are."""
    with pytest.raises(UsageError, match="'all', 'benign' or 'none', got 'some'"):
        simulate(counts(), faults="some")  # type: ignore[arg-type] # what is tested


def test_endless_flow_is_refused() -> None:
    """A run that never ends can be compared with nothing."""
    flow = ms.Flow("endless")
    flow.from_iterable(lambda: count()).filter(lambda i: i < 0).collect()  # noqa: PLW0108

    with pytest.raises(UsageError, match="its input must end, or be limited"):
        simulate(flow, seeds=1, source_batch_rows=4)


def test_nothing_is_printed_by_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Sinks are replaced by a record of what they would have got."""
    flow = ms.Flow("printing")
    flow.from_iterable([1, 2]).for_each(print, name="printed")
    simulate(flow, seeds=3, faults=False, check=lambda rows: rows["printed"][1])

    assert capsys.readouterr().out == ""
