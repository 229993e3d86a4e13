"""The intake of every task but a source: its input channels.

Barriers are aligned by `protocol/align.py`, event time is kept by `protocol/watermark.py`;
here both meet what channels bring, in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.errors import RemoteProtocolError
from millstream.operators.failure import blame_at
from millstream.protocol.align import (
    Aligner,
    BarrierArrived,
    BatchArrived,
    BlockChannel,
    ChannelEnded,
    Cut,
    DeliverBatch,
    Seal,
    UnblockChannel,
)
from millstream.protocol.barrier import (
    FLUSH,
    ROUND_END,
    Barrier,
    Hops,
    RoundEnd,
    Splits,
)
from millstream.protocol.watermark import BEGINNING, EventTime, Watermark
from millstream.runtime.chain import TaskFailedError
from millstream.runtime.channels import Mark
from millstream.runtime.elements import (
    END_OF_INPUT,
    LOOP_SEALED,
    MarkDue,
    PortEnded,
    ProbeArrived,
    RoundOver,
    TakenBatch,
)

if TYPE_CHECKING:
    from millstream.plan.iteration import RoundState
    from millstream.plan.logical import Node
    from millstream.protocol.align import Command, Event
    from millstream.protocol.ids import ChannelId
    from millstream.protocol.messages import Offset
    from millstream.runtime.channels import InputChannel
    from millstream.runtime.elements import Element
    from millstream.runtime.observer import Observer
    from millstream.state.base import State
    from millstream.values import Batch

__all__ = ["ChannelIntake"]


class ChannelIntake:
    """Reads the input channels of a task, in the order in which they have batches.

    Parameters
    ----------
    rounds
        Channels on which every round of an iteration ends with a mark, if the task is in
        the body of one.
    back
        Channels that close a loop at this task.
    loop_state
        Holds rows of a round back until its state is here.
    is_free
        Whether that is no iteration but a free loop, whose rounds are only probes.
    """

    #: Who looks on at the alignment of barriers; in a real job nobody does.
    observer: Observer | None = None

    def __init__(
        self,
        channels: list[InputChannel],
        *,
        rounds: frozenset[ChannelId] = frozenset(),
        back: frozenset[ChannelId] = frozenset(),
        loop_state: RoundState[Any] | None = None,
        is_free: bool = False,
    ) -> None:
        self.channels = channels
        #: Elements that come before anything that is read or delivered.
        self._due: deque[Element] = deque()
        self._by_id: dict[ChannelId, InputChannel] = {c.channel.id: c for c in channels}
        self._back = back
        self.aligner = Aligner([c for c in self._by_id if c not in back], back)
        self._after_cut: list[Command] = []
        self._ready: deque[InputChannel] = deque()
        #: Wake-ups of blocked channels, in order.
        self._parked: list[InputChannel] = []
        #: Batches that may be given to the operators, before any others; at heads of
        #: free loops also watermarks.
        self._delivered: deque[tuple[Any, InputChannel, int]] = deque()
        self._begin_time()
        #: How often the rows had gone round that left last.
        self._hops = 0
        self._current: InputChannel | None = None
        #: Whether the task is in the body of an iteration.
        self.has_rounds = bool(rounds) and not is_free
        self._is_free = is_free
        #: Whether the operators of a free loop flush for the last time before a probe.
        self._is_flush_asked = False
        #: Channels that were read to their end.
        self._ended: set[ChannelId] = set()
        self._rounds = set(rounds)
        self._rounds_ended: set[ChannelId] = set()
        self._loop_state = loop_state
        self._rounds_done = 0 if loop_state is None else loop_state.begun
        for channel in channels:
            channel.wake = self._ready.append

    @property
    def is_over(self) -> bool:
        """Whether every channel has ended and is empty."""
        is_empty = not self._ready and not self._parked and not self._delivered
        return is_empty and all(c.is_ended for c in self.channels)

    @property
    def _is_round_over(self) -> bool:
        """Whether all of a round has been taken, and all there is beside it."""
        if not self._rounds_ended or self._rounds_ended != self._rounds:
            return False
        return all(
            c.is_ended and not len(c)
            for c in self.channels
            if c.channel.id not in self._rounds
        )

    @property
    def bytes_taken(self) -> int:
        """Bytes of the batches that came from other workers and were taken."""
        return sum(channel.bytes_taken for channel in self.channels)

    def waiting(self) -> tuple[int, int]:
        """Return how many batches and rows have come and were not taken."""
        held = [rows for rows, _, _ in self._delivered if not isinstance(rows, Mark)]
        batches = len(held) + sum(channel.batch_count for channel in self.channels)
        rows = sum(map(len, held)) + sum(channel.row_count for channel in self.channels)
        return batches, rows

    @property
    def knows_splits(self) -> bool:
        """Whether origins are splits, which are the same ones at any width."""
        return all(channel.splits is not None for channel in self.channels)

    @property
    def origin(self) -> str:
        """Where the last batch came from: a split, or a channel if no split is known."""
        channel = self._current
        if channel is None:
            return ""
        return _origin(channel) if channel.splits is None else channel.splits.reading

    def open_origins(self, *, are_waiting: bool) -> list[str]:
        """Return where more may come from; of splits all, or only begun ones."""
        found: list[str] = []
        for channel in self.channels:
            if channel.is_ended and not len(channel):
                continue
            splits = channel.splits
            found += (
                [_origin(channel)]
                if splits is None
                else splits.open(are_waiting=are_waiting)
            )
        return found

    def begin_round(self) -> None:
        """Take the rows of the next round, or of the time until the next probe."""
        if self.has_rounds:
            self._begin_time()
        self._rounds_ended.clear()
        self._rounds_done += 1
        self._is_flush_asked = False

    def announce(self, barrier: Barrier) -> None:
        """Channels bring the barrier; the announcement is for those without any."""

    def offsets(self) -> tuple[Offset, ...]:
        """Return nothing: channels are empty at a cut."""
        return ()

    def states(self) -> dict[str, State]:
        """Return what it remembers, by name."""
        return {}

    def take(self, now_ns: int) -> Element | None:  # noqa: ARG002 - as sources
        """Return what came first of what has not been taken."""
        while not self._due:
            if self._is_free and self._is_round_over:
                # More may have come behind the probe, and it must not wait for that.
                return ProbeArrived(FLUSH if self._is_flush_asked else ROUND_END)
            if self._delivered:
                if self._is_held(self._delivered[0][1]):
                    break
                return self._deliver()
            if not self._ready:
                break
            self._read(self._ready.popleft())
        return self._next_due()

    def _deliver(self) -> TakenBatch | MarkDue:
        """Return the next batch, behind a mark if it has gone round more or less often."""
        rows, channel, hops = self._delivered[0]
        if hops != self._hops:
            self._hops = hops
            return MarkDue(Hops(hops))
        self._delivered.popleft()
        self._current = channel
        return TakenBatch(rows, channel.port)

    def _next_due(self) -> Element | None:
        """Return what there is besides batches."""
        if self._due:
            return self._due.popleft()
        if self.has_rounds and self._is_round_over:
            return RoundOver(self._ended_ports())
        return END_OF_INPUT if self.is_over else None

    def _ended_ports(self) -> frozenset[int]:
        """Return the ports on which nothing more comes, whatever the round."""
        open_ports = {c.port for c in self.channels if not c.is_ended}
        return frozenset(c.port for c in self.channels) - open_ports

    def wake_ns(self) -> int | None:
        """Return None: whatever comes wakes the worker."""
        return None

    def _is_held(self, channel: InputChannel) -> bool:
        """Whether rows wait for the state of their round; those from outside have none."""
        is_shut = (
            self._loop_state is not None and self._loop_state.begun <= self._rounds_done
        )
        return is_shut and channel.channel.edge.carries_rounds

    def _begin_time(self) -> None:
        timed = (c for c in self.channels if c.channel.edge.carries_time)
        self._time = EventTime(c.channel.id for c in timed if not c.is_ended)
        self._told = Watermark(BEGINNING)

    def _tell_time(self) -> None:
        """Let event time be told before anything else is taken, if it has passed."""
        watermark = self._time.watermark
        if watermark != self._told:
            self._told = watermark
            self._due.append(watermark)

    def release(self, *, is_pausing: bool) -> bool:  # noqa: ARG002 - for free loops
        """Read on: the cut is done; return whether its barrier goes round no loop."""
        commands, self._after_cut = self._after_cut, []
        self._apply(commands)
        self._ready.extendleft(reversed(self._parked))
        self._parked.clear()
        is_sealed = LOOP_SEALED in self._due
        if is_sealed:
            self._due.remove(LOOP_SEALED)
        return is_sealed

    def resume(self) -> None:
        """Do nothing: a task that pauses does not ask."""

    def _read(self, channel: InputChannel) -> None:
        """Take an element of a channel that was woken."""
        try:
            if channel.is_blocked:
                self._parked.append(channel)
            elif len(channel):
                self._note(channel, channel.take())
            elif channel.is_ended:
                self._end(channel)
        except RemoteProtocolError as error:
            error.channel = channel.channel.id
            raise

    def _end(self, channel: InputChannel) -> None:
        """Take the end of a channel."""
        self._ended.add(channel.channel.id)
        self._rounds.discard(channel.channel.id)
        self._back -= {channel.channel.id}
        self._align(ChannelEnded(channel.channel.id))
        self._time.end(channel.channel.id)
        self._tell_time()
        self._note_end(channel.port)

    def _note(self, channel: InputChannel, element: Batch | Mark) -> None:
        own = channel.channel.id
        if isinstance(element, Barrier):
            self._align(BarrierArrived(own, element))
        elif isinstance(element, RoundEnd):
            self._rounds_ended.add(own)
            self._is_flush_asked |= element.asks_flush
            self._note_end(channel.port)
        elif isinstance(element, Hops):
            channel.hops = element.count
        elif isinstance(element, Splits):
            assert channel.splits is not None, "the edge carries splits"
            channel.splits.note(element)
        elif isinstance(element, Watermark):
            assert not self._delivered, "time passes behind all that came before"
            self._time.note(own, element)
            self._tell_time()
        elif own in self._back:
            self._align(BatchArrived(own, (element, channel.hops)))
        else:
            self._delivered.append((element, channel, channel.hops))

    def _align(self, event: Event) -> None:
        """Let the aligner take an event, and do what it wants done."""
        commands = self.aligner.handle(event)
        if self.observer is not None:
            self.observer.aligned(self, event, commands)
        self._apply(commands)

    def _apply(self, commands: list[Command]) -> None:
        for number, command in enumerate(commands):
            match command:
                case BlockChannel(channel):
                    self._by_id[channel].is_blocked = True
                case UnblockChannel(channel):
                    self._by_id[channel].is_blocked = False
                case DeliverBatch(channel, (rows, hops)):
                    self._delivered.append((rows, self._by_id[channel], hops))
                case Seal(_, logged):
                    self._due.append(LOOP_SEALED)
                    self._keep_log([(self._by_id[c].port, *b) for c, b in logged])
                case Cut(barrier):
                    self._due.append(barrier)
                    self._after_cut = commands[number + 1 :]
                    return

    def _end_loop(self) -> None:
        """Wait for nothing more that would come round; it seals what was cut."""
        for channel in self._back:
            self._align(ChannelEnded(channel))
        self._back = frozenset()

    def _keep_log(self, logged: list[tuple[int, Any, int]]) -> None:
        """Take what was in flight in a loop: port, rows, hops; elsewhere nothing is."""
        assert not logged

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn nothing: how large batches are is up to their senders."""

    def _note_end(self, port: int) -> None:
        """Let the operators know if that was the last channel of a port."""
        same_port = {c.channel.id for c in self.channels if c.port == port}
        if same_port <= self._ended | self._rounds_ended:
            self._due.append(PortEnded(port))

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        channel = self._current
        if channel is None:
            return "after the last record"
        sender = f"task {channel.channel.source_index} of stage {channel.channel.edge.source}"
        if row_index is None:
            return f"in a batch of {row_count} records from {sender}"
        return f"record {channel.rows_taken - row_count + row_index} from {sender}"

    def failure(self, error: BaseException, node: Node) -> TaskFailedError:
        """Return what says that an element could not be taken."""
        return TaskFailedError(blame_at(error, node), node, self.position(None, 0))

    def validate(self) -> None:
        """Assert what event time promises; its aligner is asked where it is told."""
        self._time.validate()

    def close(self) -> None:
        """Read nothing more."""
        self._due.clear()
        self._ready.clear()
        self._parked.clear()
        self._delivered.clear()
        for channel in self.channels:
            channel.close()


def _origin(channel: InputChannel) -> str:
    return f"channel {channel.channel.id}"
