"""What is measured of a task while it works, waits and stands still."""

from __future__ import annotations

from dataclasses import replace

from tests.support.making import channel
from tests.support.task_harness import TaskHarness

import millstream as ms
from millstream.plan import nodes as specs
from millstream.plan.aggregate import builtin
from millstream.plan.time import AssignTime
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.protocol.messages import Sealed
from millstream.protocol.metrics import OutputMetrics, TaskMetrics
from millstream.protocol.packets import PacketKind
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import InputChannel
from millstream.runtime.memory import resident_bytes
from millstream.runtime.meters import SPLITS_MAX, _slowest, measured, note_stored
from millstream.state.settings import StateSettings


def metrics_of(bench: TaskHarness) -> TaskMetrics:
    return measured(bench.task, bench.clock.monotonic_ns())


def test_blocked_task_shows_its_credit_and_what_waits() -> None:
    """Up to the moment of the report, though the block is not over."""
    bench = TaskHarness(list(range(10)), [], credit=1)
    bench.run()
    bench.run()
    bench.clock.advance("3ms")

    told = metrics_of(bench)

    (output,) = told.outputs
    assert (output.batches_used, output.batches_max) == (1, 1)
    assert output.rows_waiting > 0
    assert (output.bytes_used, output.bytes_max) == (0, 0)
    assert told.blocked_ns == 3_000_000
    assert told.rows_in == told.rows_out == 1 + output.rows_waiting


def test_credit_that_came_back_is_not_in_use() -> None:
    """Of a task that has ended nothing can come back, and nothing waits."""
    bench = TaskHarness(list(range(10)), [specs.Map(lambda row: row)])
    bench.run()
    bench.arrived()

    assert metrics_of(bench).outputs == (OutputMetrics(1, 0, 0, 100),)
    bench.run_to_the_end()
    assert metrics_of(bench).outputs == ()


def test_marks_do_not_wait_in_a_queue() -> None:
    """Nobody grants room for them; batches and their rows are counted."""
    inputs = [InputChannel(channel(number)) for number in range(2)]
    intake = ChannelIntake(inputs)
    inputs[0].receive(PacketKind.BATCH, 0, [1, 2, 3], 1)
    inputs[0].receive(PacketKind.BARRIER, 1, Barrier(Epoch(1), Epoch(0)), 0)
    inputs[1].receive(PacketKind.BATCH, 0, [4], 1)

    assert intake.waiting() == (2, 4)
    intake.take(0)
    assert intake.waiting() == (1, 1)


def test_bytes_count_where_batches_come_from_another_worker() -> None:
    """On the same worker a batch is passed on as it is, and costs one."""
    far, near = (InputChannel(channel(number)) for number in range(2))
    far.is_remote = True
    intake = ChannelIntake([far, near])
    far.receive(PacketKind.BATCH, 0, ["abc"], 40)
    near.receive(PacketKind.BATCH, 0, ["abc"], 1)
    intake.take(0)
    intake.take(0)

    assert intake.bytes_taken == 40


def test_the_slowest_splits_are_told() -> None:
    """They hold time back, and a source may have thousands."""
    told = _slowest({f"part-{n}": 1000 - n for n in range(1000)})

    assert len(told) == SPLITS_MAX
    assert told[0] == ("part-999", 1)


def test_state_is_told_in_keys_and_in_what_was_written() -> None:
    """Keys as they are now, bytes as of the last snapshot of this task."""
    verbs = [specs.KeyBy(lambda n: n % 3), specs.AggregateByKey(builtin("sum"))]
    bench = TaskHarness(list(range(100)), verbs, settings=StateSettings(16))
    bench.run()
    file = ("epochs/00000001/run-1-0-0-1.state", 77, "0" * 64, ())
    sealed = Sealed(1, 1, 1, 0, 0, file, (), (), 0)

    note_stored([bench.task], sealed)
    note_stored([bench.task], replace(sealed, task=1, file=(*file[:1], 9, *file[2:])))
    note_stored([bench.task], replace(sealed, file=None, problem="full"))

    told = metrics_of(bench)
    assert (told.state_entries, told.state_bytes) == (3, 77)


def test_time_is_told_by_split() -> None:
    """Of the splits that are open when the task is looked at."""
    times = AssignTime(lambda row: row)
    bench = TaskHarness(list(range(100, 200)), [times])
    assert not metrics_of(bench).splits
    bench.run()

    told = metrics_of(bench)

    ((name, reached),) = told.splits
    assert name
    assert told.has_time
    assert reached == told.watermark == 100


def test_stages_with_windows_have_a_watermark() -> None:
    """From where time is given to where it is used."""
    flow = ms.Flow("timed")
    events = flow.from_iterable(range(100)).event_time(lambda n: n)
    windows = events.key_by(lambda n: n % 2).window(ms.windows.tumbling(10))
    windows.count().for_each(id)
    job = flow.run(on="local", workers=1)

    timed = [task for stage in job.metrics() for task in stage.tasks if task.has_time]
    assert len(timed) > 1
    assert all(task.watermark is not None for task in timed)


def test_this_process_has_memory() -> None:
    """On Linux; elsewhere nobody knows."""
    assert resident_bytes() == 0 or resident_bytes() > 2**20
