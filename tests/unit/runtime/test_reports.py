"""What a coordinator takes from its workers, and whom it gives up."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.support.coordinator_harness import CoordinatorHarness, failed

from millstream.errors import WorkerLostError
from millstream.ports import PeerLost
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.job import Phase
from millstream.protocol.messages import (
    Compacted,
    Emitted,
    Ended,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    Progress,
    Ready,
    Register,
    Sealed,
    Start,
    Stop,
)
from millstream.protocol.metrics import OutputMetrics, RoundMetrics, TaskMetrics

ROWS = pickle.dumps(["x"])
SEALED = Sealed(1, 1, 1, 0, 0, None, (), (), 0)
ENDED = Ended(1, 1, 0, 0, 0, (), ())
FILE = ("epochs/00000001/run-1-0-0-1.state", 3, "0" * 64, ())


def told(stage: int = 0, task: int = 0, **measured: Any) -> Progress:
    """Return what a worker tells of one task."""
    return Progress(1, 1, (TaskMetrics(stage, task, **measured),))


def running(**how: Any) -> CoordinatorHarness:
    """Return a job that has opened its first epoch."""
    stand = CoordinatorHarness(keeps=True, snapshot_every_ms=100, **how)
    stand.start()
    stand.pass_time("100ms")
    stand.inboxes()
    return stand


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Heartbeat(2), "it calls itself worker 2"),
        (replace(SEALED, worker=2), "it calls itself worker 2"),
        (Start(1), "a worker does not say this"),
        (Register(1, "host", 7, 101), "it has registered before"),
        (Ready(1, 2), "generation 2 has not begun, 1 is the last"),
        (Ready(1, 1, -1), "it has restored less than nothing"),
        (Progress(1, -1, ()), "generation -1 has not begun"),
        (told(stage=9), r"there are no tasks \{\(9, 0\)\}"),
        (told(task=7), r"there are no tasks \{\(0, 7\)\}"),
        (Progress(1, 1, (TaskMetrics(0, 0),) * 2), "it tells of tasks"),
        (Progress(1, 1, (), -1), "it has -1 bytes"),
        (told(rows_out=-3), "it has counted -3"),
        (told(batches_waiting=-3), "it has counted -3"),
        (told(state_entries=-3), "it has counted -3"),
        (told(rounds=RoundMetrics(1, -1, ())), "it has counted -1"),
        (told(outputs=(OutputMetrics(0, bytes_used=-5),)), "it has counted -5"),
        (told(outputs=(OutputMetrics(8),)), r"there are no stages \{8\}"),
        (told(watermark=2**63), "is no event time"),
        (told(splits=(("a", -(2**63) - 1),)), "is no event time"),
        (Emitted(1, 1, 99, 0, 0, ROWS), "there is no sink 99"),
        (replace(SEALED, stage=9), "there is no task 9.0"),
        (replace(SEALED, task=-1), "there is no task 0.-1"),
        (replace(SEALED, task=1), "task 0.1 is on worker 2"),
        (replace(SEALED, epoch=2), "epoch 2 is none of 0 to 1"),
        (replace(SEALED, epoch=0), "its epochs are 1 to 1"),
        (replace(SEALED, pause_ns=-1), "it paused for -1 ns"),
        (replace(SEALED, offsets=(("x", "y", 1, True),)), "does not read 'y'"),
        (replace(SEALED, transactions=(("x", b""),)), "seal anything in stage 0"),
        (replace(SEALED, file=("../x", *FILE[1:])), "is not what it wrote"),
        (replace(SEALED, file=(*FILE[:3], ("x",))), r"no \{'x'\} keep state"),
        (Compacted(1, 1, 1, 0, 0, FILE), "is not what it wrote"),
        (replace(ENDED, nodes_left=9), "9 operators of"),
        (replace(ENDED, epoch=7), "epoch 7 is none of 0 to 1"),
        (Finished(1, 1), "have not ended"),
        (LinkLost(1, 1, 9, "gone"), "it has no connection to a worker 9"),
        (LinkLost(1, 1, 1, "gone"), "it has no connection to a worker 1"),
        (replace(failed(), kind="OSError"), "there is no error 'OSError'"),
        (replace(failed(), kind="annotations"), "there is no error 'annotations'"),
    ],
)
def test_worker_that_makes_no_sense_is_given_up(message: Message, reason: str) -> None:
    """The story says who sent what; the job goes on with the others and a new worker."""
    stand = running()

    stand.say(stand.ids[0], message)

    told = (
        f"worker 0 is given up: it sent {type(message).__name__}, which makes no sense"
    )
    (line,) = [x for x in stand.coordinator.story.lines() if " is given up: " in x]
    assert told in line
    assert re.search(reason, line)
    assert stand.coordinator.wanted_workers == [3]
    assert PeerLost(COORDINATOR, "it disconnected") in stand.links[stand.ids[0]].poll(0)
    assert stand.coordinator.phase is Phase.CONNECTING
    assert stand.coordinator.error() is None


@pytest.mark.parametrize(
    "sealed", [b"", b"garbage", b"l\xc1", b"t\x92\x01", b"pnonsense"]
)
def test_transaction_that_cannot_be_read_is_no_transaction(sealed: bytes) -> None:
    """A manifest that relied on it could never be committed, nor gone on from."""
    stand = running()
    name = stand.coordinator._reports._stages[0].nodes[0].name

    stand.say(stand.ids[0], replace(SEALED, transactions=((name, sealed),)))

    (line,) = [x for x in stand.coordinator.story.lines() if " is given up: " in x]
    assert f"what '{name}' sealed cannot be read" in line


def test_nothing_of_a_worker_that_was_given_up_is_heard() -> None:
    """Not what came right behind, nor what it says when it dials again."""
    stand = running()
    stand.say(stand.ids[0], Finished(1, 1))

    stand.join(stand.ids[0])
    stand.say(stand.ids[0], failed())

    assert stand.coordinator.error() is None
    assert PeerLost(COORDINATOR, "it disconnected") in stand.links[stand.ids[0]].poll(0)


def test_job_without_snapshots_fails_with_what_made_no_sense() -> None:
    """There is nothing to go back to."""
    stand = CoordinatorHarness()
    stand.start()

    stand.say(stand.ids[1], Emitted(2, 1, 99, 1, 0, ROWS))
    stand.pass_time("501ms")

    error = stand.coordinator.error()
    assert isinstance(error, WorkerLostError)
    assert "worker 1 was lost: it sent Emitted, which makes no sense" in str(error)


@pytest.mark.parametrize("first", [SEALED, ENDED])
def test_nothing_counts_twice(first: Message) -> None:
    """What a sink sealed must not be committed twice."""
    stand = running()
    stand.say(stand.ids[0], first)
    assert stand.coordinator.given_up == {}

    stand.say(stand.ids[0], first)

    assert list(stand.coordinator.given_up) == [1]


def test_rows_of_a_task_that_has_ended_are_none() -> None:
    """A result that is complete does not grow."""
    stand = CoordinatorHarness()
    stand.start()
    own, _ = stand.sinks()
    stage = next(
        s.id for s in stand.deployment.stages.stages for n in s.nodes if n.id == own
    )
    stand.say(stand.ids[0], replace(ENDED, stage=stage))

    stand.say(stand.ids[0], Emitted(1, 1, own, 0, 0, ROWS))

    assert stand.coordinator.results.rows("own") == []
    assert "has ended" in stand.coordinator.given_up[stand.ids[0]]


def test_worker_reports_nothing_before_it_has_registered() -> None:
    """Nobody knows what it is talking about."""
    stand = CoordinatorHarness()

    stand.say(stand.ids[0], Ready(1, 1))

    assert "it has not registered" in stand.coordinator.given_up[stand.ids[0]]


@pytest.mark.parametrize(
    "message",
    [
        Register(1, "host", 65_536, 1),
        Register(1, "ho\0st", 7, 1),
        Register(1, "host", 7, -1),
        Register(1, "host", 7, 2**40),
    ],
)
def test_address_that_cannot_be_is_not_told_to_others(message: Message) -> None:
    """Others would dial it, and a launcher would look for such a process."""
    stand = CoordinatorHarness()

    stand.say(stand.ids[0], message)

    assert stand.ids[0] in stand.coordinator.given_up
    assert stand.coordinator.pids == {}


def test_reports_that_come_too_late_are_no_mistakes() -> None:
    """Of an older generation, of a worker that is gone, and after the outcome."""
    stand = running()
    stand.coordinator.worker_exited(stand.ids[1], "killed")
    stand.coordinator.step()
    late: list[Any] = [
        SEALED,
        ENDED,
        Emitted(1, 1, 99, 0, 0, ROWS),
        Finished(1, 1),
        Ready(1, 1),
    ]
    for message in late:
        stand.say(stand.ids[0], message)
    stand.say(stand.ids[1], replace(SEALED, worker=2, generation=2, task=1))
    stand.coordinator.cancel("enough")
    stand.coordinator.step()
    for message in late:
        stand.say(stand.ids[0], replace(message, generation=2))

    assert stand.coordinator.given_up == {}
    assert [Stop("enough")] in [inbox[-1:] for inbox in stand.inboxes()]
