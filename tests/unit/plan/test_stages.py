"""Stages: where the planner cuts, how wide a stage is, and how rows get there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import millstream as ms
from millstream.plan.physical import lay_out
from millstream.plan.stages import plan_stages

if TYPE_CHECKING:
    from millstream.plan.stages import StagePlan


def planned(flow: ms.Flow) -> StagePlan:
    return plan_stages(flow.plan, ms.Config(buffer=ms.fixed(1024)))


def chains(flow: ms.Flow) -> list[list[str]]:
    return [[node.name for node in stage.nodes] for stage in planned(flow).stages]


def groupings(flow: ms.Flow) -> list[str]:
    return [str(edge.grouping) for edge in planned(flow).edges]


def numbers(flow: ms.Flow) -> ms.Stream[int]:
    return flow.from_parallel(lambda rank, size: range(rank, 9, size))


def test_operators_that_move_nothing_share_a_stage() -> None:
    """The paper's stage: a sequence of operators that keep the partitioning."""
    flow = ms.Flow("chain")
    numbers(flow).map(abs).filter(abs).collect()

    assert chains(flow) == [["from_parallel", "map", "filter", "collect"]]


def test_single_source_is_a_stage_of_its_own() -> None:
    """What follows it runs on all workers."""
    flow = ms.Flow("single")
    flow.from_iterable([1]).map(abs).collect()

    assert chains(flow) == [["from_iterable"], ["map", "collect"]]
    assert groupings(flow) == ["shuffle"]
    assert [stage.width for stage in planned(flow).stages] == [1, None]


def test_rows_of_a_single_source_that_only_move_move_once() -> None:
    """A shuffle right after the source does not shuffle twice."""
    flow = ms.Flow("once")
    flow.from_iterable([1]).shuffle().map(abs).collect()

    assert chains(flow) == [["from_iterable", "shuffle"], ["map", "collect"]]


def test_what_stays_with_a_single_source_stays_though_others_read_it() -> None:
    """Rows of a key keep their order, and those of a split theirs."""
    flow = ms.Flow("beside")
    rows = flow.from_iterable([1])
    rows.map(abs).collect()
    rows.key_by(abs).collect()
    rows.event_time(abs).map(abs).collect()
    plan = planned(flow)
    widths = {stage.nodes[0].name: stage.width for stage in plan.stages}
    groups = {(e.source, e.target): str(e.grouping) for e in plan.edges}

    assert widths["key_by"] == widths["event_time"] == 1
    assert widths["map"] is widths["map-2"] is None
    assert [groups[0, s.id] for s in plan.stages if s.nodes[0].name == "key_by"] == [
        "gather"
    ]


def told_of_splits(flow: ms.Flow) -> list[str]:
    """Return the stages that are told which splits their rows come from."""
    plan = planned(flow)
    return [plan.stages[e.target].name for e in plan.edges if e.carries_splits]


def test_splits_are_told_on_the_way_to_where_time_is_given() -> None:
    """Of rows that are still those of a split, and to nobody else."""
    flow = ms.Flow("splits")
    rows = numbers(flow)
    rows.collect()
    doubled = rows.map(lambda i: 2 * i, name="doubled")
    doubled.collect(name="others")
    doubled.event_time(abs, name="timed").collect()
    rows.shuffle().event_time(abs, name="shuffled").collect()
    rows.merge(numbers(flow)).event_time(abs, name="merged").collect()
    rows.limit(3).event_time(abs, name="few").collect()

    assert told_of_splits(flow) == ["doubled", "timed…collect-2"]


def test_no_splits_are_told_where_time_is_given_next_to_the_source() -> None:
    """It knows them there."""
    flow = ms.Flow("next to it")
    timed = numbers(flow).map(abs).event_time(abs)
    timed.collect()
    timed.map(abs).collect()

    assert told_of_splits(flow) == []


def test_word_count_of_the_paper_has_its_stages() -> None:
    """Source; flat_map and group_by with the combiner; reduce with the sink."""
    flow = ms.Flow("word-count")
    pairs = flow.from_iterable(["a b"]).flat_map(str.split)
    pairs.group_by(str).reduce(lambda x, _: x).collect()

    assert chains(flow) == [
        ["from_iterable"],
        ["flat_map", "group_by", "reduce.local"],
        ["reduce", "collect"],
    ]
    assert groupings(flow) == ["shuffle", "fields"]


