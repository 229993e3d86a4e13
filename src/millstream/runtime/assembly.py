"""Put the tasks of one worker together: operators, channels, routers.

The only place that knows which channel stays on the worker and which leaves it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.operators.build import TaskContext, build_chain
from millstream.plan.nodes import Read
from millstream.plan.physical import Channel, PhysicalPlan, lay_out
from millstream.protocol.batching import BatchSize
from millstream.runtime.channels import (
    CreditReturn,
    InputChannel,
    LocalCarrier,
    OutputChannel,
    RemoteCarrier,
)
from millstream.runtime.intake import ChannelIntake, SourceIntake
from millstream.runtime.router import Router, make_router
from millstream.runtime.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.operators.base import Rows
    from millstream.plan.nodes import Node
    from millstream.plan.stages import Stage
    from millstream.ports import Clock, Network
    from millstream.protocol.ids import ChannelId, Generation, PeerId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.intake import Intake
    from millstream.runtime.timers import Timers

__all__ = ["Assembly", "assemble"]

_WINDOW_BYTES_MIN = 65_536
"""A smaller share of the memory would make a channel wait after every thousand rows.

A smaller `channel_credit_bytes` is what somebody asked for.
"""


@dataclass(slots=True)
class Assembly:
    """The tasks of a worker, last stage first, and the remote ends of their channels."""

    tasks: list[Task] = field(default_factory=list)
    inputs: dict[ChannelId, InputChannel] = field(default_factory=dict)
    carriers: dict[ChannelId, RemoteCarrier] = field(default_factory=dict)
    outputs: dict[ChannelId, OutputChannel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Assembler:
    deployment: Deployment
    plan: PhysicalPlan
    index: int
    members: tuple[PeerId, ...]
    generation: Generation
    network: Network
    clock: Clock
    timers: Timers
    emit: Callable[[int, Rows], None]
    made: Assembly
    intakes: dict[int, Intake]
    window_bytes: int

    def make_intake(self, stage: Stage) -> None:
        config = self.deployment.config
        first = stage.nodes[0]
        if isinstance(first.spec, Read):
            splits = self.deployment.splits[first.id]
            own = splits[self.index :: self.plan.task_count(stage)]
            self.intakes[stage.id] = SourceIntake(
                first.spec.source, list(own), config, _frame_size(first, config)
            )
            return
        intake = ChannelIntake()
        for channel in self.plan.inputs(stage.id, self.index):
            end = InputChannel(channel, intake.wake)
            intake.channels.append(end)
            self.made.inputs[channel.id] = end
            if channel.source_index != self.index:
                self._attach_return(channel, end)
        self.intakes[stage.id] = intake

    def _attach_return(self, channel: Channel, end: InputChannel) -> None:
        peer = self.members[channel.source_index]
        back = CreditReturn(
            channel, self.network, peer, self.generation, self.window_bytes
        )
        end.grant, end.tell_closed = back.grant, back.tell_closed

    def make_task(self, stage: Stage) -> None:
        config = self.deployment.config
        context = TaskContext(self.deployment.job, self.index, config, self.emit)
        task = Task(
            stage,
            self.index,
            self.intakes[stage.id],
            build_chain(stage.nodes, context),
            self._routers(stage),
            clock=self.clock,
            slice_batches=config.slice_batches,
        )
        self.made.tasks.append(task)

    def _routers(self, stage: Stage) -> list[Router]:
        routers = []
        channels = self.plan.outputs(stage.id, self.index)
        for edge in self.plan.stages.outputs(stage):
            ends = [self._output(c) for c in channels if c.edge.id == edge.id]
            config = self.deployment.config
            routers.append(make_router(edge, ends, self.index, config))
        return routers

    def _output(self, channel: Channel) -> OutputChannel:
        if channel.target_index == self.index:
            return self._local_output(channel)
        carrier = RemoteCarrier(
            channel,
            self.network,
            self.members[channel.target_index],
            self.generation,
            self.window_bytes,
        )
        output = OutputChannel(channel, carrier, self.timers.set)
        self.made.carriers[channel.id] = carrier
        self.made.outputs[channel.id] = output
        return output

    def _local_output(self, channel: Channel) -> OutputChannel:
        target = self.made.inputs[channel.id]
        batches_max = self.deployment.config.local_channel_batches
        carrier = LocalCarrier(target, batches_max)
        output = OutputChannel(channel, carrier, self.timers.set)
        target.tell_closed = output.close
        return output


def assemble(
    deployment: Deployment,
    index: int,
    members: tuple[PeerId, ...],
    generation: Generation,
    network: Network,
    *,
    clock: Clock,
    timers: Timers,
    emit: Callable[[int, Rows], None],
) -> Assembly:
    """Make the tasks of worker `index`; `members` are the worker ids by index."""
    plan = lay_out(deployment.stages, deployment.worker_count)
    window_bytes = _window_bytes(deployment.config, plan)
    assembler = _Assembler(
        deployment, plan, index, members, generation, network, clock, timers, emit,
        Assembly(), {}, window_bytes,
    )  # fmt: skip
    own = [s for s in deployment.stages.stages if index < plan.task_count(s)]
    for stage in own:
        assembler.make_intake(stage)
    for stage in reversed(own):
        assembler.make_task(stage)
    return assembler.made


def _frame_size(source: Node, config: Config) -> BatchSize | None:
    """Return how large the data frames of a source are; None if it makes rows."""
    if not source.makes_frames:
        return None
    policy = source.buffer or config.frame_buffer
    return BatchSize(
        policy.rows,
        least=config.frame_rows_min,
        most=config.frame_rows_max,
        bound_ns=policy.timeout_ns,
    )


def _window_bytes(config: Config, plan: PhysicalPlan) -> int:
    """Return the credit of every channel, from the plan alone.

    Both ends of a channel must agree on it: a reader that waits for more than a writer
    may send would never return credit.
    """
    remote = Counter(
        c.target_index for c in plan.channels if c.source_index != c.target_index
    )
    share = config.worker_buffer_bytes // max(remote.values(), default=1)
    return min(config.channel_credit_bytes, max(_WINDOW_BYTES_MIN, share))
