"""What intakes give, one element after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.protocol.barrier import Barrier
from millstream.protocol.ids import Epoch
from millstream.runtime.elements import EndOfInput, TakenBatch

if TYPE_CHECKING:
    from millstream.runtime.intake import Intake

__all__ = ["barrier", "taken"]


def barrier(epoch: int) -> Barrier:
    return Barrier(Epoch(epoch), Epoch(epoch - 1))


def taken(intake: Intake) -> list[Any]:
    """Take up to a cut, to the end, or all there is; return elements, of batches the rows."""
    found: list[Any] = []
    while (element := intake.take(0)) is not None:
        found.append(element.rows if isinstance(element, TakenBatch) else element)
        if isinstance(element, Barrier | EndOfInput):
            break
    return found
