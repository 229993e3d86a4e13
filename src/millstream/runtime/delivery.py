"""Hand frames of other workers to the ends of channels, if they can be meant for them.

A frame of the present generation names a channel.  It counts only if it comes from the
worker at the other end of that channel, and if the channel can carry its kind; all else is
the sender's fault.  What is in a batch is not looked at, and who is told of a fault is not
known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import RemoteProtocolError
from millstream.protocol.frames import ELEMENTS, FrameKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.physical import Channel
    from millstream.plan.stages import Edge
    from millstream.protocol.frames import Frame
    from millstream.protocol.ids import PeerId
    from millstream.runtime.assembly import Assembly

__all__ = ["deliver"]


def deliver(
    made: Assembly, placement: Sequence[PeerId], peer: PeerId, frame: Frame
) -> None:
    """Give a frame to the channel that it is for.

    Raises
    ------
    RemoteProtocolError
        If there is no such channel from or to that peer, or if it cannot carry that.
    """
    if frame.kind in ELEMENTS:
        end = made.inputs.get(frame.channel)
        if end is None or placement[end.channel.source_index] != peer:
            raise _unknown(frame, "writes")
        _check_carried(frame.kind, end.channel)
        end.receive(frame.kind, frame.sequence, frame.body, frame.cost)
        return
    output = made.outputs.get(frame.channel)
    if output is None or placement[output.channel.target_index] != peer:
        raise _unknown(frame, "reads")
    if frame.kind is FrameKind.CREDIT:
        made.carriers[frame.channel].add_credit(frame.body)
    else:
        output.close()


def _unknown(frame: Frame, how: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"there is no channel {frame.channel} that it {how}")


def _check_carried(kind: FrameKind, channel: Channel) -> None:
    if not _carries(channel.edge, kind):
        msg = f"channel {channel.id} carries nothing of this kind"
        raise RemoteProtocolError(msg)


def _carries(edge: Edge, kind: FrameKind) -> bool:
    match kind:
        case FrameKind.ROUND | FrameKind.HOPS:
            return edge.carries_rounds
        case FrameKind.WATERMARK:
            return edge.carries_time
        case FrameKind.SPLITS:
            return edge.carries_splits
    return True
