"""Lay the stages out over workers: tasks, and the channels between them.

Task *i* of every stage lives on worker *i* (rstream.md, section IV-A.3), so passing a
batch to the next stage of the same worker is passing a reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.plan.grouping import LocalOrShuffle
from millstream.protocol.ids import ChannelId

if TYPE_CHECKING:
    from millstream.plan.stages import Edge, Stage, StagePlan

__all__ = ["Channel", "PhysicalPlan", "lay_out"]


@dataclass(frozen=True, slots=True)
class Channel:
    """A FIFO from one task to another; the tasks are named by their worker index."""

    id: ChannelId
    edge: Edge
    source_index: int
    target_index: int


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """Tasks and channels of a flow on a number of workers."""

    stages: StagePlan
    worker_count: int
    channels: tuple[Channel, ...]
    _by_target: dict[tuple[int, int], list[Channel]] = field(repr=False, compare=False)
    _by_source: dict[tuple[int, int], list[Channel]] = field(repr=False, compare=False)

    def task_count(self, stage: Stage) -> int:
        """Return the number of tasks of a stage."""
        return min(stage.width or self.worker_count, self.worker_count)

    def inputs(self, stage_id: int, index: int) -> list[Channel]:
        """Return the channels into one task."""
        return self._by_target.get((stage_id, index), [])

    def outputs(self, stage_id: int, index: int) -> list[Channel]:
        """Return the channels out of one task."""
        return self._by_source.get((stage_id, index), [])


def lay_out(stages: StagePlan, worker_count: int) -> PhysicalPlan:
    """Lay tasks out and number the channels between the tasks of `worker_count` workers."""
    assert worker_count >= 1
    counts = [min(s.width or worker_count, worker_count) for s in stages.stages]
    channels: list[Channel] = []
    for edge in stages.edges:
        sources, targets = counts[edge.source], counts[edge.target]
        for source, target in _pairs(edge, sources, targets):
            channels.append(Channel(ChannelId(len(channels)), edge, source, target))
    plan = PhysicalPlan(stages, worker_count, tuple(channels), {}, {})
    for channel in channels:
        target_key = (channel.edge.target, channel.target_index)
        source_key = (channel.edge.source, channel.source_index)
        plan._by_target.setdefault(target_key, []).append(channel)  # noqa: SLF001 - own index
        plan._by_source.setdefault(source_key, []).append(channel)  # noqa: SLF001 - own index
    return plan


def _pairs(edge: Edge, sources: int, targets: int) -> list[tuple[int, int]]:
    if isinstance(edge.grouping, LocalOrShuffle):
        return [(source, source % targets) for source in range(sources)]
    return [(source, target) for source in range(sources) for target in range(targets)]
