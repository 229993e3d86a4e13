"""A task: from its intake through its operators to its channels, slice by slice."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.making import channel, nodes
from tests.support.task_harness import TaskHarness

from millstream.api.functions import StatefulFunction
from millstream.config import Config
from millstream.operators.build import TaskContext, build_chain
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.plan.stages import Stage
from millstream.protocol.packets import PacketKind
from millstream.runtime.chain import TaskFailedError
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import InputChannel
from millstream.runtime.task import Task, TaskPhase
from millstream.testing import ManualClock, Raise, ScriptedSource

if TYPE_CHECKING:
    from millstream.plan.spec import Spec
    from millstream.runtime.task_cut import TaskCut


def test_task_works_in_bounded_slices() -> None:
    """A long input does not keep the neighbours waiting."""
    bench = TaskHarness(list(range(10)), [specs.Map(lambda i: i)], slice_batches=2)

    assert bench.run()

    assert bench.task.chain.rows_in == 4
    assert bench.phase() is TaskPhase.RUNNING


def test_task_ends_after_its_input_and_says_so_downstream() -> None:
    """RUNNING, FINISHING, DRAINING, ENDED; the end follows the last row."""
    bench = TaskHarness([1, 2, 3], [specs.Map(lambda i: i * 10)], slice_batches=9)

    bench.run()
    assert bench.phase() is TaskPhase.FINISHING
    bench.run()

    assert bench.phase() is TaskPhase.ENDED
    assert bench.arrived() == [10, 20, 30]
    assert bench.reader.is_ended
    assert (bench.task.chain.rows_in, bench.task.chain.rows_out) == (3, 3)
    assert not bench.run()


def test_rows_that_follow_from_the_end_pass_the_rest_of_the_chain() -> None:
    """An aggregate speaks when its input is over, and later operators hear it."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i % 2),
        specs.AggregateByKey(builtin("sum")),
        specs.Map(lambda pair: pair[1]),
    ]

    assert TaskHarness([1, 2, 3], chain).run_to_the_end() == [4, 2]


def test_blocked_task_takes_no_input_and_measures_the_wait() -> None:
    """Back-pressure stops the source, and shows in the progress."""
    bench = TaskHarness(list(range(10)), [], credit=1)
    bench.run()
    taken = bench.task.chain.rows_in

    assert not bench.run()
    bench.clock.advance("3ms")
    assert not bench.run()
    assert bench.task.chain.rows_in == taken
    bench.arrived()
    bench.run()

    assert bench.task.occupancy.blocked_ns(0) == 3_000_000


def test_held_task_waits_for_the_driver() -> None:
    """Results that nobody fetches stop the tasks that make them."""
    bench = TaskHarness([1], [specs.Collect()])

    assert not bench.run(is_held=True)
    assert bench.emitted == []
    bench.run()

    assert bench.emitted == [1]


def test_task_nobody_reads_from_ends_early() -> None:
    """An endless source stops when the last reader has closed."""
    bench = TaskHarness(count(), [])
    bench.run()

    bench.reader.close()
    bench.run()

    assert bench.phase() is TaskPhase.ENDED


def test_satisfied_limit_ends_the_task_and_passes_its_rows() -> None:
    """What was asked for arrives, and the source is not read on."""
    bench = TaskHarness(count(), [specs.Limit(3)])

    assert bench.run_to_the_end(3) == [0, 1, 2]
    assert bench.task.chain.rows_in <= 6


def test_end_waits_for_credit() -> None:
    """A draining task keeps its last rows until the reader takes some."""
    bench = TaskHarness([1, 2, 3], [], credit=1, buffer_rows=1, slice_batches=9)
    for _ in range(5):
        bench.run()
    assert bench.phase() is not TaskPhase.ENDED

    rows = []
    for _ in range(9):
        rows += bench.arrived()
        bench.run()

    assert rows == [1, 2, 3]
    assert bench.reader.is_ended


