"""A task: from its intake through its operators to its channels, slice by slice."""

from __future__ import annotations

import pickle
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.making import channel, nodes, taken_batches

from millstream.api.functions import StatefulFunction
from millstream.config import Config, configured, fixed
from millstream.connectors.base import Sink, SinkWriter
from millstream.connectors.iterable import IterableSource
from millstream.operators.build import TaskContext, build_chain
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.plan.stages import Stage
from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.frames import FrameKind
from millstream.protocol.ids import Epoch
from millstream.runtime.channels import InputChannel, LocalCarrier, OutputChannel
from millstream.runtime.intake import ChannelIntake, SourceIntake
from millstream.runtime.router import Router
from millstream.runtime.task import Task, TaskCut, TaskFailedError, TaskPhase
from millstream.state.base import ALL_SHARDS
from millstream.state.settings import StateSettings
from millstream.state.table import MemoryTable
from millstream.testing import ManualClock, Raise, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.connectors.base import Source
    from millstream.plan.nodes import Spec


class Bench:
    """One task with a source in front of it and a readable channel behind it."""

    def __init__(
        self,
        rows: Iterable[Any] | Source[Any],
        verbs: Sequence[Spec],
        *,
        buffer_rows: int = 1,
        credit: int = 100,
        slice_batches: int = 2,
        batch_rows: int = 2,
        offsets: dict[str, int | None] | None = None,
        settings: StateSettings | None = None,
    ) -> None:
        source = (
            rows if isinstance(rows, ScriptedSource) else IterableSource(lambda: rows)  # type: ignore[arg-type, return-value]
        )
        config = configured(Config(), {"source_batch_rows": batch_rows})
        made = channel(buffer=fixed(buffer_rows))
        self.reader = InputChannel(made)
        self.writer = OutputChannel(
            made, LocalCarrier(self.reader, credit), lambda *_: None
        )
        self.reader.tell_closed = self.writer.close
        self.emitted: list[Any] = []
        self.cuts: list[TaskCut] = []
        self.ends: list[TaskCut] = []
        context = TaskContext(
            "job", 0, config, lambda _, rows: self.emitted.extend(rows), settings
        )
        chain = nodes([specs.Read(source), *verbs])
        is_sink = chain[-1].is_sink
        self.clock = ManualClock()
        self.task = Task(
            Stage(0, chain, None),
            0,
            SourceIntake("read", source, source.splits(1), config, offsets or {}),
            build_chain(chain, context),
            [] if is_sink else [Router([self.writer])],
            clock=self.clock,
            slice_batches=slice_batches,
            on_cut=self.cuts.append,
            on_end=self.ends.append,
        )

    def run(self, **how: bool) -> bool:
        return self.task.run(self.clock.monotonic_ns(), **how)

    def phase(self) -> TaskPhase:
        return self.task.phase

    def run_to_the_end(self, turns: int = 100) -> list[Any]:
        self.run_out(turns)
        return self.arrived()

    def run_out(self, turns: int = 100) -> None:
        for _ in range(turns):
            self.run()
        assert self.phase() is TaskPhase.ENDED

    def arrived(self) -> list[Any]:
        return [row for batch in taken_batches(self.reader) for row in batch]

    def elements(self) -> list[Any]:
        return [self.reader.take() for _ in range(len(self.reader))]


def test_task_works_in_bounded_slices() -> None:
    """A long input does not keep the neighbours waiting."""
    bench = Bench(list(range(10)), [specs.Map(lambda i: i)], slice_batches=2)

    assert bench.run()

    assert bench.task.rows_in == 4
    assert bench.phase() is TaskPhase.RUNNING


def test_task_ends_after_its_input_and_says_so_downstream() -> None:
    """RUNNING, FINISHING, DRAINING, ENDED; the end follows the last row."""
    bench = Bench([1, 2, 3], [specs.Map(lambda i: i * 10)], slice_batches=9)

    bench.run()
    assert bench.phase() is TaskPhase.FINISHING
    bench.run()

    assert bench.phase() is TaskPhase.ENDED
    assert bench.arrived() == [10, 20, 30]
    assert bench.reader.is_ended
    assert (bench.task.rows_in, bench.task.rows_out) == (3, 3)
    assert not bench.run()


