"""Hand packets of other workers to the ends of channels, if they can be meant for them.

A packet of the present generation names a channel.  It counts only if it comes from the
worker at the other end of that channel, and if the channel can carry its kind; all else is
the sender's fault.  What is in a batch is not looked at, and who is told of a fault is not
known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError
from millstream.protocol.packets import ELEMENTS, PacketKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.physical import Channel
    from millstream.plan.stages import Edge
    from millstream.protocol.ids import PeerId
    from millstream.protocol.packets import Packet
    from millstream.runtime.assembly import Assembly

__all__ = ["deliver"]


def deliver(
    made: Assembly, placement: Sequence[PeerId], peer: PeerId, packet: Packet
) -> None:
    """Give a packet to the channel that it is for.

    Raises
    ------
    RemoteProtocolError
        If there is no such channel from or to that peer, or if it cannot carry that.
    """
    if packet.kind in ELEMENTS:
        end = made.inputs.get(packet.channel)
        if end is None or placement[end.channel.source_index] != peer:
            raise _unknown(packet, "writes")
        _check_carried(packet.kind, end.channel)
        end.receive(packet.kind, packet.sequence, packet.body, packet.cost)
        return
    output = made.outputs.get(packet.channel)
    if output is None or placement[output.channel.target_index] != peer:
        raise _unknown(packet, "reads")
    if packet.kind is PacketKind.CREDIT:
        made.carriers[packet.channel].add_credit(packet.body)
    else:
        output.close()


def _unknown(packet: Packet, how: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"there is no channel {packet.channel} that it {how}")


def _check_carried(kind: PacketKind, channel: Channel) -> None:
    if not _carries(channel.edge, kind):
        msg = f"channel {channel.id} carries nothing of this kind"
        raise RemoteProtocolError(msg)


def _carries(edge: Edge, kind: PacketKind) -> bool:
    match kind:
        case PacketKind.ROUND | PacketKind.HOPS:
            return edge.carries_rounds
        case PacketKind.WATERMARK:
            return edge.carries_time
        case PacketKind.SPLITS:
            return edge.carries_splits
    return True
