"""Put the tasks of one worker together: operators, channels, routers.

The only place that knows which channel stays on the worker and which leaves it.  A
worker hosts the tasks of one index, and those of lost workers' indexes besides.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.operators.build import TaskContext, build_run, runs_of
from millstream.operators.loops.rounds import round_of
from millstream.plan.iteration import Decide, LoopHead, Outlet, Port
from millstream.plan.nodes import Read
from millstream.plan.physical import Channel, PhysicalPlan, lay_out
from millstream.protocol.batching import BatchSize
from millstream.runtime.chain import FAILURES, TaskFailedError
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.channels import (
    BackChannel,
    CreditReturn,
    InputChannel,
    LocalCarrier,
    OutputChannel,
    RemoteCarrier,
)
from millstream.runtime.free_head import FreeHeadIntake
from millstream.runtime.guard import Guard
from millstream.runtime.head import DeciderIntake, HeadIntake
from millstream.runtime.router import Router, make_router
from millstream.runtime.source_intake import SourceIntake
from millstream.runtime.splits import SplitsReader
from millstream.runtime.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import Config
    from millstream.connectors.base import Split
    from millstream.operators.base import Operator
    from millstream.plan.logical import Node
    from millstream.plan.stages import Edge, Stage
    from millstream.ports import Clock, Network
    from millstream.protocol.ids import ChannelId, Epoch, Generation, PeerId
    from millstream.runtime.deployment import Deployment
    from millstream.runtime.intake import Intake
    from millstream.runtime.observer import Observer
    from millstream.runtime.task_cut import TaskCut
    from millstream.runtime.timers import Timers
    from millstream.values import Rows

    Emit = Callable[[int, int, Epoch, Rows], None]

__all__ = ["Assembly", "Beginning", "assemble"]

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
class Beginning:
    """Where tasks begin: at the beginning, or at the cut of a snapshot.

    Attributes
    ----------
    offsets
        By source and split; None in a split that has been read to its end.
    ended
        Stage and index of tasks that have nothing more to do.
    unread
        Stages whose tasks have nothing to do because nobody reads what they would make.
    spent
        Of the stages of which only the end is left, how many operators are over.
    """

    epoch: Epoch
    offsets: dict[str, dict[str, int | None]] = field(default_factory=dict)
    ended: frozenset[tuple[int, int]] = frozenset()
    unread: frozenset[int] = frozenset()
    spent: dict[int, int] = field(default_factory=dict)


def _no_rows(sink: int, rows: Rows) -> None:
    """Stand in where a task has no sink."""
    raise AssertionError((sink, rows))


@dataclass(frozen=True, slots=True)
class _Assembler:
    deployment: Deployment
    plan: PhysicalPlan
    own_id: PeerId
    placement: tuple[PeerId, ...]
    generation: Generation
    network: Network
    clock: Clock
    timers: Timers
    emit: Emit
    on_cut: Callable[[TaskCut], None]
    on_end: Callable[[TaskCut], None]
    beginning: Beginning
    made: Assembly
    intakes: dict[tuple[int, int], Intake]
    credit_bytes: int
    observer: Observer | None
    #: Where rows leave a loop, by the node of its head and the index of the task.
    exits: dict[tuple[int, int], list[OutputChannel]] = field(default_factory=dict)

    def make_intake(self, stage: Stage, index: int) -> None:
        config = self.deployment.config
        first = stage.nodes[0]
        if isinstance(first.spec, Read):
            own = self._own_splits(stage, index)
            before = self.beginning.offsets.get(first.name, {})
            names = {split.name for split in own}
            offsets = {n: offset for n, offset in before.items() if n in names}
            self.intakes[stage.id, index] = SourceIntake(
                first.name,
                first.spec.source,
                own,
                config,
                offsets,
                frame_size=_frame_size(first, config),
            )
            return
        ends = [self._input(c) for c in self.plan.inputs(stage.id, index)]
        intake = self._channel_intake(stage, index, ends)
        intake.observer = self.observer
        self.intakes[stage.id, index] = intake

    def _own_splits(self, source: Stage, index: int) -> list[Split]:
        """Return the splits that a task of a source reads."""
        splits = self.deployment.splits[source.nodes[0].id]
        return list(splits[index :: self.plan.task_count(source)])

    def _open_splits(self, stage: Stage, index: int) -> list[str]:
        """Return the splits that rows of a task come from, but those read to their end."""
        if stage.is_source:
            before = self.beginning.offsets.get(stage.nodes[0].name, {})
            names = [split.name for split in self._own_splits(stage, index)]
            return [name for name in names if before.get(name, 0) is not None]
        return [
            name
            for channel in self.plan.inputs(stage.id, index)
            for name in self._splits_of(channel)
        ]

    def _splits_of(self, channel: Channel) -> list[str]:
        source = self.plan.stages.stages[channel.edge.source]
        return self._open_splits(source, channel.source_index)

    def _input(self, channel: Channel) -> InputChannel:
        end = InputChannel(channel)
        if channel.edge.is_back:
            end = BackChannel(channel, self.deployment.config.loop_memory_bytes)
        if channel.edge.carries_splits:
            end.splits = SplitsReader(self._splits_of(channel))
        self.made.inputs[channel.id] = end
        if self.placement[channel.source_index] != self.own_id:
            self._attach_return(channel, end)
        return end

    def _channel_intake(
        self, stage: Stage, index: int, ends: list[InputChannel]
    ) -> ChannelIntake:
        first = stage.nodes[0]
        carrying = frozenset(
            c.channel.id for c in ends if c.channel.edge.carries_rounds
        )
        if isinstance(first.spec, Decide):
            return DeciderIntake(ends)
        if isinstance(first.spec, LoopHead) and not first.spec.iteration.has_rounds:
            return FreeHeadIntake(first, index, ends, self._exits(first, index))
        if isinstance(first.spec, LoopHead):
            context = self._context(stage, index)
            iteration = first.spec.iteration
            held = round_of(iteration, context, has_times=first.takes_times)
            is_nested = any(
                c.port == Port.INPUT and c.channel.id in carrying for c in ends
            )
            exits = None if is_nested else self._exits(first, index)
            return HeadIntake(first.name, index, ends, held, exits, is_nested=is_nested)
        return ChannelIntake(
            ends, rounds=carrying, loop_state=stage.loop_state, is_free=stage.is_free
        )

    def _exits(self, head: Node, index: int) -> list[OutputChannel] | None:
        """Return the list that the exits of a loop on this worker will be in."""
        if all(edge.exits_loop != head.id for edge in self.plan.stages.edges):
            return None
        return self.exits.setdefault((head.id, index), [])

    def _context(
        self,
        stage: Stage,
        index: int,
        emit: Callable[[int, Rows], None] = _no_rows,
    ) -> TaskContext:
        edges = self.plan.stages.outputs(stage)
        return TaskContext(
            self.deployment.job,
            index,
            self.deployment.config,
            emit,
            self.deployment.state,
            has_letters=any(edge.carries_letters for edge in edges),
            worker_count=self.plan.worker_count,
            generation=self.generation,
            clock=self.clock,
        )

    def _attach_return(self, channel: Channel, end: InputChannel) -> None:
        peer = self.placement[channel.source_index]
        back = CreditReturn(
            channel, self.network, peer, self.generation, self.credit_bytes
        )
        end.grant, end.tell_closed = back.grant, back.tell_closed
        end.is_remote = True

    def make_task(self, stage: Stage, index: int) -> None:
        config = self.deployment.config

        def emit(sink: int, rows: Rows) -> None:
            self.emit(sink, index, task.epoch, rows)

        letters = self._letters(stage, index)
        context = self._context(stage, index, emit)
        task = Task(
            stage,
            index,
            self.intakes[stage.id, index],
            _opened(stage, context),
            self._routers(stage, index),
            clock=self.clock,
            slice_batches=config.slice_batches,
            on_cut=self.on_cut,
            on_end=self.on_end,
            epoch=self.beginning.epoch,
            guard=None if letters is None else Guard(letters),
            observer=self.observer,
        )
        unknown = task.states().keys() - self.deployment.fingerprints.keys()
        assert not unknown, f"{unknown} keep state and have no fingerprint"
        if (stage.id, index) in self.beginning.ended:
            task.end_at_once(was_left=stage.id in self.beginning.unread)
        elif stage.id in self.beginning.spent:
            task.end_behind(self.beginning.spent[stage.id])
        self.made.tasks.append(task)

    def _routers(self, stage: Stage, index: int) -> list[list[Router]]:
        """Return the routers of every outlet."""
        edges = self.plan.stages.outputs(stage)
        has_letters = any(edge.carries_letters for edge in edges)
        routers: list[list[Router]] = [[] for _ in Outlet]
        for edge in edges:
            if not edge.carries_letters:
                router = self._router(edge, stage, index, has_letters=has_letters)
                routers[edge.outlet].append(router)
        return routers

    def _letters(self, stage: Stage, index: int) -> Router | None:
        """Return where the dead letters of a task go, if they are collected."""
        for edge in self.plan.stages.outputs(stage):
            if edge.carries_letters:
                return self._router(edge, stage, index, has_letters=False)
        return None

    def _router(
        self, edge: Edge, stage: Stage, index: int, *, has_letters: bool
    ) -> Router:
        channels = self.plan.outputs(stage.id, index)
        ends = [self._output(c) for c in channels if c.edge.id == edge.id]
        if edge.exits_loop is not None:
            self.exits.setdefault((edge.exits_loop, index), []).extend(ends)
        config = self.deployment.config
        return make_router(edge, ends, index, config, has_letters=has_letters)

    def _output(self, channel: Channel) -> OutputChannel:
        peer = self.placement[channel.target_index]
        if peer == self.own_id:
            return self._local_output(channel)
        carrier = RemoteCarrier(
            channel,
            self.network,
            peer,
            self.generation,
            self.credit_bytes,
            sender=self.plan.stages.stages[channel.edge.source].nodes[-1],
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
    own_id: PeerId,
    placement: tuple[PeerId, ...],
    generation: Generation,
    network: Network,
    *,
    clock: Clock,
    timers: Timers,
    emit: Emit,
    on_cut: Callable[[TaskCut], None],
    on_end: Callable[[TaskCut], None],
    beginning: Beginning,
    observer: Observer | None = None,
) -> Assembly:
    """Make the tasks whose indexes are placed on the worker `own_id`."""
    plan = lay_out(deployment.stages, deployment.worker_count)
    assembler = _Assembler(
        deployment, plan, own_id, placement, generation, network, clock, timers, emit,
        on_cut, on_end, beginning, Assembly(), {}, _credit_bytes(deployment.config, plan),
        observer,
    )  # fmt: skip
    for stage in deployment.stages.stages:
        if stage.loop_state is not None:
            stage.loop_state.reset()
    own = [
        (stage, index)
        for stage in deployment.stages.stages
        for index in range(plan.task_count(stage))
        if placement[index] == own_id
    ]
    for stage, index in own:
        assembler.make_intake(stage, index)
    for stage, index in reversed(own):
        assembler.make_task(stage, index)
    if observer is not None:
        observer.deployed(generation, assembler.made)
    return assembler.made


def _opened(stage: Stage, context: TaskContext) -> list[Operator]:
    """Return the operators of a stage; where one does not open, the others are closed."""
    made: list[Operator] = []
    for run in runs_of(stage.nodes, has_letters=context.has_letters):
        try:
            made += build_run(run, context)
        except FAILURES as error:
            for operator in made:
                with suppress(*FAILURES):
                    operator.close()
            if isinstance(error, MillstreamError):
                raise
            raise TaskFailedError(None, run[-1], "when it was opened") from error
    return made


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


def _credit_bytes(config: Config, plan: PhysicalPlan) -> int:
    """Return the credit of every channel, from the plan alone.

    Both ends of a channel must agree on it: a reader that waits for more than a writer
    may send would never return credit.
    """
    remote = Counter(
        c.target_index for c in plan.channels if c.source_index != c.target_index
    )
    share = config.worker_buffer_bytes // max(remote.values(), default=1)
    return min(config.channel_credit_bytes, max(_WINDOW_BYTES_MIN, share))
