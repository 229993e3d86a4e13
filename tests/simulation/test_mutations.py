"""Break the engine on purpose: the checkers must notice every time.

Method: patch one line of the engine into a mistake that somebody could make, and run
seeds until one of them has a problem.  A mistake that survives means that the seeds
that pass prove little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.flows import keyed_scan, repartitioned, word_count
from tests.simulation.harness import cluster_of, reach, strike

from millstream.operators.rows.aggregation import CombineOperator, CountCombineOperator
from millstream.protocol.ids import COORDINATOR
from millstream.protocol.job import JobCore, Phase
from millstream.protocol.packets import PacketKind
from millstream.protocol.snapshots import SnapshotCore
from millstream.runtime.channels import (
    CreditReturn,
    InputChannel,
    LocalCarrier,
    OutputChannel,
    RemoteCarrier,
)
from millstream.runtime.results import Results
from millstream.runtime.router import _Owners
from millstream.runtime.task import Task, TaskPhase
from millstream.runtime.worker import Worker
from millstream.simulation.network import SimulatedNetwork
from millstream.simulation.options import FaultKind
from millstream.testing import SimulationFailedError, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import Case

    from millstream.ports import PeerLost
    from millstream.protocol.messages import Ended
    from millstream.protocol.snapshot_events import Command
    from millstream.runtime.results import ResultPart

SEEDS_MAX = 120


def problem_of(make: Callable[[], Case], **settings: Any) -> str:
    """Return what the checkers say about the first bad seed."""
    case = make()
    with pytest.raises(SimulationFailedError) as caught:
        simulate(case.flow, seeds=SEEDS_MAX, check=case.check, **settings)
    failure = caught.value.report.first_failure
    assert failure is not None
    assert f"seed={failure.seed}" in str(caught.value)
    assert failure.story
    return "\n".join(failure.problems)


def test_credit_that_never_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers wait for ever."""
    monkeypatch.setattr(CreditReturn, "grant", lambda self, cost: None)

    assert "did not end within" in problem_of(word_count, workers=2, faults="benign")


def test_end_that_overtakes_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last buffer leaves after the end of its channel."""

    def drain(self: Task) -> bool:
        for channel in self.outputs.channels:
            channel.carrier.end()
            channel.flush()
        left = self._cutter.left()
        self.close()
        self.phase = TaskPhase.ENDED
        self._on_end(left)
        return True

    monkeypatch.setattr(Task, "_drain", drain)

    assert "was due" in problem_of(word_count, workers=3)


def test_duplicated_packet_that_nobody_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that sends twice, and a reader that does not count."""
    dispatch, receive = SimulatedNetwork._dispatch, InputChannel.receive

    def twice(self: SimulatedNetwork, *arguments: Any) -> None:
        dispatch(self, *arguments)
        if arguments[2].kind is PacketKind.BATCH and self._delays.random() < 0.2:
            dispatch(self, *arguments)

    def trusting(self: InputChannel, kind: PacketKind, _: int, *rest: Any) -> None:
        receive(self, kind, self._sequence, *rest)

    monkeypatch.setattr(SimulatedNetwork, "_dispatch", twice)
    monkeypatch.setattr(InputChannel, "receive", trusting)

    problem = problem_of(word_count, workers=3, faults=False)
    assert "was due" in problem
    assert "the check raised AssertionError" in problem


def test_duplicated_packet_is_refused_by_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the sequence checked, no duplicate ever becomes a row."""
    dispatch = SimulatedNetwork._dispatch

    def twice(self: SimulatedNetwork, *arguments: Any) -> None:
        dispatch(self, *arguments)
        if arguments[2].kind is PacketKind.BATCH:
            dispatch(self, *arguments)

    monkeypatch.setattr(SimulatedNetwork, "_dispatch", twice)

    problem = problem_of(word_count, workers=3, faults=False)
    assert "it sent BATCH, which makes no sense" in problem


def test_key_that_goes_to_any_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks count the same word."""
    calls = iter(range(10**9))
    monkeypatch.setattr(
        _Owners,
        "__missing__",
        lambda self, key: next(calls) % (1 + max(self._table.owners)),
    )
    assert "the check raised AssertionError" in problem_of(word_count, faults=False)


