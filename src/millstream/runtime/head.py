"""The intakes of the tasks that run an iteration in rounds: its heads, and its decider.

What they do when is decided in `millstream.protocol.rounds`, what heads hold is in
`millstream.operators.loops.rounds`; here both meet channels, epochs and recoveries.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.operators.loops.deciding import CONTROL_PORT
from millstream.operators.loops.rounds import ReturningRound
from millstream.plan.iteration import Outlet, Port, loop_position_name
from millstream.protocol.barrier import ROUND_END, RoundEnd
from millstream.protocol.rounds import HeadPhase, SidesEnded
from millstream.protocol.watermark import Watermark
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.elements import MarkDue, TakenBatch
from millstream.runtime.loop_intake import LoopIntake
from millstream.state.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.operators.loops.rounds import Round
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.rounds import Decision
    from millstream.runtime.channels import InputChannel, Mark, OutputChannel
    from millstream.runtime.elements import Element
    from millstream.state.base import State
    from millstream.values import Batch

__all__ = ["DeciderIntake", "HeadIntake"]


class HeadIntake(LoopIntake):
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
        exits: list[OutputChannel] | None = None,
        *,
        is_nested: bool,
    ) -> None:
        super().__init__(index, channels, exits, is_nested=is_nested)
        self._name = name
        self._held = held
        self._inputs = self._of_port(Port.INPUT) if is_nested else set()
        self._giving: Iterator[Any] = iter(())
        #: Wake-ups of channels with rows of a round that has not begun here.
        self._early: list[InputChannel] = []
        self._rounds_state = TaskState(self._kept, self._put, is_shared=True)

    def states(self) -> dict[str, State]:
        """Return what it holds, and where it stands."""
        return {
            self._name: self._held.state,
            loop_position_name(self._name, has_rounds=True): self._rounds_state,
        }

    def take(self, now_ns: int) -> Element | None:  # noqa: ARG002 - as sources
        """Return a batch for the body, the decider or what follows, or what is due."""
        self._look_around()
        while not self._is_interrupted():
            if self._outbox:
                return self._next_word()
            if self._head.phase in {HeadPhase.REPLAYING, HeadPhase.GIVING}:
                batch = self._next_batch()
                if batch is not None:
                    return batch
            elif self._messages and not self._is_cut_first():
                self._hear(self._messages.popleft())
            elif self._left:
                self._end(self._left.popleft())
            elif self._delivered:
                rows, channel, _ = self._delivered.popleft()
                self._take_in(rows, channel)
            elif self._ready:
                self._read(self._ready.popleft())
            else:
                break
        return self._next_due()

    def _is_cut_first(self) -> bool:
        """Whether an epoch must be cut before the next decision is heard.

        After a recovery that may come before the input has ended once more; until then an
        epoch in front of it waits.  In a loop inside another one an epoch waits for the end
        of the outer round, and that for decisions.
        """
        aligner = self.aligner
        return aligner.is_cut_due if self._head.is_nested else aligner.is_cut_ahead

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

    def _next_batch(self) -> TakenBatch | None:
        """Return the next batch of a round or a result; at its end go on."""
        is_replaying = self._head.phase is HeadPhase.REPLAYING
        outlet = Outlet.BODY if is_replaying else Outlet.RESULT
        for rows in self._giving:
            if len(rows) > 0:
                return TakenBatch(rows, outlet=outlet)
        if is_replaying:
            self._head.replayed()
            self._ready.extendleft(reversed(self._early))
            self._early.clear()
        else:
            self._head.given()
        if is_replaying or self._head.is_nested:
            self._due.append(MarkDue(ROUND_END, outlet))
        return None

    def _take_in(self, rows: Batch, channel: InputChannel) -> None:
        self._current = channel
        if channel.port == Port.INPUT:
            self._check_collecting()
            self._held.collect(rows)
        elif channel.port == Port.RETURNED:
            self._returning.take_back(rows)
        else:
            self._messages.extend(rows)

    def _check_collecting(self) -> None:
        if self._head.phase is not HeadPhase.COLLECTING:
            msg = (
                f"rows of the input came after round {self._head.decided} had begun; a "
                "source that is added in front of an iteration must be there when the "
                "job begins"
            )
            raise RuntimeError(msg)

    @property
    def _returning(self) -> ReturningRound:
        assert isinstance(self._held, ReturningRound), "nothing comes back in a cycle"
        return self._held

    def _carry_out(self, decision: Decision) -> None:
        give = self._held.result if decision.is_over else self._held.begin
        self._giving = give(decision)

    def _note(self, channel: InputChannel, element: Batch | Mark) -> None:
        if isinstance(element, Watermark):
            # All is there before a round begins, and time is over when the round is.
            return
        if not isinstance(element, RoundEnd):
            super()._note(channel, element)
            return
        self._rounds_ended.add(channel.channel.id)
        if self._inputs and self._inputs <= self._rounds_ended:
            self._rounds_ended -= self._inputs
            self._end_input()
        elif self._returned and self._returned <= self._rounds_ended:
            self._rounds_ended -= self._returned
            self._head.returned()
            self._tell_ready(self._returning.part())

    def _end_inputs(self) -> None:
        if self._head.is_nested:
            # The iteration around it is over.
            self._head.phase = HeadPhase.OVER
        else:
            super()._end_inputs()

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say in which round something is wrong; rows have no numbers there."""
        if self._head.phase is HeadPhase.COLLECTING:
            return "before the first round"
        return f"in round {self._head.decided}"

    def _keep_log(self, logged: list[tuple[int, Batch, int]]) -> None:
        """Drop what was in flight: only decisions, which are told again."""
        assert all(port == Port.DECISIONS for port, _, _ in logged)

    def _kept(self) -> tuple[int, int]:
        head = self._head
        assert head.may_cut, head
        return head.decided, head.begun

    def _put(self, places: list[tuple[int, int]]) -> None:
        """Go on where the former heads were: all of them were in the same place."""
        (place,) = set(places)
        self._head.resume(*place)
        self._held.resume(*place)


class DeciderIntake(ChannelIntake):
    """Brings heads, results, epochs and the end of all sides to the decider."""

    def __init__(self, channels: list[InputChannel]) -> None:
        carrying = {c.channel.id for c in channels if c.channel.edge.carries_rounds}
        super().__init__(channels, rounds=frozenset(carrying))
        self.has_rounds = True
        #: What the decider gets besides; first the news that it begins, or begins again.
        self._outside: deque[Any] = deque([None])
        self._open_sides = {c.channel.id for c in channels if c.port == Port.SIDES}
        if not self._open_sides:
            self._outside.append(SidesEnded())

    @property
    def _is_round_over(self) -> bool:
        """Whether all results of a round have come."""
        return bool(self._rounds_ended) and self._rounds_ended == self._rounds

    def announce(self, barrier: Barrier) -> None:
        """Let the decider find a place between two rounds."""
        self._outside.append(barrier)

    def take(self, now_ns: int) -> Element | None:
        """Return what comes from outside, then what channels bring."""
        if self._outside and not self._due:
            return TakenBatch([self._outside.popleft()], CONTROL_PORT)
        return super().take(now_ns)

    def _end(self, channel: InputChannel) -> None:
        super()._end(channel)
        self._open_sides.discard(channel.channel.id)
        if channel.port == Port.SIDES and not self._open_sides:
            self._delivered.append(([SidesEnded()], channel, 0))

    def position(self, row_index: int | None, row_count: int) -> str:  # noqa: ARG002 - as channels
        """Say when something is wrong; what heads say is no record."""
        return "at the end of a round"
