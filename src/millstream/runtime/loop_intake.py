"""What the heads of all loops have in common as intakes of tasks.

They listen to the decider, tell it when they are ready, and find out when nobody reads what
leaves the loop.  Whether there are rounds, and what is held from one to the next, is not
known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.plan.iteration import Outlet, Port
from millstream.protocol.align import EpochAnnounced
from millstream.protocol.rounds import (
    Decision,
    EpochPassedOn,
    Head,
    HeadPhase,
    HeadReady,
    HeadUnread,
    LoopUnread,
)
from millstream.runtime.channel_intake import ChannelIntake
from millstream.runtime.elements import TakenBatch

if TYPE_CHECKING:
    from millstream.protocol.ids import ChannelId
    from millstream.runtime.channels import InputChannel, OutputChannel

__all__ = ["LoopIntake"]


class LoopIntake(ChannelIntake, ABC):
    """The intake of a head.

    Parameters
    ----------
    exits
        The channels on which rows leave the loop at tasks of the same index; None if they
        leave nowhere.  They may be put into the list later.
    """

    def __init__(
        self,
        index: int,
        channels: list[InputChannel],
        exits: list[OutputChannel] | None,
        *,
        is_nested: bool = False,
        is_free: bool = False,
    ) -> None:
        back = {c.channel.id for c in channels if c.channel.edge.is_back}
        super().__init__(channels, back=frozenset(back))
        self._index = index
        self._exits = exits
        self._open_inputs = self._of_port(Port.INPUT)
        self._returned = self._of_port(Port.RETURNED)
        self._head = Head(bool(self._returned), is_nested, is_free)
        self._outbox: deque[HeadReady | HeadUnread] = deque()
        self._messages: deque[Any] = deque()
        self._is_unread = False
        #: Inputs that were closed before their end.
        self._left: deque[InputChannel] = deque()

    @property
    def is_over(self) -> bool:
        """Whether the loop is, and its last cut has been sealed."""
        return self._head.phase is HeadPhase.OVER and not self._back

    @abstractmethod
    def _carry_out(self, decision: Decision) -> None:
        """Do what the decider says, for the first time."""

    def _look_around(self) -> None:
        """Do what is due before anything is taken."""
        if self._head.phase is HeadPhase.OVER and not self._due:
            self._end_loop()
        if self._exits is not None and all(exit_.is_closed for exit_ in self._exits):
            self._exits = None
            self._outbox.append(HeadUnread(self._index))

    def _is_interrupted(self) -> bool:
        """Whether something must be done before the next batch, or there is none."""
        return bool(self._due) or self._head.phase is HeadPhase.OVER

    def _hear(self, message: Any) -> None:
        match message:
            case EpochPassedOn(barrier):
                self._align(EpochAnnounced(barrier))
            case LoopUnread():
                self._is_unread = True
                self._leave_inputs()
            case Decision():
                if self._head.decide(message):
                    self._carry_out(message)

    def validate(self) -> None:
        """Assert what its cores promise."""
        super().validate()
        self._head.validate()

    def _leave_inputs(self) -> None:
        """Read no more input; the ends of the channels are taken one after the other."""
        for channel in self.channels:
            if channel.channel.id in self._open_inputs:
                channel.close()
                self._left.append(channel)

    def _read(self, channel: InputChannel) -> None:
        """Take an element of a channel, unless it was left."""
        if not channel.is_closed:
            super()._read(channel)

    def _end(self, channel: InputChannel) -> None:
        super()._end(channel)
        self._open_inputs.discard(channel.channel.id)
        if channel.port == Port.INPUT and not self._open_inputs:
            self._end_inputs()

    def _end_inputs(self) -> None:
        """Take note that nothing more will come on any input."""
        self._end_input()

    def _end_input(self) -> None:
        """Take note that all input has come, of the loop or of a round around it."""
        if self._head.end_input():
            self._tell_ready(None)

    def _tell_time(self) -> None:
        """Tell nothing: how far time has come in a loop is for the decider to say."""

    def _note_end(self, port: int) -> None:
        """Tell nothing: a head has no operators."""

    def _next_word(self) -> TakenBatch:
        """Return what the decider is told next."""
        return TakenBatch([self._outbox.popleft()], outlet=Outlet.DECIDER)

    def _tell_ready(self, part: Any) -> None:
        self._outbox.append(HeadReady(self._index, self._head.decided, part))

    def _of_port(self, port: Port) -> set[ChannelId]:
        return {c.channel.id for c in self.channels if c.port == port}
