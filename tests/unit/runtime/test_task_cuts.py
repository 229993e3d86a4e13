"""A task at a cut: what it captures, seals and sends, and where it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.task_harness import TaskHarness

from millstream.connectors.base import Sink, SinkWriter
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.ids import Epoch
from millstream.runtime.chain import TaskFailedError
from millstream.runtime.seals import finished
from millstream.runtime.task import TaskPhase
from millstream.state.base import ALL_SHARDS
from millstream.state.plain import decode
from millstream.state.settings import StateSettings
from millstream.state.table import MemoryTable

if TYPE_CHECKING:
    from millstream.plan.spec import Spec
    from millstream.runtime.task_cut import TaskCut


# Cuts.


def barrier(epoch: int, *orders: Order, since: int = 0) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(since), (Order.SNAPSHOT, *orders))


def test_cut_divides_the_output_where_it_divides_the_input() -> None:
    """Rows before it, the barrier, rows behind it; the offset is that of the cut."""
    bench = TaskHarness(list(range(6)), [specs.Map(lambda i: i)], buffer_rows=100)
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
    bench = TaskHarness(range(8), chain, settings=StateSettings(8), slice_batches=1)
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
    bench = TaskHarness(range(4), chain, buffer_rows=100, slice_batches=2)
    bench.run()
    assert bench.elements() == []

    bench.task.announce(barrier(1))
    bench.run()

    assert bench.elements() == [[(0, 2), (1, 4)], barrier(1)]


class SpillBuffer(Sink[int]):
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
    return [(name, decode(wire)) for name, wire in finished(cut.transactions)]


def test_sink_seals_at_every_cut_and_at_the_end() -> None:
    """What was written since the last time, each time; nothing twice."""
    bench = TaskHarness(range(5), [specs.Write(SpillBuffer())], slice_batches=1)
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

    class BrokenShelf(SpillBuffer):
        def open(self, job: str, task: int) -> SinkWriter[int]:
            return Broken()

    bench = TaskHarness(range(5), [specs.Write(BrokenShelf())])
    bench.task.announce(barrier(4))

    with pytest.raises(TaskFailedError) as raised:
        bench.run()

    assert raised.value.node.name == "write-1"
    assert isinstance(raised.value.__cause__, OSError)


def test_end_tells_that_all_splits_are_done() -> None:
    """So a task that is made again after a recovery has nothing to read."""
    bench = TaskHarness([1, 2], [specs.Map(str)])

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
    bench = TaskHarness(range(4), chain, slice_batches=9)
    bench.run()
    assert bench.phase() is TaskPhase.FINISHING

    bench.task.announce(barrier(1))
    bench.run_out()

    assert bench.cuts == []
    assert barrier(1) not in bench.elements()
    assert bench.ends[0].epoch == 0


def test_paused_task_does_nothing_until_it_is_resumed() -> None:
    """Everything stands still behind the cut."""
    bench = TaskHarness(range(9), [specs.Map(str)], slice_batches=1)
    bench.task.announce(barrier(1, Order.PAUSE))
    bench.run()
    assert bench.elements() == [barrier(1, Order.PAUSE)]

    assert not bench.run()
    bench.task.resume(Epoch(1))

    assert bench.run()
    assert bench.elements() == [["0"], ["1"]]


def test_resume_of_an_earlier_epoch_does_not_end_a_pause() -> None:
    """A message may be late; the pause is that of a later epoch."""
    bench = TaskHarness(range(9), [specs.Map(str)])
    bench.task.announce(barrier(2, Order.PAUSE))
    bench.run()

    bench.task.resume(Epoch(1))

    assert not bench.run()


def test_resume_that_comes_before_the_cut_makes_it_no_pause() -> None:
    """The coordinator gave the epoch up while its barrier was on the way."""
    bench = TaskHarness(range(9), [specs.Map(str)], slice_batches=1)
    bench.task.resume(Epoch(2))
    bench.task.announce(barrier(2, Order.PAUSE))
    bench.run()

    assert bench.run()
    assert bench.elements() == [barrier(2, Order.PAUSE), ["0"], ["1"]]


def test_blocked_barrier_stops_the_task_until_it_has_left() -> None:
    """Nothing is read behind a cut before the barrier is on its way."""
    bench = TaskHarness(range(9), [specs.Map(str)], buffer_rows=100, credit=0)
    bench.run()
    taken = bench.task.chain.rows_in
    bench.task.announce(barrier(1))
    bench.run()

    assert len(bench.cuts) == 1
    assert not bench.run()
    assert bench.task.chain.rows_in == taken
    assert bench.elements() == []


def test_task_that_had_ended_sends_its_end_and_nothing_else() -> None:
    """It reads nothing, and its operators do not flush for the last time again."""
    chain: list[Spec] = [
        specs.KeyBy(lambda i: i),
        specs.AggregateByKey(builtin("sum")),
    ]
    bench = TaskHarness(range(4), chain)

    bench.task.end_at_once()
    bench.run()

    assert bench.phase() is TaskPhase.ENDED
    assert bench.elements() == []
    assert bench.reader.is_ended
    assert bench.task.chain.rows_in == 0
    assert len(bench.ends) == 1


def test_task_goes_on_where_the_snapshot_says() -> None:
    """Rows before the offset are not read again."""
    bench = TaskHarness(range(5), [specs.Map(str)], offsets={"iterable": 3})

    assert bench.run_to_the_end() == ["3", "4"]
