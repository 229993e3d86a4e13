"""Call the cores as only a mistake of our own would: they must say so at once.

What `validate` says of a core that a mistake has been made in is in `test_validate.py`; a
running job does not ask it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import job_cores
from tests.support.job_cores import ONE, STRANGER, TWO

from millstream.protocol.absences import Absences
from millstream.protocol.align import Aligner
from millstream.protocol.barrier import Barrier
from millstream.protocol.dialing import Dialing
from millstream.protocol.former_times import latest_time
from millstream.protocol.handshake import ServerHandshake
from millstream.protocol.ids import COORDINATOR, ChannelId, Epoch
from millstream.protocol.job_events import WorkerExited, WorkerFinished
from millstream.protocol.job_words import unregistered_words
from millstream.protocol.metrics import TaskMetrics
from millstream.protocol.restarts import LOSSES_MAX, Restarts
from millstream.protocol.rounds import Decider, Head
from millstream.protocol.termination import TerminationDetector, TerminationProbe
from millstream.protocol.watermark import END_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

LEFT, RIGHT = ChannelId(1), ChannelId(2)


def look_back_in_time() -> None:
    absences = Absences()
    absences.lose(ONE, 1_000, "reset by peer")
    absences.due_loss(999)


def connect_the_lost() -> None:
    absences = Absences()
    absences.lose(ONE, 0, "reset by peer")
    absences.clear_suspects()


def read_a_channel_twice() -> None:
    Aligner(forward=[LEFT, RIGHT, LEFT])


def seal_before_the_cut() -> None:
    aligner = Aligner(forward=[LEFT])
    aligner._begin(Barrier(Epoch(1), Epoch(0)))
    aligner._seal()


def begin_one_epoch_in_another() -> None:
    aligner = Aligner(forward=[LEFT])
    aligner._begin(Barrier(Epoch(1), Epoch(0)))
    aligner._begin(Barrier(Epoch(2), Epoch(0)))


def dial_from_the_coordinator() -> None:
    Dialing(COORDINATOR)


def take_over_from_beyond_time() -> None:
    latest_time([7, END_OF_TIME + 1])


def prove_nothing() -> None:
    ServerHandshake(b"", bytes(16), ONE, bytes(32))


def hear_that_a_stranger_exited() -> None:
    job_cores.running().tell(WorkerExited(STRANGER, "exit code 1"))


def finish_before_the_beginning() -> None:
    driver = job_cores.running()
    driver.core._members[TWO].is_ready = False
    driver.tell(WorkerFinished(TWO))


def miss_workers_that_came() -> None:
    unregistered_words(2, 2, 1_000)


def count_backwards() -> None:
    TaskMetrics(0, 1, rows_in=-1).counted()


def go_on_after_too_many_losses() -> None:
    restarts = Restarts(restarts_max=0)
    for _ in range(LOSSES_MAX + 2):
        restarts.count_loss(0, what="worker 1 was lost")


def go_back_behind_a_decision() -> None:
    head = Head(does_return=True)
    head.resume(4, 2)
    head.resume(3, 2)


def end_a_round_that_nobody_began() -> None:
    decider = Decider(1, None, 0, lambda *_: (0, True))
    decider.round = 1
    decider.end_round([])


def flush_after_one_probe() -> None:
    TerminationDetector(1)._decided(TerminationProbe(quiet=1, asks_flush=True))


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (look_back_in_time, "it is 999, 1 was lost at 1000"),
        (connect_the_lost, "are lost, and connect anew"),
        (read_a_channel_twice, r"a channel is twice among \[1, 2, 1\]"),
        (seal_before_the_cut, "is sealed before its cut"),
        (begin_one_epoch_in_another, "epoch=1, .* passes, and .*epoch=2, .* too"),
        (dial_from_the_coordinator, "dials nobody"),
        (take_over_from_beyond_time, "a former task was at 9223372036854775808"),
        (prove_nothing, "a proof without a key"),
        (hear_that_a_stranger_exited, "worker 9 was never asked for"),
        (finish_before_the_beginning, "worker 2 has not begun"),
        (miss_workers_that_came, "2 of 2 workers came"),
        (count_backwards, "'rows_in': -1"),
        (go_on_after_too_many_losses, "the job had to end before worker 1"),
        (go_back_behind_a_decision, "4 is done, 3 comes back"),
        (end_a_round_that_nobody_began, "round 1 was begun by nobody"),
        (flush_after_one_probe, "a flush after 1 quiet probes"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistake_is_asserted_where_it_is_made(
    mistake: Callable[[], None], said: str
) -> None:
    """With the values, before anything comes of it."""
    with pytest.raises(AssertionError, match=said):
        mistake()
