"""The two ends of a channel, with its buffer, its credit and its sequence numbers.

An `OutputChannel` collects rows and sends a batch when it is full or its timer fires
(rstream.md, section IV-B.2).  How a batch reaches the other end is the *carrier*'s
business: by reference on the same worker, as a packet between two.

A *mark* - a barrier, a watermark, the end of a round, a number of hops, a word on splits -
leaves behind all rows that were put in before it and takes no credit.

A *back channel* closes a loop.  It takes batches off its carrier at once and keeps them, on
disk if there are many, so that its writer is never without credit: a writer that waited for
its own reader would wait for ever.

Credit: the reader grants bytes (between workers) or batches (on one worker).  A writer
without credit keeps its rows, which blocks its task; so back-pressure reaches the
source through every stage without an unbounded buffer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError, TransportError
from millstream.protocol.barrier import Barrier, Hops, RoundEnd, Splits
from millstream.protocol.packets import Packet, PacketKind
from millstream.protocol.watermark import Watermark
from millstream.runtime.chain import TaskFailedError
from millstream.state.batches import joined
from millstream.state.spill_buffer import SpillBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.config import BufferPolicy
    from millstream.plan.logical import Node
    from millstream.plan.physical import Channel
    from millstream.ports import Network
    from millstream.protocol.ids import Generation, PeerId
    from millstream.runtime.splits import SplitsReader
    from millstream.state.spill_buffer import BufferedBatch
    from millstream.values import Batch

__all__ = [
    "BackChannel",
    "CreditReturn",
    "InputChannel",
    "LocalCarrier",
    "Mark",
    "OutputChannel",
    "RemoteCarrier",
]

Mark = Barrier | Watermark | RoundEnd | Hops | Splits

_CREDIT_PARTS = 4
"""A reader returns credit in quarters of the window, not packet by packet."""

_FIRST_ROWS = 64
"""Rows of the first packet, before anything is known about their size."""


class InputChannel:
    """The reading end of a channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.port = channel.edge.port
        self.is_ended = False
        self.is_closed = False
        #: Not to be read until the cut that its barrier belongs to.
        self.is_blocked = False
        #: How often what is being taken has gone round a free loop.
        self.hops = 0
        #: The splits that its rows come from, where that is told.
        self.splits: SplitsReader | None = None
        #: Rows taken so far; tells where a failing row was.
        self.rows_taken = 0
        #: Whether batches come from another worker, so that they cost bytes.
        self.is_remote = False
        #: Bytes of the batches that came from another worker and were taken.
        self.bytes_taken = 0
        self._queue: deque[tuple[Batch | Mark, int]] = deque()
        #: Called with every element that came.
        self.wake: Callable[[InputChannel], None] = _no_wake
        self._sequence = 0
        self._epoch = 0
        #: Returns `cost` to the writer.
        self.grant: Callable[[int], None] = _no_grant
        #: Tells the writer that nothing more will be read.
        self.tell_closed: Callable[[], None] = _no_news

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def batch_count(self) -> int:
        """Batches that wait; marks take no room that anybody has to grant."""
        return sum(not isinstance(body, Mark) for body, _ in self._queue)

    @property
    def row_count(self) -> int:
        """Rows that wait."""
        return sum(len(body) for body, _ in self._queue if not isinstance(body, Mark))

    @property
    def is_barrier_next(self) -> bool:
        """Whether `take` would return a barrier."""
        return bool(self._queue) and isinstance(self._queue[0][0], Barrier)

    def receive(
        self, kind: PacketKind, sequence: int, body: Batch | Mark, cost: int
    ) -> None:
        """Take the next element of the channel from its carrier."""
        if sequence != self._sequence:
            msg = (
                f"element {sequence} arrived on channel {self.channel.id} where "
                f"element {self._sequence} was due"
            )
            raise RemoteProtocolError(msg)
        if self.is_ended:
            msg = f"an element arrived on channel {self.channel.id} after its end"
            raise RemoteProtocolError(msg)
        if isinstance(body, Barrier):
            self._check_epoch(body)
        self._sequence += 1
        if kind is PacketKind.END:
            self.is_ended = True
        elif self.is_closed:
            return
        else:
            self._keep(body, cost)
        self.wake(self)

    def _check_epoch(self, barrier: Barrier) -> None:
        if barrier.epoch <= self._epoch:
            msg = (
                f"the barrier of epoch {barrier.epoch} arrived on channel "
                f"{self.channel.id} behind that of epoch {self._epoch}"
            )
            raise RemoteProtocolError(msg)
        self._epoch = barrier.epoch

    def take(self) -> Batch | Mark:
        """Return the oldest element and give its credit back."""
        body, cost = self._queue.popleft()
        if not isinstance(body, Mark):
            self.rows_taken += len(body)
            if self.is_remote:
                self.bytes_taken += cost
            if not self.is_ended:
                self.grant(cost)
        return body

    def _keep(self, body: Batch | Mark, cost: int) -> None:
        self._queue.append((body, cost))

    def close(self) -> None:
        """Read nothing more, whatever still comes."""
        if not self.is_closed:
            self.is_closed = True
            self._queue.clear()
            if not self.is_ended:
                self.tell_closed()


