"""Barrier alignment of one task, loops included (abs-snapshots.md, Algorithms 1 and 2).

This module decides when a task may capture its state and what it must log.  It does
not know how channels are read, how state is stored, or what time it is.

Theory of operation
-------------------
A task reads *forward* channels and, if it heads a loop, *back* channels.  An epoch
passes through three phases::

    RUNNING  --first barrier-->  ALIGNING  --last forward barrier-->  LOGGING
       ^                                                                 |
       +--------------------------last back barrier----------------------+

ALIGNING   a forward channel whose barrier came is blocked; a back channel whose
           barrier came early is *held*: its batches are kept here, not blocked,
           because blocking a loop can stall the very source that we wait for.
LOGGING    the state is captured; a batch from a back channel whose barrier is still
           due was in flight across the cut, so it is logged as well as delivered.

A task without back channels leaves LOGGING in the step that enters it.  In a loop the next
epoch can come while an abandoned one still goes round: its barrier is put off until the
seal, a forward channel that brought it is blocked, and what follows on a back channel waits.
It can even come round before this one is cut: the head of a loop that is over waits for
nothing that comes round, and cuts the next epoch.  A channel that ended counts as marked.  A task whose forward channels have all ended, or that has none
(a source), learns of an epoch from the coordinator (`EpochAnnounced`); all others keep
the announcement until its barrier comes, or until there is no channel left to bring it.

The paper's Algorithm 2 waits for ``marked = regular``.  In a parallel loop a sibling's
barrier can come round on a back channel before the last forward barrier; ``marked`` is
then a superset and the paper's test never holds.  Here the test is that every forward
channel is marked.

Invariants (see `Aligner.validate`)
-----------------------------------
1. RUNNING means no channel is marked, held or logged; only channels that are read are.
2. Batches are held only while ALIGNING, and only those of back channels.
3. Batches are logged only while LOGGING, and only those of back channels.
4. Events are put off only while an epoch passes through, and only those of channels that
   are marked, behind a barrier of a later epoch; while ALIGNING those of back channels.
5. Epochs increase, and so do those that are announced.
6. ALIGNING waits for a forward channel, LOGGING for a back channel, and an epoch that was
   announced for one of them to bring it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, assert_never

from millstream.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import ChannelId, Epoch

__all__ = [
    "Aligner",
    "BarrierArrived",
    "BatchArrived",
    "BlockChannel",
    "ChannelEnded",
    "Command",
    "Cut",
    "DeliverBatch",
    "EpochAnnounced",
    "Event",
    "Phase",
    "Seal",
    "UnblockChannel",
]


class Phase(Enum):
    """Where a task stands in the epoch that passes through it."""

    RUNNING = auto()
    ALIGNING = auto()
    LOGGING = auto()


# Events: what happened.


@dataclass(frozen=True, slots=True)
class BatchArrived:
    """A batch was read from a channel; only those of back channels need be told."""

    channel: ChannelId
    batch: Any


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A barrier was read from a channel."""

    channel: ChannelId
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """A channel was read to its end."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class EpochAnnounced:
    """The coordinator opened an epoch."""

    barrier: Barrier


Event = BatchArrived | BarrierArrived | ChannelEnded | EpochAnnounced


# Commands: what the caller must do, in order.


@dataclass(frozen=True, slots=True)
class DeliverBatch:
    """Give the batch to the operators."""

    channel: ChannelId
    batch: Any


@dataclass(frozen=True, slots=True)
class BlockChannel:
    """Stop reading the channel until it is unblocked."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class UnblockChannel:
    """Read the channel again."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Cut:
    """Capture the state and send the barrier on, before any later command."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Seal:
    """Store what was captured with these batches that were in flight in a loop."""

    epoch: Epoch
    logged: tuple[tuple[ChannelId, Any], ...]


Command = DeliverBatch | BlockChannel | UnblockChannel | Cut | Seal