def test_rows_that_follow_from_the_end_pass_the_rest_of_the_chain() -> None:
    """An aggregate speaks when its input is over, and later operators hear it."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i % 2),
        specs.AggregateByKey(builtin("sum")),
        specs.Map(lambda pair: pair[1]),
    ]

    assert Bench([1, 2, 3], chain).run_to_the_end() == [4, 2]


def test_blocked_task_takes_no_input_and_measures_the_wait() -> None:
    """Back-pressure stops the source, and shows in the progress."""
    bench = Bench(list(range(10)), [], credit=1)
    bench.run()
    taken = bench.task.rows_in

    assert not bench.run()
    bench.clock.advance("3ms")
    assert not bench.run()
    assert bench.task.rows_in == taken
    bench.arrived()
    bench.run()

    assert bench.task.blocked_ns == 3_000_000


def test_held_task_waits_for_the_driver() -> None:
    """Results that nobody fetches stop the tasks that make them."""
    bench = Bench([1], [specs.Collect()])

    assert not bench.run(is_held=True)
    assert bench.emitted == []
    bench.run()

    assert bench.emitted == [1]


def test_task_nobody_reads_from_ends_early() -> None:
    """An endless source stops when the last reader has closed."""
    bench = Bench(count(), [])
    bench.run()

    bench.reader.close()
    bench.run()

    assert bench.phase() is TaskPhase.ENDED


def test_satisfied_limit_ends_the_task_and_passes_its_rows() -> None:
    """What was asked for arrives, and the source is not read on."""
    bench = Bench(count(), [specs.Limit(3)])

    assert bench.run_to_the_end(3) == [0, 1, 2]
    assert bench.task.rows_in <= 6


def test_end_waits_for_credit() -> None:
    """A draining task keeps its last rows until the reader takes some."""
    bench = Bench([1, 2, 3], [], credit=1, buffer_rows=1, slice_batches=9)
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
    bench = Bench([4, 2, 0], [specs.Map(lambda i: 8 // i)], batch_rows=9)

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
    bench = Bench(ScriptedSource([1, Raise(OSError("gone"))]), [specs.Map(str)])

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
        Bench([1], chain).run_to_the_end()

    assert raised.value.node.verb == "process"
    assert raised.value.position == "after the last record"


def test_failure_behind_the_first_operator_reads_like_a_sentence() -> None:
    """The row in hand is one that an earlier operator made."""
    chain: list[Spec] = [specs.Map(lambda i: i), specs.Limit(3), specs.ForEach(_fail)]

    with pytest.raises(TaskFailedError) as raised:
        Bench([1, 2, 3], chain).run_to_the_end()

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
    bench = Bench([1], chain)
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
    context = TaskContext("job", 0, Config(), lambda _, rows: emitted.extend(rows))
    task = Task(
        Stage(1, chain, 1),
        0,
        intake,
        build_chain(chain, context),
        [],
        clock=ManualClock(),
        slice_batches=9,
        on_cut=_ignore,
        on_end=_ignore,
    )
    right.receive(FrameKind.BATCH, 0, ["a", "b"], 1)
    left.receive(FrameKind.BATCH, 0, [1, 2, 3], 1)
    for end in (left, right):
        end.receive(FrameKind.END, 1, [], 0)

    for _ in range(3):
        task.run(0)

    assert emitted == [(1, "a"), (2, "b")]
    assert task.phase is TaskPhase.ENDED


# Cuts.


def barrier(epoch: int, *orders: Order, since: int = 0) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(since), (Order.SNAPSHOT, *orders))


def test_cut_divides_the_output_where_it_divides_the_input() -> None:
    """Rows before it, the barrier, rows behind it; the offset is that of the cut."""
    bench = Bench(list(range(6)), [specs.Map(lambda i: i)], buffer_rows=100)
    bench.run()

    bench.task.announce(barrier(3))
    bench.run_out()

    before, mark, behind = bench.elements()
    assert (before, mark, behind) == ([0, 1, 2, 3], barrier(3), [4, 5])
    (cut,) = bench.cuts
    assert (cut.stage, cut.task, cut.epoch) == (0, 0, 3)
    assert cut.offsets == (("read", "iterable", 4, False),)


def test_cut_captures_what_operators_remember() -> None:
    """Every operator with state, under its own name; a delta where one is wanted."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i % 3),
        specs.AggregateByKey(builtin("sum")),
    ]
    bench = Bench(range(8), chain, settings=StateSettings(8), slice_batches=1)
    bench.run()
    bench.run()
    bench.task.announce(barrier(1))
    bench.run()
    bench.task.complete(Epoch(1))
    bench.run()
    bench.task.announce(barrier(2, since=1))
    bench.run()

    first, second = (restored(cut) for cut in bench.cuts)
    assert first == {0: 0 + 3, 1: 1, 2: 2}
    assert second == {1: 1 + 4, 2: 2 + 5}, "only what was touched since"


def restored(cut: TaskCut) -> dict[Any, Any]:
    ((name, capture),) = cut.captures
    table = MemoryTable(8)
    table.restore(capture.segments(name, cut.task), ALL_SHARDS)
    assert name == "aggregatebykey-2"
    return dict(table.items())


