"""The intake of the tasks at which a free loop closes.

Rows of the input and rows that came round leave in the order in which they came.  At a cut,
rows that were under way in the loop are logged (abs-snapshots.md, Algorithm 2) and stored
with the snapshot; after a recovery they come round once more, before anything else.

When the loop ends, and how far time has come in it, is decided in `millstream.protocol.termination`.
That needs no storing: after a recovery the input ends again, and probing begins anew.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.plan.frame_windows import TIME
from millstream.plan.iteration import LoopHead, Port, loop_position_name
from millstream.protocol.align import BatchArrived, Phase
from millstream.protocol.barrier import FLUSH, ROUND_END, Hops, RoundEnd
from millstream.protocol.rounds import HeadPhase
from millstream.protocol.termination import ProbeState
from millstream.protocol.watermark import BEGINNING, Watermark
from millstream.runtime.elements import MarkDue, TakenBatch
from millstream.runtime.loop_intake import LoopIntake
from millstream.state.base import ALL_SHARDS, Segment, SegmentKind
from millstream.state.plain import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.plan.logical import Node
    from millstream.protocol.ids import Epoch
    from millstream.protocol.rounds import Decision
    from millstream.protocol.termination import TerminationProbe
    from millstream.runtime.channels import InputChannel, Mark, OutputChannel
    from millstream.runtime.elements import Element
    from millstream.state.base import ShardRange, State
    from millstream.values import Batch

__all__ = ["FreeHeadIntake"]

_ANEW = b"\x01"
_first = itemgetter(0)


class FreeHeadIntake(LoopIntake):
    """Lets rows pass, and finds out when none are left."""

    def __init__(
        self,
        node: Node,
        index: int,
        channels: list[InputChannel],
        exits: list[OutputChannel] | None = None,
    ) -> None:
        super().__init__(index, channels, exits, is_free=True)
        assert isinstance(node.spec, LoopHead)
        self._node = node
        self._hops_max = node.spec.iteration.hops_max
        self._least_of = _least_of(node)
        self._probing = ProbeState()
        self._in_flight = InFlight()
        #: Whether those who would read on have paused, and only the barrier is read.
        self._is_holding = False

    def states(self) -> dict[str, State]:
        """Return what was under way in the loop at the last cut."""
        return {loop_position_name(self._node.name, has_rounds=False): self._in_flight}

    def release(self, *, is_pausing: bool) -> bool:
        """Read on; rows only when the barrier has come round, if `is_pausing`."""
        is_sealed = super().release(is_pausing=is_pausing)
        self._is_holding = is_pausing and not is_sealed
        return is_sealed

    def resume(self) -> None:
        """Let rows pass again."""
        self._is_holding = False

    def take(self, now_ns: int) -> Element | None:  # noqa: ARG002 - as sources
        """Return a batch for the body or the decider, or what is due."""
        self._deliver_restored()
        self._let_come_round()
        self._look_around()
        while not self._is_interrupted():
            if self._is_holding:
                if not self._ready:
                    break
                self._read(self._ready.popleft())
            elif self._outbox:
                return self._next_word()
            elif self._messages:
                self._hear(self._messages.popleft())
            elif self._left:
                self._end(self._left.popleft())
            elif self._delivered:
                taken = self._pass_on()
                if taken is not None:
                    return taken
            elif self._ready:
                self._read(self._ready.popleft())
            else:
                break
        return self._next_due()

    def _let_come_round(self) -> None:
        """Log what was under way at the last cut, though nobody reads what it becomes.

        Who reads no more today may do so again after a recovery.
        """
        while self._is_unsettled and self._ready and not self._due:
            self._read(self._ready.popleft())
            self._delivered.clear()

    @property
    def _is_unsettled(self) -> bool:
        is_logging = self.aligner.phase is Phase.LOGGING
        return is_logging and self._is_unread and self._head.phase is HeadPhase.OVER

    def _end_loop(self) -> None:
        if not self._is_unsettled:
            super()._end_loop()

    def _pass_on(self) -> TakenBatch | MarkDue | None:
        rows, channel, hops = self._delivered[0]
        if channel.port == Port.DECISIONS:
            self._delivered.popleft()
            self._messages.extend(rows)
            return None
        if isinstance(rows, Watermark | RoundEnd):
            self._delivered.popleft()
            self._pass_mark(channel, rows)
            return None
        if self._is_unread:
            self._delivered.popleft()
            return None
        if self._hops_max is not None and channel.port == Port.RETURNED:
            hops += 1
            self._check_hops(hops)
        if hops != self._hops:
            self._hops = hops
            return MarkDue(Hops(hops))
        self._delivered.popleft()
        self._current = channel
        if channel.port == Port.RETURNED:
            self._probing.come_back(len(rows), self._least_of(rows))
        return TakenBatch(rows)

    def _pass_mark(self, channel: InputChannel, mark: Watermark | RoundEnd) -> None:
        """Take note of a mark, now that all rows in front of it were passed on."""
        if isinstance(mark, Watermark):
            before = self._time.watermark
            self._time.note(channel.channel.id, mark)
            if self._time.watermark != before:
                self._tell_news()
            return
        self._rounds_ended.add(channel.channel.id)
        if self._returned <= self._rounds_ended:
            self._rounds_ended.clear()
            self._head.returned()
            self._probing.end()
            self._tell_news()

    def _end(self, channel: InputChannel) -> None:
        before = self._time.watermark
        super()._end(channel)
        if self._open_inputs and self._time.watermark != before:
            self._tell_news()

    def _check_hops(self, hops: int) -> None:
        assert self._hops_max is not None
        if hops > self._hops_max:
            msg = (
                f"records went round {hops} times, and max_hops is {self._hops_max}; let "
                "the body send fewer of them round again, or raise max_hops"
            )
            raise RuntimeError(msg)

    def _carry_out(self, decision: Decision) -> None:
        probe: TerminationProbe = decision.value
        if decision.is_over:
            self._head.given()
            return
        self._head.replayed()
        self._probing.begin(self._watermark())
        if probe.watermark != self._told:
            self._told = probe.watermark
            self._due.append(probe.watermark)
        self._due.append(MarkDue(FLUSH if probe.asks_flush else ROUND_END))

    def _note(self, channel: InputChannel, element: Batch | Mark) -> None:
        if isinstance(element, Watermark):
            self._delivered.append((element, channel, channel.hops))
        elif isinstance(element, RoundEnd):
            # Rows in front of it may have to wait for a cut.
            self._align(BatchArrived(channel.channel.id, (element, channel.hops)))
        else:
            super()._note(channel, element)

    def _end_input(self) -> None:
        self._tell_news()

    def _tell_news(self) -> None:
        """Tell the decider what is known now, unless a probe is under way."""
        if self._head.phase is HeadPhase.COLLECTING:
            self._tell_ready(self._probing.part(self._watermark()))

    def _watermark(self) -> Watermark | None:
        """Return what the input has as its watermark; None if it is over."""
        return self._time.watermark if self._open_inputs else None

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say which records are meant."""
        return "in records that came round"

    def _keep_log(self, logged: list[tuple[int, Any, int]]) -> None:
        self._is_holding = False
        returned = [(b, hops) for port, b, hops in logged if port == Port.RETURNED]
        self._in_flight.fill([b for b in returned if not isinstance(b[0], RoundEnd)])

    def _deliver_restored(self) -> None:
        """Let what was under way come round before anything else."""
        restored, self._in_flight.restored = self._in_flight.restored, []
        channel = self._by_id[min(self._returned)] if restored else None
        for rows, hops in restored:
            assert channel is not None
            self._delivered.append((rows, channel, hops))


def _least_of(node: Node) -> Callable[[Any], int]:
    """Return what finds the least timestamp of a batch that comes back to a head."""
    if not node.takes_times:
        return lambda _rows: BEGINNING
    if node.makes_frames:
        return lambda frame: int(frame[TIME].min())
    return lambda rows: int(min(map(_first, rows)))


class InFlight:
    """Batches that were under way in a loop at a cut; none of them is ever stored twice."""

    def __init__(self) -> None:
        self.restored: list[tuple[Batch, int]] = []
        self._capture = _Capture()

    def capture(self, epoch: Epoch, since: Epoch) -> _Capture:  # noqa: ARG002 - all anew
        """Return what `fill` will put in, when the barrier has come round."""
        self._capture = _Capture()
        return self._capture

    def fill(self, batches: list[tuple[Batch, int]]) -> None:
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
                self.restored += decode(payload)

    def close(self) -> None:
        """Do nothing: batches are held by nobody else."""


class _Capture:
    def __init__(self) -> None:
        self.batches: list[tuple[Batch, int]] = []

    def segments(self, operator: str, task: int) -> Iterator[Segment]:
        payload = _ANEW + encode(self.batches)
        yield Segment(operator, task, SegmentKind.BATCHES, ALL_SHARDS, payload)
