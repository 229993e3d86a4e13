"""Aligner: whatever the interleaving, the cut is consistent and nothing is lost.

Method: every channel has a script of batches and barriers, and its end somewhere.
Hypothesis chooses which channel is read next among those that are not blocked, and
when the coordinator's announcements come.  What was delivered before the cut of an
epoch is compared with what the scripts have before its barriers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import event, given
from hypothesis import strategies as st

from millstream.protocol.align import (
    Aligner,
    BarrierArrived,
    BatchArrived,
    BlockChannel,
    ChannelEnded,
    Command,
    Cut,
    DeliverBatch,
    EpochAnnounced,
    Phase,
    Seal,
    UnblockChannel,
)
from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import ChannelId, Epoch

EPOCHS = 3
COORDINATOR = ChannelId(99)
"""Stands for the announcements where a channel is read."""

Element = str | Barrier
Batch = tuple[ChannelId, str]


def barrier(epoch: int) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(epoch - 1))


@dataclass
class Task:
    """A task that reads scripted channels and does what its aligner says."""

    scripts: dict[ChannelId, list[Element]]
    back: list[ChannelId]
    delivered: list[Batch] = field(default_factory=list)
    delivered_at_cut: dict[int, int] = field(default_factory=dict)
    logged: dict[int, list[Batch]] = field(default_factory=dict)
    blocked: set[ChannelId] = field(default_factory=set)
    ended: set[ChannelId] = field(default_factory=set)

    def __post_init__(self) -> None:
        forward = [channel for channel in self.scripts if channel not in self.back]
        self.aligner = Aligner(forward, self.back)
        self.rest = {c: list(script) for c, script in self.scripts.items()}
        self.rest[COORDINATOR] = [barrier(1 + n) for n in range(EPOCHS)]

    def readable(self) -> list[ChannelId]:
        """Return the channels that have something to read now.

        In a job with loops an epoch is opened when the one before is sealed.
        """
        return [
            channel
            for channel, rest in self.rest.items()
            if channel not in self.blocked | self.ended
            and (rest or channel != COORDINATOR)
            and not (self.back and rest and self._is_too_early(rest[0]))
        ]

    def _is_too_early(self, element: Element) -> bool:
        return isinstance(element, Barrier) and element.epoch > len(self.logged) + 1

    def read(self, channel: ChannelId) -> None:
        rest = self.rest[channel]
        element = rest.pop(0) if rest else None
        if element is None:
            self.ended.add(channel)
            self.carry_out(self.aligner.handle(ChannelEnded(channel)))
        elif isinstance(element, str):
            self.carry_out(self.aligner.handle(BatchArrived(channel, element)))
        elif channel == COORDINATOR:
            self.carry_out(self.aligner.handle(EpochAnnounced(element)))
        else:
            self.carry_out(self.aligner.handle(BarrierArrived(channel, element)))
        self.aligner.validate()

    def carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case DeliverBatch(channel, batch):
                    self.delivered.append((channel, batch))
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannel(channel):
                    self.blocked.discard(channel)
                case Cut(mark):
                    assert mark.epoch not in self.delivered_at_cut
                    self.delivered_at_cut[mark.epoch] = len(self.delivered)
                case Seal(epoch, logged):
                    self.logged[epoch] = list(logged)

    def before(self, channel: ChannelId, epoch: int) -> list[str]:
        """Return the batches that a script has before the barrier of an epoch."""
        script = self.scripts[channel]
        end = script.index(barrier(epoch)) if barrier(epoch) in script else None
        return [element for element in script[:end] if isinstance(element, str)]

    def delivered_before(self, channel: ChannelId, epoch: int) -> list[str]:
        batches = self.delivered[: self.delivered_at_cut[epoch]]
        return [batch for own, batch in batches if own == channel]


@st.composite
def tasks(draw: st.DrawFn, back_max: int) -> Task:
    forward_count = draw(st.integers(0, 3))
    back_count = draw(st.integers(0, back_max))
    scripts: dict[ChannelId, list[Element]] = {}
    for number in range(forward_count + back_count):
        lengths = draw(st.lists(st.integers(0, 2), min_size=1, max_size=EPOCHS + 1))
        script: list[Element] = []
        for index, length in enumerate(lengths):
            script += [barrier(index)] if index else []
            script += [f"{number}-{index}-{i}" for i in range(length)]
        scripts[ChannelId(number)] = script
    back = [ChannelId(forward_count + n) for n in range(back_count)]
    return Task(scripts, back)


def play(task: Task, data: st.DataObject) -> None:
    while readable := task.readable():
        task.read(data.draw(st.sampled_from(readable)))


def check_cuts(task: Task) -> None:
    assert list(task.delivered_at_cut) == sorted(task.delivered_at_cut)
    for epoch in task.delivered_at_cut:
        for channel in task.scripts:
            own = task.delivered_before(channel, epoch)
            if channel in task.back:
                own += [
                    batch for other, batch in task.logged[epoch] if other == channel
                ]
            assert own == task.before(channel, epoch), (channel, epoch)


def check_nothing_lost(task: Task) -> None:
    for channel, script in task.scripts.items():
        own = [batch for other, batch in task.delivered if other == channel]
        assert own == [element for element in script if isinstance(element, str)]


@given(tasks(back_max=0), st.data())
def test_cut_without_loops_is_consistent_and_loses_nothing(
    task: Task, data: st.DataObject
) -> None:
    """Also where one epoch follows another while both are on their way."""
    play(task, data)

    check_cuts(task)
    check_nothing_lost(task)
    assert task.aligner.phase is Phase.RUNNING
    assert not task.blocked
    assert not any(task.logged.values())
    brought = {e.epoch for s in task.scripts.values() for e in s if e in MARKS}
    assert brought <= task.delivered_at_cut.keys() == task.logged.keys()


MARKS = [barrier(1 + n) for n in range(EPOCHS)]


@given(tasks(back_max=2), st.data())
def test_cut_with_loops_is_consistent_and_loses_nothing(
    task: Task, data: st.DataObject
) -> None:
    """What is in flight in a loop is part of the snapshot, once."""
    play(task, data)

    event("logged something" if any(task.logged.values()) else "logged nothing")
    check_cuts(task)
    check_nothing_lost(task)
    assert task.aligner.phase is Phase.RUNNING
    assert list(task.logged) == list(task.delivered_at_cut) == [1, 2, 3]
