"""The intake of the tasks at which a free loop closes.

Rows of the input and rows that came round leave in the order in which they came.  At a cut,
rows that were under way in the loop are logged (abs-snapshots.md, Algorithm 2) and stored
with the snapshot; after a recovery they come round once more, before anything else.

How the loop ends is decided in `millstream.protocol.rounds`.  That needs no storing: after a
recovery the input ends again, and looking begins anew.
"""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.plan.iteration import LoopHead, Outlet, Port, place_state
from millstream.protocol.align import EpochAnnounced
from millstream.protocol.barrier import RoundEnd
from millstream.protocol.rounds import EpochPassedOn, Head, HeadPhase, HeadReady
from millstream.runtime.intake import ChannelIntake
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.operators.rounds import RoundPart
    from millstream.plan.nodes import Node
    from millstream.protocol.ids import Epoch
    from millstream.runtime.channels import InputChannel, Mark
    from millstream.state.base import ShardRange, State

    Rows = list[Any]

__all__ = ["FreeHeadIntake"]

_ANEW = b"\x01"


class FreeHeadIntake(ChannelIntake):
    """Lets rows pass, and finds out when none are left."""

    def __init__(self, node: Node, index: int, channels: list[InputChannel]) -> None:
        back = {c.channel.id for c in channels if c.channel.edge.is_back}
        super().__init__(channels, back=frozenset(back))
        assert isinstance(node.spec, LoopHead)
        self._node = node
        self._hops_max = node.spec.iteration.hops_max
        self._index = index
        self._head = Head(does_return=True)
        self._open_inputs = {c for c in self._by_id if c not in back}
        self._returned = {c.channel.id for c in channels if c.port == Port.RETURNED}
        self._rows_returned = 0
        self._outbox: deque[HeadReady] = deque()
        self._in_flight = InFlight()
        self._messages: deque[Any] = deque()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left in the loop."""
        return self._head.phase is HeadPhase.OVER and not self._back

    def states(self) -> dict[str, State]:
        """Return what was under way in the loop at the last cut."""
        return {place_state(self._node.name, has_rounds=False): self._in_flight}

    def take(self, now_ns: int) -> tuple[Rows, int] | None:  # noqa: ARG002 - as sources
        """Return a batch for the body or the decider, or None."""
        self._deliver_restored()
        if self._head.phase is HeadPhase.OVER and self.barrier is None:
            self._end_loop()
        while not self._is_interrupted():
            if self.is_holding:
                # Those who would read on have paused; the barrier still comes round.
                if not self._ready:
                    return None
                self._read(self._ready.popleft())
            elif self._outbox:
                self.outlet = Outlet.DECIDER
                return [self._outbox.popleft()], 0
            elif self._messages:
                self._hear(self._messages.popleft())
            elif self._delivered:
                taken = self._pass_on()
                if taken is not None:
                    return taken
            elif self._ready:
                self._read(self._ready.popleft())
            else:
                return None
        return None

    def _is_interrupted(self) -> bool:
        """Whether something must be done before the next batch, or there is none."""
        is_over = self._head.phase is HeadPhase.OVER
        if is_over or self.hops_due is not None:
            return True
        return bool(self.barrier) or self.is_mark_due or self.is_sealed

    def _pass_on(self) -> tuple[Rows, int] | None:
        rows, channel, hops = self._delivered[0]
        if channel.port == Port.DECISIONS:
            self._delivered.popleft()
            self._messages.extend(rows)
            return None
        self.outlet = Outlet.BODY
        if self._hops_max is not None and channel.port == Port.RETURNED:
            hops += 1
            self._check_hops(hops)
        if hops != self._hops:
            self.hops_due = self._hops = hops
            return None
        self._delivered.popleft()
        self._current = channel
        if channel.port == Port.RETURNED:
            self._rows_returned += len(rows)
        return rows, 0

    def _check_hops(self, hops: int) -> None:
        assert self._hops_max is not None
        if hops > self._hops_max:
            msg = (
                f"records went round {hops} times, and max_hops is {self._hops_max}; let "
                "the body send fewer of them round again, or raise max_hops"
            )
            raise RuntimeError(msg)

    def _hear(self, message: Any) -> None:
        if isinstance(message, EpochPassedOn):
            self._obey(self._aligner.handle(EpochAnnounced(message.barrier)))
        elif self._head.decide(message):
            if message.is_over:
                self._head.given()
            else:
                self._head.replayed()
                self.outlet = Outlet.BODY
                self.is_mark_due = True

    def _note(self, channel: InputChannel, element: Rows | Mark) -> None:
        if not isinstance(element, RoundEnd):
            super()._note(channel, element)
            return
        self._rounds_ended.add(channel.channel.id)
        if self._returned <= self._rounds_ended:
            self._rounds_ended.clear()
            self._head.returned()
            self._tell_ready()

    def _end(self, channel: InputChannel) -> None:
        super()._end(channel)
        if channel.port == Port.INPUT:
            self._open_inputs.discard(channel.channel.id)
            if not self._open_inputs and self._head.end_input():
                self._tell_ready()

    def _tell_ready(self) -> None:
        part: RoundPart = (self._rows_returned, [])
        self._rows_returned = 0
        self._outbox.append(HeadReady(self._index, self._head.decided, part))

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say which records are meant."""
        count = len(self._delivered[0][0]) if self._delivered else 0
        return f"in a batch of {count} records that came round"

    def _keep_log(self, logged: list[tuple[int, Rows, int]]) -> None:
        rows = [(batch, hops) for port, batch, hops in logged if port == Port.RETURNED]
        self._in_flight.fill(rows)

    def _deliver_restored(self) -> None:
        """Let what was under way come round before anything else."""
        restored, self._in_flight.restored = self._in_flight.restored, []
        channel = self._by_id[min(self._returned)] if restored else None
        for rows, hops in restored:
            assert channel is not None
            self._delivered.append((rows, channel, hops))


class InFlight:
    """Batches that were under way in a loop at a cut; none of them is ever stored twice."""

    def __init__(self) -> None:
        self.restored: list[tuple[Rows, int]] = []
        self._capture = _Capture()

    def capture(self, epoch: Epoch, since: Epoch) -> _Capture:  # noqa: ARG002 - all anew
        """Return what `fill` will put in, when the barrier has come round."""
        self._capture = _Capture()
        return self._capture

    def fill(self, batches: list[tuple[Rows, int]]) -> None:
        """Take the batches, with how often they had gone round."""
        self._capture.batches = batches

    def complete(self, epoch: Epoch) -> None:
        """Do nothing: every capture stands for itself."""

    def restore(self, segments: Iterable[Segment], shards: ShardRange) -> None:  # noqa: ARG002
        """Take over what was under way to one or more former tasks."""
        newest: dict[int, list[bytes]] = {}
        for segment in segments:
            if segment.payload[:1] == _ANEW:
                newest[segment.task] = []
            newest.setdefault(segment.task, []).append(segment.payload[1:])
        for task in sorted(newest):
            for payload in newest[task]:
                # The store has checked that the payloads are ours.
                self.restored += pickle.loads(payload)  # noqa: S301

    def close(self) -> None:
        """Do nothing: batches are held by nobody else."""


class _Capture:
    def __init__(self) -> None:
        self.batches: list[tuple[Rows, int]] = []

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        payload = _ANEW + pickle.dumps(self.batches, protocol=5)
        yield Segment(operator, task, SegmentKind.BATCHES, ALL_SHARDS, payload)