def test_groups_read_twice_are_not_combined() -> None:
    """The other reader needs every row."""
    flow = ms.Flow("twice")
    groups = numbers(flow).group_by(abs)
    groups.count().collect()
    groups.max().collect()

    assert chains(flow) == [
        ["from_parallel", "group_by"],
        ["count", "collect"],
        ["max", "collect-2"],
    ]


def test_fold_without_a_merge_is_not_combined() -> None:
    """Parts that cannot be merged must not be made."""
    flow = ms.Flow("fold")
    numbers(flow).group_by(abs).fold(0, lambda n, i: n + i).collect()

    assert chains(flow)[0] == ["from_parallel", "group_by"]


def test_stream_read_twice_ends_its_stage_and_stays_on_its_worker() -> None:
    """Both readers get the batch by reference."""
    flow = ms.Flow("twice")
    rows = numbers(flow).map(abs)
    rows.filter(abs).collect()
    rows.count()

    assert chains(flow)[0] == ["from_parallel", "map"]
    assert groupings(flow)[:2] == ["local-or-shuffle", "local-or-shuffle"]


def test_sort_then_limit_sends_only_the_first_rows() -> None:
    """Every task sorts and cuts before its rows travel."""
    flow = ms.Flow("top")
    numbers(flow).sort_by(abs).limit(3).collect()

    assert chains(flow) == [
        ["from_parallel", "sort_by.local"],
        ["sort_by", "limit", "collect"],
    ]


def test_sort_that_somebody_else_reads_is_whole() -> None:
    """The other reader wants all rows, in order."""
    flow = ms.Flow("both")
    ordered = numbers(flow).sort_by(abs)
    ordered.limit(3).collect()
    ordered.collect()

    assert chains(flow)[:2] == [["from_parallel"], ["sort_by"]]


def test_max_parallelism_narrows_what_follows_up_to_the_next_regrouping() -> None:
    """And no further."""
    flow = ms.Flow("narrow")
    numbers(flow).max_parallelism(2).map(abs).shuffle().filter(abs).collect()

    widths = [stage.width for stage in planned(flow).stages]
    assert chains(flow) == [
        ["from_parallel"],
        ["max_parallelism", "map", "shuffle"],
        ["filter", "collect"],
    ]
    assert widths == [None, 2, None]


def test_streams_of_different_width_meet_on_all_workers() -> None:
    """The narrow one is dealt out."""
    flow = ms.Flow("meet")
    numbers(flow).merge(flow.from_iterable([1])).collect()

    assert groupings(flow) == ["local-or-shuffle", "shuffle"]


def test_buffer_of_a_stream_belongs_to_the_next_edge() -> None:
    """Wherever in its stage the user said it; other edges keep the flow's policy."""
    flow = ms.Flow("buffers")
    rows = flow.from_iterable([1]).buffered(ms.adaptive(2, "1ms"))
    rows.shuffle().map(abs).shuffle().collect()

    buffers = [str(edge.buffer) for edge in planned(flow).edges]
    assert buffers == ["adaptive(2, 1ms)", "fixed(1024)"]


def test_layout_puts_task_i_of_every_stage_on_worker_i() -> None:
    """Local-or-shuffle then needs one channel per task, within the worker."""
    flow = ms.Flow("layout")
    rows = numbers(flow).map(abs)
    rows.count()
    rows.collect()
    plan = lay_out(planned(flow), 3)

    local = [c for c in plan.channels if str(c.edge.grouping) == "local-or-shuffle"]
    assert all(c.source_index == c.target_index for c in local)
    assert [c.id for c in plan.channels] == list(range(len(plan.channels)))


def test_narrowed_tasks_get_the_rows_of_the_workers_without_one() -> None:
    """Local where there is a task, to another worker's where there is none."""
    flow = ms.Flow("narrow")
    numbers(flow).max_parallelism(2).collect()
    plan = lay_out(planned(flow), 3)

    pairs = [(c.source_index, c.target_index) for c in plan.channels]
    assert pairs == [(0, 0), (1, 1), (2, 0)]


def test_more_width_than_workers_is_no_more_tasks() -> None:
    """A stage has at most one task per worker."""
    flow = ms.Flow("wide")
    numbers(flow).max_parallelism(16).collect()
    plan = lay_out(planned(flow), 2)

    assert [plan.task_count(stage) for stage in plan.stages.stages] == [2, 2]
