"""A worker among its peers: joining, running, failing, leaving."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.support.worker_harness import FIRST, SECOND, WorkerHarness, counting_flow

import millstream as ms
from millstream.connectors.base import Later
from millstream.errors import OperationalError
from millstream.ports import PeerConnected, PeerLost
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import ChannelId, Epoch, Generation
from millstream.protocol.messages import (
    Deploy,
    Emitted,
    Ended,
    Failed,
    Finished,
    Heartbeat,
    LinkLost,
    Message,
    OpenEpoch,
    Progress,
    Ready,
    Register,
    Release,
    Sealed,
    Start,
    Stop,
)
from millstream.protocol.packets import Packet, PacketKind
from millstream.runtime.report import failure_report
from millstream.runtime.worker import WorkerPhase
from millstream.state.plain import decode_lists, encode
from millstream.state.settings import StateSettings


def numbers_flow(rows: Any = (1, 2, 3)) -> ms.Flow:
    flow = ms.Flow("numbers")
    flow.from_iterable(list(rows)).map(lambda i: 6 // i).collect()
    return flow


def kinds(messages: list[Message]) -> list[type[object]]:
    return [type(message) for message in messages]


def test_worker_registers_where_it_can_be_reached() -> None:
    """The coordinator learns address and process id."""
    stand = WorkerHarness(numbers_flow())

    (message,) = stand.step()

    assert message == Register(1, "in-process", 1, 42)
    assert stand.worker.phase is WorkerPhase.JOINING


def test_worker_is_ready_once_it_is_connected_to_all_members() -> None:
    """It connects to those with larger ids and waits for the others."""
    stand = WorkerHarness(numbers_flow(), workers=2)
    other = stand.hub.join(SECOND)
    stand.step()

    stand.deploy(SECOND)
    messages = stand.step(2)

    assert Ready(1, 1) in messages
    assert PeerConnected(FIRST) in other.poll(0)
    assert stand.worker.phase is WorkerPhase.WAITING


def test_worker_reads_nothing_before_the_start() -> None:
    """Nobody sends to a peer that is not there yet."""
    stand = WorkerHarness(numbers_flow())
    stand.step()
    stand.deploy()

    assert kinds(stand.step(5)) == [Ready]

    stand.deploy(generation=2)
    stand.tell(Start(1))
    assert kinds(stand.step(5)) == [Ready], "a start of another generation is none"


def test_worker_sends_results_then_progress_then_that_it_finished() -> None:
    """When the coordinator hears of the end it has everything else."""
    messages = WorkerHarness(numbers_flow()).run()

    assert Emitted in kinds(messages)
    assert kinds(messages)[-2:] == [Progress, Finished]


def test_user_error_is_reported_and_the_worker_stays_for_orders() -> None:
    """It computes nothing more, but does not vanish before it is told."""
    stand = WorkerHarness(numbers_flow([1, 0]))

    failed = [m for m in stand.run() if isinstance(m, Failed)]

    assert len(failed) == 1
    assert failed[0].kind == "OperatorError"
    assert failed[0].operator == "map"
    assert "ZeroDivisionError" in failed[0].text
    assert failed[0].position == "record 1 from task 0 of stage 0 (worker 0)"
    assert stand.worker.phase is WorkerPhase.FAILED
    stand.tell(Stop("the job failed"))
    stand.step()
    assert stand.has_left()


class FullDiskError(OperationalError):
    """An error of ours that somebody has refined."""


def test_refined_error_is_told_by_the_class_that_the_driver_knows() -> None:
    """The driver would take a name that it does not know for nonsense."""
    report = failure_report(FullDiskError("no room"), FIRST, Generation(1), 0)

    assert (report.kind, report.text) == ("OperationalError", "worker 0: no room")


class Unruly(ms.StatefulFunction[int, int, int]):
    """Fails where it is told to, and whenever it is closed."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def on_record(self, key: int, value: int) -> Any:
        if value == self.bad:
            raise ValueError(value)
        yield key

    def close(self) -> None:
        msg = "close failed"
        raise OSError(msg)


@pytest.mark.parametrize("bad", [2, 4], ids=["at the third record", "never"])
def test_an_error_in_close_hides_no_other_and_is_told_if_there_is_none(
    bad: int,
) -> None:
    """The first cause reaches the user, and the worker stays for orders."""
    flow = ms.Flow("unruly")
    flow.from_iterable(range(4)).key_by(lambda i: i % 2).process(Unruly(bad)).collect()
    stand = WorkerHarness(flow)

    failed = [m for m in stand.run() if isinstance(m, Failed)]

    assert len(failed) == 1
    assert failed[0].operator == "process"
    expected = "ValueError: 2" if bad == 2 else "OSError: close failed; when it was"
    assert expected in failed[0].text
    stand.tell(Stop("the job failed"))
    stand.step()
    assert stand.has_left()
    stand.worker.close()