def test_combiner_that_loses_a_key_when_it_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a flush before the end goes wrong, which tiny limits bring about."""

    def process(self: CombineOperator, rows: list[Any]) -> list[Any]:
        self._take(rows)
        return self.flush()[1:] if len(self._parts) >= self._keys_max else []

    monkeypatch.setattr(CombineOperator, "process", process)
    assert CountCombineOperator.process is process

    assert "the check raised AssertionError" in problem_of(word_count, faults=False)


def test_commit_before_everybody_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task that ends speaks for all."""
    handle = SnapshotCore._handle_ended

    def hasty(self: SnapshotCore, report: Ended) -> list[Command]:
        self._ended = dict.fromkeys(self._tasks)
        return handle(self, report)

    monkeypatch.setattr(SnapshotCore, "_handle_ended", hasty)

    assert "the check raised" in problem_of(repartitioned, faults=False)


@pytest.mark.slow
def test_silence_that_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its lease a coordinator waits for ever for a worker that is cut off."""
    flow = word_count().flow
    cluster = cluster_of(flow, is_exit_reported=False, source_batch_rows=4)
    cluster.options = replace(cluster.options, turns_max=50_000)
    handle = JobCore._handle_time

    def deaf(self: JobCore, now_ns: int) -> list[Any]:
        for member in self._members.values():
            member.heard_ns = now_ns
        return handle(self, now_ns)

    monkeypatch.setattr(JobCore, "_handle_time", deaf)
    reach(cluster, Phase.RUNNING)
    strike(cluster, FaultKind.PARTITION, 2, duration_ns=10**15)
    cluster.run()

    assert "the job did not end within" in cluster.problems[0]


def test_worker_that_stays_when_the_coordinator_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold its slot for ever."""
    lost, keep = Worker._handle_lost, Worker._keep_in_touch

    def stay(self: Worker, event: PeerLost) -> None:
        if event.peer != COORDINATOR:
            lost(self, event)

    def patient(self: Worker, now_ns: int) -> None:
        self._heard_ns = now_ns
        keep(self, now_ns)

    monkeypatch.setattr(Worker, "_handle_lost", stay)
    monkeypatch.setattr(Worker, "_keep_in_touch", patient)

    assert "were left behind" in problem_of(word_count, workers=2)


def test_connection_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker dialed before its own orders have come waits for a second call."""
    deploy = Worker._deploy

    def forgetful(self: Worker, message: Any) -> None:
        self._connected &= {COORDINATOR}
        deploy(self, message)

    monkeypatch.setattr(Worker, "_deploy", forgetful)

    assert "LaunchError: only" in problem_of(word_count, workers=3, faults="benign")


@pytest.mark.parametrize("carrier", [LocalCarrier, RemoteCarrier])
def test_writer_that_ignores_credit(
    monkeypatch: pytest.MonkeyPatch, carrier: type[Any]
) -> None:
    """Rows pile up at the reader: right rows, but no bound on memory."""
    monkeypatch.setattr(carrier, "has_credit", True)

    problem = problem_of(word_count, workers=2, faults="benign")
    assert "may wait" in problem or "its window is" in problem


def test_timer_that_forgets_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a timer should have sent is thrown away."""

    def fire(self: OutputChannel, deadline_ns: int) -> None:
        if self._deadline_ns == deadline_ns:
            self.close()
            self.is_closed = False

    monkeypatch.setattr(OutputChannel, "fire_timer", fire)

    assert "the check raised" in problem_of(word_count, faults="benign")


def test_results_that_get_lost_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator keeps only the first part of what a task emits."""
    add = Results.add

    def once(self: Results, part: ResultPart) -> None:
        if (part.sink, part.task) not in {(p.sink, p.task) for p in self._parts}:
            add(self, part)

    monkeypatch.setattr(Results, "add", once)

    assert "the check raised" in problem_of(keyed_scan, faults=False)
