"""The coordinator of a job with snapshots: epochs, losses, replacements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.coordinator_harness import CoordinatorHarness, failed

from millstream.errors import (
    OperatorError,
)
from millstream.protocol.barrier import Barrier, Order, barrier_from_wire
from millstream.protocol.ids import Epoch, PeerId
from millstream.protocol.messages import (
    CompleteEpoch,
    Deploy,
    Emitted,
    OpenEpoch,
    Ready,
    Register,
    Sealed,
)
from millstream.state.plain import encode_lists

# A job that keeps snapshots.


class KeepingStand(CoordinatorHarness):
    """A coordinator that takes a snapshot every 100 ms."""

    def __init__(self, workers: int = 2, **settings: Any) -> None:
        super().__init__(workers, keeps=True, snapshot_every_ms=100, **settings)
        self.start()
        self.inboxes()

    def seal(self, worker: PeerId, epoch: int, *tasks: tuple[int, int]) -> None:
        """Let tasks of a worker seal an epoch; without any named, its own."""
        for stage, task in tasks or self.tasks_of(worker):
            generation = self.generation
            self.say(
                worker,
                Sealed(worker, generation, epoch, stage, task, None, (), (), 0),
            )

    def complete_epoch(self) -> None:
        """Take the first snapshot."""
        self.pass_time("100ms")
        for id_ in self.ids:
            self.seal(id_, 1)
        self.coordinator.step()

    def manifests(self) -> list[str]:
        return self.files.names("manifests")


def test_epoch_is_announced_stored_and_committed() -> None:
    """In that order; workers hear that it is complete."""
    stand = KeepingStand()

    stand.pass_time("100ms")
    announcement = OpenEpoch(1, Barrier(Epoch(1), Epoch(0)).to_wire())
    assert stand.inboxes() == [[announcement]] * 2
    stand.seal(stand.ids[0], 1)
    assert stand.manifests() == []
    stand.seal(stand.ids[1], 1)
    for _ in range(3):
        stand.coordinator.step()

    assert stand.manifests() == ["manifests/00000001-000001.manifest"]
    assert stand.committed == [(1, (), False)]
    assert stand.inboxes() == [[CompleteEpoch(1, 1)]] * 2
    assert stand.coordinator.snapshots.complete_epoch == 1


def test_lost_worker_is_replaced_and_the_others_take_its_tasks() -> None:
    """They begin at the last snapshot, in a generation of their own."""
    stand = KeepingStand()
    stand.complete_epoch()
    for _ in range(3):
        stand.coordinator.step()
    stand.inboxes()

    stand.links[stand.ids[1]].close()
    stand.coordinator.step()

    assert stand.coordinator.wanted_workers == [3]
    survivors = ((1, "host", 7),)
    assert stand.inboxes()[0] == [Deploy(2, survivors, (1, 1), (1, 1))]
    (recovery,) = stand.coordinator.recoveries
    assert recovery.epoch == 1
    assert "worker 1 was lost" in recovery.reason
    assert stand.coordinator.error() is None


def test_what_was_said_before_a_recovery_is_not_heard_after_it() -> None:
    """Rows, seals and ends of an older generation are dropped where they arrive."""
    stand = KeepingStand()
    stand.coordinator.worker_exited(stand.ids[1], "killed")
    stand.coordinator.step()
    first = stand.ids[0]
    stand.say(first, Ready(first, 2))
    stand.pass_time("100ms")
    sink = stand.sinks()[0]

    stand.say(first, Emitted(1, 1, sink, 0, 0, encode_lists(["old"])))
    stand.seal(first, 1, *stand.all_tasks())
    assert stand.manifests() == []
    stand.generation = 2
    stand.say(first, Emitted(1, 2, sink, 0, 0, encode_lists(["new"])))
    stand.seal(first, 1, *stand.all_tasks())
    for _ in range(3):
        stand.coordinator.step()

    assert len(stand.manifests()) == 1
    assert stand.coordinator.results.rows("own") == ["new"]


def test_rows_that_came_after_the_last_snapshot_are_forgotten() -> None:
    """They come again, so the user sees them once."""
    stand = KeepingStand()
    first, second = stand.ids
    sink = stand.sinks()[0]
    stand.say(first, Emitted(1, 1, sink, 0, 0, encode_lists(["before"])))
    stand.complete_epoch()
    stand.say(first, Emitted(1, 1, sink, 0, 1, encode_lists(["after"])))

    stand.coordinator.worker_exited(second, "killed")
    for _ in range(4):
        stand.coordinator.step()

    assert stand.coordinator.results.rows("own") == ["before"]


def test_replacement_gets_its_share_at_a_pause() -> None:
    """The running tasks stop at a cut, and everybody is deployed anew."""
    stand = KeepingStand()
    first, second = stand.ids
    stand.coordinator.worker_exited(second, "killed")
    stand.coordinator.step()
    stand.say(first, Ready(first, 2))
    stand.generation = 2
    stand.links[second].close()
    third = stand.join(PeerId(3))
    stand.inboxes()

    stand.say(third, Register(3, "host", 9, 103))
    announced = [m for m in stand.inboxes()[0] if isinstance(m, OpenEpoch)]
    assert [barrier_from_wire(m.barrier).orders for m in announced] == [
        (Order.SNAPSHOT, Order.PAUSE)
    ]
    stand.seal(first, 1, *stand.all_tasks())
    for _ in range(4):
        stand.coordinator.step()

    members = ((1, "host", 7), (3, "host", 9))
    assert stand.inboxes()[-1] == [
        CompleteEpoch(2, 1),
        Deploy(3, members, (3, 1), (1, 1)),
    ]


def test_replacement_that_comes_while_another_one_gets_its_share_gets_its_own() -> None:
    """Regression: the second pause was asked for too early, and forgotten."""
    stand = KeepingStand(workers=3)
    first, *lost = stand.ids
    for id_ in lost:
        stand.coordinator.worker_exited(id_, "killed")
    stand.coordinator.step()
    stand.say(first, Ready(first, 3))
    stand.generation = 3
    for id_ in (PeerId(4), PeerId(5)):
        stand.join(id_)
    stand.say(PeerId(4), Register(4, "host", 9, 104))
    stand.seal(first, 1, *stand.all_tasks())
    for _ in range(4):
        stand.coordinator.step()
    assert any(isinstance(m, Deploy) for m in stand.inboxes()[0])

    stand.say(PeerId(5), Register(5, "host", 9, 105))
    for id_ in (first, PeerId(4)):
        stand.say(id_, Ready(id_, 4))

    announced = [m for m in stand.inboxes()[0] if isinstance(m, OpenEpoch)]
    assert [barrier_from_wire(m.barrier).orders for m in announced] == [
        (Order.SNAPSHOT, Order.PAUSE)
    ]


def test_user_function_that_keeps_failing_ends_the_job() -> None:
    """After as many tries as the setting says, with the user's exception."""
    stand = KeepingStand(restarts_max=2)
    for generation in (1, 2, 3):
        assert stand.coordinator.error() is None
        stand.say(stand.ids[0], replace(failed(), generation=generation))
        stand.coordinator.step()
        for id_ in stand.ids:
            stand.say(id_, Ready(id_, generation + 1))

    assert isinstance(stand.coordinator.error(), OperatorError)
    assert len(stand.coordinator.recoveries) == 2


