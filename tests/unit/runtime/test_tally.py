"""What all workers have done: added up over workers and generations, and never less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.ids import PeerId
from millstream.protocol.messages import Progress
from millstream.runtime.tally import Counters, Tally

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("work"), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.just("recover"), st.integers(0, 3), st.just(0)),
    )
)


def report(worker: int, generation: int, rows: int) -> Progress:
    return Progress(
        worker,
        generation,
        stages=((0, rows, 2 * rows, 0, 0),),
        times=((0, rows, 0, 100 + rows),),
    )


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
        total = tally.totals().get(0, Counters())
        assert total == Counters(done, 2 * done, late_rows=done)


def test_reports_of_workers_that_are_gone_are_not_kept() -> None:
    """A job that runs for weeks loses many."""
    tally = Tally()
    for worker in range(100):
        tally.take(PeerId(worker), report(worker, worker, 1))
        tally.forget_others([PeerId(worker + 1)])

    assert tally.totals()[0].rows_in == 100
    assert tally._known.latest == {}


def test_watermark_is_that_of_the_slowest_member() -> None:
    """It is where event time stands, not work that was done."""
    tally = Tally()
    tally.take(PeerId(1), report(1, 1, 5))
    tally.take(PeerId(2), report(2, 1, 3))

    assert tally.watermarks([PeerId(1), PeerId(2), PeerId(3)]) == {0: 103}
    assert tally.watermarks([PeerId(1)]) == {0: 105}


def test_rounds_that_are_done_again_are_not_told_again() -> None:
    """An iteration that goes back to a snapshot shows how far it had come."""
    tally = Tally()
    for generation, done in ((1, 4), (1, 7), (2, 5), (2, 8)):
        rounds = ((0, done + 1, done, (1.0,)),)
        tally.take(PeerId(1), Progress(1, generation, (), rounds))
        assert tally.rounds[0][2] == max(done, 7 * (generation - 1))