class Slow(ms.Sink[int], ms.SinkWriter[int]):
    """Seals in the background, if there is room."""

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full

    def open(self, job: str, task: int) -> ms.SinkWriter[int]:
        return self

    def write(self, rows: list[int]) -> None:
        """Drop the rows."""

    def seal(self, epoch: int) -> Any:
        return Later(partial(self.store, epoch))

    def store(self, epoch: int) -> str:
        if self.is_full:
            msg = "no space left on device"
            raise OSError(msg)
        return f"stored {epoch}"


@pytest.mark.parametrize("is_full", [False, True])
def test_what_a_sink_seals_later_is_told_or_fails_its_operator(
    *, is_full: bool
) -> None:
    """Unlike state, such rows are in no later snapshot; so the task has to go back."""
    flow = ms.Flow("slow")
    flow.from_iterable(range(3)).write(Slow(is_full=is_full), name="slow")
    heard = WorkerHarness(flow).run()

    failed = [m for m in heard if isinstance(m, Failed)]
    ended = [m for m in heard if isinstance(m, Ended)]
    if is_full:
        assert [f.operator for f in failed] == ["slow"]
        assert "no space left" in failed[0].text
        assert "while sealing what it wrote" in failed[0].text
        assert (ended, Finished in kinds(heard)) == ([], False)
    else:
        assert failed == []
        assert [e.transactions for e in ended] == [(("slow", encode("stored 1")),)]


def test_stop_makes_the_worker_leave_with_the_reason() -> None:
    """In any phase."""
    stand = WorkerHarness(numbers_flow())
    stand.step()

    stand.tell(Stop("cancelled by the user"))
    stand.step()

    assert stand.has_left()
    assert stand.worker.reason == "cancelled by the user"


def test_release_makes_the_worker_leave_without_a_reason() -> None:
    """The job is complete; there is nothing to explain."""
    stand = WorkerHarness(numbers_flow())
    stand.run()

    stand.tell(Release())
    stand.step()

    assert stand.has_left()
    assert stand.worker.reason == ""


def test_worker_leaves_when_the_coordinator_is_silent_for_a_lease() -> None:
    """A dead driver leaves no worker behind."""
    stand = WorkerHarness(numbers_flow(), lease_ms=1_000)
    stand.step()
    stand.clock.advance("900ms")
    stand.tell(Heartbeat(0))
    stand.step()
    stand.clock.advance("1s")
    stand.step()
    assert not stand.has_left()

    stand.clock.advance("1ms")
    stand.step()

    assert stand.has_left()
    assert "silent for 1.0 s" in stand.worker.reason


def test_worker_leaves_when_the_coordinator_is_gone() -> None:
    """It does not wait for the lease if the connection says so already."""
    stand = WorkerHarness(numbers_flow())
    stand.step()

    stand.coordinator.close()
    stand.worker.step()

    assert stand.has_left()
    assert "lost the coordinator" in stand.worker.reason


def test_worker_gives_signs_of_life_in_its_rhythm() -> None:
    """Neither silent nor chatty."""
    stand = WorkerHarness(numbers_flow(), heartbeat_ms=100)
    stand.step()
    assert stand.worker.wait_s() == 0.1

    stand.clock.advance("99ms")
    assert stand.step() == []
    stand.clock.advance("1ms")

    assert stand.step() == [Heartbeat(1)]


def test_lost_peer_is_reported_not_judged() -> None:
    """The coordinator knows better whether the peer is dead."""
    stand = WorkerHarness(numbers_flow(), workers=2)
    other = stand.hub.join(SECOND)
    stand.step()
    stand.deploy(SECOND)
    stand.step(2)

    other.close()
    messages = stand.step()

    assert messages == [LinkLost(1, 1, 2, "it disconnected")]
    assert not stand.has_left()


def test_gap_on_a_channel_ends_the_connection_to_its_writer() -> None:
    """A peer that breaks the protocol is not believed any further; nobody fails for it."""
    flow = ms.Flow("two")
    flow.from_iterable([1]).shuffle().count()
    stand = WorkerHarness(flow, workers=2)
    other = stand.hub.join(SECOND)
    stand.step()
    stand.deploy(SECOND)
    stand.step(2)
    stand.tell(Start(1))
    stand.step(3)
    remote = [id_ for id_ in stand.worker._made.inputs if _is_remote(stand, id_)]

    other.send(FIRST, Packet(PacketKind.BATCH, Generation(1), remote[0], 5, [1]))
    other.send(FIRST, Packet(PacketKind.BATCH, Generation(1), remote[0], 0, [1]))
    messages = stand.step()

    reason = (
        "it sent BATCH, which makes no sense: element 5 arrived on channel "
        f"{remote[0]} where element 0 was due"
    )
    assert [m for m in messages if not isinstance(m, Ended)] == [
        LinkLost(1, 1, 2, reason)
    ]
    assert PeerLost(FIRST, "it disconnected") in other.poll(0)
    assert stand.worker.phase is WorkerPhase.RUNNING


def _is_remote(stand: WorkerHarness, id_: ChannelId) -> bool:
    return stand.worker._made.inputs[id_].channel.source_index == 1


