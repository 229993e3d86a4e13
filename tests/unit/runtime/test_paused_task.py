"""A task that stands still behind a cut, with rows in front of the barrier."""

from __future__ import annotations

from millstream import BufferPolicy, Flow
from millstream.launch.job import deploy
from millstream.launch.snapshot_context import SnapshotContext
from millstream.protocol.barrier import Barrier, Order
from millstream.protocol.ids import Epoch, Generation, PeerId
from millstream.runtime.assembly import Beginning, assemble
from millstream.runtime.inprocess import Hub
from millstream.runtime.timers import Timers
from millstream.simulation.clock import VirtualClock


def test_paused_task_sends_the_barrier_when_credit_comes() -> None:
    """Regression: it waited for ever, and so did the epoch."""
    flow = Flow("paused", buffer=BufferPolicy(2, None))
    flow.from_iterable(range(10)).repartition_by(lambda i: i).for_each(print)
    settings = {"local_channel_batches": 1, "source_batch_rows": 1, "slice_batches": 1}
    config = flow.config(settings)
    own = PeerId(1)
    made = assemble(
        deploy(flow.plan, config, 1, SnapshotContext("paused", "")),
        own,
        (own,),
        Generation(1),
        Hub().join(own),
        clock=VirtualClock(),
        timers=Timers(),
        emit=lambda *_: None,
        on_cut=lambda _: None,
        on_end=lambda _: None,
        beginning=Beginning(Epoch(0)),
    )
    source = made.tasks[-1]
    (channel,) = made.inputs.values()
    for _ in range(3):
        source.run(0)
    barrier = Barrier(Epoch(1), Epoch(0), (Order.SNAPSHOT, Order.PAUSE))
    source.announce(barrier)
    source.run(0)

    assert channel.take() == [0, 1]
    assert len(channel) == 0
    source.run(0)
    assert channel.take() == [2]
    assert channel.take() == barrier