def test_failure_names_operator_position_and_value() -> None:
    """Everything the message to the user needs is in one exception."""
    bench = TaskHarness([4, 2, 0], [specs.Map(lambda i: 8 // i)], batch_rows=9)

    with pytest.raises(TaskFailedError) as raised:
        bench.run_to_the_end()

    error = raised.value
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.node.name == "map-1"
    assert error.position == "record 2 of iterable"
    assert error.blame is not None
    assert error.blame.row_text == "0"


def test_failing_source_is_named() -> None:
    """A file that cannot be read is not the first operator's fault."""
    bench = TaskHarness(ScriptedSource([1, Raise(OSError("gone"))]), [specs.Map(str)])

    with pytest.raises(TaskFailedError) as raised:
        bench.run_to_the_end()

    assert raised.value.node.verb == "read"
    assert isinstance(raised.value.__cause__, OSError)


def test_failure_at_the_end_says_so() -> None:
    """No record is to blame for what `on_end` raises."""

    class Broken(StatefulFunction[Any, Any, Any]):
        def on_record(self, key: Any, value: Any) -> None:
            self.key_state["seen"] = value

        def on_end(self, key: Any) -> None:
            raise KeyError(key)

    chain: list[Spec] = [specs.KeyBy(lambda i: i), specs.Process(Broken())]

    with pytest.raises(TaskFailedError) as raised:
        TaskHarness([1], chain).run_to_the_end()

    assert raised.value.node.verb == "process"
    assert raised.value.position == "after the last record"


def test_failure_behind_the_first_operator_reads_like_a_sentence() -> None:
    """The row in hand is one that an earlier operator made."""
    chain: list[Spec] = [specs.Map(lambda i: i), specs.Limit(3), specs.ForEach(_fail)]

    with pytest.raises(TaskFailedError) as raised:
        TaskHarness([1, 2, 3], chain).run_to_the_end()

    assert "after in" not in raised.value.position


def _ignore(_cut: TaskCut) -> None:
    """Take what a task leaves that is not looked at."""


def _fail(_row: int) -> None:
    raise ValueError


class Resource(StatefulFunction[Any, Any, Any]):
    """Counts how often it is opened and closed."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def open(self) -> None:
        self._log.append("open")

    def on_record(self, key: Any, value: Any) -> list[Any]:
        return [value]

    def close(self) -> None:
        self._log.append("close")


def test_user_function_is_closed_once() -> None:
    """The worker closes all tasks when it leaves, also those that ended long ago."""
    log: list[str] = []
    chain: list[Spec] = [specs.KeyBy(lambda i: i), specs.Process(Resource(log))]
    bench = TaskHarness([1], chain)
    bench.run_to_the_end()

    bench.task.close()
    bench.task.close()

    assert log == ["open", "close"]


def test_task_reads_channels_by_port() -> None:
    """A zip knows which side a batch came from."""
    left, right = (InputChannel(channel(i)) for i in range(2))
    right.port = 1
    intake = ChannelIntake([left, right])
    emitted: list[Any] = []
    chain = nodes([specs.Zip(), specs.Collect()])
    context = TaskContext(
        "job", 0, Config(), lambda _, rows: emitted.extend(rows), clock=ManualClock()
    )
    task = Task(
        Stage(1, chain, 1),
        0,
        intake,
        build_chain(chain, context),
        [[]],
        clock=ManualClock(),
        slice_batches=9,
        on_cut=_ignore,
        on_end=_ignore,
    )
    right.receive(PacketKind.BATCH, 0, ["a", "b"], 1)
    left.receive(PacketKind.BATCH, 0, [1, 2, 3], 1)
    for end in (left, right):
        end.receive(PacketKind.END, 1, [], 0)

    for _ in range(3):
        task.run(0)

    assert emitted == [(1, "a"), (2, "b")]
    assert task.phase is TaskPhase.ENDED