class Aligner:
    """Align the barriers of one task's input channels.

    Parameters
    ----------
    forward
        Channels from tasks that come earlier in the dataflow; none for a source.
    back
        Channels that close a loop at this task.

    Examples
    --------
    >>> from millstream.protocol.barrier import Barrier
    >>> aligner = Aligner(forward=[1, 2])
    >>> aligner.handle(BarrierArrived(1, Barrier(7, 6)))
    [BlockChannel(channel=1)]
    >>> [type(c).__name__ for c in aligner.handle(BarrierArrived(2, Barrier(7, 6)))]
    ['Cut', 'UnblockChannel', 'UnblockChannel', 'Seal']
    """

    def __init__(
        self, forward: Iterable[ChannelId], back: Iterable[ChannelId] = ()
    ) -> None:
        self.phase = Phase.RUNNING
        self._forward = list(forward)
        self._back = set(back)
        self._barrier: Barrier | None = None
        self._last_epoch = 0
        self._marked: set[ChannelId] = set()
        self._held: list[tuple[ChannelId, Any]] = []
        self._logged: list[tuple[ChannelId, Any]] = []
        #: What came behind the barrier of the next epoch, that barrier first.
        self._put_off: list[BarrierArrived | BatchArrived | ChannelEnded] = []
        #: Epochs that were announced and have not begun here.
        self._announced: list[Barrier] = []
        assert len(set(self._forward)) == len(self._forward), (
            f"a channel is twice among {self._forward}"
        )
        assert self._back.isdisjoint(self._forward), (
            f"channels {self._back & set(self._forward)} go forward and back"
        )

    def handle(self, event: Event) -> list[Command]:
        """Take one event and return the commands to carry out, in order.

        Raises
        ------
        LocalProtocolError
            If the caller read a blocked or unknown channel.
        RemoteProtocolError
            If a peer repeated a barrier or opened a second epoch at once.
        """
        if not isinstance(event, EpochAnnounced) and self._is_early(event):
            return self._handle_early(event)
        match event:
            case BatchArrived(channel, batch):
                return self._handle_batch(channel, batch)
            case BarrierArrived(channel, barrier):
                return self._handle_barrier(channel, barrier)
            case ChannelEnded(channel):
                return self._handle_end(channel)
            case EpochAnnounced(barrier):
                return self._handle_announcement(barrier)
        assert_never(event)

    @property
    def is_cut_due(self) -> bool:
        """Whether an epoch was announced that waits only for the last one to go round."""
        is_waiting = self.phase is Phase.LOGGING and not self._forward
        return is_waiting and bool(self._announced)

    @property
    def is_cut_ahead(self) -> bool:
        """Whether an epoch was announced or has begun, and was not cut."""
        return self.phase is Phase.ALIGNING or bool(self._announced)

    def validate(self) -> None:
        """Assert the invariants in the module docstring; called by every test."""
        phase, marked, forward = self.phase, self._marked, set(self._forward)
        read = forward | self._back
        assert (self._barrier is None) == (phase is Phase.RUNNING), (
            f"{self._barrier} passes through a task that is {phase.name}"
        )
        assert marked <= (set() if phase is Phase.RUNNING else read), (
            f"channels {marked} are marked in a task that is {phase.name}"
        )
        for kept, due in ((self._held, Phase.ALIGNING), (self._logged, Phase.LOGGING)):
            assert not kept or phase is due, f"{kept} is kept while it is {phase.name}"
            assert all(channel not in forward for channel, _ in kept), (
                f"{kept} came on a forward channel"
            )
        is_aligned, is_round = forward <= marked, self._back <= marked
        assert phase is not Phase.ALIGNING or not is_aligned, "all barriers have come"
        assert phase is not Phase.LOGGING or not is_round, "all barriers came round"
        self._validate_next()

    def _validate_next(self) -> None:
        """Assert what holds of epochs that have not begun."""
        last, epochs = self._last_epoch, [b.epoch for b in self._announced]
        assert self._barrier is None or self._barrier.epoch == last, (
            f"{self._barrier} passes through after epoch {last}"
        )
        assert sorted({last, *epochs}) == [last, *epochs], f"{epochs} follow {last}"
        is_waiting = self.phase is Phase.RUNNING and not self._forward
        assert not (is_waiting and epochs), f"nobody brings {epochs}, and none is cut"
        assert not self._put_off or self.phase is not Phase.RUNNING, (
            f"{self._put_off} is put off while no epoch passes through"
        )
        seen: set[ChannelId] = set()
        for event in self._put_off:
            assert event.channel in self._marked, f"{event} is put off too early"
            is_first = event.channel not in seen
            assert not is_first or isinstance(event, BarrierArrived), (
                f"{event} is put off behind no barrier"
            )
            seen.add(event.channel)

    def _is_early(self, event: BarrierArrived | BatchArrived | ChannelEnded) -> bool:
        """Whether it belongs behind the barrier of the next epoch, and is too soon."""
        if self.phase is Phase.RUNNING:
            return False
        if any(event.channel == before.channel for before in self._put_off):
            return True
        assert self._barrier is not None
        is_round = event.channel in self._back and event.channel in self._marked
        if self.phase is Phase.ALIGNING and not is_round:
            return False
        epoch = self._barrier.epoch
        return isinstance(event, BarrierArrived) and event.barrier.epoch > epoch

    def _handle_early(
        self, event: BarrierArrived | BatchArrived | ChannelEnded
    ) -> list[Command]:
        assert self.phase is not Phase.RUNNING, f"{event.channel} waits for nothing"
        self._check_known(event.channel)
        if event.channel not in self._marked:
            msg = (
                f"the barrier of the next epoch arrived on channel {event.channel}, which "
                f"has not delivered that of epoch {self._last_epoch}"
            )
            raise RemoteProtocolError(msg)
        self._put_off.append(event)
        is_forward = event.channel in self._forward
        return [BlockChannel(event.channel)] if is_forward else []

    def _handle_batch(self, channel: ChannelId, batch: Any) -> list[Command]:
        self._check_known(channel)
        is_marked = channel in self._marked
        assert not is_marked or self._barrier is not None, f"{channel} is marked"
        if self.phase is Phase.ALIGNING and is_marked:
            if channel not in self._back:
                msg = f"read a batch from channel {channel}, which is blocked"
                raise LocalProtocolError(msg)
            self._held.append((channel, batch))
            return []
        if self.phase is Phase.LOGGING and channel in self._back and not is_marked:
            self._logged.append((channel, batch))
        return [DeliverBatch(channel, batch)]

    def _handle_barrier(self, channel: ChannelId, barrier: Barrier) -> list[Command]:
        self._check_known(channel)
        self._open(channel, barrier)
        assert self.phase is not Phase.RUNNING, f"{barrier} has begun nothing"
        self._marked.add(channel)
        blocked: list[Command] = []
        if self.phase is Phase.ALIGNING and channel not in self._back:
            blocked.append(BlockChannel(channel))
        return self._advanced(blocked)

    def _handle_end(self, channel: ChannelId) -> list[Command]:
        self._check_known(channel)
        if channel in self._back:
            self._back.remove(channel)
        else:
            self._forward.remove(channel)
        self._marked.discard(channel)
        return self._advanced([])

    def _handle_announcement(self, barrier: Barrier) -> list[Command]:
        if barrier.epoch > self._last_epoch:
            self._announced.append(barrier)
        return self._advanced([])

    def _advanced(self, commands: list[Command]) -> list[Command]:
        """Go through as many phases as can be gone through now."""
        if self.phase is Phase.RUNNING and not self._forward and self._announced:
            self._begin(self._announced[0])
        is_aligned = all(channel in self._marked for channel in self._forward)
        if self.phase is Phase.ALIGNING and is_aligned:
            # The last channel to be marked was never blocked for anybody to see.
            if commands and isinstance(commands[-1], BlockChannel):
                commands.pop()
            commands += self._cut()
        if self.phase is Phase.LOGGING and self._back <= self._marked:
            commands.append(self._seal())
            put_off, self._put_off = self._put_off, []
            for event in put_off:
                commands += self.handle(event)
            return self._advanced(commands) if self._announced else commands
        return commands

    def _open(self, channel: ChannelId, barrier: Barrier) -> None:
        if self.phase is Phase.RUNNING:
            self._begin(barrier)
        if self._barrier is None or barrier.epoch != self._barrier.epoch:
            msg = (
                f"barrier of epoch {barrier.epoch} arrived on channel {channel} while "
                f"epoch {self._last_epoch} is still {self.phase.name}"
            )
            raise RemoteProtocolError(msg)
        if channel in self._marked:
            msg = f"a second barrier of epoch {barrier.epoch} arrived on channel {channel}"
            raise RemoteProtocolError(msg)

    def _begin(self, barrier: Barrier) -> None:
        if barrier.epoch <= self._last_epoch:
            msg = f"barrier of epoch {barrier.epoch} came after {self._last_epoch}"
            raise RemoteProtocolError(msg)
        assert self.phase is Phase.RUNNING, f"{self._barrier} passes, and {barrier} too"
        left = [*self._marked, *self._held, *self._logged, *self._put_off]
        assert not left, f"{len(left)} are left of epoch {self._last_epoch}"
        self.phase, self._barrier = Phase.ALIGNING, barrier
        self._last_epoch = barrier.epoch
        self._announced = [b for b in self._announced if b.epoch > barrier.epoch]

    def _cut(self) -> list[Command]:
        assert self._barrier is not None, "nothing is cut without a barrier"
        assert self.phase is Phase.ALIGNING, f"a task that is {self.phase.name} is cut"
        self.phase = Phase.LOGGING
        commands: list[Command] = [Cut(self._barrier)]
        commands += [UnblockChannel(c) for c in self._forward]
        commands += [DeliverBatch(c, b) for c, b in self._held]
        self._held.clear()
        return commands

    def _seal(self) -> Seal:
        assert self._barrier is not None, "nothing is sealed without a barrier"
        assert self.phase is Phase.LOGGING, f"{self._barrier} is sealed before its cut"
        assert not self._held, f"{len(self._held)} batches would never be delivered"
        sealed = Seal(self._barrier.epoch, tuple(self._logged))
        self.phase, self._barrier = Phase.RUNNING, None
        self._marked.clear()
        self._logged.clear()
        return sealed

    def _check_known(self, channel: ChannelId) -> None:
        if channel not in self._back and channel not in self._forward:
            msg = f"unknown or ended channel {channel}; this task reads {self._forward}"
            raise LocalProtocolError(msg)
