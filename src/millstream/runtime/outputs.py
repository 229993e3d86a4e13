"""The output channels of one task, taken together.

Which rows go where is the business of routers; here is what concerns all channels: whether
what was put in has left, marks behind it, and the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.iteration import Outlet

if TYPE_CHECKING:
    from millstream.protocol.barrier import Barrier, Hops, RoundEnd
    from millstream.runtime.channels import OutputChannel
    from millstream.runtime.router import Router

__all__ = ["Outputs"]


class Outputs:
    """All channels that a task writes.

    Parameters
    ----------
    routers
        By outlet.
    letters
        Where dead letters go, if they are collected.
    """

    def __init__(self, routers: list[list[Router]], letters: Router | None) -> None:
        self._routers = routers
        #: Those with rows of the operators.
        self.of_rows = _channels(routers[: Outlet.END])
        dead = [] if letters is None else letters.channels
        self.channels = [*_channels(routers), *dead]

    @property
    def are_abandoned(self) -> bool:
        """Whether nobody reads what the task makes.

        The head of a loop reads no more once it is over, perhaps behind a cut whose
        barrier has not come here; the end comes behind that barrier.
        """
        return bool(self.of_rows) and all(
            c.is_closed and not c.channel.edge.is_back for c in self.of_rows
        )

    def flush(self) -> bool:
        """Send what waits for credit; return whether nothing waits any more."""
        is_blocked = False
        for channel in self.channels:
            if channel.is_blocked:
                channel.send_ready()
                is_blocked |= channel.is_blocked
        return not is_blocked

    def drain(self) -> bool:
        """Send everything; return whether it has left."""
        for channel in self.channels:
            channel.flush()
        return self.flush()

    def put_barrier(self, barrier: Barrier) -> None:
        """Send a barrier behind all rows."""
        for channel in self.channels:
            channel.put_mark(barrier)

    def put_mark(self, outlet: int, mark: RoundEnd | Hops) -> None:
        """Send a mark to all who are in the same loop."""
        for channel in _channels([self._routers[outlet]]):
            if channel.channel.edge.carries_rounds:
                channel.put_mark(mark)

    def end(self) -> None:
        """Say that nothing follows."""
        for channel in self.channels:
            channel.end()


def _channels(routers: list[list[Router]]) -> list[OutputChannel]:
    return [c for some in routers for router in some for c in router.channels]
