"""Joins of frames give what the same joins of rows give, whatever comes when.

Method: Hypothesis draws batches of either side with keys, null among them, and timestamps
in any order, some behind what had been promised, the times that are heard in between, and
where the tasks of the join of frames are cut, restored, compacted, and made more or fewer.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.frame_joining import SideBySide

from millstream.operators.frames import join_buffer as frame_kept
from millstream.operators.joins import frame_asof as frame_asof_join
from millstream.operators.joins import frame_interval as frame_interval_join
from millstream.operators.joins import frame_window as frame_window_join
from millstream.plan.joins import (
    Direction,
    How,
    Join,
    JoinAsof,
    JoinInterval,
    JoinWindow,
)
from millstream.plan.time import LateTimestamp

HOWS = list(How)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, None]),
        st.integers(-12, 12),
        st.integers(0, 9),
        st.sampled_from([None, None, None, 0, 1, 5, 30]),
    ),
    min_size=1,
    max_size=5,
)
ACTIONS = st.sampled_from(
    ["", "", "hear", "hear", "cut", "crash", "compact", "resize 1", "resize 3"]
)
STEPS = st.lists(
    st.tuples(st.integers(0, 1), ROWS, ACTIONS, st.integers(0, 6)), max_size=12
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is done for much be done for little."""
    monkeypatch.setattr(frame_kept, "RUN_ROWS", 8)
    monkeypatch.setattr(frame_kept, "MANY", 1)
    monkeypatch.setattr(frame_asof_join, "THIN_ROWS", 3)
    monkeypatch.setattr(frame_asof_join, "_ROWS_MAX", 4)
    monkeypatch.setattr(frame_interval_join, "_ROWS_MAX", 4)
    monkeypatch.setattr(frame_window_join, "EXPLODED_ROWS", 4)


def driven(
    both: SideBySide,
    steps: list[Any],
    *,
    is_by_clock: bool = False,
    has_latency_bound: bool = True,
) -> None:
    """Give the same to both joins, and compare what they make of it, at once or at last."""
    heard = -15
    for port, drawn, action, number in steps:
        rows: list[Any] = [
            (key, time if gap is None else LateTimestamp(time, time + gap), value)
            for key, time, value, gap in drawn
        ]
        both.give(rows, port)
        act(both, action)
        if action == "hear":
            heard += number
            if is_by_clock:
                both.tick(number)
            else:
                both.advance(heard)
            if has_latency_bound:
                both.check()
    both.of_rows.finish()
    both.of_frames.finish()
    both.check()


def act(both: SideBySide, action: str) -> None:
    """Do something to the tasks of the join of frames."""
    if action.startswith("resize"):
        both.of_frames.resize(int(action[-1]))
    elif action in {"cut", "crash", "compact"}:
        getattr(both.of_frames, action)()


@pytest.mark.parametrize("how", HOWS)
@examples(0.2)
@given(
    steps=STEPS,
    bounds=st.tuples(st.integers(-8, 6), st.integers(0, 9)),
    nulls_equal=st.booleans(),
)
def test_interval_join_of_frames_is_that_of_rows(
    *, how: How, steps: list[Any], bounds: tuple[int, int], nulls_equal: bool
) -> None:
    """Pairs, rows alone, their times and promises, and what was late."""
    by = JoinInterval(how, bounds[0], bounds[0] + bounds[1])
    # Alone rows come at their own time, even if it was certain before.
    has_latency_bound = by.lower <= 0 <= by.upper
    driven(
        SideBySide(by, nulls_equal=nulls_equal),
        steps,
        has_latency_bound=has_latency_bound,
    )


@pytest.mark.parametrize("is_event_time", [True, False], ids=["time", "clock"])
@pytest.mark.parametrize("how", HOWS)
@examples(0.2)
@given(
    steps=STEPS,
    window=st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(-4, 4)),
    nulls_equal=st.booleans(),
)
def test_window_join_of_frames_is_that_of_rows(
    *,
    how: How,
    is_event_time: bool,
    steps: list[Any],
    window: tuple[int, int, int],
    nulls_equal: bool,
) -> None:
    """Every window by itself, overlapping or with gaps, where rows or the clock say so."""
    by = JoinWindow(how, *window, is_event_time=is_event_time)
    both = SideBySide(by, is_timed=is_event_time, nulls_equal=nulls_equal)
    driven(both, steps, is_by_clock=not is_event_time)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("how", [How.INNER, How.LEFT])
@examples(0.2)
@given(
    steps=STEPS,
    tolerance=st.sampled_from([None, 0, 1, 3, 30]),
    nulls_equal=st.booleans(),
)
def test_asof_join_of_frames_is_that_of_rows(
    *,
    how: How,
    direction: Direction,
    steps: list[Any],
    tolerance: int | None,
    nulls_equal: bool,
) -> None:
    """One result for every left row, whatever came first; equal times included."""
    if how is How.LEFT and direction is not Direction.BACKWARD:
        tolerance = tolerance or 0
    by = JoinAsof(how, direction, tolerance)
    driven(SideBySide(by, nulls_equal=nulls_equal), steps)


@pytest.mark.parametrize("how", HOWS)
@examples(0.4)
@given(steps=STEPS, ttl_ms=st.sampled_from([None, 1, 4]), nulls_equal=st.booleans())
def test_keyed_join_of_frames_is_that_of_rows(
    *, how: How, ttl_ms: int | None, steps: list[Any], nulls_equal: bool
) -> None:
    """Every left row with every right row of its keys, as long as both are there."""
    both = SideBySide(Join(how, ttl_ms), is_timed=False, nulls_equal=nulls_equal)
    driven(both, steps, is_by_clock=True)


@examples(0.2)
@given(steps=STEPS, ttl_ms=st.sampled_from([None, 4]))
def test_pairs_of_a_keyed_join_have_the_larger_time(
    steps: list[Any], ttl_ms: int | None
) -> None:
    """An inner join of timed frames is timed, though the clock says who is there."""
    driven(SideBySide(Join(How.INNER, ttl_ms)), steps, is_by_clock=True)