def test_rows_held_back_to_save_work_pass_on_before_the_cut() -> None:
    """A combiner has no state: what it holds is captured by those behind it."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i % 2),
        specs.Combine(builtin("sum")),
    ]
    bench = Bench(range(4), chain, buffer_rows=100, slice_batches=2)
    bench.run()
    assert bench.elements() == []

    bench.task.announce(barrier(1))
    bench.run()

    assert bench.elements() == [[(0, 2), (1, 4)], barrier(1)]


class Shelf(Sink[int]):
    """A sink whose transactions are the rows themselves."""

    def open(self, job: str, task: int) -> SinkWriter[int]:
        return _ShelfWriter()


class _ShelfWriter(SinkWriter[int]):
    def __init__(self) -> None:
        self._rows: list[int] = []

    def write(self, rows: list[int]) -> None:
        self._rows += rows

    def seal(self, epoch: int) -> Any:
        rows, self._rows = self._rows, []
        return (epoch, rows) if rows else None


def sealed(cut: TaskCut) -> list[tuple[str, Any]]:
    return [(name, pickle.loads(wire)) for name, wire in cut.transactions]


def test_sink_seals_at_every_cut_and_at_the_end() -> None:
    """What was written since the last time, each time; nothing twice."""
    bench = Bench(range(5), [specs.Write(Shelf())], slice_batches=1)
    for epoch in (4, 5):
        bench.run()
        bench.task.announce(barrier(epoch))
        bench.run()
    bench.run_out()

    assert [sealed(cut) for cut in bench.cuts] == [
        [("write-1", (4, [0, 1]))],
        [("write-1", (5, [2, 3]))],
    ]
    (end,) = bench.ends
    assert sealed(end) == [("write-1", (6, [4]))]
    assert end.epoch == 5


def test_sink_that_cannot_seal_is_the_one_to_blame() -> None:
    """The failure names it, not a row."""

    class Broken(_ShelfWriter):
        def seal(self, epoch: int) -> Any:
            raise OSError(epoch)

    class BrokenShelf(Shelf):
        def open(self, job: str, task: int) -> SinkWriter[int]:
            return Broken()

    bench = Bench(range(5), [specs.Write(BrokenShelf())])
    bench.task.announce(barrier(4))

    with pytest.raises(TaskFailedError) as raised:
        bench.run()

    assert raised.value.node.name == "write-1"
    assert isinstance(raised.value.__cause__, OSError)


def test_end_tells_that_all_splits_are_done() -> None:
    """So a task that is made again after a recovery has nothing to read."""
    bench = Bench([1, 2], [specs.Map(str)])

    bench.run_to_the_end()

    (end,) = bench.ends
    assert end.offsets == (("read", "iterable", 0, True),)
    assert (end.captures, end.transactions, end.epoch) == ((), (), 0)


def test_last_words_are_not_cut() -> None:
    """An epoch that is announced meanwhile has all of them behind it, or before it."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i),
        specs.AggregateByKey(builtin("sum")),
    ]
    bench = Bench(range(4), chain, slice_batches=9)
    bench.run()
    assert bench.phase() is TaskPhase.FINISHING

    bench.task.announce(barrier(1))
    bench.run_out()

    assert bench.cuts == []
    assert barrier(1) not in bench.elements()
    assert bench.ends[0].epoch == 0


def test_paused_task_does_nothing_until_it_is_resumed() -> None:
    """Everything stands still behind the cut."""
    bench = Bench(range(9), [specs.Map(str)], slice_batches=1)
    bench.task.announce(barrier(1, Order.PAUSE))
    bench.run()
    assert bench.elements() == [barrier(1, Order.PAUSE)]

    assert not bench.run()
    bench.task.resume(Epoch(1))

    assert bench.run()
    assert bench.elements() == [["0"], ["1"]]


def test_resume_of_an_earlier_epoch_does_not_end_a_pause() -> None:
    """A message may be late; the pause is that of a later epoch."""
    bench = Bench(range(9), [specs.Map(str)])
    bench.task.announce(barrier(2, Order.PAUSE))
    bench.run()

    bench.task.resume(Epoch(1))

    assert not bench.run()


def test_resume_that_comes_before_the_cut_makes_it_no_pause() -> None:
    """The coordinator gave the epoch up while its barrier was on the way."""
    bench = Bench(range(9), [specs.Map(str)], slice_batches=1)
    bench.task.resume(Epoch(2))
    bench.task.announce(barrier(2, Order.PAUSE))
    bench.run()

    assert bench.run()
    assert bench.elements() == [barrier(2, Order.PAUSE), ["0"], ["1"]]


def test_blocked_barrier_stops_the_task_until_it_has_left() -> None:
    """Nothing is read behind a cut before the barrier is on its way."""
    bench = Bench(range(9), [specs.Map(str)], buffer_rows=100, credit=0)
    bench.run()
    taken = bench.task.rows_in
    bench.task.announce(barrier(1))
    bench.run()

    assert len(bench.cuts) == 1
    assert not bench.run()
    assert bench.task.rows_in == taken
    assert bench.elements() == []


def test_task_that_had_ended_sends_its_end_and_nothing_else() -> None:
    """It reads nothing, and its operators have no last words again."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i),
        specs.AggregateByKey(builtin("sum")),
    ]
    bench = Bench(range(4), chain)

    bench.task.end_at_once()
    bench.run()

    assert bench.phase() is TaskPhase.ENDED
    assert bench.elements() == []
    assert bench.reader.is_ended
    assert bench.task.rows_in == 0
    assert len(bench.ends) == 1


def test_task_goes_on_where_the_snapshot_says() -> None:
    """Rows before the offset are not read again."""
    bench = Bench(range(5), [specs.Map(str)], offsets={"iterable": 3})

    assert bench.run_to_the_end() == ["3", "4"]
