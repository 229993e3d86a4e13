"""What divides a stream in-band: barriers at cuts, marks of rounds, hops and splits."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError

if TYPE_CHECKING:
    from millstream.protocol.ids import Epoch

__all__ = [
    "FLUSH",
    "ROUND_END",
    "Barrier",
    "Hops",
    "Order",
    "RoundEnd",
    "Splits",
    "barrier_from_wire",
    "splits_from_wire",
]

_FIELD_COUNT = 3


class Order(StrEnum):
    """What a task does at a cut besides passing the barrier on."""

    SNAPSHOT = "snapshot"
    """Capture the state."""

    PAUSE = "pause"
    """Do nothing after the cut until told to resume or deployed anew."""

    ROLL = "roll"
    """Let sinks hold nothing back: the snapshot is to be copied, and stand for itself."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything before it belongs to `epoch`, everything behind it to a later one.

    Attributes
    ----------
    since
        The epoch whose snapshot the deltas of this one build on; 0 for none.
    """

    epoch: Epoch
    since: Epoch
    orders: tuple[Order, ...] = (Order.SNAPSHOT,)

    def to_wire(self) -> tuple[int, int, tuple[str, ...]]:
        """Return it as plain values."""
        assert 0 <= self.since < self.epoch, f"no peer would take {self}"
        return (self.epoch, self.since, tuple(str(order) for order in self.orders))


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """Everything of a round of an iteration is before it; in a free loop, a probe.

    Attributes
    ----------
    asks_flush
        Whether operators of a free loop say what they would flush at its end, before it.
    """

    asks_flush: bool = False


ROUND_END = RoundEnd()
FLUSH = RoundEnd(asks_flush=True)


@dataclass(frozen=True, slots=True)
class Hops:
    """What follows has gone round a free loop this many times."""

    count: int


@dataclass(frozen=True, slots=True)
class Splits:
    """What follows comes from another split of the source, or splits began or ended.

    Attributes
    ----------
    reading
        The split that the next rows come from; empty before the first.
    begun, over
        Those that were opened, and read to their end, since the last mark.
    """

    reading: str
    begun: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    def to_wire(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Return it as plain values."""
        return (self.reading, self.begun, self.over)


def splits_from_wire(wire: object) -> Splits:
    """Rebuild a mark of splits; whatever is not one is the peer's fault."""
    match wire:
        case [str() as reading, [*begun], [*over]]:
            names = [n for n in (*begun, *over) if isinstance(n, str)]
            if len(names) == len(begun) + len(over):
                middle = len(begun)
                return Splits(reading, tuple(names[:middle]), tuple(names[middle:]))
    msg = (
        f"a mark of splits has a name and two lists of names, got {reprlib.repr(wire)}"
    )
    raise RemoteProtocolError(msg)


def barrier_from_wire(wire: object) -> Barrier:
    """Rebuild a barrier; whatever is not one is the peer's fault."""
    if not isinstance(wire, list | tuple) or len(wire) != _FIELD_COUNT:
        msg = f"a barrier has {_FIELD_COUNT} fields, got {reprlib.repr(wire)}"
        raise RemoteProtocolError(msg)
    epoch, since, orders = wire
    is_sane = type(epoch) is int and type(since) is int and 0 <= since < epoch
    if not is_sane or not isinstance(orders, list | tuple):
        msg = f"a barrier has an epoch, an earlier epoch and orders, got {reprlib.repr(wire)}"
        raise RemoteProtocolError(msg)
    try:
        return Barrier(epoch, since, tuple(Order(order) for order in orders))
    except ValueError as error:
        msg = f"a barrier carries an order that this version does not know: {error}"
        raise RemoteProtocolError(msg) from None
