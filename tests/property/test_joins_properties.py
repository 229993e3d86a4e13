"""Joins by time: whatever comes when, the result follows from the timestamps alone.

Method: Hypothesis draws rows of four origins, two for each side, with as much disorder as
it likes, the moments at which watermarks are heard, and cuts and crashes.  The oracle
knows the rows and what their origins had promised, and nothing of the order between
origins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.joining import (
    SHARDS,
    Came,
    Origin,
    TaskHarness,
    asof_oracle,
    interval_oracle,
    made_of,
    plain,
    table_oracle,
    window_oracle,
)

from millstream.plan.joins import (
    LEFT,
    RIGHT,
    Direction,
    How,
    Join,
    JoinAsof,
    JoinInterval,
    JoinTable,
    JoinWindow,
)
from millstream.state.settings import StateSettings

if TYPE_CHECKING:
    from millstream.plan.joins import JoinSpec

MEMORY = StateSettings(SHARDS)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from("abc"),
        st.integers(-12, 12),
        st.sampled_from(["", "", "hear", "hear", "cut", "crash"]),
    ),
    max_size=30,
)
DISORDERS = st.tuples(*[st.sampled_from([0, 1, 4, 100])] * 4)
HOWS = list(How)


def driven(
    spec: JoinSpec, steps: list[Any], disorders: tuple[int, ...]
) -> tuple[list[Any], list[Any], list[list[Came]]]:
    """Return what a join made, what was late for it, and the rows of both sides."""
    bench = TaskHarness(spec, MEMORY)
    origins = [
        Origin(number // 2, out_of_order)
        for number, out_of_order in enumerate(disorders)
    ]
    left_over = [sum(step[0] == number for step in steps) for number in range(4)]
    for value, (number, key, time, action) in enumerate(steps):
        origin = origins[number]
        bench.give([origin.row(key, time, value)], origin.side)
        left_over[number] -= 1
        if action in {"cut", "crash"}:
            bench.cut() if action == "cut" else bench.crash()
        heard = [o.promise for o, left in zip(origins, left_over, strict=True) if left]
        if action == "hear" and heard:
            bench.advance(min(heard))
    bench.finish()
    sides = [origins[0].came + origins[1].came, origins[2].came + origins[3].came]
    assert bench.operator.late_count <= len(bench.late)
    return plain(bench.rows), [row.value for row in bench.late], sides


@pytest.mark.parametrize("how", HOWS)
@given(
    steps=STEPS,
    disorders=DISORDERS,
    bounds=st.tuples(st.integers(-6, 6), st.integers(0, 8)),
)
def test_interval_join_equals_the_oracle(
    how: How, steps: list[Any], disorders: tuple[int, ...], bounds: tuple[int, int]
) -> None:
    """Pairs, rows alone, their times, and what was late; bounds of any sign."""
    lower, upper = bounds[0], bounds[0] + bounds[1]

    rows, late, came = driven(JoinInterval(how, lower, upper), steps, disorders)

    expected = interval_oracle(how, lower, upper, came)
    assert made_of(rows) == made_of(expected.rows)
    assert sorted(late) == sorted(expected.late)


@pytest.mark.parametrize("how", HOWS)
@given(
    steps=STEPS,
    disorders=DISORDERS,
    size=st.integers(1, 9),
    slide=st.integers(1, 12),
    offset=st.integers(-4, 4),
)
def test_window_join_equals_the_oracle(
    *,
    how: How,
    steps: list[Any],
    disorders: tuple[int, ...],
    size: int,
    slide: int,
    offset: int,
) -> None:
    """Every window by itself: overlapping ones, and such with gaps between them."""
    rows, late, came = driven(JoinWindow(how, size, slide, offset), steps, disorders)

    starts = [offset + number * slide for number in range(-60, 60)]
    expected = window_oracle(how, [(start, start + size) for start in starts], came)
    assert made_of(rows) == made_of(expected.rows)
    assert sorted(late) == sorted(expected.late)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("how", [How.INNER, How.LEFT, How.SEMI, How.ANTI])
@given(
    steps=STEPS,
    disorders=DISORDERS,
    tolerance=st.sampled_from([None, 0, 1, 3, 30]),
    is_broadcast=st.booleans(),
)
def test_asof_join_equals_the_oracle(
    *,
    how: How,
    direction: Direction,
    steps: list[Any],
    disorders: tuple[int, ...],
    tolerance: int | None,
    is_broadcast: bool,
) -> None:
    """One result for every left row, whatever came first; equal times included."""
    if how.pads_left and direction is not Direction.BACKWARD:
        tolerance = tolerance or 0
    spec = JoinAsof(how, direction, tolerance, is_broadcast=is_broadcast)

    rows, late, came = driven(spec, steps, disorders)

    expected = asof_oracle(how, direction, tolerance, came)
    assert made_of(rows) == made_of(expected.rows)
    assert sorted(late) == sorted(expected.late)


UNTIMED_STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from("abc"),
        st.sampled_from(["", "", "cut", "crash"]),
    ),
    max_size=30,
)


def given_untimed(bench: TaskHarness, steps: list[Any]) -> list[list[Any]]:
    """Give rows without time to a join; return those of both sides."""
    sides: list[list[Any]] = [[], []]
    for value, (side, key, action) in enumerate(steps):
        row = (key, value)
        sides[side].append(row)
        bench.give([row], side)
        if action:
            bench.cut() if action == "cut" else bench.crash()
    return sides


@pytest.mark.parametrize("how", HOWS)
@given(steps=UNTIMED_STEPS)
def test_regular_join_equals_the_oracle(how: How, steps: list[Any]) -> None:
    """Every left row with every right row of its key, in whatever order they come."""
    bench = TaskHarness(Join(how), MEMORY, is_timed=False)

    left, right = given_untimed(bench, steps)
    bench.finish()

    keys = [{key for key, _ in left}, {key for key, _ in right}]
    if how.makes_pairs:
        expected: list[Any] = [(k, (v, w)) for k, v in left for j, w in right if j == k]
        if how.pads_left:
            expected += [(k, (v, None)) for k, v in left if k not in keys[RIGHT]]
        if how.pads_right:
            expected += [(k, (None, w)) for k, w in right if k not in keys[LEFT]]
    else:
        is_semi = how is How.SEMI
        expected = [(k, v) for k, v in left if (k in keys[RIGHT]) == is_semi]
    assert made_of(bench.rows) == made_of(expected)


@pytest.mark.parametrize("how", [How.INNER, How.LEFT, How.SEMI, How.ANTI])
@given(steps=UNTIMED_STEPS, is_broadcast=st.booleans(), more=UNTIMED_STEPS)
def test_table_that_ends_is_whole_before_it_is_looked_at(
    *, how: How, steps: list[Any], is_broadcast: bool, more: list[Any]
) -> None:
    """Left rows that come before the end of the table see the same as those after it."""
    bench = TaskHarness(
        JoinTable(how, waits=True, is_broadcast=is_broadcast), MEMORY, is_timed=False
    )

    left, right = given_untimed(bench, steps)
    bench.operator.on_input_end(RIGHT)
    assert bench.rows == []
    bench.tick()
    after, _ = given_untimed(bench, [(LEFT, key, "") for _, key, _ in more])
    bench.finish()

    expected = table_oracle(how, left + after, right)
    assert made_of(bench.rows) == made_of(expected)


@pytest.mark.parametrize("how", [How.INNER, How.LEFT, How.SEMI, How.ANTI])
@given(steps=UNTIMED_STEPS)
def test_table_that_goes_on_is_looked_at_as_it_is(how: How, steps: list[Any]) -> None:
    """A left row sees what has come before it."""
    bench = TaskHarness(JoinTable(how, waits=False), MEMORY, is_timed=False)

    given_untimed(bench, steps)

    expected: list[Any] = []
    right: list[Any] = []
    for value, (side, key, _) in enumerate(steps):
        if side == RIGHT:
            right.append((key, value))
        else:
            expected += table_oracle(how, [(key, value)], right)
    assert bench.rows == expected
