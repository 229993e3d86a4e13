"""What all workers have done: added up over workers and generations, and never less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import PeerId
from millstream.protocol.messages import Progress
from millstream.protocol.metrics import COUNTERS, RoundMetrics, TaskMetrics
from millstream.runtime.tally import Tally

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.just("recover"), st.integers(0, 3), st.just(0)),
    )
)
NUMBERS = st.integers(0, 5)
REPORTS = st.lists(
    st.tuples(
        st.integers(1, 3),
        NUMBERS,
        st.lists(
            st.builds(
                TaskMetrics,
                st.integers(0, 1),
                st.integers(0, 1),
                **dict.fromkeys(COUNTERS, NUMBERS),
            ),
            max_size=3,
            unique_by=lambda task: (task.stage, task.task),
        ),
    ),
    max_size=20,
)


def report(worker: int, generation: int, rows: int, **how: Any) -> Progress:
    task = TaskMetrics(0, 0, rows_in=rows, rows_out=2 * rows, late_rows=rows, **how)
    return Progress(worker, generation, (task,))


@given(STEPS)
def test_counters_never_fall_and_count_all_work(
    steps: list[tuple[str, int, int]],
) -> None:
    """Whoever is lost and replaced, and however often everybody begins anew."""
    tally, generation, done = Tally(), 1, 0
    members = dict.fromkeys(range(1, 5), 0)
    for action, index, rows in steps:
        worker = sorted(members)[index]
        if action == "work":
            done += rows
            members[worker] += rows
            tally.take(PeerId(worker), report(worker, generation, members[worker]))
        else:
            del members[worker]
            members = dict.fromkeys([*members, max([*members, worker]) + 1], 0)
            generation += 1
            tally.forget_others([PeerId(member) for member in members])
        total = tally.tasks().get((0, 0), TaskMetrics(0, 0))
        assert total == TaskMetrics(0, 0, done, 2 * done, late_rows=done)


@given(REPORTS, st.lists(st.sets(st.integers(1, 3)), min_size=20, max_size=20))
def test_no_counter_falls_whatever_workers_tell(
    reports: list[tuple[int, int, list[TaskMetrics]]], kept: list[set[int]]
) -> None:
    """In any order, of any generation, of more or fewer tasks, and of lost workers."""
    tally = Tally()
    before: dict[tuple[int, int], TaskMetrics] = {}
    for (worker, generation, tasks), members in zip(reports, kept, strict=False):
        tally.take(PeerId(worker), Progress(worker, generation, tuple(tasks)))
        if generation % 2:
            tally.forget_others([PeerId(member) for member in members])
        now = tally.tasks([PeerId(member) for member in members])
        for own, task in before.items():
            for name in COUNTERS:
                assert getattr(now[own], name) >= getattr(task, name), name
        before = now


def test_reports_of_workers_that_are_gone_are_not_kept() -> None:
    """A job that runs for weeks loses many."""
    tally = Tally()
    for worker in range(100):
        tally.take(PeerId(worker), report(worker, worker, 1))
        tally.forget_others([PeerId(worker + 1)])

    assert tally.tasks()[0, 0].rows_in == 100
    assert tally._known.latest == {}


def test_of_workers_that_are_gone_only_work_is_known() -> None:
    """Nothing waits in a task that is not there, and no time stands in it."""
    tally = Tally()
    told = report(1, 1, 5, rows_waiting=3, has_time=True, watermark=7)
    tally.take(PeerId(1), replace(told, resident_bytes=4096))

    assert tally.tasks([PeerId(1)])[0, 0] == told.tasks[0]
    assert tally.tasks([PeerId(2)])[0, 0] == told.tasks[0].counted()
    assert tally.resident_bytes(PeerId(1)) == 4096
    assert tally.resident_bytes(PeerId(2)) == 0


def test_a_task_stands_as_its_newest_generation_says() -> None:
    """It moved to another worker at a pause, and the former one has nothing to tell."""
    tally = Tally()
    tally.take(PeerId(2), report(2, 2, 3, rows_waiting=1))
    tally.take(PeerId(1), report(1, 1, 5, rows_waiting=9))

    task = tally.tasks()[0, 0]
    assert (task.rows_in, task.rows_waiting) == (8, 1)


def test_rounds_that_are_done_again_are_not_told_again() -> None:
    """An iteration that goes back to a snapshot shows how far it had come."""
    tally = Tally()
    for generation, done in ((1, 4), (1, 7), (2, 5), (2, 8)):
        rounds = RoundMetrics(done + 1, done, (1.0,))
        tally.take(PeerId(1), report(1, generation, 0, rounds=rounds))
        assert tally.rounds[0].done == max(done, 7 * (generation - 1))
