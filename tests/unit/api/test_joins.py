"""What joins say while a flow is built: warnings, times and the text of `explain`."""

from __future__ import annotations

import warnings
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.plan.joins import JoinAsof, JoinInterval, JoinTable
from millstream.windows import sliding, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.plan.logical import Node

HERE = Path(__file__).name


def bounded(flow: ms.Flow) -> ms.KeyedStream[int, int]:
    return flow.from_iterable([1]).key_by(abs)


def endless(flow: ms.Flow) -> ms.KeyedStream[int, int]:
    return flow.from_iterable(count).map(abs).shuffle().key_by(abs)


def timed(flow: ms.Flow) -> ms.KeyedStream[int, int]:
    return flow.from_iterable([1]).event_time(abs).key_by(abs)


def node_of(stream: Any) -> Node:
    node: Node = stream._node
    return node


def test_join_of_what_may_never_end_warns_with_the_line_and_the_source() -> None:
    """The state of a regular join grows with its input, and somebody must know."""
    flow = ms.Flow("endless")
    left, right = bounded(flow), endless(flow)

    with pytest.warns(ms.UnboundedStateWarning) as caught:
        joined = left.join(right)

    text = str(caught[0].message)
    assert text.startswith(f"`join` at {HERE}:")
    assert f"`from_iterable` at {HERE}:" in text
    assert "give it a ttl" in text
    assert Path(caught[0].filename).name == HERE
    joined.for_each(print)
    assert "(inner, keeps all rows, and they may never end)" in flow.explain()


@pytest.mark.parametrize(
    "joined",
    [
        lambda left, right: left.join(right, ttl="1h"),
        lambda left, right: left.join_table(right),
    ],
)
def test_join_whose_state_is_bounded_does_not_warn(
    joined: Callable[[Any, Any], Any],
) -> None:
    """A warning that is always there is read by nobody."""
    flow = ms.Flow("bounded")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joined(endless(flow), endless(flow))
        bounded(flow).join(bounded(flow))


def test_join_with_a_loop_behind_it_finds_its_sources() -> None:
    """The way to the sources may go round."""
    flow = ms.Flow("loop")
    rows = flow.from_iterable([1]).iterate(lambda each: each, max_rounds=2)

    rows.key_by(abs).join(bounded(flow)).for_each(print)

    assert "(inner, keeps all rows)" in flow.explain()


def test_explain_says_what_a_join_keeps() -> None:
    """Every join has its bounds in the plan."""
    flow = ms.Flow("explained")
    left, right = timed(flow), timed(flow)
    for joined in (
        left.join(right, ttl="5s", how="full"),
        left.window_join(right, sliding("10s", "2s")),
        left.window_join(right, tumbling("1s", time="processing"), how="anti"),
        left.interval_join(right, "-1s", 500),
        left.asof_join(right, direction="nearest", tolerance="3s"),
        left.asof_join(right),
        left.join_table(right, how="semi"),
        bounded(flow).join_table(bounded(flow)),
        bounded(flow).join_table(endless(flow)),
    ):
        joined.for_each(print)

    text = flow.explain()
    for said in (
        "(full, rows wait 5000 ms)",
        "(inner, windows of 10000 ms every 2000 ms)",
        "(anti, windows of the clock of 1000 ms)",
        "(inner, -1000 to 500 ms later)",
        "(inner, nearest within 3000 ms)",
        "(inner, backward)",
        "(semi, table as of the row's time)",
        "(inner, waits for the table)",
        "(inner, table as it is)",
    ):
        assert said in text


def test_bounds_of_an_interval_may_be_negative_in_any_form() -> None:
    """As text, as a number, and as a timedelta."""
    flow = ms.Flow("bounds")
    joined = timed(flow).interval_join(timed(flow), "-1.5s", -20)

    spec = node_of(joined).spec
    assert isinstance(spec, JoinInterval)
    assert (spec.lower, spec.upper) == (-1500, -20)


@pytest.mark.parametrize(
    ("joined", "is_timed"),
    [
        (lambda left, right: left.join(right), True),
        (lambda left, right: left.join(right, how="left"), False),
        (lambda left, right: left.join(right.map(abs)), True),
        (lambda left, right: left.window_join(right, tumbling(5)), True),
        (
            lambda left, right: left.window_join(right, tumbling(5, time="processing")),
            False,
        ),
        (lambda left, right: left.interval_join(right, 0, 1, how="anti"), True),
        (lambda left, right: left.join_table(right), True),
    ],
)
def test_result_is_timed_where_its_time_is_certain(
    *, joined: Callable[[Any, Any], Any], is_timed: bool
) -> None:
    """A regular join that lets rows out alone does not know when."""
    flow = ms.Flow("timed")

    assert node_of(joined(timed(flow), timed(flow))).makes_times is is_timed


def test_table_is_looked_up_by_time_only_if_both_sides_have_it() -> None:
    """Otherwise the time of the other side is dropped."""
    flow = ms.Flow("table")

    both = node_of(timed(flow).join_table(timed(flow)))
    one = node_of(timed(flow).join_table(bounded(flow)))
    other = node_of(bounded(flow).join_table(timed(flow)))

    assert isinstance(both.spec, JoinAsof)
    assert [node.spec for node in (one, other)] == [JoinTable("inner", waits=True)] * 2  # type: ignore[arg-type]
    assert not one.makes_times
    assert not other.makes_times


def test_join_broadcast_behind_one_source_runs_on_all_workers() -> None:
    """Rows are dealt out first; a table that is everywhere makes it possible."""
    flow = ms.Flow("spread")
    rows = flow.from_iterable([1], name="rows")
    rows.join_broadcast(bounded(flow), abs, name="lookup").for_each(print)

    text = flow.explain()
    assert "(one task per worker): lookup (inner, waits for the table)" in text
    assert "by shuffle" in text
    assert "by broadcast" in text


def test_nobody_is_late_for_a_join_of_everything_so_far() -> None:
    """It drops nothing by time, so there is nothing to read."""
    flow = ms.Flow("late")
    keyed = flow.from_iterable([1]).event_time(lambda i: i).key_by(lambda i: i)
    joined = keyed.join(keyed)

    with pytest.raises(ms.UsageError, match="for which no row is ever too late"):
        joined.late()