def test_epoch_that_a_task_could_not_store_is_given_up() -> None:
    """The job goes on and tries again."""
    stand = KeepingStand()
    stand.pass_time("100ms")

    stand.say(
        stand.ids[0], Sealed(1, 1, 1, 0, 0, None, (), (), 0, "task 0.0: disk full")
    )

    told = [decision.text for decision in stand.coordinator.story.entries()]
    assert "epoch 1 is abandoned: task 0.0: disk full" in told
    stand.inboxes()
    stand.pass_time("100ms")
    announcement = OpenEpoch(1, Barrier(Epoch(2), Epoch(0)).to_wire())
    assert stand.inboxes() == [[announcement]] * 2


def test_epoch_that_completes_after_an_interruption_is_told_to_nobody() -> None:
    """Its tasks are gone; those of the next generation begin with it."""
    stand = KeepingStand()
    stand.pass_time("100ms")
    for id_ in stand.ids:
        stand.seal(id_, 1)
    stand.inboxes()

    stand.coordinator.worker_exited(stand.ids[1], "killed")
    for _ in range(4):
        stand.coordinator.step()

    assert stand.coordinator.snapshots.complete_epoch == 1
    assert stand.inboxes()[0] == [Deploy(2, ((1, "host", 7),), (1, 1), (1, 1))]
