"""What travels between two processes, before anybody turns it into bytes.

A `Packet` is one unit on the connection of a pair of peers.  Control messages
(`MESSAGE`) stand outside every channel; all other kinds belong to one channel,
whose elements obey the grammar
``(BATCH | BARRIER | WATERMARK | ROUND | HOPS | SPLITS)* END``.  `CREDIT` and `CLOSE`
travel against the channel's direction, from its reader to its writer.

This module does not know how a packet is encoded or sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.protocol.ids import ChannelId, Generation

__all__ = ["ELEMENTS", "Packet", "PacketKind", "senseless"]


class PacketKind(IntEnum):
    """Kind of a packet; the number is its byte on the wire."""

    MESSAGE = 1
    BATCH = 2
    END = 3
    CREDIT = 4
    CLOSE = 5
    BARRIER = 6
    ROUND = 7
    HOPS = 8
    WATERMARK = 9
    SPLITS = 10


ELEMENTS = frozenset(
    {
        PacketKind.BATCH,
        PacketKind.BARRIER,
        PacketKind.ROUND,
        PacketKind.HOPS,
        PacketKind.WATERMARK,
        PacketKind.SPLITS,
        PacketKind.END,
    }
)
"""What travels on a channel, with a number in its sequence."""


@dataclass(slots=True)
class Packet:
    """One unit on the connection between two peers.

    Attributes
    ----------
    body
        A control message, a batch (a list), a `Barrier`, `Watermark`, `RoundEnd`, `Hops` or
        `Splits`, a number of bytes (`CREDIT`) or None.
    cost
        Bytes of credit a batch takes; 0 for every other kind.
    """

    kind: PacketKind
    generation: Generation
    channel: ChannelId
    sequence: int
    body: Any = None
    cost: int = 0


def senseless(packet: Packet) -> str:
    """Begin the sentence on a peer that is given up for a packet of this kind.

    Examples
    --------
    >>> from millstream.protocol.messages import Stop
    >>> senseless(Packet(PacketKind.MESSAGE, 1, 0, 0, Stop("enough")))
    'it sent Stop, which makes no sense'
    """
    is_message = packet.kind is PacketKind.MESSAGE
    name = type(packet.body).__name__ if is_message else packet.kind.name
    return f"it sent {name}, which makes no sense"