class BackChannel(InputChannel):
    """The reading end of a channel that closes a loop."""

    def __init__(self, channel: Channel, memory_bytes: int) -> None:
        super().__init__(channel)
        self._spill_buffer = SpillBuffer(memory_bytes)
        self._elements: deque[BufferedBatch | Mark] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def batch_count(self) -> int:
        """None that anybody has to grant room for."""
        return 0

    @property
    def is_barrier_next(self) -> bool:
        """Whether `take` would return a barrier."""
        return bool(self._elements) and isinstance(self._elements[0], Barrier)

    def take(self) -> Batch | Mark:
        """Return the oldest element."""
        element = self._elements.popleft()
        if isinstance(element, Mark):
            return element
        self._spill_buffer.free([element])
        rows: Batch = element.load()
        self.rows_taken += len(rows)
        return rows

    def close(self) -> None:
        """Read nothing more, whatever still comes."""
        self._elements.clear()
        super().close()

    def _keep(self, body: Batch | Mark, cost: int) -> None:
        if isinstance(body, Mark):
            self._elements.append(body)
        else:
            self._elements.append(self._spill_buffer.put(body))
            if self.is_remote:
                self.bytes_taken += cost
            self.grant(cost)


class LocalCarrier:
    """Passes batches by reference to a task of the same worker."""

    def __init__(self, target: InputChannel, batches_max: int) -> None:
        self._target = target
        self._credit = self._batches_max = batches_max
        self._sequence = 0
        target.grant = self._grant

    @property
    def has_credit(self) -> bool:
        """Whether a batch may be sent now."""
        return self._credit > 0

    @property
    def credit(self) -> tuple[int, int]:
        """Batches of credit in use, and how many there are."""
        return self._batches_max - self._credit, self._batches_max

    @property
    def rows_max(self) -> int | None:
        """Most rows of a batch; a reference costs the same for any number."""
        return None

    def send(self, rows: Batch) -> None:
        """Hand a batch over; takes one batch of credit."""
        self._credit -= 1
        self._target.receive(PacketKind.BATCH, self._sequence, rows, 1)
        self._sequence += 1

    def send_mark(self, mark: Mark) -> None:
        """Hand a mark over."""
        self._target.receive(_kind(mark), self._sequence, mark, 0)
        self._sequence += 1

    def end(self) -> None:
        """Hand the end over."""
        self._target.receive(PacketKind.END, self._sequence, [], 0)

    def _grant(self, batches: int) -> None:
        self._credit += batches


