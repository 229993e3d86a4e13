"""What a task takes from its intake: one element at a time, in the order to react in.

An element says what has come, not what to do about it; that is the business of the task.
Barriers and watermarks are elements as they are.  What is only for the reader of a channel
(hops, splits, the end of one channel of several) is no element: the intake takes note of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from millstream.protocol.barrier import Barrier, Hops, RoundEnd
from millstream.protocol.watermark import Watermark

if TYPE_CHECKING:
    from millstream.values import Batch

__all__ = [
    "END_OF_INPUT",
    "LOOP_SEALED",
    "Element",
    "EndOfInput",
    "LoopSealed",
    "MarkDue",
    "PortEnded",
    "ProbeArrived",
    "RoundOver",
    "TakenBatch",
]


class TakenBatch(NamedTuple):
    """Rows for the operators.

    Attributes
    ----------
    port
        The input of the first operator that they are for.
    outlet
        Where what becomes of them leaves the task; only heads of loops have several.
    """

    rows: Batch
    port: int = 0
    outlet: int = 0


@dataclass(frozen=True, slots=True)
class LoopSealed:
    """The barrier of the last cut has come round every loop."""


@dataclass(frozen=True, slots=True)
class MarkDue:
    """Those who read on in the same loop get this mark before anything else."""

    mark: RoundEnd | Hops
    outlet: int = 0


@dataclass(frozen=True, slots=True)
class RoundOver:
    """All of a round of an iteration has been taken.

    Comes again until the intake is told to begin another one.

    Attributes
    ----------
    ended_ports
        Ports on which nothing more comes, whatever the round.
    """

    ended_ports: frozenset[int]


@dataclass(frozen=True, slots=True)
class ProbeArrived:
    """A probe of a free loop has come on every channel; it goes on behind all rows.

    Comes again as `RoundOver` does.
    """

    mark: RoundEnd


@dataclass(frozen=True, slots=True)
class PortEnded:
    """Nothing more comes on an input of the first operator, in this round or at all."""

    port: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing more comes; said again whenever asked."""


LOOP_SEALED = LoopSealed()
END_OF_INPUT = EndOfInput()

Element = (
    TakenBatch
    | Barrier
    | LoopSealed
    | Watermark
    | MarkDue
    | RoundOver
    | ProbeArrived
    | PortEnded
    | EndOfInput
)
