"""Break the cores on purpose: their `validate` must say what is wrong.

Method: patch a function of a core into a mistake that somebody could make, and tell the core
what shows it.  A mistake that `validate` does not see would make all tests that call it
prove little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import epoch_cores, job_cores
from tests.support.job_cores import ONE, TWO, registered

from millstream.protocol.align import Aligner, BarrierArrived, ChannelEnded
from millstream.protocol.barrier import Barrier
from millstream.protocol.batching import BatchSize
from millstream.protocol.dialing import Dialing
from millstream.protocol.half_open import HalfOpen
from millstream.protocol.ids import ChannelId, Epoch, PeerId
from millstream.protocol.job import JobCore, Phase
from millstream.protocol.job_events import WorkerLost, WorkerReady
from millstream.protocol.messages import CompleteEpoch, Deploy
from millstream.protocol.orders import Orders
from millstream.protocol.restarts import Restarts
from millstream.protocol.rounds import Decider, Head, HeadPhase, HeadReady
from millstream.protocol.snapshot_events import Interrupted, StoreFailed
from millstream.protocol.snapshots import Phase as EpochPhase
from millstream.protocol.snapshots import SnapshotCore
from millstream.protocol.story import Severity, Story
from millstream.protocol.termination import ProbeReport, TerminationDetector
from millstream.protocol.watermark import EventTime, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


def start_too_early(patch: Patch) -> None:
    # One worker is ready, and all are started.

    def handle(self: JobCore, _event: WorkerReady) -> list[Any]:
        self.phase = Phase.RUNNING
        return []

    patch.setattr(JobCore, "_handle_ready", handle)
    job_cores.connecting().tell(WorkerReady(ONE))


def replace_nobody(patch: Patch) -> None:
    # A lost worker is forgotten.

    def replace(self: JobCore, worker: PeerId, reason: str) -> list[Any]:
        self._members[worker].is_gone = True
        return self._interrupt(reason)

    patch.setattr(JobCore, "_replace", replace)
    driver = job_cores.Driver(restarts_max=2)
    driver.tell(registered(ONE), registered(TWO), WorkerLost(TWO, "reset by peer"))


def place_on_strangers(patch: Patch) -> None:
    # One of them has never registered.
    patch.setattr("millstream.protocol.job.place", lambda *_: (ONE, PeerId(9)))
    job_cores.connecting()


def hear_the_past(patch: Patch) -> None:
    # What an older generation sealed counts.
    patch.setattr(SnapshotCore, "_is_stale", lambda _self, _generation: False)
    driver = epoch_cores.opened()
    driver.generation = 7
    driver.seal(1, epoch_cores.ONE)


def keep_the_past(patch: Patch) -> None:
    # Reports outlive their generation.
    patch.setattr(
        SnapshotCore,
        "_leave_generation",
        lambda self: setattr(self, "_is_interrupted", True),
    )
    driver = epoch_cores.opened()
    driver.seal(1, epoch_cores.ONE)
    driver.tell(Interrupted())


def build_on_an_abandoned_epoch(patch: Patch) -> None:
    # Deltas build on the last epoch that was tried.
    store = SnapshotCore._handle_store_failed

    def handle(self: SnapshotCore, epoch: int, reason: str) -> list[Any]:
        self._base_epoch = Epoch(epoch)
        return store(self, epoch, reason)

    patch.setattr(SnapshotCore, "_handle_store_failed", handle)
    epoch_cores.storing().tell(StoreFailed(1, "full"))


def conclude_too_early(_patch: Patch) -> None:
    # One task of two has ended.
    driver = epoch_cores.committing()
    driver.core.phase = EpochPhase.CONCLUDED
    driver.core._storing = None
    driver.core.validate()


def end_of_a_marked_channel(patch: Patch) -> None:
    # Its mark stays, and the next epoch takes it for its own.

    def handle(self: Aligner, channel: ChannelId) -> list[Any]:
        self._forward.remove(channel)
        return self._advanced([])

    patch.setattr(Aligner, "_handle_end", handle)
    aligner = Aligner([ChannelId(1), ChannelId(2), ChannelId(3)])
    aligner.handle(BarrierArrived(ChannelId(1), Barrier(Epoch(1), Epoch(0))))
    aligner.handle(ChannelEnded(ChannelId(1)))
    aligner.validate()


def cut_that_never_comes(patch: Patch) -> None:
    # The paper's test: exactly the forward channels are marked.
    patch.setattr(Aligner, "_advanced", lambda _self, commands: commands)
    aligner = Aligner([ChannelId(1)])
    aligner.handle(BarrierArrived(ChannelId(1), Barrier(Epoch(1), Epoch(0))))
    aligner.validate()


def replay_without_a_decision(_patch: Patch) -> None:
    # A head that is told to go on does so twice.
    head = Head(does_return=False)
    head.phase = HeadPhase.REPLAYING
    head.validate()


def hold_an_epoch_back_for_nothing(patch: Patch) -> None:
    # Nobody decides while heads collect, so it would never pass.
    patch.setattr(
        Decider, "announce", lambda self, barrier: self._barriers.append(barrier)
    )
    decider = Decider(1, 3, 0, lambda value, _: (value, False))
    decider.announce(Barrier(Epoch(1), Epoch(0)))
    decider.validate()


def flush_too_early(patch: Patch) -> None:
    # After one quiet probe rows may still be under way.
    looks = TerminationDetector(1)
    for report in (ProbeReport(now=None), ProbeReport(before=None, now=None)):
        looks.hear(HeadReady(0, looks.number, report))
        looks.validate()
    patch.setattr("millstream.protocol.termination._QUIET_PROBES", 1)
    looks.validate()


def let_the_idle_hold_time_back(patch: Patch) -> None:
    # Time does not rise when an input becomes idle.
    patch.setattr(EventTime, "_rise", lambda _self: None)
    time = EventTime("ab")
    time.note("a", Watermark(5))
    time.note("b", Watermark(3, is_idle=True))
    time.validate()


def forget_half_of_a_connection(patch: Patch) -> None:
    # Who was greeted keeps its place when it is gone.
    patch.setattr(HalfOpen, "_discard", lambda *_: None)
    waiting: HalfOpen[str] = HalfOpen(2, 2, choose=lambda several: several[0])
    waiting.admit("a", "10.0.0.1")
    waiting.remove("a")
    waiting.validate()


def shrink_without_end(_patch: Patch) -> None:
    # A slow disk makes batches of no rows.
    size = BatchSize(1024, least=1024, most=4096, bound_ns=1)
    size._least = 0
    size.note(1024, 10**12)
    size._least = 1024
    size.validate()


def dial_behind_the_deadline(_patch: Patch) -> None:
    # The attempt is made when nobody waits for it.
    dialing = Dialing(PeerId(1))
    dialing.begin(PeerId(2), ("10.0.0.2", 7000), deadline_ns=10**9)
    dialing.fail(PeerId(2), now_ns=0)
    dialing._dials[PeerId(2)].deadline_ns = 0
    dialing.validate()


def complete_what_was_not_opened(_patch: Patch) -> None:
    # The next epoch would be refused as too old.
    orders = Orders(PeerId(1), task_count=1, stages=[0], has_store=True)
    orders.take(Deploy(1, ((1, "a", 7),), (1,), (0, 0)))
    orders.take(CompleteEpoch(1, 3))
    orders._opened = 2
    orders.validate()


def put_up_with_everything(_patch: Patch) -> None:
    # A failure that comes again and again never ends the job.
    restarts = Restarts(restarts_max=0)
    for _ in range(2):
        restarts.count_failure(job_cores.REPORT, now_ns=0)
    restarts.validate()


def let_routine_push_out_warnings(_patch: Patch) -> None:
    # The loss of a worker is forgotten after some snapshots.
    story = Story()
    story.add(1, "job", "worker 0 was lost", Severity.WARNING)
    story._routine.append(story._grave.pop())
    story.validate()


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (start_too_early, r"workers \[1, 2\] are not ready"),
        (replace_nobody, r"workers \[1\] are there or on their way, for 2 tasks"),
        (place_on_strangers, r"tasks are placed on \{9\}, who are not there"),
        (hear_the_past, r"was sealed in generation 7, not 1"),
        (keep_the_past, "something is left of a generation that is over"),
        (build_on_an_abandoned_epoch, "deltas build on epoch 1, and 0 is complete"),
        (conclude_too_early, "not all of"),
        (end_of_a_marked_channel, r"channels \{1\} are marked"),
        (cut_that_never_comes, "all barriers have come"),
        (replay_without_a_decision, "no decision asked for a round"),
        (hold_an_epoch_back_for_nothing, "no round is under way"),
        (flush_too_early, "a flush after 1 quiet probes"),
        (let_the_idle_hold_time_back, "inputs have come to 5"),
        (forget_half_of_a_connection, "is not {}"),
        (shrink_without_end, "0 rows are not within 1024 and 4096"),
        (dial_behind_the_deadline, "behind 0"),
        (complete_what_was_not_opened, "epoch 3 is complete, 2 was opened last"),
        (put_up_with_everything, "OperatorError.*: 2"),
        (let_routine_push_out_warnings, "can be pushed out"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistake_is_found(
    mistake: Callable[[Patch], None], said: str, monkeypatch: Patch
) -> None:
    """In one sentence, with the values."""
    with pytest.raises(AssertionError, match=said):
        mistake(monkeypatch)
