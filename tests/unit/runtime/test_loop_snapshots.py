"""Snapshots around loops, in real jobs: one at the very end, and going on from one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.driving import eventually
from tests.support.making import channel, nodes

import millstream as ms
from millstream.config import Config, fixed
from millstream.operators.build import TaskContext, build_chain
from millstream.plan import nodes as specs
from millstream.plan.stages import Stage
from millstream.protocol.align import Aligner, BarrierArrived, Cut, EpochAnnounced
from millstream.protocol.barrier import ROUND_END, Barrier
from millstream.protocol.ids import ChannelId, Epoch
from millstream.protocol.packets import PacketKind
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import InputChannel, LocalCarrier, OutputChannel
from millstream.runtime.router import Router
from millstream.runtime.task import Task, TaskPhase
from millstream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.plan.physical import Channel
    from millstream.protocol.align import Event
    from millstream.runtime.task_cut import TaskCut

FAST: dict[str, Any] = {"on": "local", "workers": 2, "snapshot_every_ms": 10}


def linger(row: Any) -> Any:
    threading.Event().wait(0.01)
    return row


def ticks(rank: int, size: int) -> Iterator[int]:
    del size
    while True:
        yield linger(rank)


def test_an_epoch_that_was_cut_before_a_loop_ended_completes(tmp_path: Path) -> None:
    """Its barrier will not come round any more, and nobody waits for it."""
    flow = ms.Flow("ending")
    rows = flow.from_parallel(lambda rank, size: range(rank, 20, size))
    # Epochs that open in the only round are passed on in front of its last decision.
    rows.iterate(lambda each: each.map(linger).shuffle(), max_rounds=1).collect()
    flow.from_parallel(ticks, name="ticks").filter(lambda _: False).collect()

    job = flow.start(**FAST, state=tmp_path)
    eventually(lambda: any(m.rounds and m.rounds.done for m in job.metrics()))
    seen = job.epoch
    eventually(lambda: job.epoch >= seen + 3, timeout_s=20)
    job.cancel()

    with pytest.raises(ms.JobCancelledError):
        job.wait()


def test_rounds_of_a_loop_that_is_over_are_still_told_after_a_recovery(
    tmp_path: Path,
) -> None:
    """Whoever decided has nothing to restore; what it told before stands."""
    trouble = tmp_path / "trouble"

    def stumble(row: int) -> int:
        if trouble.exists():
            trouble.unlink()
            raise OSError(row)
        return row

    flow = ms.Flow("over")
    flow.from_iterable(range(9)).iterate(lambda rows: rows, max_rounds=3).collect()
    flow.from_parallel(ticks, name="ticks").map(stumble).filter(lambda _: False).count()
    job = flow.start(**FAST, state=tmp_path / "state")
    eventually(lambda: rounds_done(job) == [3])
    over = job.epoch
    eventually(lambda: job.epoch >= over + 2)
    trouble.touch()
    eventually(job.recoveries)
    again = job.epoch
    eventually(lambda: job.epoch >= again + 5)

    assert rounds_done(job) == [3]
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()


def rounds_done(job: ms.Job) -> list[int]:
    return [m.rounds.done for m in job.metrics() if m.rounds is not None]


def passing_on(intake: ChannelIntake, writer: OutputChannel, **told: Any) -> Task:
    """Return a task that passes rows on as they are."""
    chain = nodes([specs.Map(lambda i: i)])
    clock = ManualClock()
    context = TaskContext("job", 0, Config(), lambda *_: None, clock=clock)
    return Task(
        Stage(0, chain, None),
        0,
        intake,
        build_chain(chain, context),
        [[Router([writer])]],
        clock=clock,
        slice_batches=9,
        **told,
    )


def test_a_task_before_a_head_that_is_over_still_cuts_what_the_head_has_cut() -> None:
    """It must not count as ended before that epoch: after a recovery the head asks it."""
    made = channel()
    back = replace(made, edge=replace(made.edge, is_back=True))
    given, writer = InputChannel(made), OutputChannel(back, _carrier(back), print)
    cuts: list[TaskCut] = []
    ends: list[TaskCut] = []
    task = passing_on(
        ChannelIntake([given]), writer, on_cut=cuts.append, on_end=ends.append
    )
    writer.close()
    given.receive(PacketKind.BARRIER, 0, Barrier(Epoch(7), Epoch(6)), 0)
    given.receive(PacketKind.END, 1, [], 0)

    while task.phase is not TaskPhase.ENDED:
        assert task.run(0), f"it waits, {task.phase}"

    assert [cut.epoch for cut in cuts] == [7]
    assert [end.epoch for end in ends] == [7]


def test_a_look_does_not_wait_for_a_pause_in_the_rows_behind_it() -> None:
    """Where input comes without end, time behind a free loop would never pass."""
    made = channel(buffer=fixed(1))
    inside = replace(made, edge=replace(made.edge, carries_rounds=True))
    given, reader = InputChannel(inside), InputChannel(inside)
    writer = OutputChannel(inside, LocalCarrier(reader, 9), print)
    intake = ChannelIntake([given], rounds=frozenset({inside.id}), is_free=True)
    task = passing_on(intake, writer, on_cut=print, on_end=print)
    given.receive(PacketKind.BATCH, 0, [1], 0)
    given.receive(PacketKind.ROUND, 1, ROUND_END, 0)
    for number in range(2, 9):
        given.receive(PacketKind.BATCH, number, [number], 0)

    task.run(0)
    left = [reader.take() for _ in range(len(reader))]

    assert ROUND_END in left
    assert len(given), "there were more rows"


def test_an_epoch_behind_another_that_goes_round_is_due_before_the_next_round() -> None:
    """A head that began the round first would cut in the middle of it."""
    first, second = (Barrier(Epoch(n), Epoch(0)) for n in (1, 2))
    aligner = Aligner(forward=[], back=[ChannelId(5)])
    events: list[Event] = [
        EpochAnnounced(first),
        EpochAnnounced(second),
        BarrierArrived(ChannelId(5), first),
    ]

    seen = [(aligner.handle(event), aligner.is_cut_due) for event in events]

    assert [is_due for _, is_due in seen] == [False, True, False]
    assert Cut(second) in seen[-1][0]


def _carrier(of: Channel) -> LocalCarrier:
    return LocalCarrier(InputChannel(of), 1)


ROUNDS = 40


def in_rounds(rows: Any) -> Any:
    return rows.cycle(
        0,
        lambda each, state: each.map(lambda i: i + state.value % 2),
        lambda state, made: linger(state + sum(made)),
        max_rounds=ROUNDS,
    )


def freely(rows: Any) -> Any:
    def lap(each: Any) -> tuple[Any, Any]:
        moved = each.map(lambda i: linger(i + 2)).shuffle()
        return (
            moved.filter(lambda i: i < 2 * ROUNDS),
            moved.filter(lambda i: i >= 2 * ROUNDS),
        )

    return rows.loop(lap)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [(in_rounds, [2 * ROUNDS]), (freely, [2 * ROUNDS, 2 * ROUNDS + 1])],
    ids=["in rounds", "freely"],
)
def test_a_flow_with_a_loop_can_begin_with_a_savepoint(
    verb: Any, expected: list[int], tmp_path: Path
) -> None:
    """The snapshot has where the loop stood, which is no operator of the user's."""
    flow = ms.Flow("going-on")
    rows = flow.from_parallel(lambda rank, size: range(rank, 2, size))
    result = verb(rows).collect()
    job = flow.start(**FAST, state=tmp_path / "state")
    eventually(lambda: job.epoch > 0)
    job.savepoint(tmp_path / "savepoint")
    job.cancel()
    with pytest.raises(ms.JobCancelledError):
        job.wait()

    flow.run(on="local", workers=1, resume_from=tmp_path / "savepoint")

    assert sorted(result.result()) == expected