def test_packet_of_an_earlier_generation_is_dropped() -> None:
    """What an earlier life of the job sent must not reach this one, and is no mistake."""
    stand = WorkerHarness(numbers_flow(), workers=2)
    other = stand.hub.join(SECOND)
    stand.step()
    stand.deploy(SECOND, generation=9)
    stand.step(2)

    other.send(FIRST, Packet(PacketKind.BATCH, Generation(8), ChannelId(0), 99, [1]))

    assert stand.step(3) == []


def test_closing_a_worker_disconnects_it() -> None:
    """Peers hear that it is gone."""
    stand = WorkerHarness(numbers_flow())
    stand.step()

    stand.worker.close()

    assert any(isinstance(e, PeerLost) for e in stand.coordinator.poll(0))


# Generations and epochs.


def announced(epoch: int, generation: int = 1) -> OpenEpoch:
    return OpenEpoch(generation, Barrier(Epoch(epoch), Epoch(0)).to_wire())


def test_worker_tells_what_its_tasks_sealed_and_that_they_ended() -> None:
    """Every task, once per epoch, and its end after that; state is in the store."""
    stand = WorkerHarness(counting_flow(), state=StateSettings(16), source_batch_rows=8)
    stand.run(turns=1)

    stand.tell(announced(4))
    messages = stand.step(40)

    seals = [m for m in messages if isinstance(m, Sealed)]
    assert {(m.stage, m.task, m.epoch, m.problem) for m in seals} == {
        (stage, 0, 4, "") for stage in range(3)
    }
    files = [m.file for m in seals if m.file is not None]
    assert {name for name, _, _, _ in files} == set(stand.files.content)
    ends = [m for m in messages if isinstance(m, Ended)]
    assert [(m.stage, m.epoch) for m in ends] == [(0, 4), (1, 4), (2, 4)]
    assert messages.index(ends[0]) > messages.index(seals[0])
    assert isinstance(messages[-1], Finished)


def test_state_that_cannot_be_stored_is_told_as_a_problem() -> None:
    """The job goes on; the coordinator gives the epoch up."""
    stand = WorkerHarness(counting_flow(), state=StateSettings(16), source_batch_rows=8)
    stand.run(turns=1)
    stand.files.is_full = True

    stand.tell(announced(4))
    messages = stand.step(40)

    problems = [m.problem for m in messages if isinstance(m, Sealed) and m.problem]
    assert problems == [
        "task 1.0 could not store its state: OSError: no space left on device"
    ]
    assert isinstance(messages[-1], Finished)


def test_worker_begins_anew_with_every_generation() -> None:
    """Tasks are thrown away and made again; the connections stay."""
    stand = WorkerHarness(numbers_flow(range(1, 200)), source_batch_rows=1)
    stand.run(turns=3)
    before = stand.worker._made.tasks

    stand.deploy(generation=2)
    messages = stand.step()
    stand.tell(announced(1, generation=1))
    stand.tell(Start(1))
    idle = stand.step(3)
    stand.tell(Start(2))
    results = [m for m in stand.step(400) if isinstance(m, Emitted)]

    assert Ready(1, 2) in messages
    assert not any(task in before for task in stand.worker._made.tasks)
    assert idle == [], "what was said in the last generation is not heard"
    rows = [row for m in results for row in decode_lists(m.payload)[0]]
    assert rows == [6 // i for i in range(1, 200)]
    assert {m.generation for m in results} == {2}


def test_worker_hosts_the_tasks_of_every_index_that_is_placed_on_it() -> None:
    """Those of a lost worker besides its own; between them no packet is sent."""
    flow = ms.Flow("two")
    flow.from_parallel(lambda rank, _: range(100 * rank, 100 * rank + 5)).collect()
    stand = WorkerHarness(flow, workers=2)
    stand.step()

    stand.tell(Deploy(1, ((1, "", 0),), (1, 1), (0, 0)))
    stand.step()
    stand.tell(Start(1))
    messages = stand.step(20)

    emitted = [m for m in messages if isinstance(m, Emitted)]
    rows = {m.task: decode_lists(m.payload)[0] for m in emitted}
    assert rows == {0: [0, 1, 2, 3, 4], 1: [100, 101, 102, 103, 104]}
    assert isinstance(messages[-1], Finished)


def test_worker_without_tasks_gets_ready_and_waits() -> None:
    """A spare has nothing to finish and nothing to report."""
    stand = WorkerHarness(numbers_flow())
    stand.hub.join(SECOND)
    stand.step()

    stand.tell(Deploy(1, ((1, "", 0), (2, "", 0)), (2,), (0, 0)))
    messages = stand.step(2)
    stand.tell(Start(1))

    assert Ready(1, 1) in messages
    assert stand.step(5) == []


def test_failed_worker_works_again_in_the_next_generation() -> None:
    """What one generation broke does not stop the next."""
    attempts: list[int] = []

    def fail_once(row: int) -> int:
        attempts.append(row)
        if len(attempts) == 1:
            raise ValueError(row)
        return row

    flow = ms.Flow("shaky")
    flow.from_iterable([1, 2]).map(fail_once).collect()
    stand = WorkerHarness(flow)
    assert any(isinstance(m, Failed) for m in stand.run())

    stand.deploy(generation=2)
    stand.step()
    stand.tell(Start(2))

    assert isinstance(stand.step(20)[-1], Finished)
