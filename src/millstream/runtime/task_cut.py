"""What a task hands over at a cut, to be stored in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import SnapshotError

if TYPE_CHECKING:
    from millstream.protocol.barrier import Barrier
    from millstream.protocol.ids import Epoch
    from millstream.protocol.messages import Offset
    from millstream.runtime.seals import Seal
    from millstream.state.base import Capture, State

__all__ = ["TaskCut", "captured"]


@dataclass(frozen=True, slots=True)
class TaskCut:
    """What a task leaves at a cut, or at its end.

    Attributes
    ----------
    captures
        State by name of the operator.
    transactions
        What sinks sealed, encoded, by name of the operator; or what does the rest of the
        sealing and returns that.
    nodes_left
        How many operators, from the first on, ended because nobody read what they made.
    """

    stage: int
    task: int
    epoch: Epoch
    captures: tuple[tuple[str, Capture], ...]
    offsets: tuple[Offset, ...]
    transactions: tuple[Seal, ...]
    pause_ns: int = 0
    nodes_left: int = 0


def captured(name: str, state: State, barrier: Barrier) -> tuple[str, Capture]:
    """Capture a state, and say whose it is if that cannot be."""
    try:
        return name, state.capture(barrier.epoch, barrier.since)
    except SnapshotError as error:
        msg = f"{name!r}: {error}"
        raise SnapshotError(msg) from error
