"""Windows as they are built: the plan behind them, and what functions refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.plan.time import InTimeOrder
from millstream.plan.windows import Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.windows import AnyWindow


def specs(flow: ms.Flow) -> list[type[object]]:
    return [type(node.spec) for node in flow.plan.nodes]


def test_rows_wait_for_their_order_only_where_windows_count_them() -> None:
    """Windows of time know the order of their rows themselves."""
    flow = ms.Flow("order")
    timed = flow.from_iterable([1]).event_time(lambda i: i).key_by(abs)
    timed.window(ms.windows.tumbling("1s")).reduce(max)
    assert InTimeOrder not in specs(flow)

    timed.window(ms.windows.count(3)).reduce(max)
    assert specs(flow).count(InTimeOrder) == 1


def test_results_of_event_time_windows_have_times_and_others_have_none() -> None:
    """So that event-time windows can follow each other."""
    flow = ms.Flow("times")
    timed = flow.from_iterable([1]).event_time(lambda i: i)
    for window in (
        ms.windows.sliding("1m", "1s"),
        ms.windows.session("1s"),
        ms.windows.tumbling("1s", time="processing"),
        ms.windows.count(3),
        ms.windows.global_window(ms.windows.Trigger()),
    ):
        timed.window(window).sum()

    makes = [n.makes_times for n in flow.plan.nodes if isinstance(n.spec, Windowed)]
    assert makes == [True, True, False, False, False]


def test_explain_says_which_windows_there_are() -> None:
    """In the words in which they were written."""
    flow = ms.Flow("explained")
    timed = flow.from_iterable([1]).event_time(lambda i: i).key_by(abs)
    kinds: list[AnyWindow] = [
        ms.windows.count(10, 5),
        ms.windows.count(4, exact=False),
        ms.windows.sliding("1m", "10s", offset="1s"),
        ms.windows.tumbling("1500ms", time="processing"),
        ms.windows.session("30s"),
        ms.windows.global_window(ms.windows.Trigger()),
    ]
    for number, window in enumerate(kinds):
        timed.window(window).sum(name=f"w{number}").for_each(print)

    text = flow.explain()

    for label in (
        "w0 (count(10, 5))",
        "w0.order (in the order of time)",
        "w1 (count(4, exact=False))",
        "w2 (sliding(60s, 10s))",
        "w3 (tumbling(1500ms, processing time))",
        "w4 (session(30s))",
        "w5 (global_window(Trigger))",
    ):
        assert label in text


def test_counts_of_count_windows_are_combined_before_they_move() -> None:
    """Only how many elements there are matters, not in which order they come."""
    flow = ms.Flow("combined")
    words = flow.from_iterable(["a"]).group_by(str)
    words.window(ms.windows.count(10, 5)).count(name="n").for_each(print)
    text = flow.explain()

    assert "n.local (combine)" in text
    assert "n (count(10, 5), merge)" in text


def test_windows_over_all_are_aggregated_before_rows_move() -> None:
    """Unless somebody wants to see the late ones, or the order counts."""

    def is_combined(build: Callable[[ms.Stream[int]], Any]) -> bool:
        flow = ms.Flow("whole")
        timed = flow.from_parallel(lambda rank, size: [1]).event_time(lambda i: i)
        build(timed).for_each(print)
        return "(combine)" in flow.explain()

    def with_late(timed: ms.Stream[int]) -> ms.Stream[int]:
        sums = timed.window(tumbling).sum()
        sums.late().for_each(print)
        return sums

    tumbling = ms.windows.tumbling("1s")
    assert is_combined(lambda timed: timed.window(tumbling).sum())
    assert not is_combined(with_late)
    assert not is_combined(lambda timed: timed.window(tumbling).reduce(max))
    assert not is_combined(lambda timed: timed.window(tumbling).first())
    assert not is_combined(lambda timed: timed.window(tumbling).collect())
    assert not is_combined(lambda timed: timed.window(ms.windows.session(5)).sum())


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (ms.windows.count(10), "count(10)"),
        (ms.windows.tumbling(500), "tumbling(500ms)"),
        (ms.windows.session(2000, time="processing"), "session(2s, processing time)"),
    ],
)
def test_window_is_told_as_it_is_made(window: object, text: str) -> None:
    """For people who read plans."""
    assert str(window) == text


def test_offset_is_taken_modulo_the_slide() -> None:
    """Windows lie the same when they are moved by a whole slide, also back."""
    assert ms.windows.sliding(20, 10, offset=23) == ms.windows.sliding(20, 10, offset=3)
    assert ms.windows.tumbling(10, offset=-3) == ms.windows.tumbling(10, offset=7)


def test_windowed_stream_says_what_it_is() -> None:
    """In a notebook."""
    flow = ms.Flow("repr")
    windowed = flow.from_iterable([1]).window(ms.windows.count(2))

    assert repr(windowed).startswith("<WindowedStream from 'from_iterable' at ")