class RemoteCarrier:
    """Sends batches as packets to the worker that hosts the reading task.

    Parameters
    ----------
    sender
        The operator that made the rows.
    """

    def __init__(
        self,
        channel: Channel,
        network: Network,
        peer: PeerId,
        generation: Generation,
        credit_bytes: int,
        *,
        sender: Node,
    ) -> None:
        self._channel = channel
        self._sender = sender
        self._network = network
        self._peer = peer
        self._generation = generation
        self._credit = self._credit_bytes = credit_bytes
        self._packet_bytes = max(1, credit_bytes // _CREDIT_PARTS)
        self._rows_max = _FIRST_ROWS
        self._sequence = 0
        #: Bytes of all batches that were sent.
        self.bytes_sent = 0

    @property
    def has_credit(self) -> bool:
        """Whether a batch may be sent now; the last one may overdraw."""
        return self._credit > 0

    @property
    def credit(self) -> tuple[int, int]:
        """Bytes of credit in use, and how many there are."""
        return self._credit_bytes - self._credit, self._credit_bytes

    @property
    def rows_max(self) -> int:
        """Most rows of a batch, so that one of large rows does not overdraw by much."""
        return self._rows_max

    def send(self, rows: Batch) -> None:
        """Send a batch; one too long for a packet is cut in halves.

        Whoever asks for it, a task or a timer: what cannot be sent is held against the
        operator that made it.
        """
        try:
            cost = self._network.send(self._peer, self._packet(PacketKind.BATCH, rows))
        except Exception as error:
            if len(rows) == 1 or not isinstance(error, TransportError):
                text = f"while sending {len(rows)} records on"
                raise TaskFailedError(None, self._sender, text) from error
            middle = len(rows) // 2
            self.send(rows[:middle])
            self.send(rows[middle:])
            return
        self._credit -= cost
        self.bytes_sent += cost
        self._sequence += 1
        self._rows_max = max(1, len(rows) * self._packet_bytes // max(1, cost))

    def send_mark(self, mark: Mark) -> None:
        """Send a mark."""
        self._network.send(self._peer, self._packet(_kind(mark), mark))
        self._sequence += 1

    def end(self) -> None:
        """Send the end."""
        self._network.send(self._peer, self._packet(PacketKind.END, None))

    def add_credit(self, amount: int) -> None:
        """Take back what the reader granted."""
        if self._credit + amount > self._credit_bytes:
            msg = (
                f"{amount} bytes of credit came back on channel {self._channel.id}, of "
                f"which at most {self._credit_bytes - self._credit} were taken"
            )
            raise RemoteProtocolError(msg)
        self._credit += amount

    def _packet(self, kind: PacketKind, body: Batch | Mark | None) -> Packet:
        return Packet(kind, self._generation, self._channel.id, self._sequence, body)


class CreditReturn:
    """Collects what a reader consumed and grants it in larger amounts."""

    def __init__(
        self,
        channel: Channel,
        network: Network,
        peer: PeerId,
        generation: Generation,
        credit_bytes: int,
    ) -> None:
        self._channel = channel
        self._network = network
        self._peer = peer
        self._generation = generation
        self._pending_output = 0
        self._threshold = max(1, credit_bytes // _CREDIT_PARTS)

    def grant(self, cost: int) -> None:
        """Owe the writer `cost` bytes more, and pay when it is worth a packet."""
        self._pending_output += cost
        if self._pending_output >= self._threshold:
            self._send(PacketKind.CREDIT, self._pending_output)
            self._pending_output = 0

    def tell_closed(self) -> None:
        """Tell the writer that nothing more will be read."""
        self._send(PacketKind.CLOSE, None)

    def _send(self, kind: PacketKind, body: int | None) -> None:
        packet = Packet(kind, self._generation, self._channel.id, 0, body)
        self._network.send(self._peer, packet)


class OutputChannel:
    """The writing end of a channel: a buffer in front of a carrier.

    The buffer is the list of the batches that were put in; they are joined when they
    leave, so a full batch passes through as it is and no batch is ever changed.
    """

    def __init__(
        self,
        channel: Channel,
        carrier: LocalCarrier | RemoteCarrier,
        set_timer: Callable[[int, OutputChannel], None],
    ) -> None:
        self.channel = channel
        self.carrier = carrier
        self.is_closed = False
        #: Rows put in so far.
        self.rows_put = 0
        self._policy: BufferPolicy = channel.edge.buffer
        self._parts: list[Batch] = []
        self._row_count = 0
        self._is_due = False
        #: Waits for the rows before it to leave; its task puts nothing in meanwhile.
        self._mark: Mark | None = None
        self._deadline_ns: int | None = None
        self._set_timer = set_timer

    @property
    def rows_waiting(self) -> int:
        """Rows that were put in and have not left."""
        return self._row_count

    @property
    def is_blocked(self) -> bool:
        """Whether it holds rows that should have left."""
        return self._is_due or self._row_count >= self._policy.rows

    def put(self, rows: Batch, now_ns: int) -> None:
        """Buffer rows and send the batches that are full."""
        if self.is_closed or len(rows) == 0:
            return
        was_empty = not self._parts
        self._parts.append(rows)
        self.rows_put += len(rows)
        self._row_count += len(rows)
        if self._row_count >= self._policy.rows:
            self.send_ready()
        timeout_ns = self._policy.timeout_ns
        if was_empty and self._parts and timeout_ns is not None:
            self._deadline_ns = now_ns + timeout_ns
            self._set_timer(self._deadline_ns, self)

    def send_ready(self) -> None:
        """Send what is due as far as credit allows."""
        if not self._parts or not self.carrier.has_credit:
            return
        rows, size, start = joined(self._parts), self._policy.rows, 0
        end = len(rows) if self._is_due else len(rows) - len(rows) % size
        while start < end and self.carrier.has_credit:
            stop = min(start + min(size, self.carrier.rows_max or size), end)
            is_whole = start == 0 and stop == len(rows)
            self.carrier.send(rows if is_whole else rows[start:stop])
            start = stop
        rest = rows[start:] if start else rows
        self._row_count = len(rest)
        self._parts = [rest] if len(rest) > 0 else []
        if not self._parts:
            self._is_due, self._deadline_ns = False, None
            self._send_mark()

    def put_mark(self, mark: Mark) -> None:
        """Send everything, then the mark, as soon as credit allows."""
        assert self._mark is None, "a task waits until its last mark has left"
        if self.is_closed:
            return
        self._mark = mark
        if self._parts:
            self.flush()
        else:
            self._send_mark()

    def _send_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            self.carrier.send_mark(mark)

    def fire_timer(self, deadline_ns: int) -> None:
        """Send the buffer if this is still the timer of its oldest row."""
        if self._deadline_ns == deadline_ns:
            self.flush()

    def flush(self) -> None:
        """Send everything as soon as credit allows."""
        self._is_due = bool(self._parts)
        self.send_ready()

    def end(self) -> None:
        """Say that nothing follows; the buffer must be empty."""
        assert not self._parts
        if not self.is_closed:
            self.carrier.end()

    def close(self) -> None:
        """Drop everything: the reader wants nothing more."""
        self.is_closed, self._parts, self._row_count = True, [], 0
        self._is_due, self._mark = False, None


_KIND_OF: dict[type[Mark], PacketKind] = {
    Barrier: PacketKind.BARRIER,
    Watermark: PacketKind.WATERMARK,
    RoundEnd: PacketKind.ROUND,
    Hops: PacketKind.HOPS,
    Splits: PacketKind.SPLITS,
}


def _kind(mark: Mark) -> PacketKind:
    return _KIND_OF[type(mark)]


def _no_wake(_channel: InputChannel) -> None:
    """Stand in until a task reads the channel."""


def _no_grant(_cost: int) -> None:
    """Stand in until a carrier is attached."""


def _no_news() -> None:
    """Stand in until a carrier is attached."""
