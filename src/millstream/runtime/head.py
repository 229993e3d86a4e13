"""The intakes of the tasks that run an iteration: its heads, and its decider.

What they do when is decided in `millstream.protocol.rounds`, what heads hold is in
`millstream.operators.rounds`; here both meet channels, epochs and recoveries.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.operators.deciding import FROM_OUTSIDE
from millstream.plan.iteration import Outlet, Port, place_state
from millstream.protocol.align import EpochAnnounced
from millstream.protocol.barrier import RoundEnd
from millstream.protocol.rounds import (
    Decision,
    EpochPassedOn,
    Head,
    HeadPhase,
    HeadReady,
)
from millstream.runtime.intake import ChannelIntake
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.operators.rounds import Round
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import ChannelId
    from millstream.runtime.channels import InputChannel, Mark
    from millstream.state.base import State

    Rows = list[Any]

__all__ = ["DeciderIntake", "HeadIntake"]


class HeadIntake(ChannelIntake):
    """Collects the input of an iteration, replays rounds, and gives the result.

    While it replays or gives it reads no channel, so that no cut falls in between.  An
    epoch that was passed on in front of a decision is cut before that is carried out, even
    if the one before it has not gone round.
    """

    def __init__(
        self,
        name: str,
        index: int,
        channels: list[InputChannel],
        held: Round,
        *,
        is_nested: bool,
    ) -> None:
        back = {c.channel.id for c in channels if c.channel.edge.is_back}
        super().__init__(channels, back=frozenset(back))
        self._name = name
        self._index = index
        self._held = held
        inputs = self._of_port(Port.INPUT)
        self._open_inputs = set(inputs)
        self._inputs = inputs if is_nested else set()
        self._returned = self._of_port(Port.RETURNED)
        self._head = Head(does_return=bool(self._returned), is_nested=is_nested)
        self._outbox: deque[HeadReady] = deque()
        self._messages: deque[Any] = deque()
        self._giving: Iterator[Any] = iter(())
        #: Wake-ups of channels with rows of a round that has not begun here.
        self._early: list[InputChannel] = []
        self._rounds_state = TaskState(self._kept, self._put)

    @property
    def is_over(self) -> bool:
        """Whether the result has been given, or nothing will ever begin."""
        return self._head.phase is HeadPhase.OVER and not self._back

    def states(self) -> dict[str, State]:
        """Return what it holds, and where it stands."""
        return {
            self._name: self._held.state,
            place_state(self._name, has_rounds=True): self._rounds_state,
        }

    def take(self, now_ns: int) -> tuple[Rows, int] | None:  # noqa: ARG002 - as sources
        """Return a batch for the body, the decider or what follows, or None."""
        if self._head.phase is HeadPhase.OVER and self.barrier is None:
            self._end_loop()
        while not self._is_interrupted():
            if self._outbox:
                self.outlet = Outlet.DECIDER
                return [self._outbox.popleft()], 0
            if self._head.phase in {HeadPhase.REPLAYING, HeadPhase.GIVING}:
                batch = self._next_batch()
                if batch is not None:
                    return batch, 0
            elif self._messages and not self._aligner.is_cut_due:
                self._hear(self._messages.popleft())
            elif self._delivered:
                rows, channel, _ = self._delivered.popleft()
                self._take_in(rows, channel)
            elif self._ready:
                self._read(self._ready.popleft())
            else:
                return None
        return None

    def _is_interrupted(self) -> bool:
        """Whether something must be done before the next batch, or there is none."""
        is_over = self._head.phase is HeadPhase.OVER
        return is_over or bool(self.barrier) or self.is_mark_due or self.is_sealed

    def _read(self, channel: InputChannel) -> None:
        """Take an element of a channel, unless it is of a round that has not begun here.

        Another head may have heard the decision before, and rows of that round come round
        to this one.
        """
        is_returned = channel.port == Port.RETURNED and len(channel)
        is_early = is_returned and self._head.phase is not HeadPhase.RETURNING
        if is_early and not channel.is_barrier_next:
            self._early.append(channel)
        else:
            super()._read(channel)

    def _next_batch(self) -> Any | None:
        """Return the next batch of a round or a result; at its end go on."""
        is_replaying = self._head.phase is HeadPhase.REPLAYING
        self.outlet = Outlet.BODY if is_replaying else Outlet.RESULT
        for batch in self._giving:
            if len(batch) > 0:
                return batch
        if is_replaying:
            self._head.replayed()
            self.is_mark_due = True
            self._ready.extendleft(reversed(self._early))
            self._early.clear()
        else:
            self._head.given()
            self.is_mark_due = self._head.is_nested
        return None

    def _take_in(self, rows: Rows, channel: InputChannel) -> None:
        self._current = channel
        if channel.port == Port.INPUT:
            self._held.collect(rows)
        elif channel.port == Port.RETURNED:
            self._held.take_back(rows)
        else:
            self._messages.extend(rows)

    def _hear(self, message: Any) -> None:
        if isinstance(message, EpochPassedOn):
            self._obey(self._aligner.handle(EpochAnnounced(message.barrier)))
            return
        assert isinstance(message, Decision)
        if self._head.decide(message):
            is_over = message.is_over
            held = self._held
            self._giving = held.result(message) if is_over else held.begin(message)

    def _note(self, channel: InputChannel, element: Rows | Mark) -> None:
        if not isinstance(element, RoundEnd):
            super()._note(channel, element)
            return
        self._rounds_ended.add(channel.channel.id)
        if self._inputs and self._inputs <= self._rounds_ended:
            self._rounds_ended -= self._inputs
            if self._head.end_input():
                self._tell_ready(None)
        elif self._returned and self._returned <= self._rounds_ended:
            self._rounds_ended -= self._returned
            self._head.returned()
            self._tell_ready(self._held.part())

    def _end(self, channel: InputChannel) -> None:
        super()._end(channel)
        self._open_inputs.discard(channel.channel.id)
        if self._open_inputs or channel.port != Port.INPUT:
            return
        if self._head.is_nested:
            # The iteration around it is over.
            self._head.phase = HeadPhase.OVER
        elif self._head.end_input():
            self._tell_ready(None)

    def _tell_ready(self, part: Any) -> None:
        self._outbox.append(HeadReady(self._index, self._head.decided, part))

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say in which round something is wrong; rows have no numbers there."""
        if self._head.phase is HeadPhase.COLLECTING:
            return "before the first round"
        return f"in round {self._head.decided}"

    def _keep_log(self, logged: list[tuple[int, Rows, int]]) -> None:
        """Drop what was in flight: only decisions, which are told again."""
        assert all(port == Port.DECISIONS for port, _, _ in logged)

    def _kept(self) -> tuple[bool, int]:
        assert self._head.may_cut, self._head
        return self._head.phase is HeadPhase.WAITING, self._head.decided

    def _put(self, values: list[tuple[bool, int]]) -> None:
        """Go on where one or more former heads were; they all were in the same place."""
        is_waiting = any(waiting for waiting, _ in values)
        self._head.decided = max(decided for _, decided in values)
        self._held.resume(self._head.decided)
        if is_waiting:
            self._head.phase = HeadPhase.WAITING
            self._tell_ready(None)

    def _of_port(self, port: Port) -> set[ChannelId]:
        return {c.channel.id for c in self.channels if c.port == port}


class DeciderIntake(ChannelIntake):
    """Brings heads, results and epochs to the decider."""

    def __init__(self, channels: list[InputChannel]) -> None:
        carrying = {c.channel.id for c in channels if c.channel.edge.carries_rounds}
        super().__init__(channels, rounds=frozenset(carrying))
        self.has_rounds = True
        #: What the decider gets besides; first the news that it begins, or begins again.
        self._outside: deque[Any] = deque([None])

    @property
    def is_round_over(self) -> bool:
        """Whether all results of a round have come."""
        return bool(self._rounds_ended) and self._rounds_ended == self._rounds

    def announce(self, barrier: Barrier) -> None:
        """Let the decider find a place between two rounds."""
        self._outside.append(barrier)

    def take(self, now_ns: int) -> tuple[Rows, int] | None:
        """Return a batch and its input port, or None."""
        if self._outside and self.barrier is None:
            return [self._outside.popleft()], FROM_OUTSIDE
        return super().take(now_ns)

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say when something is wrong; what heads say is no record."""
        return "at the end of a round"
