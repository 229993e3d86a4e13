"""Windows say what a naive answer says: every window, every row, one by one.

Rows come out of order from two origins, with equal and negative timestamps, on the edges
of windows and far apart; the operator is told time at any moment, and thrown away and
restored at any moment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.making import nodes
from tests.support.windowing import (
    arrivals,
    naive_sessions,
    naive_windows,
    window_operator_of,
    with_restarts,
)

from millstream.operators.windows import count as windows_count
from millstream.operators.windows import time as windows_time
from millstream.operators.windows.combine import CombinePanesOperator
from millstream.operators.windows.panes import FEW_PANES
from millstream.plan import aggregate as aggregates
from millstream.plan.windows import (
    FIRST_IN_TIME,
    LAST_IN_TIME,
    CombineWindows,
    CountWindows,
    SessionWindows,
    TimeWindows,
    Window,
    Windowed,
    of_parts,
)
from millstream.protocol.watermark import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.plan.aggregate import Aggregate


def joined(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return left + right


AGGREGATES: dict[str, tuple[Aggregate | None, dict[str, Any], Any]] = {
    "count": (aggregates.builtin("count"), {}, len),
    "max": (
        aggregates.builtin("max"),
        {},
        lambda rows: max(row.value for row in rows),
    ),
    "sum": (
        aggregates.builtin("sum"),
        {},
        lambda rows: Counter(item for row in rows for item in row.value),
    ),
    "unique": (
        aggregates.builtin("unique"),
        {},
        lambda rows: {row.value for row in rows},
    ),
    "reduce": (
        aggregates.reduce(joined),
        {"is_ordered": True},
        lambda rows: Counter(item for row in rows for item in row.value),
    ),
    "fold": (
        aggregates.fold([], lambda items, value: [*items, value]),
        {"is_ordered": True},
        lambda rows: Counter(row.value for row in rows),
    ),
    "values": (None, {}, lambda rows: Counter(row.value for row in rows)),
    "first": (
        FIRST_IN_TIME,
        {"sees_times": True},
        lambda rows: min(row.time for row in rows),
    ),
    "last": (
        LAST_IN_TIME,
        {"sees_times": True},
        lambda rows: max(row.time for row in rows),
    ),
}
NORMAL: dict[str, Callable[[Any], Any]] = {
    "sum": Counter,
    "reduce": Counter,
    "fold": Counter,
    "values": Counter,
    "first": lambda value: value[0],
    "last": lambda value: value[0],
}


@pytest.fixture(autouse=True, scope="module", params=[2, FEW_PANES])
def few_panes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let windows of many panes share more than these, or of fewer, as small ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_time, "FEW_PANES", request.param)
        patch.setattr(windows_count, "FEW_PANES", request.param)
        yield


times = st.one_of(
    st.integers(-30, 30), st.integers(-3, 3).map(lambda i: 10 * i), st.just(5_000)
)
events = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("ab"), times), max_size=24
)
names = st.sampled_from(sorted(AGGREGATES))
moments = st.sets(st.integers(0, 24))


@st.composite
def time_windows(draw: st.DrawFn) -> TimeWindows:
    slide = draw(st.integers(1, 25))
    return TimeWindows(
        draw(st.integers(1, 40)), slide, draw(st.integers(0, slide - 1)), "event"
    )


def normal(name: str, value: Any) -> Any:
    return NORMAL.get(name, lambda same: same)(value)


@given(
    window=time_windows(),
    rows=events,
    out_of_order=st.integers(0, 20),
    name=names,
    told=moments,
    cuts=moments,
)
def test_time_windows_say_what_the_naive_answer_says(
    *,
    window: TimeWindows,
    rows: list[tuple[int, str, int]],
    out_of_order: int,
    name: str,
    told: set[int],
    cuts: set[int],
) -> None:
    """Every window with rows once, with all rows that were not late for it."""
    aggregate, extra, answer = AGGREGATES[name]
    spec = Windowed(window, aggregate, shows_window=True, **extra)
    work = arrivals(rows, out_of_order)
    expected, late = naive_windows(window, 0, [arrival for arrival, _ in work])

    made, found_late = with_restarts(spec, work, cuts, told)

    found = {(key, pair[0]): normal(name, pair[1]) for key, (_, pair) in made}
    assert found == {place: answer(members) for place, members in expected.items()}
    assert len(made) == len(found), "each window once"
    assert all(time == pair[0].end - 1 for _, (time, pair) in made)
    assert sorted(found_late) == sorted((r.key, r.value, r.time) for r in late)


@given(
    window=time_windows(),
    rows=events,
    out_of_order=st.integers(0, 20),
    lateness=st.integers(1, 30),
    name=names,
    told=moments,
    batch=st.integers(1, 5),
)
def test_allowed_lateness_updates_results_until_it_is_over(
    *,
    window: TimeWindows,
    rows: list[tuple[int, str, int]],
    out_of_order: int,
    lateness: int,
    name: str,
    told: set[int],
    batch: int,
) -> None:
    """The last result of a window has all rows that were not too late for it."""
    aggregate, extra, answer = AGGREGATES[name]
    spec = Windowed(window, aggregate, None, lateness, shows_window=True, **extra)
    work = arrivals(rows, out_of_order)
    expected, late = naive_windows(window, lateness, [arrival for arrival, _ in work])

    made, found_late = with_restarts(spec, work, told, told, batch)

    found = {(key, pair[0]): normal(name, pair[1]) for key, (_, pair) in made}
    assert found == {place: answer(members) for place, members in expected.items()}
    assert sorted(found_late) == sorted((r.key, r.value, r.time) for r in late)


@given(
    gap=st.integers(1, 20),
    rows=events,
    out_of_order=st.integers(0, 20),
    lateness=st.sampled_from([0, 0, 5, 15]),
    name=names,
    told=moments,
    cuts=moments,
)
def test_sessions_say_what_the_naive_answer_says(
    *,
    gap: int,
    rows: list[tuple[int, str, int]],
    out_of_order: int,
    lateness: int,
    name: str,
    told: set[int],
    cuts: set[int],
) -> None:
    """Rows nearer than the gap are together, whenever they come."""
    aggregate, extra, answer = AGGREGATES[name]
    window = SessionWindows(gap, "event")
    spec = Windowed(window, aggregate, None, lateness, shows_window=True, **extra)
    work = arrivals(rows, out_of_order)
    expected, late = naive_sessions(gap, lateness, [arrival for arrival, _ in work])

    made, found_late = with_restarts(spec, work, cuts, told)

    found = {(key, pair[0]): normal(name, pair[1]) for key, (_, pair) in made}
    for key, bounds, members in expected:
        assert found.pop((key, bounds)) == answer(members)
    assert lateness or (not found and len(made) == len(expected))
    assert sorted(found_late) == sorted((r.key, r.value, r.time) for r in late)


@given(time_windows(), events, moments, st.sampled_from(["reduce", "values", "fold"]))
def test_values_are_taken_in_the_order_of_their_timestamps(
    window: TimeWindows, rows: list[tuple[int, str, int]], told: set[int], name: str
) -> None:
    """Where the order of values counts, and none is late."""
    aggregate, extra, _ = AGGREGATES[name]
    spec = Windowed(window, aggregate, **extra)
    work = arrivals(rows, out_of_order=10_000)

    made, _ = with_restarts(spec, work, set(), told)

    for _, (_, value) in made:
        seen = list(value[::2]) if name == "reduce" else [time for time, _ in value]
        assert seen == sorted(seen)


@given(
    window=time_windows(),
    rows=events,
    out_of_order=st.integers(0, 20),
    lateness=st.sampled_from([0, 10]),
    name=st.sampled_from(["count", "max", "sum", "unique"]),
    told=moments,
)
def test_parts_of_panes_make_the_windows_that_rows_make(
    *,
    window: TimeWindows,
    rows: list[tuple[int, str, int]],
    out_of_order: int,
    lateness: int,
    name: str,
    told: set[int],
) -> None:
    """Those that are combined before they move, with watermarks in between."""
    aggregate, _, answer = AGGREGATES[name]
    assert aggregate is not None
    spec = Windowed(window, aggregate, None, lateness, shows_window=True)
    combiner = CombinePanesOperator(nodes([CombineWindows(spec)]))
    receiver = window_operator_of(replace(spec, aggregate=of_parts(aggregate)))
    work = arrivals(((0, None, time) for _, _, time in rows), out_of_order)
    made: list[Any] = []
    promised = BEGINNING
    for number, (arrival, _) in enumerate(work):
        if number in told and promised > BEGINNING:
            made += receiver.process(combiner.flush())
            made += [row for part in receiver.advance(promised) for row in part]
        made += receiver.process(combiner.process([arrival.row]))
        promised = max(promised, arrival.time - out_of_order - 1)
    for parts in combiner.finish():
        made += receiver.process(parts)
    made += [row for part in receiver.finish() for row in part]

    expected, _ = naive_windows(window, lateness, [arrival for arrival, _ in work])
    found = {(key, pair[0]): normal(name, pair[1]) for key, (_, pair) in made}
    assert found == {place: answer(members) for place, members in expected.items()}


counted = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=60)


def naive_counts(
    window: CountWindows, rows: list[tuple[str, int]]
) -> list[tuple[str, tuple[Window, list[int]]]]:
    """Return the values of every count window of every key."""
    made = []
    for key in dict.fromkeys(key for key, _ in rows):
        values = [value for other, value in rows if other == key]
        for start in range(0, len(values), window.slide):
            part = values[start : start + window.size]
            if len(part) == window.size or not window.drops_incomplete:
                made.append((key, (Window(start, start + len(part)), part)))
    return made


COUNT_ANSWERS: dict[str, tuple[Aggregate | None, Callable[[list[int]], Any]]] = {
    "count": (aggregates.builtin("count"), len),
    "sum": (aggregates.builtin("sum"), sum),
    "min": (aggregates.builtin("min"), min),
    "last": (aggregates.builtin("last"), lambda values: values[-1]),
    "mean": (aggregates.builtin("mean"), lambda values: sum(values) / len(values)),
    "reduce": (aggregates.reduce(lambda x, y: x + y), sum),
    "fold": (
        aggregates.fold("", lambda text, i: f"{text}{i}"),
        lambda v: "".join(map(str, v)),
    ),
    "values": (None, list),
}


@given(
    size=st.integers(1, 30),
    slide=st.integers(1, 12),
    drops_incomplete=st.booleans(),
    rows=counted,
    name=st.sampled_from(sorted(COUNT_ANSWERS)),
    batch=st.integers(1, 9),
)
def test_count_windows_say_what_the_naive_answer_says(
    *,
    size: int,
    slide: int,
    drops_incomplete: bool,
    rows: list[tuple[str, int]],
    name: str,
    batch: int,
) -> None:
    """Full windows as soon as they are full; others at the end, if asked for."""
    aggregate, answer = COUNT_ANSWERS[name]
    window = CountWindows(size, slide, drops_incomplete)
    operator = window_operator_of(
        Windowed(window, aggregate, shows_window=True), is_timed=False
    )
    made = []
    for start in range(0, len(rows), batch):
        made += operator.process(rows[start : start + batch])
    made += [row for batch_rows in operator.finish() for row in batch_rows]

    expected = [
        (key, (bounds, answer(values)))
        for key, (bounds, values) in naive_counts(window, rows)
    ]
    assert sorted(made) == sorted(expected)
