"""Where a task's batches come from: input channels, or the splits of a source.

Both answer `take` with a batch, with None when there is nothing now, and know when
nothing will ever come again.  When the barriers of an epoch are aligned, `barrier` is
the one to cut at; nothing more is taken until `release`.  When event time has gone on,
`watermark_due` tells how far.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.errors import RemoteProtocolError
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
from millstream.protocol.barrier import Barrier, Hops, RoundEnd, Splits
from millstream.protocol.watermark import BEGINNING, EventTime, Watermark
from millstream.runtime.channels import Mark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.config import Config
    from millstream.connectors.base import Source, SourceReader, Split
    from millstream.plan.iteration import RoundState
    from millstream.protocol.align import Command
    from millstream.protocol.batching import BatchSize
    from millstream.protocol.ids import ChannelId
    from millstream.protocol.messages import Offset
    from millstream.runtime.channels import InputChannel
    from millstream.state.base import State
    from millstream.values import Batch as Rows

__all__ = ["ChannelIntake", "Intake", "SourceIntake"]


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
        Whether that is no iteration but a free loop, whose rounds are only looks.
    """

    #: Where what is taken leaves the task; only heads of iterations have several.
    outlet = 0
    #: Whether the end of a round must leave at `outlet` before anything else.
    is_mark_due = False
    #: Whether the operators of a free loop flush for the last time before that.
    is_flush_due = False
    #: Hop count of the next batch, if it differs from the last one sent.
    hops_due: int | None = None
    #: True while paused, except for draining this loop's in-flight batches.
    is_holding = False

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
        #: The cut that is due.
        self.barrier: Barrier | None = None
        #: Whether the barrier of the last cut has come round every loop just now.
        self.is_sealed = False
        self._by_id: dict[ChannelId, InputChannel] = {c.channel.id: c for c in channels}
        self._back = back
        self._aligner = Aligner([c for c in self._by_id if c not in back], back)
        self._after_cut: list[Command] = []
        self._ready: deque[InputChannel] = deque()
        #: Wake-ups of blocked channels, in order.
        self._parked: list[InputChannel] = []
        #: Batches that may be given to the operators, before any others; at heads of
        #: free loops also watermarks.
        self._delivered: deque[tuple[Any, InputChannel, int]] = deque()
        #: How far event time has come, where that has not been told.
        self.watermark_due: Watermark | None = None
        self._begin_time()
        self._hops = 0
        self._current: InputChannel | None = None
        self._over_ports: list[int] = []
        #: Whether the task is in the body of an iteration.
        self.has_rounds = bool(rounds) and not is_free
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
    def is_ready(self) -> bool:
        """Whether `take` may have something to do now."""
        return bool(self._ready or self._delivered)

    @property
    def is_round_over(self) -> bool:
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
    def ended_ports(self) -> frozenset[int]:
        """Ports on which nothing more comes, whatever the round."""
        open_ports = {c.port for c in self.channels if not c.is_ended}
        return frozenset(c.port for c in self.channels) - open_ports

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
        """Take the rows of the next round, or of the time until the next look."""
        if self.has_rounds:
            self._begin_time()
        self._rounds_ended.clear()
        self._rounds_done += 1
        self.is_flush_due = False

    def announce(self, barrier: Barrier) -> None:
        """Channels bring the barrier; the announcement is for those without any."""

    def offsets(self) -> tuple[Offset, ...]:
        """Return nothing: channels are empty at a cut."""
        return ()

    def states(self) -> dict[str, State]:
        """Return what it remembers, by name."""
        return {}

    def take(self, now_ns: int) -> tuple[Rows, int] | None:  # noqa: ARG002 - as sources
        """Return a batch and its input port, or None."""
        while self.barrier is None and (self._delivered or self._ready):
            if self._has_time_passed():
                return None
            if self._delivered:
                if self._is_held(self._delivered[0][1]):
                    return None
                if self._delivered[0][2] != self._hops:
                    self.hops_due = self._hops = self._delivered[0][2]
                    return None
                rows, self._current, _ = self._delivered.popleft()
                return rows, self._current.port
            self._read(self._ready.popleft())
        self._has_time_passed()
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

    def _has_time_passed(self) -> bool:
        """Whether event time must be told before anything else is taken."""
        watermark = self._time.watermark
        if self.barrier is None and watermark != self._told:
            self.watermark_due = self._told = watermark
        return self.watermark_due is not None

    def release(self) -> None:
        """Read on: the cut is done."""
        self.barrier = None
        commands, self._after_cut = self._after_cut, []
        self._apply(commands)
        self._ready.extendleft(reversed(self._parked))
        self._parked.clear()

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
        self._rounds.discard(channel.channel.id)
        self._back -= {channel.channel.id}
        self._time.end(channel.channel.id)
        self._note_end(channel.port)
        self._apply(self._aligner.handle(ChannelEnded(channel.channel.id)))

    def _note(self, channel: InputChannel, element: Rows | Mark) -> None:
        own = channel.channel.id
        if isinstance(element, Barrier):
            self._apply(self._aligner.handle(BarrierArrived(own, element)))
        elif isinstance(element, RoundEnd):
            self._rounds_ended.add(own)
            self.is_flush_due |= element.asks_flush
            self._note_end(channel.port)
        elif isinstance(element, Hops):
            channel.hops = element.count
        elif isinstance(element, Splits):
            assert channel.splits is not None, "the edge carries splits"
            channel.splits.note(element)
        elif isinstance(element, Watermark):
            assert not self._delivered, "time passes behind all that came before"
            self._time.note(own, element)
        elif own in self._back:
            batch = (element, channel.hops)
            self._apply(self._aligner.handle(BatchArrived(own, batch)))
        else:
            self._delivered.append((element, channel, channel.hops))

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
                    self.is_sealed = True
                    self._keep_log([(self._by_id[c].port, *b) for c, b in logged])
                case Cut(barrier):
                    self.barrier = barrier
                    self._after_cut = commands[number + 1 :]
                    return

    def _end_loop(self) -> None:
        """Wait for nothing more that would come round; it seals what was cut."""
        for channel in self._back:
            self._apply(self._aligner.handle(ChannelEnded(channel)))
        self._back = frozenset()

    def _keep_log(self, logged: list[tuple[int, Any, int]]) -> None:
        """Take what was in flight in a loop: port, rows, hops; elsewhere nothing is."""
        assert not logged

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn nothing: how large batches are is up to their senders."""

    def over_ports(self) -> list[int]:
        """Return the input ports that ended since the last time."""
        ports, self._over_ports = self._over_ports, []
        return ports

    def _note_end(self, port: int) -> None:
        same_port = [c for c in self.channels if c.port == port]
        if all(self._has_ended(c) for c in same_port):
            self._over_ports.append(port)

    def _has_ended(self, channel: InputChannel) -> bool:
        """Whether all has been taken of a channel, or all of this round."""
        is_over = channel.is_ended and not len(channel)
        return is_over or channel.channel.id in self._rounds_ended

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        channel = self._current
        if channel is None:
            return "after the last record"
        sender = f"task {channel.channel.source_index} of stage {channel.channel.edge.source}"
        if row_index is None:
            return f"in a batch of {row_count} records from {sender}"
        return f"record {channel.rows_taken - row_count + row_index} from {sender}"

    def close(self) -> None:
        """Read nothing more."""
        self._ready.clear()
        self._parked.clear()
        self._delivered.clear()
        for channel in self.channels:
            channel.close()


class SourceIntake:
    """Reads the splits of a source that belong to a task, a batch of each in turn.

    It is in no loop.

    Parameters
    ----------
    operator
        Name of the source in the plan.
    offsets
        Where to go on in splits that were read before; None in those read to the end.
    """

    outlet = 0
    is_mark_due = False
    is_flush_due = False
    hops_due: int | None = None
    watermark_due: Watermark | None = None
    has_rounds = False
    is_round_over = False
    ended_ports: frozenset[int] = frozenset()
    is_sealed = False
    is_holding = False
    knows_splits = True

    def __init__(
        self,
        operator: str,
        source: Source[Any],
        splits: list[Split],
        config: Config,
        offsets: Mapping[str, int | None],
        *,
        frame_size: BatchSize | None = None,
    ) -> None:
        #: The cut that is due.
        self.barrier: Barrier | None = None
        self._operator = operator
        self._source = source
        self._config = config
        self._announced: deque[Barrier] = deque()
        self._begin_at = dict(offsets)
        #: How far splits had been read that were left before their end.
        self._left: dict[str, int] = {}
        self._done = [name for name, offset in offsets.items() if offset is None]
        self._waiting = deque(s for s in splits if s.name not in self._done)
        #: How large the data frames should be, if it makes such.
        self._frame_size = frame_size
        self._open: deque[tuple[Split, SourceReader[Any]]] = deque()
        self._current: tuple[Split, int, int] | None = None
        self._rows_of: dict[str, int] = {}
        self._idle_ns = round(config.source_idle_ms * 1_000_000)
        #: When an idle source should be asked again.
        self.idle_until_ns: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether every split has been read to its end."""
        return not self._open and not self._waiting

    @property
    def is_ready(self) -> bool:
        """A source is always worth asking, unless it was idle a moment ago."""
        return not self.is_over

    @property
    def origin(self) -> str:
        """Name of the split that the last batch came from."""
        return "" if self._current is None else self._current[0].name

    def open_origins(self, *, are_waiting: bool) -> list[str]:
        """Return the splits that have not been read to their end, or only begun ones."""
        waiting = [s.name for s in self._waiting] if are_waiting else []
        return [s.name for s, _ in self._open] + waiting

    def take(self, now_ns: int) -> tuple[Rows, int] | None:
        """Return a batch and port 0, or None."""
        if self._announced and not self.is_over:
            # What had ended before the snapshot that is restored ends without a barrier.
            self.barrier = self._announced.popleft()
            return None
        if self.idle_until_ns is not None and now_ns < self.idle_until_ns:
            return None
        self.idle_until_ns = None
        idle_count = 0
        while self._open_next():
            split, reader = self._open[0]
            rows = reader.read(self._batch_rows)
            if rows is None:
                reader.close()
                self._open.popleft()
                self._done.append(split.name)
                continue
            if len(rows) > 0:
                self._note(split, reader, len(rows))
                if not self._source.is_bounded:
                    self._open.rotate(-1)
                return rows, 0
            self._open.rotate(-1)
            idle_count += 1
            if idle_count >= len(self._open):
                self.idle_until_ns = now_ns + self._idle_ns
                return None
        return None

    @property
    def _batch_rows(self) -> int:
        size = self._frame_size
        return self._config.source_batch_rows if size is None else size.rows

    def note_time(self, rows: int, elapsed_ns: int) -> None:
        """Learn how long it took to read and process a batch."""
        if self._frame_size is not None:
            self._frame_size.note(rows, elapsed_ns)

    def _open_next(self) -> bool:
        """Open the next split: of a bounded source one by one, else all at once."""
        open_max = 1 if self._source.is_bounded else self._config.open_splits_max
        while self._waiting and len(self._open) < open_max:
            split = self._waiting.popleft()
            offset = self._begin_at.get(split.name) or 0
            self._open.append((split, self._source.open(split, offset, self._config)))
        return bool(self._open)

    def announce(self, barrier: Barrier) -> None:
        """Let the task cut before it takes the next batch."""
        self._announced.append(barrier)
        self.idle_until_ns = None

    def begin_round(self) -> None:
        """Do nothing: rounds do not come to sources."""

    def states(self) -> dict[str, State]:
        """Return nothing: how far it has read is told by `offsets`."""
        return {}

    def release(self) -> None:
        """Read on: the cut is done."""
        self.barrier = None
        self.is_sealed = True

    def offsets(self) -> tuple[Offset, ...]:
        """Return how far every split has been read that has been begun."""
        began = {split.name: reader.offset for split, reader in self._open}
        waiting = {
            split.name: self._begin_at[split.name]
            for split in self._waiting
            if self._begin_at.get(split.name) is not None
        }
        places = [
            (name, offset or 0, False)
            for name, offset in (began | waiting | self._left).items()
        ]
        places += [(name, 0, True) for name in self._done]
        return tuple((self._operator, *place) for place in places)

    def _note(self, split: Split, reader: SourceReader[Any], row_count: int) -> None:
        before = self._rows_of.get(split.name, 0)
        self._rows_of[split.name] = before + row_count
        self._current = (split, before, reader.offset)

    def over_ports(self) -> list[int]:
        """Return no ports: a source has one input, and `is_over` tells its end."""
        return []

    def position(self, row_index: int | None, row_count: int) -> str:
        """Say which row of the last batch is meant."""
        if self._current is None:
            return "before the first record"
        split, before, offset = self._current
        if row_index is None:
            return f"in a batch of {row_count} records of {split.name} before offset {offset}"
        begin = self._begin_at.get(split.name)
        since = f" after offset {begin}" if begin else ""
        return f"record {before + row_index}{since} of {split.name}"

    def reading(self) -> str:
        """Say what was being read, where that failed."""
        if not self._open:
            return "while opening what is read next"
        name = self._open[0][0].name
        count = self._rows_of.get(name, 0)
        return f"while reading {name}" + (f" after {count} records" if count else "")

    def close(self) -> None:
        """Close every reader, and remember how far each had come."""
        while self._open:
            split, reader = self._open.popleft()
            self._left[split.name] = reader.offset
            reader.close()
        self._left |= {s.name: self._begin_at.get(s.name) or 0 for s in self._waiting}
        self._waiting.clear()


def _origin(channel: InputChannel) -> str:
    return f"channel {channel.channel.id}"


Intake = ChannelIntake | SourceIntake
