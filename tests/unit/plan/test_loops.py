"""Loops in a plan: what closes them, what is in them, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millstream as ms
from millstream.config import Config
from millstream.plan.iteration import Decide, LoopHead, Outlet, Port
from millstream.plan.loops import back_edges, enclosing
from millstream.plan.stages import plan_stages

if TYPE_CHECKING:
    from millstream.plan.stages import StagePlan


def planned(flow: ms.Flow) -> StagePlan:
    return plan_stages(flow.plan, Config())


def doubled(rows: ms.Stream[int]) -> ms.Stream[int]:
    return rows.map(lambda i: i * 2)


@pytest.mark.parametrize(
    ("stages", "edges", "expected"),
    [
        (3, [(0, 1), (1, 2)], set()),
        (3, [(0, 1), (1, 2), (2, 1)], {2}),
        (2, [(0, 1), (1, 1)], {1}),
        (4, [(0, 1), (1, 2), (2, 3), (3, 1), (2, 2)], {3, 4}),
        (4, [(0, 1), (0, 2), (1, 3), (2, 3)], set()),
    ],
)
def test_back_edges_are_those_that_close_a_cycle(
    stages: int, edges: list[tuple[int, int]], expected: set[int]
) -> None:
    """Two ways to the same stage are no cycle."""
    assert back_edges(stages, edges) == expected


def test_back_edges_lead_to_the_head_and_carry_rounds() -> None:
    """Rows come back with the end of their round, decisions without."""
    flow = ms.Flow("iterate")
    flow.from_iterable([1]).iterate(doubled, max_rounds=2).collect()

    plan = planned(flow)

    (head,) = [s.id for s in plan.stages if isinstance(s.nodes[0].spec, LoopHead)]
    (decider,) = [s.id for s in plan.stages if isinstance(s.nodes[0].spec, Decide)]
    back = {edge.source: edge for edge in plan.edges if edge.is_back}
    assert {edge.target for edge in back.values()} == {head}
    assert not back.pop(decider).carries_rounds
    assert all(edge.carries_rounds for edge in back.values())
    ends = [(edge.source, edge.target) for edge in plan.edges]
    found = back_edges(len(plan.stages), ends)
    assert {plan.edges[place].id for place in found} == {
        edge.id for edge in plan.edges if edge.is_back
    }


def test_a_side_of_a_body_may_come_from_another_loop() -> None:
    """Wherever the search for cycles begins, the way into a body is none."""
    flow = ms.Flow("side")
    start = flow.from_iterable([1])
    side = start.iterate(doubled, max_rounds=1).key_by(abs)

    def body(rows: ms.Stream[Any]) -> ms.Stream[Any]:
        return rows.key_by(abs).join(side).drop_key().map(lambda pair: pair[0])

    start.iterate(body, max_rounds=2).collect()

    assert len([edge for edge in planned(flow).edges if edge.is_back]) == 4


@pytest.mark.parametrize("verb", ["loop", "iterate"])
def test_edges_that_leave_a_loop_know_its_head(verb: str) -> None:
    """Back-edges and decisions stay in it, what a sink in a free loop reads does not."""
    flow = ms.Flow("leaving")
    start = flow.from_iterable([1])

    def lap(rows: Any) -> Any:
        rows.for_each(print, name="beside")
        return rows, rows.map(abs, name="out")

    if verb == "loop":
        start.loop(lap, name="head").collect(name="sink")
    else:
        start.iterate(doubled, max_rounds=2, name="head").collect(name="sink")
    plan = planned(flow)

    names = [stage.nodes[0].name for stage in plan.stages]
    head = next(node for node in flow.plan.nodes if node.name == "head")
    left = {names[edge.target] for edge in plan.edges if edge.exits_loop is not None}
    assert {edge.exits_loop for edge in plan.edges} == {None, head.id}
    assert left == ({"beside", "out"} if verb == "loop" else {"head.result"})


def test_operators_know_the_loops_they_are_in_outermost_first() -> None:
    """What follows an inner iteration is in the outer one only."""
    flow = ms.Flow("nested")
    flow.from_iterable([1]).iterate(
        lambda rows: rows.iterate(
            lambda inner: inner.map(abs, name="inside"), max_rounds=1, name="inner"
        ).map(abs, name="after"),
        max_rounds=1,
        name="outer",
    ).collect(name="sink")

    loops = enclosing(flow.plan.nodes)

    ids = {node.name: node.id for node in flow.plan.nodes}
    assert loops[ids["inside"]] == (ids["outer"], ids["inner"])
    assert loops[ids["after"]] == (ids["outer"],)
    assert loops[ids["inner"]] == (ids["outer"],)
    assert loops[ids["sink"]] == loops[ids["outer"]] == ()


def sink_inside(_: ms.Flow, rows: ms.Stream[int]) -> ms.Stream[int]:
    rows.for_each(print)
    return rows


def outside_merged(flow: ms.Flow, rows: ms.Stream[int]) -> ms.Stream[int]:
    return rows.merge(flow.from_iterable([1], name="outside"))


def left_alone(rows: ms.Stream[int]) -> ms.Stream[int]:
    rows.map(abs, name="leak")
    return rows


def loop_inside(_: ms.Flow, rows: ms.Stream[int]) -> ms.Stream[int]:
    return rows.loop(lambda inner: (inner, inner))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (sink_inside, r"for_each at .* is in the body of iterate at .* and is a sink"),
        (outside_merged, r"merge at .* reads from_iterable at .*, which is not"),
        (loop_inside, r"loop at .* a free loop does not know when a round is over"),
    ],
)
def test_what_does_not_fit_into_rounds_is_refused(body: Any, sentence: str) -> None:
    """While the flow is built, with the lines of both."""
    flow = ms.Flow("refused")
    numbers = flow.from_iterable([1])
    numbers.iterate(lambda rows: body(flow, rows), max_rounds=2).collect()

    with pytest.raises(ms.UsageError, match=sentence):
        planned(flow)


def test_what_a_body_makes_and_does_not_return_is_refused() -> None:
    """As anywhere else in a flow."""
    flow = ms.Flow("leak")
    flow.from_iterable([1]).iterate(left_alone, max_rounds=2).collect()

    with pytest.raises(ms.UsageError, match="nothing reads the output of map 'leak'"):
        flow.run(on="local")


def test_a_loop_whose_rows_never_come_round_is_refused() -> None:
    """What goes round must be made of what came in."""
    flow = ms.Flow("no-loop")
    others = flow.from_iterable([2], name="others")

    with pytest.raises(ms.UsageError, match="is not made of what the body gets"):
        flow.from_iterable([1]).loop(lambda rows: (others, rows))


def test_an_iteration_inside_a_free_loop_is_refused() -> None:
    """Its input would never end."""
    flow = ms.Flow("rounds-in-loop")
    flow.from_iterable([1]).loop(
        lambda rows: (rows.iterate(doubled, max_rounds=1), rows)
    ).collect()

    with pytest.raises(ms.UsageError, match="rows never come to an end"):
        planned(flow)


def summed(rows: ms.Stream[int]) -> ms.Stream[int]:
    return rows.group_by(abs).sum().map(lambda pair: pair[1])


@pytest.mark.parametrize(
    ("again", "sentence"),
    [
        (summed, r"sum at .* and waits for the end of an input"),
        (lambda rows: rows.sort_by(abs), r"sort_by at .* and waits for the end"),
        (lambda rows: rows.limit(3), r"limit at .* and may end before its input does"),
        (lambda rows: rows.zip(rows).map(sum), r"zip at .* and may end before its"),
    ],
)
def test_what_does_not_fit_into_a_free_loop_is_refused(
    again: Any, sentence: str
) -> None:
    """Its rows would be lost when the loop ends, or keep it from ending."""
    flow = ms.Flow("refused")
    flow.from_iterable([1]).loop(lambda rows: (again(rows), rows)).collect()

    with pytest.raises(ms.UsageError, match=sentence):
        planned(flow)


def test_a_frame_of_the_loop_cannot_be_the_right_side_of_a_join_in_it() -> None:
    """The left side would wait for rows that come only after it."""
    flow = ms.Flow("refused")
    rows = flow.from_frame(pl.DataFrame({"key": [1]}))
    rows.loop(lambda rows: (rows.join(rows, "key"), rows)).collect()

    with pytest.raises(
        ms.UsageError, match=r"join at .* waits for the end of an input"
    ):
        planned(flow)


def test_what_leaves_a_free_loop_may_be_aggregated_and_limited() -> None:
    """Only what goes round again may not."""
    flow = ms.Flow("leaving")
    out = (
        flow.from_iterable(range(4))
        .loop(lambda rows: (rows.filter(lambda i: i > 3).map(lambda i: i - 1), rows))
        .sort_by(lambda i: i)
        .limit(2)
        .collect()
    )

    flow.run(on="local", workers=2)

    assert out.result() == [0, 1]


def test_the_right_side_of_a_join_may_come_from_outside() -> None:
    """It is kept for all rounds."""
    flow = ms.Flow("joined")
    more = flow.from_frame(pl.DataFrame({"key": [1, 2], "more": [10, 20]}))
    start = flow.from_frame(pl.DataFrame({"key": [1, 2, 3], "total": [0, 0, 0]}))
    result = start.iterate(
        lambda rows: rows.join(more, "key").select(
            "key", total=pl.col("total") + pl.col("more")
        ),
        max_rounds=3,
    ).collect()

    flow.run(on="local", workers=2)

    assert sorted(result.result().rows()) == [(1, 30), (2, 60)]


def test_decider_of_the_outermost_loop_reads_the_end_of_every_side() -> None:
    """Once for each stage that a side comes from, and no rows."""
    flow = ms.Flow("sides")
    side = flow.from_iterable([1], name="side").key_by(lambda i: i)

    def inner(rows: Any) -> Any:
        return rows.key_by(lambda i: i).join(side).drop_key().map(sum)

    def outer(rows: Any) -> Any:
        met = rows.key_by(lambda i: i).join_table(side).drop_key().map(sum)
        return met.iterate(inner, max_rounds=2)

    flow.from_iterable([1], name="start").iterate(outer, max_rounds=2).collect()

    plan = planned(flow)

    (edge,) = [edge for edge in plan.edges if edge.outlet == Outlet.END]
    assert plan.stages[edge.source].nodes[0].name == "side"
    assert plan.stages[edge.target].name == "iterate.decider"
    assert edge.port == Port.SIDES
    assert not edge.carries_rounds


def test_nobody_waits_for_the_sides_of_a_free_loop() -> None:
    """It is cut anywhere."""
    flow = ms.Flow("free")
    side = flow.from_iterable([1], name="side").key_by(lambda i: i)

    def body(rows: Any) -> tuple[Any, Any]:
        met = rows.key_by(lambda i: i).join(side).drop_key().map(sum)
        return met.filter(lambda i: i < 9), met

    flow.from_iterable([1]).loop(body).collect()

    assert all(edge.outlet != Outlet.END for edge in planned(flow).edges)
